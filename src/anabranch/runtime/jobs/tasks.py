"""Tasks: what a job is to the performer that does it, in the engine and on every worker.

There are two steps. `describe_job` reads everything about a job from its run; `build_task` makes
the task from that description and renders its inputs. The engine takes both steps in its own
process; for a worker the description travels between them (`runtime.jobs.wire`). What a task is
told is therefore added in one place, and reaches both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from anabranch.expressions.budget import (
    TurnBudget,
    share_budget,
    shared_budget,
    unshare_budget,
)
from anabranch.kernel.fans import slot_value
from anabranch.kernel.idempotency import idempotency_key, key_of
from anabranch.kernel.jobs import JUDGE_SLOT, PLAIN_SLOT, work_of
from anabranch.kernel.routing import names_of_run
from anabranch.kernel.state import Job, State
from anabranch.kernel.tracker import Shard, Tracker, loop_name
from anabranch.kernel.values import Answer
from anabranch.net.net import Work
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.values.loading import READ_BYTES_MAX, Fetch, Loader, charge_read
from anabranch.runtime.values.payloads import Resolved, resolved
from anabranch.runtime.values.sealing import Sealed
from anabranch.work.port import Task
from anabranch.work.tracing import traceparent
from anabranch.work.values.payloads import hash_of, holds_ref, is_ref

#: Names whose values need not be mappings: they are resolved before anything looks at them.
_ANY_VALUE = ("slot", "answer")


class JobDescription(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What the run knows of one job, as its performer is to be told it."""

    run: str
    step: str
    job: str
    attempt: int
    key: str  # the idempotency key: the same for every attempt
    kind: str
    timeout_seconds: float | None = None
    inputs: dict[str, Any] | None = None  # rendered; without it `build_task` does that
    args: Any = None
    payload: Any = None
    slot: Any = None
    has_slot: bool = False
    loop: str = ""
    item_keys: str = ""  # with which the keys of its items begin, where that is not the loop
    source: Any = None
    shard: Shard | None = None
    again: str = ""
    memory: Any = None
    heard: Answer | None = None
    progress: Any = None  # how far the execution that was lost said to be
    trace: str = ""  # the span of this execution, where runs are traced
    tries: int = 1
    postponed: int = 0
    postponed_ms: int = 0
    sealed_keys: tuple[str, ...] = ()  # the keys of the input that hold the mark of a secret


def describe_job(live: LiveRun, job: Job, work: Work, *, traces: bool = False) -> JobDescription:
    """Everything that the run knows of this job. Nothing is rendered or resolved yet."""
    state = live.state
    token = state.tokens[job.token]
    tracker = state.loops[token.loop] if token.loop else None
    shard = tracker.in_flight.get(job.id) if tracker is not None else None
    # CPython passes up to 15 keywords without a dictionary: most jobs are told no more than that.
    plain = JobDescription(
        run=state.run,
        step=job.step,
        job=job.id,
        attempt=job.attempt,
        key=idempotency_key(state.run, job.id),
        kind=work.kind,
        timeout_seconds=work.timeout_ms / 1000 if work.timeout_ms is not None else None,
        inputs=_loop_inputs(tracker, shard) if tracker is not None else None,
        args=token.args,
        payload=token.payload,
        loop=loop_name(state.run, tracker.id) if tracker is not None else "",
        source=tracker.source if tracker is not None else None,
        shard=shard,
        trace=traceparent(state.run, job.id, job.attempt, state.trace) if traces else "",
        sealed_keys=state.sealed,
    )
    if state.keyed:
        plain = _with_keys(state, plain, token.loop)
    if job.slot == PLAIN_SLOT and job.attempt == 1 and job.progress is None:
        return plain  # its first execution
    more = _earlier_executions(job, shard)
    if tracker is None and job.slot >= 0:
        more |= {"slot": slot_value(state.gathers[job.gather], job.slot), "has_slot": True}
    return msgspec.structs.replace(plain, **more) if more else plain


def _with_keys(state: State, job: JobDescription, loop: str) -> JobDescription:
    """In a redriven run."""
    item_keys = key_of(state, loop) if loop else ""
    return msgspec.structs.replace(job, key=key_of(state, job.job), item_keys=item_keys)


def _earlier_executions(job: Job, shard: Shard | None) -> dict[str, Any]:
    """What executions before this one left: failures, what the job waited for, how far it came."""
    failures = job.failures + (shard.tries if shard is not None else 0)
    if not failures and job.attempt == 1 and job.progress is None:
        return {}
    return {
        "tries": job.failures + 1,
        "again": f".r{failures}" if failures else "",  # items that go out again have a new job
        "memory": job.memory,
        "heard": job.heard,
        "progress": job.progress,
        "postponed": job.postponed,
        "postponed_ms": job.postponed_ms,
    }


def _loop_inputs(tracker: Tracker, shard: Shard | None) -> dict[str, Any]:
    """Of a shard, or of the reading ahead in the collection. Templates are rendered per item."""
    if shard is not None:
        return {"at_once": tracker.window}
    return {
        "cursor": tracker.cursor,
        "first": tracker.next_index,
        "count": tracker.shard_size,
        "shards": max(1, 2 * tracker.window - len(tracker.ready)),
    }


def task_of(
    live: LiveRun,
    job_id: str,
    fetch: Fetch,
    keyring: Mapping[str, Any] | None = None,
    *,
    traces: bool = False,
) -> Task:
    """The task of a job that the engine does itself, rendered from the run as it stands now."""
    return prepare_task(live, job_id, traces=traces)(fetch, keyring)


def prepare_task(
    live: LiveRun,
    job_id: str,
    *,
    traces: bool = False,
    apart: bool = False,
    bytes_max: int = READ_BYTES_MAX,
) -> Callable[..., Task]:
    """What builds the task from the run as it stands now: `apart` also in another thread, while the
    run goes on. Its inputs may read so many bytes of large values."""
    state = live.state
    job = state.jobs[job_id]
    work = work_of(live.net.steps[job.step], job)
    names = names_of_run(state)
    if apart:  # what the run writes to meanwhile
        names = {name: dict(of) if type(of) is dict else of for name, of in names.items()}
    if job.slot == JUDGE_SLOT:
        names["answer"] = _answer_of(state, job)
    described = describe_job(live, job, work, traces=traces)
    return partial(
        build_task,
        described,
        work,
        names,
        sealed=live.sealed,
        holds_refs=live.holds_refs,
        bytes_max=bytes_max,
    )


def _answer_of(state: State, job: Job) -> Any:
    """What the job is to judge."""
    answer = state.tokens[job.token].answer
    return answer.result if answer is not None else None


def build_task(
    job: JobDescription,
    work: Work,
    shared: Mapping[str, Any],
    fetch: Fetch,
    keyring: Mapping[str, Any] | None = None,
    *,
    sealed: Sealed,
    holds_refs: bool = True,
    bytes_max: int = READ_BYTES_MAX,
) -> Task:
    """The job as its performer sees it: large values are resolved, secrets are in their places.

    `shared` are the names that everything in the run can see. Raises `ExpressionError` where the
    inputs cannot be rendered.
    """
    names = names_of_job(job, shared)
    if holds_refs:
        names = whole_names(names, fetch, bytes_max)
    if keyring is not None:
        names["keychain"] = keyring
    if job.sealed_keys or sealed.values:
        sealed.lay_over(names, names["workload"], job.sealed_keys)
    task = Task(
        run=job.run,
        step=job.step,
        job=job.job,
        attempt=job.attempt,
        tries=job.tries,
        key=job.key,
        kind=job.kind,
        inputs=job.inputs if job.inputs is not None else rendered_inputs(work, names),
        names=names,
        program=work.program,
        loop=job.loop,
        source=job.source,
        shard=job.shard,
        timeout_seconds=job.timeout_seconds,
        trace=job.trace,
    )
    if job.item_keys:
        task = msgspec.structs.replace(task, item_keys=job.item_keys)
    if job.attempt == 1 and not job.again and job.progress is None:
        return task
    return _after_earlier_executions(task, job, fetch, bytes_max)


def _after_earlier_executions(
    task: Task, job: JobDescription, fetch: Fetch, bytes_max: int
) -> Task:
    memory, heard, load = job.memory, job.heard, Loader(fetch, bytes_max)
    if memory is not None and is_ref(memory):
        memory = resolved(memory, load)
    if heard is not None and holds_ref(heard.result):
        heard = msgspec.structs.replace(heard, result=resolved(heard.result, load))
    return msgspec.structs.replace(
        task,
        postponed=job.postponed,
        postponed_ms=job.postponed_ms,
        again=job.again,
        memory=memory,
        heard=heard,
        progress=_checkpoint(job.progress, fetch) if job.progress is not None else None,
    )


def names_of_job(job: JobDescription, shared: Mapping[str, Any]) -> dict[str, Any]:
    names = {**shared, "run": job.run}
    names["args"] = job.args or {}
    names["payload"] = job.payload or {}
    if job.has_slot:
        names["slot"] = job.slot
    return names


def whole_names(
    names: Mapping[str, Any], fetch: Fetch, bytes_max: int = READ_BYTES_MAX
) -> dict[str, Any]:
    """Work sees whole values where the log has their stand-ins."""
    load = Loader(fetch, bytes_max)
    return {
        name: (
            resolved(value, load)
            if name in _ANY_VALUE
            else Resolved(value, load)
            if isinstance(value, Mapping) and holds_ref(value)
            else value
        )
        for name, value in names.items()
    }


def rendered_inputs(work: Work, names: Mapping[str, Any]) -> Mapping[str, Any]:
    """All templates of one job share a budget, as those of a turn do: that of the caller, or one of
    their own."""
    if work.inputs is None:
        return {}
    shared = share_budget(shared_budget() or TurnBudget())
    try:
        inputs = work.inputs.evaluate(names)
    finally:
        unshare_budget(shared)
    return inputs if type(inputs) is dict or isinstance(inputs, Mapping) else {"value": inputs}


def checkpoint_hash(progress: Any) -> str:
    """The payload that holds the checkpoint, where it was too large to be told."""
    sha256 = progress.get("payload") if isinstance(progress, Mapping) else None
    return sha256 if isinstance(sha256, str) else ""


def _checkpoint(progress: Any, fetch: Fetch) -> Any:
    """What the execution that was lost had told, with its checkpoint."""
    sha256 = checkpoint_hash(progress)
    if not sha256:
        return progress
    content = fetch(sha256)
    if content is None:
        return None
    charge_read(len(content))
    if hash_of(content) != sha256:
        return None
    return {"checkpoint": msgspec.json.decode(content)}

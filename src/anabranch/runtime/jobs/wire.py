"""Parcels: a job on its way to a worker elsewhere.

A program is not serialised. The worker gets the fingerprint of the definition, asks for its source
once and compiles it: same source, same net, whatever a program holds. What travels is what the
source cannot tell: the values that templates see, the shard, where parked work stood. Values that
several jobs of one claim share (the input, the context, the results of the run) travel once.

Large values travel as the refs they are in the log; the worker fetches them by their hash. Items
of a collection that only this machine may be able to read (files, queries) travel with their shard.
Sealed input of a session stays with the engine, secrets of a keychain are resolved by the worker,
and those that a parent put into the arguments of its child travel with the job that may read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.fans import slot_value
from anabranch.kernel.jobs import DEFAULT_WORK, idempotency_key, kind_of_job, pool_of_job
from anabranch.kernel.routing import names_for
from anabranch.kernel.tracker import Shard, loop_name
from anabranch.kernel.values import Answer
from anabranch.net.net import Net, Work
from anabranch.net.reads import reads_keychain
from anabranch.runtime.jobs.executor import tries_of
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.values.payloads import Resolved, holds_ref, loader, resolve, resolved
from anabranch.runtime.values.sealing import Unsealed, unsealed
from anabranch.work.loops.collections.port import KIND
from anabranch.work.port import Task
from anabranch.work.values.payloads import PLACE, REF, is_ref

#: Names that are the same for all jobs of a run at one instant.
SHARED = ("workload", "ctx", "results", "labels")
#: Collections that a worker reads by itself wherever it is; the items of others travel.
ANYWHERE = ("list", "range")
INPUT_BYTES_MAX = 256 * 1024  # larger ones are rendered by the worker

_NO_KEYS: Mapping[str, Any] = {}

Fetch = Callable[[str], bytes | None]
Item = tuple[int, str, Any]  # index, key, value


class ClaimedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job under a lease, as it travels."""

    run: str
    step: str
    job: str
    attempt: int
    pool: str
    definition: str  # the fingerprint
    key: str  # the idempotency key: the same for every attempt
    kind: str
    lease_until: int
    lease_seconds: float
    timeout_seconds: float | None = None
    inputs: dict[str, Any] | None = None  # rendered; without it the worker does that
    args: Any = None
    payload: Any = None
    slot: Any = None
    has_slot: bool = False
    loop: str = ""
    source: Any = None
    shard: Shard | None = None
    items: list[Item] | None = None  # of the shard, where the worker could not read them
    again: str = ""
    memory: Any = None
    heard: Answer | None = None
    progress: Any = None  # how far whoever lost it said to be
    trace: str = ""  # the span of this execution, where runs are traced
    sealed: dict[str, Any] = {}  # the secrets for which marks stand in the input of the run

    @property
    def id(self) -> tuple[str, str, int]:
        return self.run, self.job, self.attempt


def shared_names(live: LiveRun) -> dict[str, Any]:
    state = live.state
    return {
        "workload": state.workload,
        "ctx": state.ctx,
        "results": state.results,
        "labels": state.labels,
    }


def to_wire(live: LiveRun, job_id: str, lease_seconds: float, fetch: Fetch) -> ClaimedJob:
    """The job for its worker; raises `ExpressionError` where its inputs cannot be rendered."""
    state = live.state
    job = state.jobs[job_id]
    token = state.tokens[job.token]
    step = live.net.steps[job.step]
    work = step.work or DEFAULT_WORK
    tracker = state.loops.get(token.loop) if token.loop else None
    shard = tracker.in_flight.get(job.id) if tracker is not None else None
    names = names_for(state, token)
    in_fan = tracker is None and job.slot >= 0
    if in_fan:
        names["slot"] = slot_value(state.gathers[job.gather], job.slot)
    return ClaimedJob(
        run=state.run,
        step=job.step,
        job=job.id,
        attempt=job.attempt,
        pool=pool_of_job(step, job),
        definition=state.definition,
        key=idempotency_key(state.run, job.id),
        kind=kind_of_job(step, job),
        lease_until=job.lease,
        lease_seconds=lease_seconds,
        timeout_seconds=work.timeout_ms / 1000 if work.timeout_ms is not None else None,
        inputs=_rendered(live, work, names, fetch),
        args=token.args,
        payload=token.payload,
        slot=names.get("slot"),
        has_slot=in_fan,
        loop=loop_name(state.run, tracker.id) if tracker is not None else "",
        source=tracker.source if tracker is not None and travels(tracker.source) else None,
        shard=shard,
        again=tries_of(job, shard),
        memory=job.memory,
        heard=job.heard,
        progress=job.progress,
        sealed=dict(live.sealed.marks) if state.sealed else {},
    )


def travels(source: Any) -> bool:
    """Whether a worker can read this collection wherever it is."""
    kind = source.get(KIND) if isinstance(source, Mapping) else "list"
    return kind in ANYWHERE


def _rendered(
    live: LiveRun, work: Work, names: dict[str, Any], fetch: Fetch
) -> dict[str, Any] | None:
    """The inputs as JSON, for workers that do not compile definitions; secrets are not here."""
    secret = bool(live.net.keychain or live.state.sealed)
    if live.net.asks_credentials and not secret:
        secret = reads_keychain(work.inputs)
    if work.inputs is None or secret:
        return None if secret else {}
    inputs = work.inputs.evaluate(whole_names(names, fetch) if live.holds_refs else names)
    whole = inputs if isinstance(inputs, Mapping) else {"value": inputs}
    try:
        encoded = msgspec.json.encode(whole)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return None if len(encoded) > INPUT_BYTES_MAX else dict(whole)


def whole_names(names: Mapping[str, Any], fetch: Fetch) -> dict[str, Any]:
    """Work sees whole values where the log has their stand-ins."""
    load = loader(fetch)
    return {
        name: (
            resolved(value, load)
            if name == "slot"
            else Resolved(value, load)
            if isinstance(value, Mapping) and holds_ref(value)
            else value
        )
        for name, value in names.items()
    }


# -- on the worker ---------------------------------------------------------------------------


def refs_in(value: Any) -> Iterator[str]:
    """The hashes of the payloads that stand-ins in it stand for."""
    if isinstance(value, Mapping):
        if REF in value and is_ref(value):
            yield str(value[REF]["ref"]).removeprefix(PLACE)
            return
        for each in value.values():
            yield from refs_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from refs_in(each)


def refs_of(leased: ClaimedJob, shared: Mapping[str, Any]) -> set[str]:
    """What has to be fetched before the work can begin."""
    heard = leased.heard.result if leased.heard is not None else None
    values = [leased.args, leased.payload, leased.slot, leased.memory, heard, shared]
    return set(refs_in(values))


def from_wire(
    leased: ClaimedJob,
    shared: Mapping[str, Any],
    net: Net,
    fetch: Fetch,
    keyring: Mapping[str, Any] | None = None,
) -> Task:
    """The job as its performer sees it, with inputs rendered here unless they came along."""
    step = net.steps.get(leased.step)
    if step is None:
        raise InputError(f"the definition {leased.definition} has no step {leased.step!r}")
    work = step.work or DEFAULT_WORK
    names: dict[str, Any] = {
        "run": leased.run,
        **{name: shared.get(name, {}) for name in SHARED},
        "args": leased.args if leased.args is not None else {},
        "payload": leased.payload if leased.payload is not None else {},
    }
    if leased.has_slot:
        names["slot"] = leased.slot
    names = whole_names(names, fetch)
    if leased.sealed:
        names["workload"] = Unsealed(names["workload"], leased.sealed)
        names["payload"] = unsealed(names["payload"], leased.sealed)
    if keyring is not None:
        names["keychain"] = keyring
    heard = leased.heard
    if heard is not None and holds_ref(heard.result):
        heard = msgspec.structs.replace(heard, result=resolve(heard.result, fetch))
    return Task(
        run=leased.run,
        step=leased.step,
        job=leased.job,
        attempt=leased.attempt,
        key=leased.key,
        kind=leased.kind,
        inputs=_inputs(leased, work, names),
        names=names,
        program=work.program,
        loop=leased.loop,
        source=leased.source if leased.items is None else SentItems(leased.items),
        shard=leased.shard,
        timeout_seconds=leased.timeout_seconds,
        again=leased.again,
        memory=resolve(leased.memory, fetch) if is_ref(leased.memory) else leased.memory,
        heard=heard,
        progress=leased.progress,
        trace=leased.trace,
    )


def _inputs(leased: ClaimedJob, work: Work, names: Mapping[str, Any]) -> Mapping[str, Any]:
    if leased.inputs is not None:
        return leased.inputs
    if work.inputs is None or leased.shard is not None:
        return {}
    inputs = work.inputs.evaluate(names)
    return inputs if isinstance(inputs, Mapping) else {"value": inputs}


class SentItems(msgspec.Struct, frozen=True):
    """The items of a shard that came along, in the place of their collection."""

    items: Sequence[Item]


class ItemReader(Protocol):
    async def items(
        self, source: Any, shard: Shard, /, *, keyring: Mapping[str, Any] = ...
    ) -> Sequence[Item]: ...


class SentOrReadItems:
    """Finds the items of a shard: those that came along, or else in the collection."""

    def __init__(self, reader: ItemReader) -> None:
        self._reader = reader

    async def items(
        self, source: Any, shard: Shard, /, *, keyring: Mapping[str, Any] = _NO_KEYS
    ) -> Sequence[Item]:
        if isinstance(source, SentItems):
            return source.items
        return await self._reader.items(source, shard, keyring=keyring)

"""The crew: carries out jobs and brings their answers back.

Each execution is an asyncio task (or done in place, for work that never waits). Being told to stop
cancels the task; the crew says "discharged" only when it has really ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.kernel import stimuli as s
from anabranch.kernel.fans import slot_value
from anabranch.kernel.jobs import DEFAULT_WORK, fan_id, idempotency_key
from anabranch.kernel.routing import names_for
from anabranch.kernel.values import Answer, failed
from anabranch.runtime.core import LiveRun
from anabranch.runtime.effects import Execute, Stop
from anabranch.runtime.payloads import Resolved, is_ref
from anabranch.work.port import Parked, Performer, Task

Offer = Callable[[str, s.Stimulus], None]


class Crew:
    def __init__(
        self,
        performers: Mapping[str, Performer],
        offer: Offer,
        fetch: Callable[[str], bytes | None],
    ) -> None:
        self._performers = performers
        self._offer = offer
        self._fetch = fetch
        self._in_place = {
            kind: perform_now
            for kind, performer in performers.items()
            if (perform_now := getattr(performer, "perform_now", None)) is not None
        }
        self._tasks: dict[tuple[str, str, int], asyncio.Task[None]] = {}
        self._told: dict[tuple[str, str, int], Stop] = {}

    @property
    def at_work(self) -> int:
        return len(self._tasks)

    def execute(self, live: LiveRun | None, effect: Execute) -> None:
        if live is None or effect.job not in live.state.jobs:
            return  # over before it began: a kill in the very next turn
        try:
            task = build_task(live, effect.job, self._fetch)
        except AnabranchError as error:
            answer = failed("expression", str(error), retryable=False)
            self._offer(effect.run, s.JobReport(effect.job, effect.attempt, answer))
            return
        performer = self._performers.get(task.kind)
        if performer is None:
            answer = failed("config", f"there is no work of kind {task.kind!r}", retryable=False)
            self._offer(effect.run, s.JobReport(effect.job, effect.attempt, answer))
        elif task.kind in self._in_place:
            self._deliver(effect, _guarded(self._in_place[task.kind], task))
        else:
            self._send_out(effect, performer, task)

    def _send_out(self, effect: Execute, performer: Performer, task: Task) -> None:
        key = (effect.run, effect.job, effect.attempt)
        running = asyncio.get_running_loop().create_task(self._carry_out(effect, performer, task))
        self._tasks[key] = running

    async def _carry_out(self, effect: Execute, performer: Performer, task: Task) -> None:
        key = (effect.run, effect.job, effect.attempt)
        try:
            answer = await performer.perform(task)
        except asyncio.CancelledError:
            told = self._told.get(key)
            if told is None:  # nobody asked for it: the engine stops and hands the job back
                self._offer(effect.run, s.JobLose(effect.job, effect.attempt, "the engine stopped"))
            elif told.discharge:
                self._offer(effect.run, s.JobDischarge(effect.job))
        except Exception as defect:
            message = f"the {task.kind} performer failed: {defect!r}"
            self._deliver(effect, failed("defect", message, retryable=False))
        else:
            self._deliver(effect, answer)
        finally:
            self._tasks.pop(key, None)
            self._told.pop(key, None)

    def _deliver(self, effect: Execute, answer: Answer | Parked) -> None:
        if isinstance(answer, Parked):
            parked = s.JobPark(effect.job, effect.attempt, answer.ticket, answer.until)
            self._offer(effect.run, parked)
        else:
            self._offer(effect.run, s.JobReport(effect.job, effect.attempt, answer))

    def stop(self, effect: Stop) -> None:
        key = (effect.run, effect.job, effect.attempt)
        task = self._tasks.get(key)
        if task is not None:
            self._told[key] = effect
            task.cancel()
        elif effect.discharge:  # it was done in place, or its answer is already on the way
            self._offer(effect.run, s.JobDischarge(effect.job))

    async def finish(self, grace_seconds: float) -> None:
        """Wait for what runs; hand back what takes longer than the grace."""
        if self._tasks and grace_seconds > 0:
            await asyncio.wait(list(self._tasks.values()), timeout=grace_seconds)
        left = list(self._tasks.values())
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


def _guarded(perform_now: Callable[[Task], Answer], task: Task) -> Answer:
    try:
        return perform_now(task)
    except Exception as defect:
        message = f"the {task.kind} performer failed: {defect!r}"
        return failed("defect", message, retryable=False)


def build_task(live: LiveRun, job_id: str, fetch: Callable[[str], bytes | None]) -> Task:
    """The job as its performer sees it, with inputs rendered from the run as it stands now."""
    state = live.state
    job = state.jobs[job_id]
    token = state.tokens[job.token]
    work = live.net.steps[job.step].work or DEFAULT_WORK
    names: dict[str, Any] = names_for(state, token)
    if any(is_ref(result) for result in state.results.values()):
        names["results"] = Resolved(state.results, fetch)
    if job.slot >= 0:
        names["slot"] = slot_value(state.gathers[fan_id(token.id)], job.slot)
    inputs = work.inputs.evaluate(names) if work.inputs is not None else {}
    return Task(
        run=state.run,
        step=job.step,
        job=job.id,
        attempt=job.attempt,
        key=idempotency_key(state.run, job.id),
        kind=work.kind,
        inputs=inputs if isinstance(inputs, Mapping) else {"value": inputs},
        names=names,
        program=work.program,
        timeout_seconds=work.timeout_ms / 1000 if work.timeout_ms is not None else None,
    )

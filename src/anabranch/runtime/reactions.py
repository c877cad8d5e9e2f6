"""What events call for: jobs to queue, to start and to stop, payloads to hold, relatives to tell.

Nothing here leaves at once. Effects are gathered for the batch of the turn and go out when it is
durable; what is said to other runs is stepped in the same turn.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.jobs import pool_of_job, work_of
from anabranch.kernel.state import Job, State
from anabranch.runtime.child_runs import ChildRuns
from anabranch.runtime.effects import Effect, Execute, LeavePlaces, SeekPlaces, Stop
from anabranch.runtime.jobs.concurrency import JobQueues
from anabranch.runtime.jobs.dispatchers import is_dispatcher
from anabranch.runtime.jobs.pool_queues import Lease, PoolQueues
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.messages.wakeups import wake_ups
from anabranch.runtime.metrics.engine_metrics import EngineMetrics
from anabranch.runtime.values.payload_refs import PayloadRefs
from anabranch.runtime.values.read_rights import before
from anabranch.store.admission_ports import Admission
from anabranch.work.loops.collections.port import KIND

log = logging.getLogger("anabranch.engine")

ENGINE = "engine"  # the worker that this engine is itself
_TOKEN = "token "  # so begins what a token is called, where it writes to the context
_TIME_IS_UP = "its parent's time is up"


class Reactions:
    def __init__(
        self,
        job_queues: JobQueues,
        pools: PoolQueues,
        engine_metrics: EngineMetrics,
        holds: PayloadRefs,
        family: ChildRuns,
    ) -> None:
        self.effects: list[Effect] = []
        self.has_crew = True  # without one, whatever a stored run believes to be at work is lost
        self._job_queues = job_queues
        self._pools = pools
        self._engine_metrics = engine_metrics
        self._holds = holds
        self._family = family

    def follow(self, live: LiveRun, events: Sequence[e.Event]) -> None:
        for event in events:
            follow_up = _FOLLOW_UPS.get(type(event))
            if follow_up is not None:
                follow_up(self, live, event)

    # -- jobs that wait and begin ------------------------------------------------------------

    def scheduled(
        self,
        live: LiveRun,
        event: e.JobScheduled | e.ShardScheduled | e.LoopCutting | e.JobContinued,
    ) -> None:
        job = live.state.jobs.get(event.job)
        if job is not None and job.phase == "scheduled":
            self._queue(live, job)

    def queue_scheduled(self, live: LiveRun) -> None:
        for job in live.state.jobs.values():
            if job.phase == "scheduled":
                self._queue(live, job)

    def _queue(self, live: LiveRun, job: Job) -> None:
        step = live.net.steps[job.step]
        state, work = live.state, work_of(step, job)
        if work.pool and self._pools.outside(pool := pool_of_job(step, job)):
            self._pools.add(state.run, job.id, job.attempt, pool, job.since, state.priority)
        else:
            self._job_queues.add(state.run, job.id, job.attempt, work.kind, state.priority)

    def started(self, live: LiveRun, event: e.JobStarted) -> None:
        self._engine_metrics.began(live, event)
        if event.worker == ENGINE:
            self.effects.append(Execute(live.state.run, event.job, event.attempt))
        else:
            self.lent(live, event)

    def lent(self, live: LiveRun, event: e.JobStarted | e.JobExtended) -> None:
        job = live.state.jobs.get(event.job)
        if job is not None and job.lease:
            self.lend(live, job)

    def lend(self, live: LiveRun, job: Job) -> None:
        """A worker elsewhere has the job, until its lease runs out."""
        pool = pool_of_job(live.net.steps[job.step], job)
        self._pools.lend(live.state.run, job.id, Lease(pool, job.worker, job.lease))

    def resumed(self, live: LiveRun, _event: e.RunResumed) -> None:
        self.queue_scheduled(live)

    # -- jobs that end, or are to end --------------------------------------------------------

    def over(self, live: LiveRun, event: Any) -> None:
        self._job_queues.free(live.state.run, event.job)
        self._pools.drop(live.state.run, event.job)
        self._engine_metrics.ended(live, event)

    def discharged(self, live: LiveRun, event: e.JobDischarged) -> None:
        self.over(live, event)
        if event.how == "abandoned":
            run = live.state.run
            log.warning("run %s: %s; the run no longer waits for it", run, event.reason)
            self.effects.append(Stop(run, event.job, 0, discharge=False, abandoned=True))

    def cancelling(self, live: LiveRun, event: e.JobCancelling) -> None:
        job = live.state.jobs.get(event.job)
        waits = job is not None  # a parked job is told to stop and not waited for
        outside = job is not None and self._is_outside(job)
        run = live.state.run
        stop = Stop(run, event.job, event.attempt, event.ticket, discharge=waits, outside=outside)
        self.effects.append(stop)
        if event.ticket:
            self._family.cancel_child(run, event.job, event.ticket, event.reason)

    def doomed(self, live: LiveRun, event: e.TokenDoomed) -> None:
        """Work that may come to its end does so elsewhere, or nobody is there to do it."""
        job = live.state.jobs.get(f"{event.token}.0")
        running = job is not None and job.phase == "running"
        if not self.has_crew and job is not None and running and not self._is_outside(job):
            lost = s.JobLose(job.id, job.attempt, "its engine is gone", counted=False)
            self._family.say(live.state.run, lost)

    def _is_outside(self, job: Job) -> bool:
        """Whether a worker elsewhere has it. A dispatcher lives in an engine that starts work; this
        one does not, so it is gone."""
        return job.lease > 0 and (self.has_crew or not is_dispatcher(job.worker))

    def timed_out(self, live: LiveRun, event: e.JobTimedOut) -> None:
        self.over(live, event)
        self.effects.append(Stop(live.state.run, event.job, event.attempt, discharge=False))
        if event.ticket:
            self._family.cancel_child(live.state.run, event.job, event.ticket, _TIME_IS_UP)

    def reported(self, live: LiveRun, event: e.JobReported) -> None:
        self.over(live, event)
        if event.answer.result is not None:
            self._note_refs(live, event.answer.result)
        if event.answer.wakes:  # whoever is woken records it in the batch that holds this answer
            for run, wake in wake_ups(live.state, live.fresh, event):
                self._family.wake(run, wake)

    def parked(self, live: LiveRun, event: e.JobParked) -> None:
        self.over(live, event)
        self._family.ask_child(live.state.run, event.job, event.attempt, event.ticket)

    def continued(self, live: LiveRun, event: e.JobContinued) -> None:
        self._note_refs(live, event.answer.result)
        if event.ticket:
            self._family.cancel_child(live.state.run, event.job, event.ticket, _TIME_IS_UP)
        self.scheduled(live, event)

    def queued(self, live: LiveRun, _event: e.RunQueued) -> None:
        self.effects.append(SeekPlaces(live.state.run, admissions_of(live.state)))

    def finished(self, live: LiveRun, _event: e.RunFinished) -> None:
        if live.state.limits:
            keys = [one.key for one in live.state.limits]
            self.effects.append(LeavePlaces(live.state.run, keys))
        if live.holds_refs or live.state.looped:  # the items of a loop may have stored some
            self._holds.end(live.state.run, live.state.finished_at)
        if live.state.parent is not None:
            self._family.tell_parent(live.state)

    # -- values that stand for larger ones ---------------------------------------------------

    def _note_refs(self, live: LiveRun, value: Any) -> None:
        """The run needs what this value stands for; whoever builds its tasks looks for it."""
        if self._holds.found(live, value):
            live.holds_refs = True

    def cut(self, live: LiveRun, event: e.LoopCut) -> None:
        if event.source is not None and not _counts(event.source):
            live.holds_refs = True  # the items of a long list are payloads

    def signalled(self, live: LiveRun, event: e.SignalReceived) -> None:
        """A payload that is large, or that the sender named, belongs to the run."""
        self._holds.placed(live.state, event.payload)
        live.holds_refs = self._holds.given(live, event.payload) or live.holds_refs

    def brought(self, live: LiveRun, event: e.RunStarted | e.ContextPatched) -> None:
        """Values that come from outside may stand for larger ones too."""
        if isinstance(event, e.ContextPatched):
            patched = [patch.value for patch in event.patches]
            if event.by.startswith(_TOKEN):  # work has written it
                self._note_refs(live, patched)
                return
            self._holds.placed(live.state, patched)
            live.holds_refs = self._holds.given(live, patched) or live.holds_refs
            return
        given: list[Any] = [event.workload]
        given += [[answer.result for answer in answers] for answers in event.reuse.values()]
        found = self._holds.given(live, given, before(event))
        live.holds_refs = live.holds_refs or found or bool(event.reuse)


def _counts(source: Any) -> bool:
    """A loop over numbers: there is nothing to keep for it."""
    return isinstance(source, Mapping) and source.get(KIND) == "range"


def admissions_of(state: State) -> list[Admission]:
    """The rows of a run, one for each of its limits."""
    return [
        Admission(
            run=state.run,
            key=one.key,
            limit=one.limit,
            when_full=one.when_full,
            priority=state.priority,
            asked_at=state.started_at,
        )
        for one in state.limits
    ]


_FOLLOW_UPS: dict[type, Callable[[Reactions, LiveRun, Any], None]] = {
    e.JobScheduled: Reactions.scheduled,
    e.ShardScheduled: Reactions.scheduled,
    e.LoopCutting: Reactions.scheduled,
    e.JobStarted: Reactions.started,
    e.JobExtended: Reactions.lent,
    e.JobCancelling: Reactions.cancelling,
    e.JobTimedOut: Reactions.timed_out,
    e.TokenDoomed: Reactions.doomed,
    e.RunStarted: Reactions.brought,
    e.ContextPatched: Reactions.brought,
    e.SignalReceived: Reactions.signalled,
    e.JobReported: Reactions.reported,
    e.LoopCut: Reactions.cut,
    e.JobLost: Reactions.over,
    e.JobParked: Reactions.parked,
    e.JobContinued: Reactions.continued,
    e.JobDischarged: Reactions.discharged,
    e.RunResumed: Reactions.resumed,
    e.RunFinished: Reactions.finished,
    e.RunQueued: Reactions.queued,
}

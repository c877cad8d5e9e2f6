"""What an engine does, counted while it does it: the source of `/metrics` and of health.

Everything here follows from what is recorded: a job counts as begun and ended at the instants of
its events, whoever did it. The marks (`turned_at`, `writing_since`) say whether the engine moves at
all, which no counter can: one that stands still looks just like one that has nothing to do.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from anabranch.kernel import events as e
from anabranch.kernel.jobs import PLAIN_SLOT, kind_of_job
from anabranch.kernel.tracker import ShardReport
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.metrics.job_counters import JobCounters
from anabranch.runtime.metrics.registry import SECONDS, SERIES_MAX, Registry

#: How a job can end, by the event that says so.
_ENDINGS: dict[type, str] = {
    e.JobParked: "parked",
    e.JobTimedOut: "timeout",
    e.JobLost: "lost",
    e.JobDischarged: "cancelled",
}

_JobReported, _TokenFinished = e.JobReported, e.TokenFinished
_MILLISECONDS = tuple(1000 * each for each in SECONDS)


class EngineMetrics:
    def __init__(self) -> None:
        self.registry = Registry()
        self.turned_at = 0  # milliseconds on the clock of the engine
        self.committed_at = 0.0  # seconds on the monotonic clock
        self.writing_since = 0.0  # likewise; 0 while no batch is being written
        self._kinds: dict[str, JobCounters] = {}
        put = self.registry
        self.turns = put.counter("anabranch_turns_total", "turns of the engine")
        self.events = put.counter("anabranch_events_total", "events recorded")
        self._turns, self._events = self.turns.cell(), self.events.cell()
        self.commits = put.counter("anabranch_commits_total", "transactions written")
        self.commit_seconds = put.histogram(
            "anabranch_commit_seconds", "how long a transaction took to be durable"
        )
        self.runs_started = put.counter("anabranch_runs_started_total", "runs started")
        self._started = self.runs_started.cell()
        self.runs_ended = put.counter(
            "anabranch_runs_ended_total", "runs that ended, by status", ["status"]
        )
        self.jobs_started = put.counter(
            "anabranch_jobs_started_total", "executions of jobs started, by kind", ["kind"]
        )
        self.job_retries = put.counter(
            "anabranch_job_retries_total",
            "executions that were not the first of their job, by kind",
            ["kind"],
        )
        self.steps_ended = put.counter(
            "anabranch_steps_ended_total", "step runs that are over, by how they ended", ["ending"]
        )
        self._endings: dict[str, list[float]] = {}
        self.jobs_ended = put.counter(
            "anabranch_jobs_ended_total",
            "executions of jobs over, by kind and how",
            ["kind", "how"],
        )
        self.job_seconds = put.histogram(
            "anabranch_job_seconds", "from the start of an execution to its end", ["kind"]
        )
        self.items = put.counter(
            "anabranch_loop_items_total", "items of loops, by how they ended", ["how"]
        )
        self.lateness = put.histogram(
            "anabranch_timer_lateness_seconds", "how late timers were noticed"
        )

    # -- marks -------------------------------------------------------------------------------

    def turned(self, now: int) -> None:
        self.turned_at = now
        self._turns[0] += 1

    def rang(self, late_ms: int) -> None:
        self.lateness.observe(late_ms / 1000)

    def writing(self) -> None:
        """A batch goes to the store; it counts from the first try of one that is tried again."""
        self.writing_since = self.writing_since or time.monotonic()

    def wrote(self, seconds: float) -> None:
        """It is durable. After a failure this is never called: the mark stays, and tells."""
        self.committed_at = time.monotonic()
        self.writing_since = 0.0
        self.commits.add()
        self.commit_seconds.observe(seconds)

    # -- what is recorded --------------------------------------------------------------------

    # These are on the path of every step, and written to be quick rather than short.

    def published(self, first_seq: int, events: Sequence[e.Event], ended: str) -> None:
        """These events are durable; `ended` is the status of a run that ends with them."""
        self._events[0] += len(events)
        for event in events:
            if type(event) is _TokenFinished:
                ending = self._endings.get(event.ending)
                if ending is None:
                    ending = self._endings[event.ending] = self.steps_ended.cell((event.ending,))
                ending[0] += 1
        if first_seq == 1:
            self._started[0] += 1
        if ended:
            self.runs_ended.add((ended,))

    def began(self, live: LiveRun, event: e.JobStarted) -> None:
        state = live.state
        job = state.jobs.get(event.job)
        if job is None:
            return
        step = live.net.steps[job.step]
        plain = step.work is not None and job.slot >= PLAIN_SLOT
        name = step.work.kind if plain and step.work is not None else kind_of_job(step, job)
        kind = self._kinds.get(name)
        if kind is None:
            kind = JobCounters(
                name, self.jobs_started, self.job_retries, self.job_seconds, self.jobs_ended
            )
            if len(self._kinds) < SERIES_MAX:  # the jobs of a pool may be of any kind
                self._kinds[name] = kind
        live.at_work |= {event.job: (kind, state.updated_at)}
        kind.started[0] += 1
        if event.attempt > 1:
            kind.again[0] += 1

    def ended(self, live: LiveRun, event: Any) -> None:
        found = live.at_work.pop(event.job, None)
        if found is None:
            return  # it never began, or in an engine before this one
        kind, since = found
        if type(event) is _JobReported:
            how: str = event.answer.status
            if event.answer.shard is not None:
                self._count_items(event.answer.shard)
        else:
            how = _ENDINGS[type(event)]
            if how == "cancelled" and event.how in ("abandoned", "put_back"):
                how = event.how
        ending = kind.endings.get(how)
        if ending is None:
            ending = kind.ending(how)
        ending[0] += 1
        taken = live.state.updated_at - since
        seconds = kind.seconds
        if taken > 0:
            seconds[bisect_left(_MILLISECONDS, taken)] += 1
            seconds[-1] += taken / 1000
        else:
            seconds[0] += 1

    def _count_items(self, shard: ShardReport) -> None:
        self.items.add(("succeeded",), shard.succeeded)
        if shard.failed:
            self.items.add(("failed",), len(shard.failed))

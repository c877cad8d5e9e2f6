"""`evolve(state, event, at)`: the only code that changes a state.

Live execution and replay both go through here. It decides nothing and evaluates nothing; one small
function per kind of event, found in the table at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.kernel import events as e
from anabranch.kernel.empty import EMPTY
from anabranch.kernel.evolve_gathers import (
    delivered,
    delivery_late,
    gather_opened,
    gather_settled,
    slot_lost,
)
from anabranch.kernel.evolve_jobs import (
    CUT,
    drop_answered,
    drop_job,
    enter,
    job_cancelling,
    job_continued,
    job_discharged,
    job_extended,
    job_late,
    job_lost,
    job_parked,
    job_progressed,
    job_reported,
    job_retrying,
    job_reused,
    job_scheduled,
    job_started,
    job_timed_out,
    new_job,
)
from anabranch.kernel.evolve_loops import (
    loop_cut,
    loop_opened,
    loop_settled,
    loop_stopped,
    loop_tuned,
    queue_time_runs,
    queue_times_begin_anew,
    queue_times_stop,
    shard_begun,
    shard_closed,
)
from anabranch.kernel.evolve_provenance import track
from anabranch.kernel.evolve_signals import (
    signal_expired,
    signal_received,
    signal_taken,
    signal_unmatched,
    signals_dropped,
)
from anabranch.kernel.evolve_tokens import (
    task_judged,
    token_admitted,
    token_answered,
    token_created,
    token_doomed,
    token_finished,
    token_held,
    token_queued,
    token_released,
    token_retried_now,
    token_retrying,
    token_skipped,
    token_slept,
    token_timed,
    token_woken,
)
from anabranch.kernel.provenance import Provenance
from anabranch.kernel.reducers import reduce_all
from anabranch.kernel.state import ROOT_SCOPE, Gate, Scope, State
from anabranch.kernel.values import Answer


def evolve(state: State, event: e.Event, at: int) -> None:
    if state.provenance is not None:
        track(state, state.provenance, event)
    _TABLE[type(event)](state, event, at)
    state.seq += 1
    state.updated_at = at


def mark_with(state: State, provenance: Provenance) -> None:
    """From here on the marks of `kernel.provenance` are kept there, whatever the log says."""
    state.provenance = provenance


# -- the run ---------------------------------------------------------------------------------


#: How long after its deadline a run waits for work that was told to stop.
ABANDON_MS = 1_500


def _run_started(state: State, event: e.RunStarted, at: int) -> None:
    state.run = event.run
    state.definition = event.definition
    state.name = event.name
    state.workload = dict(event.workload) or EMPTY
    state.started_at = at
    state.parent = event.parent
    state.begun_by = event.begun_by
    state.origin = event.origin
    state.returns = event.returns
    state.trace = event.trace
    state.sealed = tuple(event.sealed)
    state.depth = event.depth
    state.started_with = dict(event.started_with) or EMPTY
    state.labels = dict(event.labels) or EMPTY
    if event.first_run:
        state.first_run = event.first_run
        state.known_keys = {given: list(keys) for given, keys in event.known_keys.items()}
    if event.reuse:
        state.reuse = {key: list(answers) for key, answers in event.reuse.items()}
    if event.first_run or event.reuse:
        state.provenance = Provenance()
    state.priority = event.priority
    state.held_above = tuple(event.held)
    state.scopes[ROOT_SCOPE] = Scope(ROOT_SCOPE)
    if event.deadline:
        state.deadline = event.deadline
        state.timers.set("deadline", event.deadline)


def _run_queued(state: State, event: e.RunQueued, at: int) -> None:
    state.queued_for_place = True
    state.limits = tuple(event.limits)
    state.entry = event.entry


def _run_admitted(state: State, event: e.RunAdmitted, at: int) -> None:
    state.queued_for_place = False
    if event.deadline:
        state.deadline = event.deadline
        state.timers.set("deadline", event.deadline)


def _run_paused(state: State, event: e.RunPaused, at: int) -> None:
    state.paused = True
    state.paused_at = at
    state.pause_reason = event.reason
    queue_times_stop(state)
    state.paused_gate = event.gate


def _run_resumed(state: State, event: e.RunResumed, at: int) -> None:
    state.paused = False
    state.pause_reason = ""
    queue_times_begin_anew(state, at)
    state.paused_gate = ""


def _run_ending(state: State, event: e.RunEnding, at: int) -> None:
    state.ending = event.status
    state.ending_at = at
    state.ending_reason = event.reason
    state.paused = False
    state.pause_reason = ""
    state.timers.drop("deadline")
    if state.deadline:
        state.timers.set("abandon", max(at, state.deadline) + ABANDON_MS)


def _run_finished(state: State, event: e.RunFinished, at: int) -> None:
    state.status = event.status
    state.problem = event.problem
    state.finished_at = at
    state.reuse = state.known_keys = state.keyed = state.given = EMPTY
    state.provenance = None
    state.timers.drop("deadline")
    state.timers.drop("abandon")
    if state.signals:
        signals_dropped(state, at)


def _context_patched(state: State, event: e.ContextPatched, at: int) -> None:
    if not state.ctx:
        state.ctx = {}
    reduce_all(state.ctx, event.patches)


def _token_invalidated(state: State, event: e.TokenInvalidated, at: int) -> None:
    """A mark on where it comes from, and nothing else: see `kernel.provenance`."""


def _work_keyed(state: State, event: e.WorkKeyed, at: int) -> None:
    times = state.given.get(event.given, 0) + 1
    state.keyed |= {event.work: event.key}
    state.given |= {event.given: times}
    if times >= len(state.known_keys.get(event.given, ())):
        state.known_keys.pop(event.given, None)  # all of them are given


# -- loops -----------------------------------------------------------------------------------


def _loop_cutting(state: State, event: e.LoopCutting, at: int) -> None:
    token = state.tokens[event.token]
    state.loops[token.loop].cutting = True
    new_job(state, event.job, event.token, CUT, at).attempt = event.attempt


def _loop_cut(state: State, event: e.LoopCut, at: int) -> None:
    loop_cut(state, event, at)
    tracker = state.loops[event.loop]
    reader = f"{tracker.token}.cut"
    tracker.cut_attempt = state.jobs[reader].attempt
    drop_job(state, reader)


def _shard_scheduled(state: State, event: e.ShardScheduled, at: int) -> None:
    token = state.tokens[event.token]
    tracker = state.loops[token.loop]
    shard_begun(tracker, event.job, event.shard)
    state.looped[token.loop].scheduled_seq = state.seq + 1
    job = new_job(state, event.job, event.token, event.shard.number, at)
    if tracker.queue_ttl:
        queue_time_runs(state, job, at)


def _shard_closed(state: State, event: e.ShardClosed, at: int) -> None:
    shard_closed(state, event, state.jobs[event.job].answer)
    drop_job(state, event.job)


# -- gates -----------------------------------------------------------------------------------


def _gate_opened(state: State, event: e.GateOpened, at: int) -> None:
    token = state.tokens[event.token]
    drop_answered(state, token)
    gate = Gate(
        event.gate, event.token, token.step, event.ask, list(event.actors), at, event.failed
    )
    state.gates |= {gate.id: gate}
    enter(state, token, "deciding", at)


def _gate_asked_again(state: State, event: e.GateAskedAgain, at: int) -> None:
    del state.gates[event.gate]
    state.tokens[event.token].source_asked = event.asked


def _gate_decided(state: State, event: e.GateDecided, at: int) -> None:
    gate = state.gates.pop(event.gate)
    token = state.tokens[gate.token]
    if gate.failed:
        return
    token.decided = event.verdict == "fulfil"
    if token.answer is None or token.answers_itself:
        token.answers_itself = True
        token.answer = Answer(
            status="ok" if event.verdict == "fulfil" else "error",
            outcome="ok" if event.verdict == "fulfil" else "error",
            result={
                "decision": "fulfilled" if event.verdict == "fulfil" else "rejected",
                "actor": event.actor,
                "reason": event.reason,
                "evidence": event.evidence,
            },
        )


_TABLE: dict[type, Callable[[State, Any, int], None]] = {
    e.RunStarted: _run_started,
    e.RunQueued: _run_queued,
    e.RunAdmitted: _run_admitted,
    e.RunPaused: _run_paused,
    e.RunResumed: _run_resumed,
    e.RunEnding: _run_ending,
    e.RunFinished: _run_finished,
    e.ContextPatched: _context_patched,
    e.TokenCreated: token_created,
    e.TokenHeld: token_held,
    e.TokenAdmitted: token_admitted,
    e.TokenQueued: token_queued,
    e.TokenSlept: token_slept,
    e.TokenWoken: token_woken,
    e.TokenTimed: token_timed,
    e.TokenRetrying: token_retrying,
    e.TokenRetriedNow: token_retried_now,
    e.TokenSkipped: token_skipped,
    e.TokenAnswered: token_answered,
    e.TaskJudged: task_judged,
    e.TokenReleased: token_released,
    e.TokenDoomed: token_doomed,
    e.TokenInvalidated: _token_invalidated,
    e.TokenFinished: token_finished,
    e.JobScheduled: job_scheduled,
    e.WorkKeyed: _work_keyed,
    e.JobStarted: job_started,
    e.JobExtended: job_extended,
    e.JobProgressed: job_progressed,
    e.JobParked: job_parked,
    e.JobContinued: job_continued,
    e.JobReported: job_reported,
    e.JobReused: job_reused,
    e.JobRetrying: job_retrying,
    e.JobTimedOut: job_timed_out,
    e.JobLost: job_lost,
    e.JobLate: job_late,
    e.JobCancelling: job_cancelling,
    e.JobDischarged: job_discharged,
    e.GatherOpened: gather_opened,
    e.Delivered: delivered,
    e.SlotLost: slot_lost,
    e.DeliveryLate: delivery_late,
    e.GatherSettled: gather_settled,
    e.LoopOpened: loop_opened,
    e.LoopCutting: _loop_cutting,
    e.LoopCut: _loop_cut,
    e.ShardScheduled: _shard_scheduled,
    e.ShardClosed: _shard_closed,
    e.LoopStopped: loop_stopped,
    e.LoopTuned: loop_tuned,
    e.LoopSettled: loop_settled,
    e.SignalReceived: signal_received,
    e.SignalTaken: signal_taken,
    e.SignalExpired: signal_expired,
    e.SignalUnmatched: signal_unmatched,
    e.GateOpened: _gate_opened,
    e.GateDecided: _gate_decided,
    e.GateAskedAgain: _gate_asked_again,
}

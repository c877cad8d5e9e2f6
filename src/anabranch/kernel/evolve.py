"""`evolve(state, event, at)`: the only code that changes a state.

Live execution and replay both go through here. It decides nothing and evaluates nothing; one small
function per kind of event, found in the table at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.kernel import events as e
from anabranch.kernel.evolve_jobs import (
    CUT,
    drop_answered,
    drop_job,
    enter,
    job_cancelling,
    job_continued,
    job_discharged,
    job_extended,
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
    loop_gone,
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
from anabranch.kernel.gather import combine
from anabranch.kernel.reducers import reduce_all
from anabranch.kernel.state import (
    FAULTS_KEPT,
    JOINS_KEPT,
    ROOT_SCOPE,
    Delivery,
    Gate,
    Gather,
    JoinRecord,
    Judgement,
    Scope,
    State,
    StepTally,
    Token,
    join_names,
)
from anabranch.kernel.values import Answer, Fault


def evolve(state: State, event: e.Event, at: int) -> None:
    _TABLE[type(event)](state, event, at)
    state.seq += 1
    state.updated_at = at


# -- the run ---------------------------------------------------------------------------------


def _run_started(state: State, event: e.RunStarted, at: int) -> None:
    state.run = event.run
    state.definition = event.definition
    state.name = event.name
    state.workload = dict(event.workload)
    state.started_at = at
    state.parent = event.parent
    state.origin = event.origin
    state.returns = event.returns
    state.labels = dict(event.labels)
    state.reuse = {key: list(answers) for key, answers in event.reuse.items()}
    state.scopes[ROOT_SCOPE] = Scope(ROOT_SCOPE)
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


def _run_finished(state: State, event: e.RunFinished, at: int) -> None:
    state.status = event.status
    state.problem = event.problem
    state.finished_at = at
    state.reuse = {}
    state.timers.drop("deadline")


def _context_patched(state: State, event: e.ContextPatched, at: int) -> None:
    reduce_all(state.ctx, event.patches)


# -- tokens ----------------------------------------------------------------------------------


def _token_created(state: State, event: e.TokenCreated, at: int) -> None:
    tally = state.steps.get(event.step)
    if tally is None:
        tally = state.steps[event.step] = StepTally()
    token = Token(
        id=event.token,
        step=event.step,
        parent=event.parent,
        scope=event.scope,
        ordinal=tally.runs,
        via=event.via,
        args=event.args,
        payload=event.payload,
        since=at,
        wake=event.wake,
    )
    tally.runs += 1
    tally.statuses.append("new")
    state.phases["new"] = state.phases.get("new", 0) + 1
    state.tokens[event.token] = token
    state.next_token = event.token + 1
    scope = state.scopes[event.scope]
    scope.members[event.token] = True
    scope.live[event.step] = scope.live.get(event.step, 0) + 1
    state.counts.created += 1
    if event.via == "final":
        state.finalised = True


def _token_held(state: State, event: e.TokenHeld, at: int) -> None:
    token = state.tokens[event.token]
    token.reason = event.reason
    enter(state, token, "held", at)
    state.held[token.id] = True


def _token_admitted(state: State, event: e.TokenAdmitted, at: int) -> None:
    token = state.tokens[event.token]
    token.reason = ""
    token.admitted = True
    enter(state, token, "new", at)


def _token_queued(state: State, event: e.TokenQueued, at: int) -> None:
    enter(state, state.tokens[event.token], "queued", at)
    state.queued[event.token] = True


def _token_slept(state: State, event: e.TokenSlept, at: int) -> None:
    token = state.tokens[event.token]
    enter(state, token, "sleeping", at)
    state.timers.set(f"wake:{token.id}", token.wake)


def _token_woken(state: State, event: e.TokenWoken, at: int) -> None:
    token = state.tokens[event.token]
    token.wake = 0
    if event.payload:
        token.payload = {**token.payload, **event.payload}
    enter(state, token, "new", at)
    state.timers.drop(f"wake:{token.id}")


def _token_timed(state: State, event: e.TokenTimed, at: int) -> None:
    state.tokens[event.token].until = event.until
    if event.until:
        state.timers.set(f"step:{event.token}", event.until)
    else:
        state.timers.drop(f"step:{event.token}")


def _token_retrying(state: State, event: e.TokenRetrying, at: int) -> None:
    token = state.tokens[event.token]
    drop_answered(state, token)
    if token.gather:
        gather = state.gathers.pop(token.gather)
        token.asked = gather.values or gather.labels
        token.gather = ""
    if token.until:
        token.until = 0
        state.timers.drop(f"step:{token.id}")
    token.round = event.round
    token.answer = None
    token.decided = False
    token.admitted = True
    token.wake = event.due
    enter(state, token, "new", at)


def _token_answered(state: State, event: e.TokenAnswered, at: int) -> None:
    drop_answered(state, state.tokens[event.token])


def _task_judged(state: State, event: e.TaskJudged, at: int) -> None:
    token = state.tokens[event.token]
    token.decided = event.fulfilled or event.goes_on
    state.judged[token.step] = Judgement(
        token.id, event.fulfilled, event.policy, event.actor, event.reason, event.evidence, at
    )


def _token_released(state: State, event: e.TokenReleased, at: int) -> None:
    token = state.tokens[event.token]
    gather = state.gathers.pop(token.gather)
    if gather.kind == "join":
        kept = {key: value for key, value in token.payload.items() if key.startswith("__")}
        token.payload = {**kept, **(combine(gather) or {})}
    else:
        token.args = combine(gather)
        state.scopes[token.scope].barriers.pop(token.step, None)
    token.gather = ""
    enter(state, token, "new", at)


def _token_doomed(state: State, event: e.TokenDoomed, at: int) -> None:
    token = state.tokens[event.token]
    token.doomed = True
    token.reason = event.reason
    token.until = 0
    state.timers.drop(f"step:{token.id}")


def _token_finished(state: State, event: e.TokenFinished, at: int) -> None:
    token = state.tokens[event.token]
    drop_answered(state, token)
    state.phases[token.phase] -= 1
    state.held.pop(token.id, None)
    state.queued.pop(token.id, None)
    del state.tokens[event.token]
    state.steps[token.step].statuses[token.ordinal] = event.ending
    scope = state.scopes[token.scope]
    del scope.members[token.id]
    if scope.live[token.step] == 1:
        del scope.live[token.step]
    else:
        scope.live[token.step] -= 1
    if token.loop:
        loop_gone(state, token.loop)
    if token.gather:
        state.gathers.pop(token.gather, None)
        if scope.barriers.get(token.step) == token.id:
            del scope.barriers[token.step]
    _drop_empty(state, scope)
    if token.until:
        state.timers.drop(f"step:{token.id}")
    if token.phase == "sleeping":
        state.timers.drop(f"wake:{token.id}")
    _keep_result(state, token, event)
    _count(state, token, event)
    if event.fault is not None:
        _keep_fault(state, token, event, event.fault)


def _drop_empty(state: State, scope: Scope) -> None:
    """Nothing can happen any more in a scope that is closed and has no members."""
    if scope.closed and not scope.members:
        del state.scopes[scope.id]


def _keep_result(state: State, token: Token, event: e.TokenFinished) -> None:
    result = token.answer.result if token.answer is not None else None
    if event.end == "killed" and not (state.ending and token.fanin is not None):
        return  # whatever a killed one came to stays unseen; what a loop had done stays known
    if event.ending == "done" or result is not None:
        state.results[token.step] = result
    if token.via == "final":
        state.final_ending = event.ending
        state.final_result = result
    elif event.end in ("leaf", "no_match"):
        state.ends.pop(token.step, None)
        state.ends[token.step] = result


def _count(state: State, token: Token, event: e.TokenFinished) -> None:
    counts = state.counts
    counts.finished += 1
    if event.ending == "aborted":
        counts.aborted += 1
    elif event.ending == "failed" and token.via != "final":
        timed_out = event.fault is not None and event.fault.kind == "step_timeout"
        counts.failed += 1
        counts.handled += event.end == ""
        counts.timed_out += timed_out
        counts.timed_out_handled += timed_out and event.end == ""
    if event.end in ("leaf", "no_match"):
        counts.branch_ends += 1


def _keep_fault(state: State, token: Token, event: e.TokenFinished, fault: Fault) -> None:
    """Failures and aborts count as faults; what was skipped, turned away or killed does not."""
    if event.end == "killed" or event.ending not in ("failed", "aborted"):
        return
    if len(state.faults) < FAULTS_KEPT:
        state.faults.append((token.step, fault))
    if token.via == "final":
        state.final_fault = fault
    elif event.ending == "failed":
        state.failure = state.failure or fault
        if event.end:
            state.unhandled = state.unhandled or fault


# -- gathers ---------------------------------------------------------------------------------


def _gather_opened(state: State, event: e.GatherOpened, at: int) -> None:
    token = state.tokens[event.token]
    state.gathers[event.gather] = Gather(
        id=event.gather,
        kind=event.kind,
        token=event.token,
        target=token.step,
        rule=event.rule,
        labels=list(event.labels),
        whens=list(event.whens),
        values=list(event.values),
        opened_at=at,
    )
    state.joins[event.gather] = JoinRecord(token.step, "open", [], 0, event.kind)
    token.gather = event.gather
    if event.kind == "join":
        state.scopes[event.token] = Scope(event.token, gather=event.gather, takes=_takes(event))
    if event.kind == "barrier":
        state.scopes[token.scope].barriers[token.step] = token.id
    if event.kind != "fan":
        enter(state, token, "joining", at)


def _takes(event: e.GatherOpened) -> dict[str, list[str]]:
    takes: dict[str, list[str]] = {}
    for label, when in zip(event.labels, event.whens, strict=True):
        outcomes = takes.setdefault(label, [])
        if when not in outcomes:
            outcomes.append(when)
    return takes


def _delivered(state: State, event: e.Delivered, at: int) -> None:
    gather = state.gathers[event.gather]
    value = event.value
    if gather.kind == "fan":
        answer = state.jobs[event.producer].answer
        value = answer.result if answer is not None else None
        drop_job(state, event.producer)
    elif event.slot == len(gather.labels):  # a barrier met once more by the same predecessor
        gather.labels.append(event.producer)
    else:
        gather.free.fill_first(gather.labels[event.slot], gather.when(event.slot))
    if event.wake:
        token = state.tokens[gather.token]
        token.wake = max(token.wake, event.wake)
    gather.filled[event.slot] = Delivery(
        event.slot, event.producer, len(gather.filled), event.outcome, event.score, value
    )


def _slot_lost(state: State, event: e.SlotLost, at: int) -> None:
    gather = state.gathers[event.gather]
    gather.lost[event.slot] = event.reason
    gather.excluded += event.excluded
    if gather.kind == "fan":
        drop_job(state, event.producer)


def _delivery_late(state: State, event: e.DeliveryLate, at: int) -> None:
    record = state.joins.get(event.gather)
    if record is not None:
        record.late += 1
    gather = state.gathers.get(event.gather)
    if gather is not None:
        gather.late += 1


def _gather_settled(state: State, event: e.GatherSettled, at: int) -> None:
    gather = state.gathers[event.gather]
    gather.verdict = event.verdict
    gather.selected = list(event.selected)
    gather.reason = event.reason
    gather.settled_at = at
    record = state.joins[event.gather]
    record.verdict = event.verdict
    record.selected = join_names(gather, event.selected)
    if gather.kind == "join":
        scope = state.scopes[gather.token]
        scope.closed = True
        _drop_empty(state, scope)
        _drop_old_joins(state)
    if gather.kind == "fan" and event.verdict == "closed":
        state.tokens[gather.token].answer = Answer(
            status="ok", outcome="ok", result=combine(gather)
        )


def _drop_old_joins(state: State) -> None:
    """Every now and then, so that it costs nothing to speak of per join."""
    state.joins_settled += 1
    if state.joins_settled < 2 * JOINS_KEPT:
        return
    settled = [n for n, r in state.joins.items() if r.kind == "join" and r.verdict != "open"]
    for name in settled[:-JOINS_KEPT]:
        del state.joins[name]
    state.joins_dropped += len(settled) - JOINS_KEPT
    state.joins_settled = JOINS_KEPT


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
    shard_begun(state.loops[token.loop], event.job, event.shard)
    job = new_job(state, event.job, event.token, event.shard.number, at)
    queue_time_runs(state, job, at)


def _shard_closed(state: State, event: e.ShardClosed, at: int) -> None:
    shard_closed(state, event, state.jobs[event.job].answer)
    drop_job(state, event.job)


# -- gates -----------------------------------------------------------------------------------


def _gate_opened(state: State, event: e.GateOpened, at: int) -> None:
    token = state.tokens[event.token]
    drop_answered(state, token)
    state.gates[event.gate] = Gate(
        event.gate, event.token, token.step, event.ask, list(event.actors), at, event.failed
    )
    enter(state, token, "deciding", at)


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
    e.RunPaused: _run_paused,
    e.RunResumed: _run_resumed,
    e.RunEnding: _run_ending,
    e.RunFinished: _run_finished,
    e.ContextPatched: _context_patched,
    e.TokenCreated: _token_created,
    e.TokenHeld: _token_held,
    e.TokenAdmitted: _token_admitted,
    e.TokenQueued: _token_queued,
    e.TokenSlept: _token_slept,
    e.TokenWoken: _token_woken,
    e.TokenTimed: _token_timed,
    e.TokenRetrying: _token_retrying,
    e.TokenAnswered: _token_answered,
    e.TaskJudged: _task_judged,
    e.TokenReleased: _token_released,
    e.TokenDoomed: _token_doomed,
    e.TokenFinished: _token_finished,
    e.JobScheduled: job_scheduled,
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
    e.JobCancelling: job_cancelling,
    e.JobDischarged: job_discharged,
    e.GatherOpened: _gather_opened,
    e.Delivered: _delivered,
    e.SlotLost: _slot_lost,
    e.DeliveryLate: _delivery_late,
    e.GatherSettled: _gather_settled,
    e.LoopOpened: loop_opened,
    e.LoopCutting: _loop_cutting,
    e.LoopCut: _loop_cut,
    e.ShardScheduled: _shard_scheduled,
    e.ShardClosed: _shard_closed,
    e.LoopStopped: loop_stopped,
    e.LoopTuned: loop_tuned,
    e.LoopSettled: loop_settled,
    e.GateOpened: _gate_opened,
    e.GateDecided: _gate_decided,
}

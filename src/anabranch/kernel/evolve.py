"""`evolve(state, event, at)`: the only code that changes a state.

Live execution and replay both go through here. It decides nothing and evaluates nothing; one small
function per kind of event, found in the table at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.kernel import events as e
from anabranch.kernel.evolve_loops import (
    job_given_up,
    loop_cut,
    loop_opened,
    loop_settled,
    loop_stopped,
    shard_begun,
    shard_closed,
)
from anabranch.kernel.gather import combine
from anabranch.kernel.reducers import reduce_into
from anabranch.kernel.state import (
    FAULTS_KEPT,
    ROOT_SCOPE,
    Delivery,
    Gate,
    Gather,
    Job,
    JobPhase,
    JoinRecord,
    Scope,
    State,
    StepTally,
    Token,
    TokenPhase,
    join_names,
)
from anabranch.kernel.values import Answer, Fault


PLAIN, CUT = -1, -2  # slots of jobs that fill none


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


def _run_resumed(state: State, event: e.RunResumed, at: int) -> None:
    state.paused = False
    state.pause_reason = ""


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
    for patch in event.patches:
        reduce_into(state.ctx, patch)


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


def _enter(state: State, token: Token, phase: TokenPhase, at: int) -> None:
    _leave(state, token)
    state.phases[phase] = state.phases.get(phase, 0) + 1
    token.phase = phase
    token.since = at
    state.steps[token.step].statuses[token.ordinal] = phase


def _leave(state: State, token: Token) -> None:
    state.phases[token.phase] -= 1
    if token.phase == "held":
        del state.held[token.id]


def _token_held(state: State, event: e.TokenHeld, at: int) -> None:
    token = state.tokens[event.token]
    token.reason = event.reason
    _enter(state, token, "held", at)
    state.held[token.id] = True


def _token_admitted(state: State, event: e.TokenAdmitted, at: int) -> None:
    token = state.tokens[event.token]
    token.reason = ""
    token.admitted = True
    _enter(state, token, "new", at)


def _token_slept(state: State, event: e.TokenSlept, at: int) -> None:
    token = state.tokens[event.token]
    _enter(state, token, "sleeping", at)
    state.timers.set(f"wake:{token.id}", token.wake)


def _token_woken(state: State, event: e.TokenWoken, at: int) -> None:
    token = state.tokens[event.token]
    token.wake = 0
    if event.payload:
        token.payload = {**token.payload, **event.payload}
    _enter(state, token, "new", at)
    state.timers.drop(f"wake:{token.id}")


def _token_timed(state: State, event: e.TokenTimed, at: int) -> None:
    state.tokens[event.token].until = event.until
    if event.until:
        state.timers.set(f"step:{event.token}", event.until)
    else:
        state.timers.drop(f"step:{event.token}")


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
    _enter(state, token, "new", at)


def _token_doomed(state: State, event: e.TokenDoomed, at: int) -> None:
    token = state.tokens[event.token]
    token.doomed = True
    token.reason = event.reason
    token.until = 0
    state.timers.drop(f"step:{token.id}")


def _token_finished(state: State, event: e.TokenFinished, at: int) -> None:
    token = state.tokens[event.token]
    _drop_answered(state, token)
    _leave(state, token)
    del state.tokens[event.token]
    state.steps[token.step].statuses[token.ordinal] = event.ending
    scope = state.scopes[token.scope]
    del scope.members[token.id]
    if scope.live[token.step] == 1:
        del scope.live[token.step]
    else:
        scope.live[token.step] -= 1
    if token.loop:
        del state.loops[token.loop]
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


def _drop_answered(state: State, token: Token) -> None:
    """The answer of a plain step's job has been used."""
    job = state.jobs.get(f"{token.id}.0")
    if job is not None and job.slot == PLAIN and job.phase == "answered":
        _drop_job(state, job.id)


def _keep_result(state: State, token: Token, event: e.TokenFinished) -> None:
    result = token.answer.result if token.answer is not None else None
    if event.end == "killed":
        return  # whatever a killed one came to stays unseen
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


# -- jobs ------------------------------------------------------------------------------------


def _job_scheduled(state: State, event: e.JobScheduled, at: int) -> None:
    job = state.jobs.get(event.job)
    if job is None:
        job = _new_job(state, event.job, event.token, event.slot, at)
    else:
        if job.phase == "backoff":
            state.timers.drop(f"retry:{job.id}")
        _turn_to(state, job, "scheduled", at)
    job.attempt = event.attempt
    job.answer = None
    if event.slot == PLAIN and event.token in state.tokens:
        token = state.tokens[event.token]
        token.attempt = event.attempt
        token.answer = None


def _turn_to(state: State, job: Job, phase: JobPhase, at: int) -> None:
    state.busy += (job.phase == "parked") - (phase == "parked")
    job.phase = phase
    job.since = at


def _drop_job(state: State, job_id: str) -> None:
    job = state.jobs.pop(job_id, None)
    if job is None:
        return
    state.busy -= job.phase != "parked"
    if job.token in state.tokens:
        state.tokens[job.token].jobs -= 1


def _new_job(state: State, job_id: str, token_id: int, slot: int, at: int) -> Job:
    token = state.tokens[token_id]
    job = state.jobs[job_id] = Job(
        id=job_id, token=token_id, slot=slot, step=token.step, attempt=1, since=at
    )
    state.busy += 1
    token.jobs += 1
    if slot >= 0 and token.gather:
        gather = state.gathers[token.gather]
        gather.next_slot = max(gather.next_slot, slot + 1)
    if token.phase not in ("ready", "running"):
        _enter(state, token, "ready", at)
    return job


def _job_started(state: State, event: e.JobStarted, at: int) -> None:
    job = state.jobs[event.job]
    _turn_to(state, job, "running", at)
    job.worker = event.worker
    job.lease = event.lease
    job.until = event.until
    if event.lease:
        state.timers.set(f"lease:{job.id}", event.lease)
    if event.until:
        state.timers.set(f"job:{job.id}", event.until)
    token = state.tokens.get(job.token)
    if token is not None and token.phase == "ready":
        _enter(state, token, "running", at)


def _job_extended(state: State, event: e.JobExtended, at: int) -> None:
    state.jobs[event.job].lease = event.lease
    state.timers.set(f"lease:{event.job}", event.lease)


def _job_parked(state: State, event: e.JobParked, at: int) -> None:
    job = state.jobs[event.job]
    _turn_to(state, job, "parked", at)
    job.ticket = event.ticket
    if job.lease:
        job.lease = 0
        state.timers.drop(f"lease:{job.id}")
    if event.until:
        job.until = event.until
        state.timers.set(f"job:{job.id}", event.until)


def _off_worker(state: State, job: Job) -> None:
    """Nobody works on it now: its lease and timeout no longer run."""
    if job.lease:
        job.lease = 0
        state.timers.drop(f"lease:{job.id}")
    if job.until:
        job.until = 0
        state.timers.drop(f"job:{job.id}")
    job.worker = ""
    job.ticket = ""


def _job_reported(state: State, event: e.JobReported, at: int) -> None:
    job = state.jobs[event.job]
    _off_worker(state, job)
    _turn_to(state, job, "answered", at)
    job.answer = event.answer
    job.failures += event.answer.status == "error"
    _answer_plain(state, job)


def _answer_plain(state: State, job: Job) -> None:
    """The one job of a plain step answers for its token; fans wait for their gather."""
    token = state.tokens.get(job.token)
    if job.slot == PLAIN and token is not None:
        token.answer = job.answer


def _job_reused(state: State, event: e.JobReused, at: int) -> None:
    job = _new_job(state, event.job, event.token, event.slot, at)
    job.phase = "answered"
    job.answer = event.answer
    _answer_plain(state, job)
    if event.slot < 0:  # only step runs that ended well are taken over: theirs was decided
        state.tokens[event.token].decided = True
    left = state.reuse[event.key]
    left.pop(0)
    if not left:
        del state.reuse[event.key]


def _job_retrying(state: State, event: e.JobRetrying, at: int) -> None:
    job = state.jobs[event.job]
    _off_worker(state, job)
    _turn_to(state, job, "backoff", at)
    job.due = event.due
    state.timers.set(f"retry:{job.id}", event.due)


def _job_timed_out(state: State, event: e.JobTimedOut, at: int) -> None:
    job = state.jobs[event.job]
    _off_worker(state, job)
    _turn_to(state, job, "answered", at)
    job.failures += 1


def _job_lost(state: State, event: e.JobLost, at: int) -> None:
    job = state.jobs[event.job]
    _off_worker(state, job)
    _turn_to(state, job, "answered", at)
    job.losses += 1


def _job_cancelling(state: State, event: e.JobCancelling, at: int) -> None:
    job = state.jobs[event.job]
    worker, lease = job.worker, job.lease
    _off_worker(state, job)
    job.worker = worker
    if lease:  # a worker that never says it stopped is forgotten with its lease
        job.lease = lease
        state.timers.set(f"lease:{job.id}", lease)
    _turn_to(state, job, "cancelling", at)
    job.reason = event.reason


def _job_discharged(state: State, event: e.JobDischarged, at: int) -> None:
    job = state.jobs[event.job]
    _off_worker(state, job)
    state.timers.drop(f"retry:{job.id}")
    tracker = state.loops.get(f"l{job.token}")
    if tracker is not None:
        job_given_up(tracker, job.id)
    _drop_job(state, event.job)


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
        _enter(state, token, "joining", at)


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
        _drop_job(state, event.producer)
    elif event.slot == len(gather.labels):  # a barrier met once more by the same predecessor
        gather.labels.append(event.producer)
    else:
        gather.free.fill_first(gather.labels[event.slot], gather.when(event.slot))
    gather.filled[event.slot] = Delivery(
        event.slot, event.producer, len(gather.filled), event.outcome, event.score, value
    )


def _slot_lost(state: State, event: e.SlotLost, at: int) -> None:
    gather = state.gathers[event.gather]
    gather.lost[event.slot] = event.reason
    gather.excluded += event.excluded
    if gather.kind == "fan":
        _drop_job(state, event.producer)


def _delivery_late(state: State, event: e.DeliveryLate, at: int) -> None:
    state.joins[event.gather].late += 1
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
    if gather.kind == "fan" and event.verdict == "closed":
        state.tokens[gather.token].answer = Answer(
            status="ok", outcome="ok", result=combine(gather)
        )


# -- loops -----------------------------------------------------------------------------------


def _loop_cutting(state: State, event: e.LoopCutting, at: int) -> None:
    token = state.tokens[event.token]
    state.loops[token.loop].cutting = True
    _new_job(state, event.job, event.token, CUT, at)


def _loop_cut(state: State, event: e.LoopCut, at: int) -> None:
    loop_cut(state, event, at)
    _drop_job(state, f"{state.loops[event.loop].token}.cut")


def _shard_scheduled(state: State, event: e.ShardScheduled, at: int) -> None:
    token = state.tokens[event.token]
    shard_begun(state.loops[token.loop], event.job, event.shard)
    _new_job(state, event.job, event.token, event.shard.number, at)


def _shard_closed(state: State, event: e.ShardClosed, at: int) -> None:
    shard_closed(state, event, state.jobs[event.job].answer)
    _drop_job(state, event.job)


# -- gates -----------------------------------------------------------------------------------


def _gate_opened(state: State, event: e.GateOpened, at: int) -> None:
    token = state.tokens[event.token]
    _drop_answered(state, token)
    state.gates[event.gate] = Gate(
        event.gate, event.token, token.step, event.ask, list(event.actors), at
    )
    _enter(state, token, "deciding", at)


def _gate_decided(state: State, event: e.GateDecided, at: int) -> None:
    gate = state.gates.pop(event.gate)
    token = state.tokens[gate.token]
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
    e.TokenSlept: _token_slept,
    e.TokenWoken: _token_woken,
    e.TokenTimed: _token_timed,
    e.TokenReleased: _token_released,
    e.TokenDoomed: _token_doomed,
    e.TokenFinished: _token_finished,
    e.JobScheduled: _job_scheduled,
    e.JobStarted: _job_started,
    e.JobExtended: _job_extended,
    e.JobParked: _job_parked,
    e.JobReported: _job_reported,
    e.JobReused: _job_reused,
    e.JobRetrying: _job_retrying,
    e.JobTimedOut: _job_timed_out,
    e.JobLost: _job_lost,
    e.JobCancelling: _job_cancelling,
    e.JobDischarged: _job_discharged,
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
    e.LoopSettled: loop_settled,
    e.GateOpened: _gate_opened,
    e.GateDecided: _gate_decided,
}

"""The part of `evolve` that is about tokens; the table in `kernel.evolve` knows these functions."""

from __future__ import annotations

from anabranch.kernel import events as e
from anabranch.kernel.empty import EMPTY
from anabranch.kernel.evolve_gathers import drop_empty
from anabranch.kernel.evolve_jobs import drop_answered, enter
from anabranch.kernel.evolve_loops import loop_gone
from anabranch.kernel.gather import combine
from anabranch.kernel.state import (
    FAULTS_KEPT,
    ROOT_SCOPE,
    STATUSES_KEPT,
    Judgement,
    State,
    StepTally,
    Token,
)
from anabranch.kernel.values import ENDINGS, Answer, Fault, is_step_timeout


def token_created(state: State, event: e.TokenCreated, at: int) -> None:
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
        args=event.args or EMPTY,
        payload=event.payload or EMPTY,
        since=at,
        wake=event.wake,
    )
    tally.runs += 1
    tally.statuses.append("new")
    if len(tally.statuses) >= 2 * STATUSES_KEPT:
        _drop_statuses(tally)
    state.phases["new"] = state.phases.get("new", 0) + 1
    state.tokens[event.token] = token
    state.next_token = event.token + 1
    scope = state.scopes[event.scope]
    scope.members[event.token] = True
    scope.live[event.step] = scope.live.get(event.step, 0) + 1
    state.counts.created += 1
    if event.via == "final":
        state.finalised = True


def _drop_statuses(tally: StepTally) -> None:
    """Every now and then, so that it costs nothing to speak of per run of the step."""
    for status in tally.statuses[:-STATUSES_KEPT]:
        if status in ENDINGS:  # the others are counted when they end
            tally.earlier |= {status: tally.earlier.get(status, 0) + 1}
    tally.dropped += len(tally.statuses) - STATUSES_KEPT
    del tally.statuses[:-STATUSES_KEPT]


def token_held(state: State, event: e.TokenHeld, at: int) -> None:
    token = state.tokens[event.token]
    token.reason = event.reason
    enter(state, token, "held", at)
    state.held |= {token.id: True}


def token_admitted(state: State, event: e.TokenAdmitted, at: int) -> None:
    token = state.tokens[event.token]
    token.reason = ""
    token.admitted = True
    enter(state, token, "new", at)


def token_queued(state: State, event: e.TokenQueued, at: int) -> None:
    enter(state, state.tokens[event.token], "queued", at)
    state.queued |= {event.token: True}


def token_slept(state: State, event: e.TokenSlept, at: int) -> None:
    token = state.tokens[event.token]
    enter(state, token, "sleeping", at)
    state.timers.set(f"wake:{token.id}", token.wake)


def token_woken(state: State, event: e.TokenWoken, at: int) -> None:
    token = state.tokens[event.token]
    token.wake = 0
    if event.payload:
        token.payload = {**token.payload, **event.payload}
    enter(state, token, "new", at)
    state.timers.drop(f"wake:{token.id}")


def token_timed(state: State, event: e.TokenTimed, at: int) -> None:
    token = state.tokens[event.token]
    token.until, token.hurries = event.until, event.hurry
    if event.until:
        state.timers.set(f"step:{event.token}", event.until)
    else:
        state.timers.drop(f"step:{event.token}")


def token_retrying(state: State, event: e.TokenRetrying, at: int) -> None:
    token = state.tokens[event.token]
    drop_answered(state, token)
    if token.gather:
        gather = state.gathers.pop(token.gather)
        token.asked = tuple(gather.values or gather.labels)
        token.gather = ""
    if token.until:
        token.until = 0
        state.timers.drop(f"step:{token.id}")
    token.round = event.round
    if event.counted:
        token.failures += 1
    else:
        token.failures = token.timeouts = 0
    token.answer = None
    token.decided = False
    token.admitted = True
    token.wake = event.due
    enter(state, token, "new", at)


def token_answered(state: State, event: e.TokenAnswered, at: int) -> None:
    drop_answered(state, state.tokens[event.token])


def task_judged(state: State, event: e.TaskJudged, at: int) -> None:
    token = state.tokens[event.token]
    token.decided = event.fulfilled or event.goes_on
    judgement = Judgement(
        token.id,
        event.fulfilled,
        event.policy,
        event.actor,
        event.reason,
        event.evidence,
        at,
        event.override,
    )
    state.judged |= {token.step: judgement}


def token_released(state: State, event: e.TokenReleased, at: int) -> None:
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


def token_doomed(state: State, event: e.TokenDoomed, at: int) -> None:
    token = state.tokens[event.token]
    token.doomed = True
    token.reason = event.reason
    token.until = 0
    state.timers.drop(f"step:{token.id}")


def token_finished(state: State, event: e.TokenFinished, at: int) -> None:
    token = state.tokens[event.token]
    drop_answered(state, token)
    state.phases[token.phase] -= 1
    if state.held:
        state.held.pop(token.id, None)
    if state.queued:
        state.queued.pop(token.id, None)
    del state.tokens[event.token]
    tally = state.steps[token.step]
    if token.ordinal >= tally.dropped:
        tally.statuses[token.ordinal - tally.dropped] = event.ending
    else:
        tally.earlier |= {event.ending: tally.earlier.get(event.ending, 0) + 1}
    if event.ending == "done" and event.outcome != "ok":
        tally.outcome = event.outcome
        tally.by_error = token.answer.by_error if token.answer is not None else ""
    elif event.ending == "skipped" and _is_tolerated(state, token, event):
        tally.outcome, tally.by_error = "", event.fault.message if event.fault is not None else ""
    elif tally.outcome or tally.by_error:
        tally.outcome = tally.by_error = ""
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
    if scope.closed:
        drop_empty(state, scope)
    if token.until:
        state.timers.drop(f"step:{token.id}")
    if token.phase == "sleeping":
        state.timers.drop(f"wake:{token.id}")
    if event.handed:
        state.final_args |= dict(event.handed)
    _keep_result(state, token, event)
    _count(state, token, event)
    if event.fault is not None:
        _keep_fault(state, token, event, event.fault)


def _keep_result(state: State, token: Token, event: e.TokenFinished) -> None:
    result = token.answer.result if token.answer is not None else None
    if event.end == "killed" and not (state.ending and token.fanin is not None):
        return  # whatever a killed one came to stays unseen; what a loop had done stays known
    if event.ending == "done" or result is not None:
        state.results |= {token.step: result}
    if token.via == "final":
        state.final_ending = event.ending
        state.final_result = result
    elif event.end in ("leaf", "no_match"):
        state.ends.pop(token.step, None)
        state.ends |= {token.step: result}


def _count(state: State, token: Token, event: e.TokenFinished) -> None:
    counts = state.counts
    counts.finished += 1
    if event.end in ("leaf", "no_match") or event.handed is not None:
        counts.branch_ends += 1
    if event.ending == "done":
        if token.loop or (token.answer is not None and token.answer.by_error):
            counts.tolerated += _is_tolerated(state, token, event)
        return
    if event.ending == "aborted":
        counts.aborted += 1
    elif event.ending == "failed" and token.via != "final":
        timed_out = is_step_timeout(event.fault)
        counts.failed += 1
        counts.handled += event.end == ""
        counts.timed_out += timed_out
        counts.timed_out_handled += timed_out and event.end == ""
    counts.problems += _is_problem(token, event)
    counts.tolerated += _is_tolerated(state, token, event)


def _is_problem(token: Token, event: e.TokenFinished) -> bool:
    """It ended badly, and nothing takes care of that.

    A failure is taken care of by the route that follows it; an abort inside the scope of a join by
    the join, which closes without it or is impossible. Whoever was killed was not needed.
    """
    if event.end == "killed":
        return False
    if event.ending == "aborted":
        return token.scope == ROOT_SCOPE
    return event.ending == "failed" and bool(event.end)


def _is_tolerated(state: State, token: Token, event: e.TokenFinished) -> bool:
    """It did not do all that it should, and a policy lets the run go on as if it had.

    An abort inside the scope of a join, a failure that counts as skipped, a no that comes from an
    error, and a loop of which items failed.
    """
    if event.end == "killed":
        return False
    match event.ending:
        case "aborted":
            return token.scope != ROOT_SCOPE
        case "skipped":
            return event.fault is not None and event.fault.kind != "skipped"
        case "done":
            by_error = token.answer is not None and bool(token.answer.by_error)
            record = state.looped.get(token.loop)
            return by_error or (record is not None and record.failed > 0)
        case _:
            return False


def token_retried_now(state: State, event: e.TokenRetriedNow, at: int) -> None:
    """Who asked for it; what follows from it are events of its own."""


def token_skipped(state: State, event: e.TokenSkipped, at: int) -> None:
    token = state.tokens[event.token]
    token.answer = Answer(status="ok", result=event.result) if event.answered else None
    token.fanin = None


def _keep_fault(state: State, token: Token, event: e.TokenFinished, fault: Fault) -> None:
    """Failures and aborts count as faults; what was skipped, turned away or killed does not."""
    if event.end == "killed" or event.ending not in ("failed", "aborted"):
        return
    if len(state.faults) < FAULTS_KEPT:
        state.fault_sources |= {len(state.faults): (token.id, token.parent, token.scope)}
        state.faults += ((token.step, fault),)
    if token.via == "final":
        state.final_fault = fault
    elif event.ending == "failed":
        state.failure = state.failure or fault
        if event.end:
            state.unhandled = state.unhandled or fault

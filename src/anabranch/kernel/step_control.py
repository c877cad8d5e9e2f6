"""What an operator does at one step of an unfinished run: `retry` ends a wait, `skip` the step run.

Both are refused where they would have no effect, with what can be done instead. A skip is what a
step timeout is with `skip` as its policy, only that a person says it: jobs are told to stop, and
the step run ends at once, without them. With a result it ends as done with that result.
"""

from __future__ import annotations

from anabranch.errors import InputError, Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.ending import close_gate, give_up
from anabranch.kernel.finishing import finish
from anabranch.kernel.fulfilment import asks_somebody
from anabranch.kernel.gates import resume_for
from anabranch.kernel.jobs import cancel, jobs_of
from anabranch.kernel.state import Job, Token
from anabranch.kernel.turn import Activate, Turn
from anabranch.net.net import Step
from anabranch.net.problems import did_you_mean

# -- retry -----------------------------------------------------------------------------------


def retry_now(turn: Turn, stimulus: s.RetryNow) -> None:
    tokens = _there(turn, stimulus)
    due = {token.id: _before_retry(turn, token) for token in tokens}
    asleep = [token for token in tokens if _sleeps_before_round(token)]
    if not asleep and not any(due.values()):
        raise Refused(_why_no_retry(turn, stimulus.step, tokens), code="not_retrying")
    if turn.state.paused:
        raise Refused("the run is paused; resume it first", code="paused")
    for token in tokens:
        if not due[token.id] and token not in asleep:
            continue
        turn.emit(e.TokenRetriedNow(token.id, stimulus.actor, stimulus.reason))
        for job in due[token.id]:
            turn.emit(e.JobScheduled(job.id, job.token, job.slot, job.attempt + 1))
        if token in asleep:
            turn.emit(e.TokenWoken(token.id, stimulus.actor or "retry"))
            turn.agenda.append(Activate(token.id))


def _before_retry(turn: Turn, token: Token) -> list[Job]:
    return [job for job in jobs_of(turn, token) if job.phase == "backoff"]


def _sleeps_before_round(token: Token) -> bool:
    """It sleeps because the whole step is tried again, not because its net says so."""
    return token.phase == "sleeping" and token.round > 0


def _why_no_retry(turn: Turn, step: str, tokens: list[Token]) -> str:
    said = f"nothing at step {step} waits for its next try"
    phases = {token.phase for token in tokens}
    if not tokens:
        return f"{said}: none of its runs is unfinished"
    if "deciding" in phases:
        return f"{said}: it waits for a decision: answer that"
    if "sleeping" in phases:
        return f"{said}: it sleeps until its wake time; wake it instead"
    if any(job.phase == "running" for token in tokens for job in jobs_of(turn, token)):
        return f"{said}: it is at work"
    return f"{said}: it waits for something else, which `explain` names"


# -- skip ------------------------------------------------------------------------------------


def skip(turn: Turn, stimulus: s.Skip) -> None:
    token = _the_one(turn, stimulus)
    _require_skippable(token, turn.net.steps[token.step])
    _require_right(turn.net.steps[token.step], stimulus)
    why = f"skipped by {stimulus.actor or 'an unnamed caller'}"
    why += f": {stimulus.reason}" if stimulus.reason else ""
    for job in jobs_of(turn, token):
        cancel(turn, job, why)
    close_gate(turn, token, why)
    give_up(turn, token, why)
    resume_for(turn, token, stimulus.actor)
    result = turn.values.fit(stimulus.result) if stimulus.answered else None
    turn.emit(e.TokenSkipped(token.id, stimulus.actor, stimulus.reason, stimulus.answered, result))
    finish(turn, token, "done" if stimulus.answered else "skipped", None)


def _require_skippable(token: Token, step: Step) -> None:
    if token.doomed:
        raise Refused(f"step {step.name} is being stopped already", code="stopping")
    if token.phase == "joining":
        message = f"step {step.name} waits for others: skip the steps that it waits for"
        raise Refused(message, code="joining")
    if step.work is not None and step.work.error_aborts:
        message = f"only its rule says whether step {step.name} is valid: it cannot be skipped"
        raise Refused(message, code="decided_by_rule")


def _require_right(step: Step, stimulus: s.Skip) -> None:
    """Whoever started a run should not be able to approve it as well: a question that is passed by
    is answered."""
    decision = step.decision
    if not stimulus.right or decision is None or not asks_somebody(decision):
        return
    if stimulus.right != "decide":
        message = f"step {step.name} asks for a decision: to skip it takes the right to decide"
        raise Refused(message, code="not_allowed")
    if decision.actors and stimulus.actor not in decision.actors:
        message = f"step {step.name} may be decided, and skipped, by {', '.join(decision.actors)}"
        raise Refused(message, code="not_allowed")


# -- which step runs are meant -----------------------------------------------------------------


def _there(turn: Turn, stimulus: s.RetryNow | s.Skip) -> list[Token]:
    """The unfinished runs of the step, in their order."""
    state, name = turn.state, stimulus.step
    if name not in turn.net.steps:
        hint = did_you_mean(name, turn.net.steps)
        raise InputError(
            f"there is no step {name!r}" + (f"; {hint}" if hint else ""), code="unknown_step"
        )
    if state.ending:
        raise Refused(f"the run is ending: {state.ending}", code="ending")
    found = [token for token in state.tokens.values() if token.step == name]
    if stimulus.token:
        found = [token for token in found if token.id == stimulus.token]
        if not found:
            message = f"step run {stimulus.token} of step {name} is unknown or over"
            raise Refused(message, code="unknown_token")
    return found


def _the_one(turn: Turn, stimulus: s.Skip) -> Token:
    found = _there(turn, stimulus)
    if len(found) == 1:
        return found[0]
    if not found:
        tally = turn.state.steps.get(stimulus.step)
        was = f"it was {tally.statuses[-1]}" if tally is not None else "it has not begun"
        message = f"no run of step {stimulus.step} is unfinished: {was}"
        raise Refused(message, code="nothing_to_skip")
    some = ", ".join(str(token.id) for token in found[:5])
    message = f"{len(found)} runs of step {stimulus.step} are unfinished: name one ({some})"
    raise Refused(message, code="ambiguous")

"""Gates: what holds a token back until somebody says otherwise.

Admission is decided by rules over the context and looked at again after every context patch; a
person may also open or close it by hand. A decision asks somebody named to say yes or no before the
step counts as done. A pause holds the whole run: nothing is started until it is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import ExpressionError, InputError, Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.ending import end_now, gate_id
from anabranch.kernel.jobs import try_again
from anabranch.kernel.reducers import preview
from anabranch.kernel.routing import names_for
from anabranch.kernel.state import Gate, Token
from anabranch.kernel.turn import Activate, Conclude, Turn
from anabranch.kernel.values import Fault
from anabranch.net.net import Admission, Decision, Step

BY_HAND = "by hand"


def admitted(admission: Admission, names: Mapping[str, Any]) -> bool:
    """The first rule that matches decides; when none does, the token is not admitted."""
    for rule in admission.rules:
        if rule.guard is None or rule.guard.evaluate(names):
            return rule.allow
    return False


def readmit(turn: Turn) -> None:
    """The context changed: ask again for every token at an admission gate."""
    for token in [turn.state.tokens[held] for held in turn.state.held]:
        admission = turn.step_of(token).admission
        if admission is None:
            continue
        try:
            allowed = admitted(admission, names_for(turn.state, token))
        except ExpressionError:
            continue  # it stays where it is; `explain` shows the gate
        if allowed:
            turn.emit(e.TokenAdmitted(token.id, "context"))
            turn.later(Activate(token.id))


def open_decision(turn: Turn, token: Token) -> bool:
    """Ask, if the step has something to ask; false when it may simply end."""
    decision = turn.step_of(token).decision
    if decision is None or token.decided:
        return False
    names = names_for(turn.state, token)
    names["answer"] = token.answer.result if token.answer is not None else None
    try:
        said = decision.when.evaluate(names) if decision.when is not None else None
    except ExpressionError as error:
        message = f"the decision of step {token.step}: {error}"
        turn.later(Conclude(token.id, Fault("expression", message, retryable=False)))
        return True
    if said is True:
        return False
    if said is False:
        _reject_by_rule(turn, token, decision)
    else:
        turn.emit(e.GateOpened(gate_id(token), token.id, decision.ask, decision.actors))
    return True


def _reject_by_rule(turn: Turn, token: Token, decision: Decision) -> None:
    """Nobody asks for these retries one by one, so they keep to the limits of the work."""
    fault = Fault("rejected", f"rejected by the rule of step {token.step}", "REJECTED")
    job = turn.state.jobs.get(f"{token.id}.0")
    work = turn.step_of(token).work
    if decision.on_reject == "pause":
        _ask_again(turn, token, decision, "engine", fault.message)
        return
    if decision.on_reject == "retry" and work is not None and job is not None and job.slot < 0:
        tries = job.attempt - job.losses
        if tries < work.retry.attempts:
            try_again(turn, job, work.retry.delay_before(tries))
            return
    turn.later(Conclude(token.id, fault))


def _ask_again(turn: Turn, token: Token, decision: Decision, actor: str, why: str) -> None:
    """The gate stays, and the run stands still until somebody has looked at it."""
    turn.emit(e.GateOpened(gate_id(token), token.id, decision.ask, decision.actors))
    if not turn.state.paused:
        turn.emit(e.RunPaused(actor, why))


def decide(turn: Turn, stimulus: s.Decide) -> None:
    if stimulus.verdict not in ("fulfil", "reject"):
        raise InputError(
            f"a decision is fulfil or reject, not {stimulus.verdict!r}", code="verdict"
        )
    gate = _gate(turn, stimulus.gate)
    if isinstance(gate, Token):
        _decide_admission(turn, gate, stimulus)
        return
    if gate.actors and stimulus.actor not in gate.actors:
        raise Refused(
            f"gate {gate.id} may be decided by {', '.join(gate.actors)}, "
            f"not by {stimulus.actor or 'nobody'}",
            code="not_allowed",
        )
    turn.emit(
        e.GateDecided(gate.id, stimulus.verdict, stimulus.actor, stimulus.reason, stimulus.evidence)
    )
    token = turn.state.tokens[gate.token]
    if stimulus.verdict == "fulfil":
        turn.later(Conclude(token.id))
    else:
        _after_rejection(turn, token, stimulus)


def _after_rejection(turn: Turn, token: Token, stimulus: s.Decide) -> None:
    step = turn.step_of(token)
    decision = step.decision or Decision()
    why = f"rejected by {stimulus.actor or 'somebody'}"
    fault = Fault("rejected", f"{why}: {stimulus.reason}" if stimulus.reason else why, "REJECTED")
    if decision.on_reject == "retry" and _is_plain(step):
        turn.emit(e.JobScheduled(f"{token.id}.0", token.id, -1, token.attempt + 1))
    elif decision.on_reject == "pause":
        _ask_again(turn, token, decision, stimulus.actor, fault.message)
    else:
        turn.later(Conclude(token.id, fault))


def _is_plain(step: Step) -> bool:
    """One job does its work, which can be done again."""
    return step.work is not None and step.fan is None and step.loop is None


def _gate(turn: Turn, name: str) -> Gate | Token:
    """An open gate, or the token at an admission gate, by the gate's id or by its step."""
    state = turn.state
    if name in state.gates:
        return state.gates[name]
    found: dict[str, Gate | Token] = {**state.gates}
    found |= {gate_id(state.tokens[held]): state.tokens[held] for held in state.held}
    if name in found:
        return found[name]
    at_step = [gate for gate, what in found.items() if what.step == name]
    if len(at_step) == 1:
        return found[at_step[0]]
    if at_step:
        options = ", ".join(at_step)
        raise Refused(f"several gates are open at {name}: name one of {options}", code="ambiguous")
    open_now = ", ".join(f"{gate} ({what.step})" for gate, what in found.items())
    raise Refused(
        f"no gate {name!r} is open" + (f"; open: {open_now}" if open_now else ""),
        code="gate_not_open",
    )


def _decide_admission(turn: Turn, token: Token, stimulus: s.Decide) -> None:
    if stimulus.verdict == "fulfil":
        turn.emit(e.TokenAdmitted(token.id, stimulus.actor or BY_HAND))
        turn.later(Activate(token.id))
        return
    why = stimulus.reason or f"turned away by {stimulus.actor or 'somebody'}"
    end_now(turn, token, "discarded", Fault("rejected", why, retryable=False))


def patch(turn: Turn, stimulus: s.PatchContext) -> None:
    if not stimulus.patches:
        raise InputError("there is nothing to patch", code="patch")
    preview(turn.state.ctx, stimulus.patches)
    turn.emit(e.ContextPatched(stimulus.patches, stimulus.actor))
    turn.readmit = True


def pause(turn: Turn, stimulus: s.Pause) -> None:
    if turn.state.paused:
        raise Refused("the run is paused already", code="already_paused")
    if turn.state.ending:
        raise Refused("the run is ending; there is nothing to pause", code="ending")
    turn.emit(e.RunPaused(stimulus.actor, stimulus.reason))


def resume(turn: Turn, stimulus: s.Resume) -> None:
    if not turn.state.paused:
        raise Refused("the run is not paused", code="not_paused")
    turn.emit(e.RunResumed(stimulus.actor))

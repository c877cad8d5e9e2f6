"""Gates: what holds a token back until somebody says otherwise.

Admission is decided by rules over the context and looked at again after every context patch; a
person may also open or close it by hand. A decision asks somebody named to say yes or no before the
step counts as done. A pause holds the whole run: nothing is started until it is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import ExpressionError, Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.ending import end_now, gate_id
from anabranch.kernel.reducers import check_patch, reduce_into
from anabranch.kernel.routing import names_for
from anabranch.kernel.state import Gate, Token
from anabranch.kernel.turn import Activate, Conclude, Turn
from anabranch.kernel.values import Fault
from anabranch.net.net import Admission

BY_HAND = "by hand"


def admitted(admission: Admission, names: Mapping[str, Any]) -> bool:
    """The first rule that matches decides; when none does, the token is not admitted."""
    for rule in admission.rules:
        if rule.guard is None or rule.guard.evaluate(names):
            return rule.allow
    return False


def readmit(turn: Turn) -> None:
    """The context changed: ask again for every token at an admission gate."""
    for token in [t for t in turn.state.tokens.values() if t.phase == "held"]:
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
    if decision.when is not None:
        names = names_for(turn.state, token)
        names["answer"] = token.answer.result if token.answer is not None else None
        if decision.when.evaluate(names):
            return False
    turn.emit(e.GateOpened(gate_id(token), token.id, decision.ask, decision.actors))
    return True


def decide(turn: Turn, stimulus: s.Decide) -> None:
    held = _held(turn, stimulus.gate)
    if held is not None:
        _decide_admission(turn, held, stimulus)
        return
    gate = _gate(turn, stimulus.gate)
    if gate.actors and stimulus.actor not in gate.actors:
        raise Refused(
            f"gate {gate.id} may be decided by {', '.join(gate.actors)}, "
            f"not by {stimulus.actor or 'nobody'}",
            code="not_allowed",
        )
    turn.emit(
        e.GateDecided(gate.id, stimulus.verdict, stimulus.actor, stimulus.reason, stimulus.evidence)
    )
    _after_decision(turn, turn.state.tokens[gate.token], stimulus)


def _after_decision(turn: Turn, token: Token, stimulus: s.Decide) -> None:
    if stimulus.verdict == "fulfil":
        turn.later(Conclude(token.id))
        return
    decision = turn.step_of(token).decision
    why = f"rejected by {stimulus.actor or 'somebody'}"
    fault = Fault("rejected", f"{why}: {stimulus.reason}" if stimulus.reason else why, "REJECTED")
    if decision is not None and decision.on_reject == "retry" and turn.step_of(token).work:
        turn.emit(e.JobScheduled(f"{token.id}.0", token.id, -1, token.attempt + 1))
    elif decision is not None and decision.on_reject == "pause":
        turn.emit(e.GateOpened(gate_id(token), token.id, decision.ask, decision.actors))
        turn.emit(e.RunPaused(stimulus.actor, fault.message))
    else:
        turn.later(Conclude(token.id, fault))


def _gate(turn: Turn, name: str) -> Gate:
    gates = turn.state.gates
    if name in gates:
        return gates[name]
    at_step = [gate for gate in gates.values() if gate.step == name]
    if len(at_step) == 1:
        return at_step[0]
    if at_step:
        options = ", ".join(gate.id for gate in at_step)
        raise Refused(f"several gates are open at {name}: name one of {options}", code="ambiguous")
    open_now = ", ".join(f"{gate.id} ({gate.step})" for gate in gates.values())
    raise Refused(
        f"no gate {name!r} is open" + (f"; open: {open_now}" if open_now else ""),
        code="gate_not_open",
    )


def _held(turn: Turn, name: str) -> Token | None:
    """The token at an admission gate, by gate id or by step."""
    held = [t for t in turn.state.tokens.values() if t.phase == "held"]
    for token in held:
        if gate_id(token) == name:
            return token
    at_step = [token for token in held if token.step == name]
    return at_step[0] if len(at_step) == 1 else None


def _decide_admission(turn: Turn, token: Token, stimulus: s.Decide) -> None:
    if stimulus.verdict == "fulfil":
        turn.emit(e.TokenAdmitted(token.id, stimulus.actor or BY_HAND))
        turn.later(Activate(token.id))
        return
    why = stimulus.reason or f"turned away by {stimulus.actor or 'somebody'}"
    end_now(turn, token, "discarded", Fault("rejected", why, retryable=False))


def patch(turn: Turn, stimulus: s.PatchContext) -> None:
    ctx = dict(turn.state.ctx)
    for one in stimulus.patches:
        check_patch(ctx, one)
        reduce_into(ctx, one)
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

"""Gates: what holds a token back until somebody says otherwise.

Admission is decided by rules over the context and looked at again after every context patch; a
person may also open or close it by hand. A decision asks somebody named to say yes or no before the
step counts as done. A pause holds the whole run: nothing is started until it is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from anabranch.errors import ExpressionError, InputError, Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.ending import end_now, gate_id
from anabranch.kernel.fulfilment import (
    Said,
    ask_source_again,
    decided_by_source,
    judge,
    record,
)
from anabranch.kernel.reducers import preview
from anabranch.kernel.rounds import begin_again
from anabranch.kernel.routing import names_for
from anabranch.kernel.state import Gate, State, Token
from anabranch.kernel.turn import Activate, Conclude, Turn
from anabranch.kernel.value_access import fit_patches
from anabranch.kernel.values import Fault
from anabranch.net.net import Admission, Decision, Net, Step

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
        admission = turn.net.steps[token.step].admission
        if admission is None:
            continue
        try:
            allowed = admitted(admission, names_for(turn.state, token, turn.values))
        except ExpressionError as error:
            if turn.budget.is_spent:  # by others, perhaps: nobody would ask again
                fault = Fault("expression", f"admission of step {token.step}: {error}", "", False)
                turn.agenda.append(Conclude(token.id, fault))
            continue  # else it stays where it is; `explain` shows the gate
        if allowed:
            turn.emit(e.TokenAdmitted(token.id, "context"))
            turn.agenda.append(Activate(token.id))


def decide(turn: Turn, stimulus: s.Decide) -> None:
    if stimulus.verdict not in ("fulfil", "reject", "ask_again"):
        raise InputError(
            f"a decision is fulfil, reject or ask_again, not {stimulus.verdict!r}", code="verdict"
        )
    if said_before(turn.state, stimulus):
        return
    gate = _gate(turn, stimulus.gate)
    _check_source(turn, gate, stimulus)
    if isinstance(gate, Token):
        _decide_admission(turn, gate, stimulus)
        return
    if gate.actors and stimulus.actor not in gate.actors:
        raise Refused(
            f"gate {gate.id} may be decided by {', '.join(gate.actors)}, "
            f"not by {stimulus.actor or 'an unnamed caller'}",
            code="not_allowed",
        )
    token = turn.state.tokens[gate.token]
    if stimulus.verdict == "ask_again":
        resume_for(turn, token, stimulus.actor)
        ask_source_again(turn, token, stimulus.actor, stimulus.reason)
        return
    turn.emit(
        e.GateDecided(
            gate.id,
            stimulus.verdict,
            stimulus.actor,
            stimulus.reason,
            stimulus.evidence,
            stimulus.override,
        )
    )
    if gate.failed:
        _after_failure(turn, token, stimulus)
    else:
        _after_decision(turn, token, stimulus)


def source_of(net: Net, gate: Gate) -> str:
    """The declared source whose answer this gate waits for; "" where people are asked."""
    decision = net.steps[gate.step].decision if gate.step in net.steps else None
    if gate.failed or decision is None or not decided_by_source(decision):
        return ""
    return decision.ask or "its source"


def _check_source(turn: Turn, gate: Gate | Token, stimulus: s.Decide) -> None:
    """What its source decides, the source decides, unless somebody says that they override it."""
    source = "" if isinstance(gate, Token) else source_of(turn.net, gate)
    if stimulus.verdict == "ask_again" and not source:
        raise Refused(
            "no declared source decides here, so that there is none to ask again; "
            "answer with fulfil or reject",
            code="no_source",
        )
    if stimulus.override and (not source or stimulus.verdict == "ask_again"):
        raise Refused(
            "there is nothing to override: only an answer in the place of a declared source is one",
            code="nothing_to_override",
        )
    if source and not stimulus.override and stimulus.verdict != "ask_again":
        message = f"step {gate.step} is decided by {source} alone"
        raise Refused(message, code="decided_by_source")


def said_before(state: State, stimulus: s.Decide) -> bool:
    """The same decision by the same actor, once more: it is heard, and changes nothing."""
    if stimulus.gate in state.gates:
        return False
    return any(
        stimulus.gate in (f"gate-{said.token}", step)
        and stimulus.actor == said.actor
        and said.fulfilled == (stimulus.verdict == "fulfil")
        and not any(gate.step == step for gate in state.gates.values())
        for step, said in state.judged.items()
    )


def _after_failure(turn: Turn, token: Token, stimulus: s.Decide) -> None:
    resume_for(turn, token, stimulus.actor)
    if stimulus.verdict == "fulfil":
        begin_again(turn, token, 0, f"tried again by {stimulus.actor or 'somebody'}")
        return
    why = f"given up by {stimulus.actor or 'somebody'}"
    message = f"{why}: {stimulus.reason}" if stimulus.reason else why
    turn.agenda.append(Conclude(token.id, Fault("rejected", message, "REJECTED"), given_up=True))


def _after_decision(turn: Turn, token: Token, stimulus: s.Decide) -> None:
    step = turn.net.steps[token.step]
    decision = step.decision or Decision()
    fulfilled = stimulus.verdict == "fulfil"
    if fulfilled or decision.on_reject != "pause":
        resume_for(turn, token, stimulus.actor)
    works = _is_plain(step) or (step.fan is not None and step.loop is None)
    said = Said(fulfilled, stimulus.actor, stimulus.reason, stimulus.evidence, stimulus.override)
    if stimulus.override and decision.on_reject == "pause":
        decision = replace(decision, on_reject="fail")  # nobody is left to look at it
        resume_for(turn, token, stimulus.actor)
    if not fulfilled and decision.on_reject == "retry" and works:
        # A person asks for this one by one: no limit of the work applies.
        record(turn, token, decision, said)
        begin_again(turn, token, 0, f"rejected by {stimulus.actor or 'somebody'}")
        return
    judge(turn, token, decision, said)
    if fulfilled:
        turn.agenda.append(Conclude(token.id))


def resume_for(turn: Turn, token: Token, actor: str) -> None:
    """A pause that the engine made for this gate ends with it."""
    if turn.state.paused and turn.state.paused_gate == gate_id(token):
        turn.emit(e.RunResumed(actor))


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
        turn.agenda.append(Activate(token.id))
        return
    why = stimulus.reason or f"turned away by {stimulus.actor or 'somebody'}"
    end_now(turn, token, "discarded", Fault("rejected", why, retryable=False))


def patch(turn: Turn, stimulus: s.PatchContext) -> None:
    if not stimulus.patches:
        raise InputError("there is nothing to patch", code="patch")
    patches = fit_patches(turn.state.ctx, stimulus.patches, turn.values)
    preview(turn.state.ctx, patches)
    turn.emit(e.ContextPatched(patches, stimulus.actor))
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
    for gate in list(turn.state.gates.values()):
        if source_of(turn.net, gate):
            ask_source_again(turn, turn.state.tokens[gate.token], stimulus.actor, "resumed")

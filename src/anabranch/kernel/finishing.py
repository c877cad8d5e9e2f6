"""The end of a step run and what follows it: patches, routes, tokens; and the end of a whole run.

What the end will do is planned before anything of it is recorded: a guard or a template that does
not work out makes it a failure, and nothing half done is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, ExpressionError, InputError
from anabranch.kernel import events as e
from anabranch.kernel.ending import abort, close_gate, comes_to_its_end
from anabranch.kernel.jobs import cancel, depend_on
from anabranch.kernel.joins import arrive, offer, open_join
from anabranch.kernel.reducers import preview
from anabranch.kernel.routing import (
    NO_ARGS,
    Taken,
    boundary_event,
    names_for,
    outcome_of,
    taken_arcs,
)
from anabranch.kernel.state import Token
from anabranch.kernel.turn import EndRun, Turn
from anabranch.kernel.value_access import fit_patches
from anabranch.kernel.values import ContextPatch, Ending, Fault, is_step_timeout
from anabranch.net.net import Branch, Step
from anabranch.net.reads import access


class _Plan(msgspec.Struct, frozen=True, gc=False):
    """What the end of a step run will do, decided before anything is recorded."""

    ending: Ending
    fault: Fault | None
    patches: tuple[ContextPatch, ...] = ()
    branch: Branch | None = None
    taken: tuple[Taken, ...] = ()
    end: str = ""
    payload: Mapping[str, Any] | None = None  # what is handed on, where anything gets it


_LEAF = _Plan("done", None, end="leaf")


def finish(turn: Turn, token: Token, ending: Ending, fault: Fault | None) -> None:
    """End the step run: patches, branch actions, mark it, deliver it."""
    marks = turn.state.provenance
    if marks is not None and marks.changed(token.id) is None:
        depend_on(turn, token, access(turn.net).steps[token.step].routes)
    outcome = outcome_of(token, ending)
    plan = _plan(turn, token, ending, outcome, fault)
    if plan.ending != ending:
        outcome = outcome_of(token, plan.ending)
    if turn.state.gates:
        close_gate(turn, token, "the step ended")
    if plan.patches:
        turn.emit(e.ContextPatched(plan.patches, f"token {token.id}"))
        turn.readmit = True
    scope = turn.state.scopes[token.scope]
    payload = token.payload if plan.payload is None else plan.payload
    if plan.branch is not None and plan.end == "":
        _spawn(turn, token, plan, payload)
    handed = _handed_to_final(turn, plan) if turn.net.final is not None else None
    turn.emit(e.TokenFinished(token.id, plan.ending, outcome, plan.end, plan.fault, handed))
    turn.dirty[token.scope] = True
    if plan.ending == "done" and scope.takes:
        offer(turn, token, scope, outcome, payload)
    if plan.ending == "failed" and turn.net.policy.fail_fast:
        _fail_fast(turn, token, plan)


def _fails_fast_anyway(turn: Turn) -> bool:
    """A failure ends the run, whether or not an arc takes care of it."""
    policy = turn.net.policy
    return policy.fail_fast and policy.on_failure != "handled"


def _fail_fast(turn: Turn, token: Token, plan: _Plan) -> None:
    """One failure that counts ends the run, with the status it would have come to anyway."""
    policy = turn.net.policy
    handled = policy.on_failure == "handled" and plan.end == ""
    if handled or token.via == "final" or turn.state.ending:
        return
    if policy.on_failure == "partial":
        status = "partial"
    elif is_step_timeout(plan.fault) and policy.timeouts_have_own_status:
        status = "step_timeout"
    else:
        status = "failed"
    wind_down(turn, status, f"step {token.step} failed")


def _plan(turn: Turn, token: Token, ending: Ending, outcome: str, fault: Fault | None) -> _Plan:
    step = turn.net.steps[token.step]
    branch = step.branch_for(outcome)
    names: dict[str, Any] = {}
    event: dict[str, Any] = {}
    if not _reads_names(step, branch):
        plain = ending == "done" and fault is None
        if plain and (plan := _plain_plan(turn, token, branch)) is not None:
            return plan
    else:
        names = names_for(turn.state, token, turn.values)
        event = boundary_event(token, ending, outcome, fault, turn.at)
        names["event"] = turn.values.view(event) if turn.values.lazy else event
    try:
        if ending == "done" and step.locals:
            _set_locals(step, names, event)
        patches = _patches(token, step, names) if ending == "done" else _last_words(token, ending)
        if patches:
            patches = fit_patches(turn.state.ctx, patches, turn.values)
            names["ctx"] = turn.values.view(preview(turn.state.ctx, patches))
        plan = _routes(turn, branch, _Plan(ending, fault, patches), token, names)
        if _hands_on(turn, plan, token):
            plan = msgspec.structs.replace(plan, payload=_payload_after(turn, token))
        return plan
    except (ExpressionError, InputError) as error:
        wrong = Fault(error.code, f"step {token.step}: {error}", retryable=False)
        return _Plan("failed", _not_hidden(fault, error) or wrong, end="no_match")


def _reads_names(step: Step, branch: Branch | None) -> bool:
    """Whether anything is worked out where the step ends: most arcs just lead on."""
    if step.locals or step.patches:
        return True
    for arc in branch.arcs if branch is not None else ():
        if arc.guard is not None or arc.args is not None or arc.patches:
            return True
    return False


def _plain_plan(turn: Turn, token: Token, branch: Branch | None) -> _Plan | None:
    """The plan of a step that wrote nothing and hands nothing on, where nothing is worked out."""
    if token.answer is not None and token.answer.patches:
        return None
    if token.step in turn.state.scopes[token.scope].takes or token.via == "final":
        return None
    if branch is None:
        return _LEAF
    if branch.join is not None or branch.carry_payload or not branch.arcs:
        return None
    arcs = branch.arcs[:1] if branch.mode == "exclusive" else branch.arcs
    return _Plan("done", None, (), branch, tuple([Taken(arc, NO_ARGS) for arc in arcs]))


def _not_hidden(fault: Fault | None, error: AnabranchError) -> Fault | None:
    """A guard often fails because its step did: what the step failed of is what counts."""
    if fault is None:
        return None
    said = f"{fault.message}; then the arcs out of the step could not be looked at: {error}"
    return msgspec.structs.replace(fault, message=said)


def _routes(
    turn: Turn, branch: Branch | None, plan: _Plan, token: Token, names: Mapping[str, Any]
) -> _Plan:
    ending, fault, patches = plan.ending, plan.fault, plan.patches
    if token.via == "final" or branch is None or not (branch.arcs or branch.join):
        return _Plan(ending, fault, patches, end="leaf")
    if ending == "failed" and _fails_fast_anyway(turn):
        return _Plan(ending, fault, patches, end="stopped")  # nobody would come to run what follows
    taken = tuple(taken_arcs(branch, names, turn.values, failed=ending == "failed"))
    if taken or branch.join is not None:
        patches += _on_the_way(turn, taken, names, patches)
        return _Plan(ending, fault, patches, branch, taken)
    if turn.net.policy.no_route_is_error:
        wrong = Fault("no_route", f"no arc of step {token.step} matches", retryable=False)
        return _Plan("failed", fault or wrong, patches, end="no_match")
    return _Plan(ending, fault, patches, end="no_match")


def _on_the_way(
    turn: Turn,
    taken: tuple[Taken, ...],
    names: Mapping[str, Any],
    before: tuple[ContextPatch, ...],
) -> tuple[ContextPatch, ...]:
    """What the arcs that fire write into the context, after what the step wrote `before`."""
    made: list[ContextPatch] = []
    for each in taken:
        for patch in each.arc.patches:
            made.append(ContextPatch(patch.key, patch.value.evaluate(names), patch.reducer))
    if not made:
        return ()
    ctx = preview(turn.state.ctx, before)
    fitted = fit_patches(ctx, made, turn.values)
    preview(ctx, fitted)  # refuses what does not fit
    return fitted


def _set_locals(step: Step, names: Mapping[str, Any], event: dict[str, Any]) -> None:
    """What the step sets for its own routes; each sees those before it."""
    found = event["locals"] = dict(event.get("locals", {}))
    for patch in step.locals:
        found[patch.key] = patch.value.evaluate(names)


def _patches(token: Token, step: Step, names: Mapping[str, Any]) -> tuple[ContextPatch, ...]:
    own = token.answer.patches if token.answer is not None else ()
    if not step.patches:
        return own
    return own + tuple(
        ContextPatch(patch.key, patch.value.evaluate(names), patch.reducer)
        for patch in step.patches
    )


def _last_words(token: Token, ending: Ending) -> tuple[ContextPatch, ...]:
    """What failing work wants written all the same."""
    if ending != "failed" or token.answer is None or token.answer.status != "error":
        return ()
    return token.answer.patches


def _hands_on(turn: Turn, plan: _Plan, token: Token) -> bool:
    """Whether anything gets the payload: what follows, or the join of its scope."""
    branch = plan.branch
    if branch is not None and (branch.carry_payload or branch.join is not None):
        return True
    return token.step in turn.state.scopes[token.scope].takes


def _payload_after(turn: Turn, token: Token) -> Mapping[str, Any]:
    """The payload overlaid with the result: key by key, also where it is too large to travel."""
    result = token.answer.result if token.answer is not None else None
    if turn.values.stands_in(result):
        whole = turn.values.whole(result)
        result = turn.values.fit_fields(whole) if isinstance(whole, Mapping) else None
    if isinstance(result, Mapping):
        return {**token.payload, **result}
    return token.payload


def _handed_to_final(turn: Turn, plan: _Plan) -> dict[str, Any] | None:
    """What the arcs give that lead to the final step: it runs once, when everything is over."""
    given = [taken.args for taken in plan.taken if taken.arc.target == turn.net.final]
    return {key: value for args in given for key, value in args.items()} if given else None


def _spawn(turn: Turn, token: Token, plan: _Plan, payload: Mapping[str, Any]) -> None:
    """Create what follows: the join's target first, then the arcs' tokens in document order."""
    branch = plan.branch
    assert branch is not None, "nothing to spawn without a branch"
    wait = token.answer.wait_ms if token.answer is not None else 0
    wake = turn.at + wait if wait else 0
    handed = payload if branch.carry_payload else {}
    scope = token.scope
    if branch.join is not None:
        scope = open_join(turn, token, branch.join, payload, wake)
    for taken in plan.taken:
        target = taken.arc.target
        if target == turn.net.final:
            continue  # this branch ends there, with all others
        if turn.net.steps[target].barrier is not None:
            arrive(turn, token, scope, target, taken.args, wake)
        else:
            turn.create(
                target,
                parent=token.id,
                scope=scope,
                args=taken.args,
                payload=handed,
                wake=wake,
            )


# -- winding down ----------------------------------------------------------------------------


def end_run(turn: Turn, item: EndRun) -> None:
    if not turn.state.ending:
        wind_down(turn, "cancelled", item.reason)


def wind_down(turn: Turn, status: str, reason: str, actor: str = "") -> None:
    """From here on nothing new is begun; what waits ends now, what runs is told to stop."""
    turn.emit(e.RunEnding(status, reason, actor))
    for token in list(turn.state.tokens.values()):
        if token.id in turn.state.tokens:
            abort(turn, token, reason)
    for job in list(turn.state.jobs.values()):
        if not comes_to_its_end(turn, job):
            cancel(turn, job, reason)

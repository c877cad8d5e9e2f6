"""Joins and barriers: tokens that wait for other tokens.

A join is declared on a branch: it opens a fresh scope, a token at the target waits in the parent's
scope for deliveries from the fresh one, and the spawns of that branch are the first members of it.
Members hand their scope on to their children, so a producer may lie several steps deep; a nested
join takes its own spawns out of the scope and leaves its target in it.

A join is impossible as soon as delivered + still possible < needed, where "possible" asks which
slots any live member can still reach along scope-preserving edges. That is looked at after every
change in the scope, and an impossible join ends its target, which changes the scope outside: the
verdict cascades outwards.

A barrier is a step that runs once for all tokens that can still reach it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.kernel import events as e
from anabranch.kernel.ending import end_now, kill_scope
from anabranch.kernel.gather import slot_for, weigh
from anabranch.kernel.state import Gather, Scope, Token
from anabranch.kernel.turn import Activate, Turn
from anabranch.kernel.values import Fault
from anabranch.net.net import Barrier, GatherRule, Join
from anabranch.net.reach import predecessors, reachability

BARRIER_RULE = GatherRule(mode="all", combine="merge", empty_closes=True)


def open_join(turn: Turn, parent: Token, join: Join, payload: Mapping[str, Any], wake: int) -> int:
    """Create the target of a join; returns the fresh scope, which is the target's id."""
    target = turn.state.next_token
    kept = {key: value for key, value in payload.items() if key.startswith("__")}
    turn.emit(e.TokenCreated(target, join.target, parent.id, parent.scope, "join", {}, kept, wake))
    turn.emit(
        e.GatherOpened(
            f"j{target}",
            "join",
            target,
            join.rule,
            [slot.node for slot in join.slots],
            [slot.when for slot in join.slots],
        )
    )
    turn.dirty[target] = True
    return target


def offer(
    turn: Turn, producer: Token, scope: Scope, outcome: str, payload: Mapping[str, Any]
) -> None:
    """A member of `scope` finished a step: the scope's join may have a slot for that."""
    whens = scope.takes.get(producer.step)
    if whens is None or not (outcome in whens or "any" in whens):
        return
    if scope.closed or producer.doomed:
        turn.emit(e.DeliveryLate(scope.gather, str(producer.id), outcome))
        return
    gather = turn.state.gathers[scope.gather]
    slot = slot_for(gather, producer.step, outcome)
    if slot is None:
        return
    public = {key: value for key, value in payload.items() if not key.startswith("__")}
    turn.emit(e.Delivered(gather.id, slot, str(producer.id), outcome, None, public))
    _settle_join(turn, gather, possible_slots(turn, gather), may_give_up=False)


def possible_slots(turn: Turn, gather: Gather) -> int:
    """How many unfilled slots some live member of the scope can still reach."""
    reach = reachability(turn.net).in_scope
    live = turn.state.scopes[gather.token].live
    return sum(
        slots
        for label, slots in gather.free.of_label.items()
        if label in live or any(label in reach[step] for step in live)
    )


def _settle_join(turn: Turn, gather: Gather, possible: int, *, may_give_up: bool = True) -> None:
    """Close the join, or give it up, if it has come to a verdict.

    A delivery only closes. Giving up is left to `recheck`: a join that the producer has just opened
    inside this scope is looked at first, so that joins end from the inside out.
    """
    verdict = weigh(gather, possible if gather.rule.mode == "best_of" else _eager(gather, possible))
    if verdict is None or (verdict.verdict != "closed" and not may_give_up):
        return
    turn.emit(e.GatherSettled(gather.id, verdict.verdict, verdict.selected, verdict.reason))
    target = turn.state.tokens[gather.token]
    if verdict.verdict == "closed":
        turn.emit(e.TokenReleased(target.id))
        turn.agenda.append(Activate(target.id))
    if gather.rule.losers == "kill":
        kill_scope(turn, gather.token, f"the join at {gather.target} no longer needs it")
    if verdict.verdict != "closed":
        why = f"the join at {gather.target} cannot close: {verdict.reason}"
        end_now(turn, target, "aborted", Fault("impossible_join", why, retryable=False))


def _eager(gather: Gather, possible: int) -> int:
    """A join over named slots closes with the last one filled; it waits for nobody beyond."""
    return 0 if len(gather.filled) == len(gather.labels) else possible


def recheck(turn: Turn, scope_id: int) -> None:
    """Something ended in this scope: its join may be impossible now, its barriers complete."""
    scope = turn.state.scopes.get(scope_id)
    if scope is None:
        return
    if scope.gather and not scope.closed:
        gather = turn.state.gathers[scope.gather]
        _settle_join(turn, gather, possible_slots(turn, gather))
    for token in _complete_barriers(turn, scope) if scope.barriers else ():
        release_barrier(turn, token)


# -- barriers --------------------------------------------------------------------------------


def arrive(
    turn: Turn, parent: Token, scope: int, step: str, args: Mapping[str, Any], wake: int
) -> None:
    """A token's arc leads to a barrier: it joins the one that is open there, or opens it."""
    waiting = turn.state.scopes[scope].barriers.get(step)
    if waiting is None:
        waiting = turn.state.next_token
        turn.emit(e.TokenCreated(waiting, step, parent.id, scope, "barrier"))
        labels = predecessors(turn.net)[step]
        turn.emit(e.GatherOpened(f"b{waiting}", "barrier", waiting, BARRIER_RULE, labels))
    gather = turn.state.gathers[f"b{waiting}"]
    slot = gather.free.first(parent.step, "any")
    if slot is None:  # an arrival beyond the known predecessors is labelled by its step
        slot, producer = len(gather.labels), parent.step
    else:
        producer = str(parent.id)
    turn.emit(e.Delivered(gather.id, slot, producer, "ok", None, dict(args), wake))
    turn.dirty[scope] = True


def _complete_barriers(turn: Turn, scope: Scope) -> list[Token]:
    """The barriers of the scope at which nobody else can arrive.

    A barrier waits for whoever moves and can reach it, and for a barrier that itself waits for
    such a one. Those left over wait for nobody, or only for one another: then the oldest of
    those that nothing outside their circle can reach gives way.
    """
    reach = reachability(turn.net).in_scope
    moving = [step for step, count in scope.live.items() if count > (step in scope.barriers)]
    idle = dict(scope.barriers)
    while moving:
        waiting = [b for b in idle if any(b in reach[step] for step in moving if step != b)]
        for barrier in waiting:
            del idle[barrier]
        moving = waiting
    before = {b: [other for other in idle if other != b and b in reach[other]] for b in idle}
    free = [b for b in idle if not before[b]]
    if idle and not free:
        circles = [b for b in idle if all(other in reach[b] for other in before[b])]
        free = [min(circles, key=lambda barrier: idle[barrier])]
    return [turn.state.tokens[idle[barrier]] for barrier in free]


def release_barrier(turn: Turn, token: Token) -> None:
    """Nobody else can come: run the step, or skip it where every predecessor was needed."""
    gather = turn.state.gathers[token.gather]
    barrier = turn.net.steps[token.step].barrier or Barrier()
    missing = [label for slot, label in enumerate(gather.labels) if slot not in gather.filled]
    if barrier.need == "all" and missing:
        why = f"nothing came from {', '.join(missing)}"
        turn.emit(e.GatherSettled(gather.id, "impossible", (), why))
        end_now(turn, token, "skipped", Fault("skipped", why, retryable=False))
        return
    turn.emit(e.GatherSettled(gather.id, "closed", sorted(gather.filled)))
    turn.emit(e.TokenReleased(token.id))
    turn.agenda.append(Activate(token.id))

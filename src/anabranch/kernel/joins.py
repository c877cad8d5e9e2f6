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
    if producer.step not in scope.takes:
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
    _settle_join(turn, gather, possible_slots(turn, gather))


def possible_slots(turn: Turn, gather: Gather) -> int:
    """How many unfilled slots some live member of the scope can still reach."""
    reach = reachability(turn.net).in_scope
    live = turn.state.scopes[gather.token].live
    wanted = [label for slot, label in enumerate(gather.labels) if slot not in gather.filled]
    return sum(1 for label in wanted if any(label in reach[step] for step in live))


def _settle_join(turn: Turn, gather: Gather, possible: int) -> None:
    """Close the join, or give it up, if it has come to a verdict."""
    verdict = weigh(gather, possible if gather.rule.mode == "best_of" else _eager(gather, possible))
    if verdict is None:
        return
    turn.emit(e.GatherSettled(gather.id, verdict.verdict, verdict.selected, verdict.reason))
    target = turn.state.tokens[gather.token]
    if verdict.verdict == "closed":
        turn.emit(e.TokenReleased(target.id))
        turn.later(Activate(target.id))
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
    for key in [key for key in turn.state.barriers if key.startswith(f"{scope_id}:")]:
        token = turn.state.tokens[turn.state.barriers[key]]
        if token.phase == "joining" and not _someone_may_come(turn, token):
            release_barrier(turn, token)


# -- barriers --------------------------------------------------------------------------------


def arrive(turn: Turn, parent: Token, step: str, args: Mapping[str, Any], wake: int) -> None:
    """A token's arc leads to a barrier: it joins the one that is open there, or opens it."""
    waiting = turn.state.barriers.get(f"{parent.scope}:{step}")
    if waiting is None:
        waiting = turn.state.next_token
        turn.emit(e.TokenCreated(waiting, step, parent.id, parent.scope, "barrier", {}, {}, wake))
        labels = predecessors(turn.net)[step]
        turn.emit(e.GatherOpened(f"b{waiting}", "barrier", waiting, BARRIER_RULE, labels))
    gather = turn.state.gathers[f"b{waiting}"]
    free = [s for s, label in enumerate(gather.labels) if label == parent.step]
    slot = next((s for s in free if s not in gather.filled), len(gather.labels))
    turn.emit(e.Delivered(gather.id, slot, _name(parent, slot, gather), "ok", None, dict(args)))
    turn.dirty[parent.scope] = True


def _name(parent: Token, slot: int, gather: Gather) -> str:
    """An arrival beyond the known predecessors is labelled by its step."""
    return parent.step if slot == len(gather.labels) else str(parent.id)


def _someone_may_come(turn: Turn, token: Token) -> bool:
    reach = reachability(turn.net).not_through(token.step)
    live = turn.state.scopes[token.scope].live
    return any(token.step in reach[step] for step in live if step != token.step)


def release_barrier(turn: Turn, token: Token) -> None:
    """Nobody else can come: run the step, or skip it where every predecessor was needed."""
    gather = turn.state.gathers[token.gather]
    barrier = turn.step_of(token).barrier or Barrier()
    missing = [label for slot, label in enumerate(gather.labels) if slot not in gather.filled]
    if barrier.need == "all" and missing:
        why = f"nothing came from {', '.join(missing)}"
        turn.emit(e.GatherSettled(gather.id, "impossible", (), why))
        end_now(turn, token, "skipped", Fault("skipped", why, retryable=False))
        return
    turn.emit(e.GatherSettled(gather.id, "closed", sorted(gather.filled)))
    turn.emit(e.TokenReleased(token.id))
    turn.later(Activate(token.id))

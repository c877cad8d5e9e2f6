"""What a step that has ordered waits for: the provider, or people who decide about its result.

The engine knows that a step waits for its provider; only the host knows that the result is there
and waits to be paid for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.operations.read.waiting import Waiting

_ORDERS = "anabranch node orders"
#: By the state of the execution: what is waited for, and the actions of `node orders` that end it.
_WAITS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "opened": ("its request to be sent", ()),
    "dispatch_prepared": ("its request to be sent", ()),
    "dispatched": ("the result of {provider}", ()),
    "awaiting_acceptance": ("the payer to accept the result", ("accept", "dispute")),
    "awaiting_manual_release": ("the operator to release the money", ("release",)),
    "disputed": ("the end of the dispute", ("resolve --for payer", "resolve --for payee")),
}
_OF_ENGINE = ("job", "gather")  # what it says of a step at work


def of_orders(waiting: list[Waiting], executions: Mapping[str, Mapping[str, Any]]) -> list[Waiting]:
    """The same with the orders of steps, by step, in place of what the engine says of these."""
    found = []
    for one in waiting:
        execution = executions.get(one.step)
        if execution is None or one.what not in _OF_ENGINE:
            found.append(one)
        elif one.what == "job":
            found.append(_of_order(one, execution))
    return found


def _of_order(one: Waiting, execution: Mapping[str, Any]) -> Waiting:
    named, provider = execution["execution_id"], execution["provider"]["participant_id"]
    waits_for, actions = _WAITS.get(execution["state"], ("its end", ()))
    who = tuple(f"{_ORDERS} {_action(action, named)}" for action in actions)
    return Waiting(
        what="order",
        id=execution["order_id"],
        step=one.step,
        waits_for=f"{waits_for.format(provider=provider)} ({execution['order_id']})",
        since=one.since,
        until=one.until,
        movers=who or (provider,),
    )


def _action(action: str, execution: str) -> str:
    verb, _, options = action.partition(" ")
    return f"{verb} {execution} {options}".strip()

"""What must hold of orders after every step, as functions over the whole state.

An order opens at most one execution (it is the stream), its hold is where its state says, and it
has a receipt exactly when it has ended, with the outcome of that end.
"""

from __future__ import annotations

from anabranch.market.documents import check
from anabranch.market.node.entities import Entities
from anabranch.market.node.ledger.holds import HOLDS, Hold
from anabranch.market.node.ledger.laws import everything
from anabranch.market.node.orders.executions import EXECUTIONS, Execution
from anabranch.market.node.orders.procurement import STATUS, contract

#: The hold of an execution, by its state; active in every other one.
_HOLD = {
    "released": "released",
    "failed": "refunded",
    "rejected": "refunded",
    "expired": "refunded",
    "disputed": "frozen",
}


async def broken(entities: Entities) -> list[str]:
    """Which laws of orders do not hold; an empty list is as it must be."""
    executions = await everything(entities, EXECUTIONS)
    holds = await everything(entities, HOLDS)
    wrong = [text for one in executions.values() for text in _of_execution(one, holds)]
    named = [one.terms.hold_id for one in executions.values() if one.terms.hold_id]
    if len(named) != len(set(named)):
        wrong.append("two executions have one hold")
    alone = [one for one in holds.values() if one.id not in named and one.status != "voided"]
    return [*wrong, *(f"hold {one.id} is {one.status} without an execution" for one in alone)]


def _of_execution(execution: Execution, holds: dict[str, Hold]) -> list[str]:
    name, state = execution.execution_id, execution.state
    wrong = [
        f"{name}: {each}" for each in check(contract(execution), kind="procurement-contract.v1")
    ]
    hold = holds.get(execution.terms.hold_id)
    if bool(execution.terms.hold_id) != (execution.terms.rail == "host-ledger"):
        wrong.append(f"{name} has a hold without a price, or the reverse")
    if execution.terms.hold_id:
        expected = _HOLD.get(state, "active")
        if hold is None or hold.status != expected or hold.amount != execution.terms.amount:
            wrong.append(f"{name} is {state}, its hold {hold.status if hold else 'missing'}")
    return [*wrong, *_of_receipt(execution)]


def _of_receipt(execution: Execution) -> list[str]:
    name, receipt = execution.execution_id, execution.receipt
    if (receipt is None) == (execution.state in STATUS):
        return [f"{name} is {execution.state} with{'out' if receipt is None else ''} a receipt"]
    if receipt is None:
        return []
    wrong = [f"{name}: {each}" for each in check(receipt, kind="procurement-receipt.v1")]
    if receipt["outcome"] != STATUS[execution.state]:
        wrong.append(f"{name} is {execution.state}, its receipt says {receipt['outcome']}")
    return wrong

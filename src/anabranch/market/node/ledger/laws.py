"""What must hold of the ledger after every step, as functions over the whole state.

The movements of everything add up to zero, no holder is below zero, escrow has exactly what is on
hold, and a hold has at most one outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeVar

from anabranch.market.node.entities import Entities, Family
from anabranch.market.node.ledger.accounts import (
    ACCOUNTS,
    ESCROW,
    EXTERNAL,
    MOVEMENTS,
    Account,
    Movement,
)
from anabranch.market.node.ledger.holds import HOLDS, OUTCOMES, Hold

S = TypeVar("S")

PAGE = 500


async def everything(entities: Entities, family: Family[S]) -> dict[str, S]:
    """All things of a family, however many."""
    found: dict[str, S] = {}
    before: tuple[int, str] | None = None
    while rows := await entities.listed(family, before=before, limit=PAGE):
        found.update({thing: state for thing, state, _ in rows})
        before = rows[-1][2].created_at, rows[-1][2].stream
    return found


async def broken(entities: Entities) -> list[str]:
    """Which laws of the ledger do not hold; an empty list is as it must be."""
    accounts = await everything(entities, ACCOUNTS)
    movements = await everything(entities, MOVEMENTS)
    holds = await everything(entities, HOLDS)
    return [
        *_sums(accounts.values(), movements.values()),
        *_escrow(accounts, holds.values()),
        *_outcomes(movements, holds.values()),
    ]


def _sums(accounts: Iterable[Account], movements: Iterable[Movement]) -> list[str]:
    total: Counter[str] = Counter()
    for movement in movements:
        for account, amount in movement.entries:
            total[account] += amount
    balances = {one.account: one.balance for one in accounts}
    wrong = []
    if sum(total.values()) != 0 or sum(balances.values()) != 0:
        wrong.append("the movements do not add up to zero")
    for name in {*total, *balances}:
        if total[name] != balances.get(name, 0):
            wrong.append(f"{name} has {balances.get(name, 0)}, its movements say {total[name]}")
    below = [name for name, balance in balances.items() if balance < 0 and name != EXTERNAL]
    return [*wrong, *(f"{name} is below zero" for name in below)]


def _escrow(accounts: dict[str, Account], holds: Iterable[Hold]) -> list[str]:
    held: Counter[str] = Counter()
    for hold in holds:
        if not hold.is_settled:
            held[hold.payer] += hold.amount
    escrow = accounts[ESCROW].balance if ESCROW in accounts else 0
    wrong = []
    if escrow != sum(held.values()):
        wrong.append(f"escrow has {escrow}, and {sum(held.values())} is on hold")
    for name, account in accounts.items():
        if account.held != held[name]:
            wrong.append(f"{name} says {account.held} is on hold, its holds {held[name]}")
    return wrong


def _outcomes(movements: dict[str, Movement], holds: Iterable[Hold]) -> list[str]:
    wrong = []
    of_hold: dict[str, list[str]] = {}
    for movement in movements.values():
        if movement.hold_id:
            of_hold.setdefault(movement.hold_id, []).append(movement.id)
    for hold in holds:
        expected = 2 if hold.status in OUTCOMES else 1
        if sorted(of_hold.pop(hold.id, [])) != sorted(hold.movements):
            wrong.append(f"the movements of hold {hold.id} are not those that it names")
        if len(hold.movements) != expected or (hold.resolved_at is not None) != hold.is_settled:
            wrong.append(f"hold {hold.id} is {hold.status} with {len(hold.movements)} movements")
    return [*wrong, *(f"movements of hold {hold}, which is not there" for hold in of_hold)]

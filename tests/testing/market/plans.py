"""Plans of orders for simulations: what everybody will do, and what must come of it.

`expected` is the plain oracle: it knows nothing of messages, commits or time, only what was agreed
and what was said.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

MODES = ("self-confirmed", "arbiter-confirmed", "manual-review-only", "")
PRICES = (0, 1, 250)
ANSWERS = ("completed", "completed", "completed", "failed", "rejected", "never", "late")
DECISIONS = ("accept", "release", "for-payer", "for-payee", "dispute", "nothing")
FUNDS = 100_000  # of every buyer: enough for all of its orders


class Plan(NamedTuple):
    """The life of one order."""

    number: int
    buyer: str
    provider: str
    mode: str
    price: int
    units: int
    by_module: bool  # the module of the buyer orders and sends
    late_dispatch: bool  # opened first, sent later
    answer: str
    repeats: int  # how often it is answered the same way once more
    rival: bool  # another result is sent after the first one has arrived
    decision: str

    @property
    def order_id(self) -> str:
        return f"order:p{self.number}"

    @property
    def execution_id(self) -> str:
        return f"execution:p{self.number}"

    @property
    def amount(self) -> int:
        return self.price * self.units

    @property
    def on_hold(self) -> bool:
        return bool(self.amount and self.mode)

    @property
    def waits_for_people(self) -> bool:
        return self.answer == "completed" and self.on_hold


def random_plan(chance: Random, number: int, names: list[str]) -> Plan:
    buyer, provider = chance.sample(names, 2)
    return Plan(
        number=number,
        buyer=buyer,
        provider=provider,
        mode=chance.choice(MODES),
        price=chance.choice(PRICES),
        units=chance.choice((1, 1, 3)),
        by_module=chance.random() < 0.4,
        late_dispatch=chance.random() < 0.3,
        answer=chance.choice(ANSWERS),
        repeats=chance.choice((0, 0, 1, 2)),
        rival=chance.random() < 0.3,
        decision=chance.choice(DECISIONS),
    )


class Outcome(NamedTuple):
    state: str
    paid: int  # by the buyer to the provider
    held: int


def expected(plan: Plan) -> Outcome:
    if plan.answer in ("never", "late"):
        return Outcome("expired", 0, 0)
    if plan.answer != "completed":
        return Outcome(plan.answer, 0, 0)
    if not plan.on_hold:
        return Outcome("released", 0, 0)
    if plan.mode == "manual-review-only":
        if plan.decision in ("accept", "release"):
            return Outcome("released", plan.amount, 0)
        return Outcome("awaiting_manual_release", 0, plan.amount)  # it takes no dispute
    if plan.decision == "for-payer":
        return Outcome("rejected", 0, 0)
    if plan.decision == "dispute":
        return Outcome("disputed", 0, plan.amount)
    return Outcome("released", plan.amount, 0)  # said, or by the time that passes

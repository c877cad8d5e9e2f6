"""Orders, holds, receipts and the ledger once more, written from the reference, not from the code.

Nothing here is shared with the node: no table, no struct, no constant. It knows offers and orders
as a few plain values, and says for everything that can be done what the answer is and how things
stand afterwards. Money of a buyer is in a `purse`, on hold in `escrow`, of the provider `earned`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HOUR = 3600
DAY = 24 * HOUR


@dataclass
class OfferFacts:
    """Of an offer what the checks look at. Times are in seconds from the start."""

    name: str
    price: int
    mode: str = ""  # self, arbiter, manual, or none
    flat: bool = False
    currency: str = "ORC"
    ends: int = 365 * DAY
    withdrawn: bool = False
    depth: int = 0
    most: int = 100
    hours: int = 1


@dataclass(frozen=True)
class OrderFacts:
    name: str
    offer: str
    units: int = 1
    budget: int = 1000
    sequence: int = 7
    right_provider: bool = True
    right_service: bool = True
    right_input: bool = True
    currency: str = "ORC"
    org: str = ""  # "own", or "other"; "" is the participant


@dataclass
class Placed:
    """An order that was opened."""

    facts: OrderFacts
    cost: int
    mode: str  # "" where nothing has to be confirmed
    paid_by: str
    work_by: int
    state: str = "opened"
    hold: str = "none"
    receipt: str = ""
    sent: bool = False
    answer: str = ""  # which result was taken
    overdue: bool = False


@dataclass
class Model:
    offers: dict[str, OfferFacts]
    now: int = 0
    purse: dict[str, int] = field(default_factory=lambda: {"participant": 0, "own": 0})
    earned: int = 0
    escrow: int = 0
    brought: dict[str, tuple[str, int]] = field(default_factory=dict)
    placed: dict[str, Placed] = field(default_factory=dict)

    # -- money comes in ----------------------------------------------------------------------

    def top_up(self, key: str, purse: str, amount: int) -> str:
        if key in self.brought:
            return "200" if self.brought[key] == (purse, amount) else "409"
        self.brought[key] = purse, amount
        self.purse[purse] += amount
        return "201"

    # -- 3.3 ---------------------------------------------------------------------------------

    def submit(self, order: OrderFacts) -> str:
        before = self.placed.get(order.name)
        if before is not None:
            return "replayed" if before.facts == order else "conflict"
        reason = self._reason_against(order)
        if reason:
            return reason
        offer = self.offers[order.offer]
        cost = offer.price if offer.flat else offer.price * order.units
        purse = order.org or "participant"
        placed = Placed(order, cost, offer.mode, purse, self.now + offer.hours * HOUR)
        if cost == 0 or offer.mode == "":
            placed.mode = ""
        else:
            self.purse[purse] -= cost
            self.escrow += cost
            placed.hold = "active"
        self.placed[order.name] = placed
        return "opened"

    def _reason_against(self, order: OrderFacts) -> str:
        offer = self.offers.get(order.offer)
        if offer is None:
            return "offer-not-found"
        if offer.withdrawn or self.now >= offer.ends:
            return "offer-expired"
        if order.sequence != 7:
            return "offer-seq-mismatch"
        if not order.right_provider:
            return "provider-mismatch"
        if not order.right_service:
            return "service-type-mismatch"
        if not order.right_input:
            return "other-reason"
        if order.currency != offer.currency:
            return "currency-mismatch"
        cost = offer.price if offer.flat else offer.price * order.units
        if cost > order.budget:
            return "price-exceeded"
        busy = sum(
            1
            for one in self.placed.values()
            if one.state in {"opened", "dispatch_prepared", "dispatched"}
        )
        if offer.depth + busy >= offer.most:
            return "queue-saturated"
        if order.org == "other":
            return "custodian-mismatch"
        on_hold = cost > 0 and offer.mode != ""
        if on_hold and (offer.currency != "ORC" or self.purse[order.org or "participant"] < cost):
            return "settlement-blocked"
        return ""

    # -- 3.2 ---------------------------------------------------------------------------------

    def prepare(self, name: str) -> str:
        one = self.placed.get(name)
        if one is None:
            return "order_unknown"
        if one.state not in {"opened", "dispatch_prepared", "dispatched"}:
            return "execution_closed"
        one.sent = True
        if one.state == "opened":
            one.state = "dispatch_prepared"
        return "ok"

    def arrived(self, name: str) -> None:
        one = self.placed.get(name)
        if one is not None and one.state == "dispatch_prepared":
            one.state = "dispatched"

    def lost(self, name: str) -> None:
        one = self.placed.get(name)
        if one is not None and one.state == "dispatch_prepared":
            self._end(one, "failed", "rejected")

    def result(self, name: str, status: str, variant: int, *, honest: bool = True) -> str:
        """4.7: first the request, then who sends it, then whether there is one already."""
        one = self.placed.get(name)
        if one is None or not one.sent:
            return "rejected unknown-request"
        if not honest:
            return "rejected source-peer-mismatch"
        this = f"{status} {variant}"
        if one.answer:
            return "already-present" if one.answer == this else "rejected result-conflict"
        if one.state not in {"dispatch_prepared", "dispatched"}:
            return "rejected step-already-closed"
        one.answer = this
        if status == "failed":
            self._end(one, "failed", "rejected")
        elif status == "rejected":
            self._end(one, "rejected", "rejected")
        elif one.mode == "":
            self._end(one, "released", "settled")
        elif one.mode == "manual":
            one.state = "awaiting_manual_release"
        else:
            one.state = "awaiting_acceptance"
        return "accepted"

    def act(self, name: str, action: str) -> str:
        one = self.placed.get(name)
        if one is None:
            return "404"
        waits = one.state in {"awaiting_acceptance", "awaiting_manual_release"}
        if action in {"accept", "release"} and waits:
            self._end(one, "released", "settled")
        elif action == "dispute" and one.state == "awaiting_acceptance":
            if self.now > one.work_by + 2 * DAY:
                return "409"
            one.state, one.hold = "disputed", "disputed"
        elif action == "for payer" and one.state == "disputed":
            self._end(one, "rejected", "rejected")
        elif action == "for payee" and one.state == "disputed":
            self._end(one, "released", "settled")
        else:
            return "409"
        return "200"

    def tick(self, name: str) -> None:
        """The clock has struck for this order, perhaps some time ago."""
        one = self.placed[name]
        if one.state in {"opened", "dispatch_prepared", "dispatched"}:
            if self.now >= one.work_by:
                self._end(one, "expired", "expired")
        elif one.state in {"awaiting_acceptance", "awaiting_manual_release"}:
            if self.now >= one.work_by + DAY:
                one.overdue = True
            if one.state == "awaiting_acceptance" and self.now >= one.work_by + 3 * DAY:
                self._end(one, "released", "settled")

    def _end(self, one: Placed, state: str, receipt: str) -> None:
        one.state, one.receipt = state, receipt
        if one.hold == "none":
            return
        self.escrow -= one.cost
        if state == "released":
            self.earned += one.cost
            one.hold = "released"
        else:
            self.purse[one.paid_by] += one.cost
            one.hold = "refunded"

    # -- how things stand --------------------------------------------------------------------

    def view(self) -> dict[str, object]:
        return {
            "purse": dict(self.purse),
            "escrow": self.escrow,
            "earned": self.earned,
            "outside": -sum(amount for _, amount in self.brought.values()),
            **{
                name: (one.state, one.hold, one.receipt, one.overdue)
                for name, one in self.placed.items()
            },
        }

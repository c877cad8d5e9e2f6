"""From a step to an order: which offer it orders from, and the draft that the host signs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.market.node.orders.agreement import total_of
from anabranch.modules.arca.work.attempts import Attempt
from anabranch.modules.arca.work.ports import Offers
from anabranch.work.participants.performers import rfc3339
from anabranch.work.port import Task

Offer = Mapping[str, Any]
_PROVIDER = "provider/participant-id"


class OfferChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What the step says of the offer that it orders from. The provider is the one that was chosen
    for the step, in every attempt."""

    provider: str
    service_type: str
    units: int = 1
    max_amount: int | None = None
    currency: str = ""
    named: Offer | None = None  # the offer that `offer_ref` names: this one and no other

    @classmethod
    def of(cls, task: Task) -> OfferChoice:
        inputs = task.inputs
        named = inputs.get("offer")
        return cls(
            provider=str(inputs.get("target") or ""),
            service_type=str(inputs.get("service_type") or ""),
            units=int(inputs.get("request_units") or 1),
            max_amount=inputs.get("max_amount"),
            currency=str(inputs.get("currency") or ""),
            named=named if isinstance(named, Mapping) else None,
        )

    def choose(self, offers: Offers) -> Offer | None:
        """The offer that is named, as it is known now; else the cheapest that the step can pay."""
        if self.named is not None:
            known = offers.offer(str(self.named["offer/id"]))
            return _newer(known, self.named) if known is not None else self.named
        return next((one for one in self._of_provider(offers) if self._is_payable(one)), None)

    def why_none(self, offers: Offers) -> tuple[str, str]:
        """By its class, as the host would name it."""
        known = self._of_provider(offers)
        what = f"{self.provider} has no active offer for {self.service_type!r}"
        if not known:
            return "offer-not-found", f"{what} that is known here"
        if self.currency and all(one["pricing/currency"] != self.currency for one in known):
            return "currency-mismatch", f"{what} in {self.currency}"
        return "price-exceeded", f"{what} for {self.units} units at {self.max_amount} or less"

    def limit(self, offer: Offer) -> int:
        """What may be paid in all: what the step says, else what the chosen offer asks. The offer
        that is named may have a higher price by now, and that is not what was chosen."""
        if self.max_amount is not None:
            return self.max_amount
        return total_of({"request/units": self.units}, self._priced(offer))

    def _priced(self, offer: Offer) -> Offer:
        has_price = self.named is not None and "pricing/amount" in self.named
        return self.named if has_price and self.named is not None else offer

    def _of_provider(self, offers: Offers) -> list[Offer]:
        return offers.offers(service_type=self.service_type, provider=self.provider)

    def _is_payable(self, offer: Offer) -> bool:
        if self.currency and offer["pricing/currency"] != self.currency:
            return False
        total = total_of({"request/units": self.units}, offer)
        return self.max_amount is None or total <= self.max_amount


def order_draft(
    task: Task, attempt: Attempt, choice: OfferChoice, offer: Offer, now: int
) -> dict[str, Any]:
    """A `service-order.v1` without buyer and signature: those are the host's."""
    given = dict(task.inputs["input"])
    timeout = task.inputs.get("timeout_ms")
    upstream = given.get("upstream")
    lineage = [f"{task.run}:{step}" for step in upstream] if isinstance(upstream, Mapping) else []
    draft: dict[str, Any] = {
        "schema/v": 1,
        "order/id": attempt.order_id,
        "created-at": rfc3339(now),
        "provider/node-id": offer["provider/node-id"],
        _PROVIDER: offer[_PROVIDER],
        "offer/id": offer["offer/id"],
        "offer/seq": offer["sequence/no"],
        "service/type": choice.service_type or offer["service/type"],
        "request/units": choice.units,
        "request/input": given,
        "pricing/max-amount": choice.limit(offer),
        "pricing/currency": choice.currency or offer["pricing/currency"],
        "workflow/run-id": attempt.run,
        "workflow/phase-id": attempt.step,
    }
    if timeout:
        draft["delivery/requested-by"] = rfc3339(now + int(timeout))
    return {**draft, "lineage/upstream-refs": lineage} if lineage else draft


def _newer(known: Offer, named: Offer) -> Offer:
    return known if known["sequence/no"] >= named.get("sequence/no", 0) else named

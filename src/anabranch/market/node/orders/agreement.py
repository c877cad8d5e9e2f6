"""Whether an order agrees to an offer, and a request for its work to the order: what is paid for is
what is asked for. Buyers ask this before an order is opened, providers before anybody works for it.

What is wrong is a class and a sentence; both are empty where nothing is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.market.node.orders.constraints import same

Document = Mapping[str, Any]
Problem = tuple[str, str]

AGREED: Problem = ("", "")
#: What the dispatch says again where it says it.
_REPEATED = (
    "service_type", "request/input", "delivery_deadline", "workflow/run-id", "workflow/phase-id",
    "correlation/id",
)  # fmt: skip


def total_of(order: Document, offer: Document) -> int:
    amount = int(offer["pricing/amount"])
    flat = offer["pricing/unit-kind"] == "flat"
    return amount if flat else amount * int(order["request/units"])


def _service_type(order: Document, offer: Document) -> str:
    wanted, known = order["service/type"], offer["service/type"]
    return "" if wanted == known else f"the offer is for {known[:200]!r}"


def _currency(order: Document, offer: Document) -> str:
    wanted, known = order["pricing/currency"], offer["pricing/currency"]
    return "" if wanted == known else f"the price of the offer is in {known}"


def _price(order: Document, offer: Document) -> str:
    total, most = total_of(order, offer), order["pricing/max-amount"]
    return "" if total <= most else f"the price is {total}, `pricing/max-amount` {most}"


#: The terms by the class of an order that does not agree to them.
TERMS: Mapping[str, Callable[[Document, Document], str]] = {
    "service-type-mismatch": _service_type,
    "currency-mismatch": _currency,
    "price-exceeded": _price,
}


def terms_problem(order: Document, offer: Document) -> Problem:
    """Why the order does not agree to what the offer says. There is none for a later number."""
    if order["offer/seq"] > offer["sequence/no"]:
        number = offer["sequence/no"]
        return "offer-seq-mismatch", f"the offer has number {number} and no later one"
    for name, problem_of in TERMS.items():
        if reason := problem_of(order, offer):
            return name, reason
    return AGREED


def request_problem(request: Document) -> Problem:
    """Why a `service-order.dispatch.request.v1` does not ask for what its order does."""
    if not same(request["request/input"], request["order"]["request/input"]):
        return "input-mismatch", "the input is not that of the order"
    dispatch = request["dispatch_payload"].get("dispatch", {})
    if not isinstance(dispatch, Mapping):
        return "dispatch-mismatch", "`dispatch` is an object"
    for name in _REPEATED:
        if name in dispatch and not same(dispatch[name], request[name]):
            return "dispatch-mismatch", f"`{name}` of the dispatch is another"
    return AGREED

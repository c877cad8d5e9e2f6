"""Whether an order may be opened: the checks in their order, each with its class.

The first check that fails names the class; nothing was changed and no contract exists then. An
order that passed all of them is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from anabranch.market.documents import buyer_fields, custodian_problem
from anabranch.market.documents.shapes import moment
from anabranch.market.node.ledger.accounts import UNIT
from anabranch.market.node.orders.agreement import TERMS, total_of
from anabranch.market.node.orders.constraints import input_problem, output_problem
from anabranch.market.node.ports import Signer

Document = Mapping[str, Any]

REASON_MAX = 1024
SKEW_MS = 5 * 60 * 1000  # by which clocks may differ
#: Classes after which the same order may be opened later; the last two once the catalog is fresh.
RETRYABLE = frozenset(
    ("queue-saturated", "settlement-blocked", "offer-expired", "offer-seq-mismatch")
)


class Rejection(msgspec.Struct, frozen=True):
    classifier: str
    reason: str

    def document(self) -> dict[str, Any]:
        return {
            "status": "rejected",
            "classifier": self.classifier,
            "rejected-reason": self.reason[:REASON_MAX],
            "retryable": self.classifier in RETRYABLE,
        }


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """An order, the offer it names, and what the node knows."""

    order: Document
    offer: Document | None
    now: int
    signer: Signer
    depth: int  # of the provider's queue, as far as this node's own orders fill it
    balance: int  # of the buyer
    can_settle: bool = True  # the ledger may be written
    wrong_signature: str = ""

    @property
    def of(self) -> Document:
        return self.offer or {}


def completed(draft: Document, signer: Signer) -> dict[str, Any]:
    """The draft with the buyer, which is this node's participant or org. What is signed stays."""
    if "signature" in draft:
        return dict(draft)
    kind = draft.get("buyer/subject-kind")
    if kind is None and str(draft.get("buyer/subject-id", "")).startswith("org:"):
        kind = "org"
    org = signer.org_id if kind == "org" else None
    fields = buyer_fields(signer.node_id, signer.participant_id, org_id=org)
    if org == "":  # of no org is this node's participant the custodian, which is told later
        del fields["buyer/subject-id"]
    return {**fields, **draft}


def rail_of(offer: Document, total: int) -> str:
    """How it is paid. What has no price or no confirmation has no hold: the ledger stays out."""
    if total == 0:
        return "none"
    return "host-ledger" if offer.get("confirmation/mode") else "external-invoice"


# -- the checks: "" or why not ---------------------------------------------------------------


def _buyer(case: Case) -> str:
    order, signer = case.order, case.signer
    if case.wrong_signature:
        return case.wrong_signature
    if order.get("buyer/node-id") != signer.node_id:
        return "`buyer/node-id` is not this node"
    subject = order.get("buyer/subject-kind"), order.get("buyer/subject-id")
    if subject[0] == "participant" and subject[1] != signer.participant_id:
        return "`buyer/subject-id` is not the participant of this node"
    created = moment(order["created-at"])
    if created is None or created > case.now + SKEW_MS:
        return "`created-at` is in the future"
    return ""


def _offer_known(case: Case) -> str:
    return "" if case.offer is not None else f"no offer {case.order['offer/id'][:200]} is known"


def _offer_active(case: Case) -> str:
    if case.of.get("offer/status") == "withdrawn":
        return "the provider has withdrawn the offer"
    expires = moment(case.of.get("expires-at"))
    expired = expires is None or expires <= case.now
    return f"the offer ended at {case.of.get('expires-at')}" if expired else ""


def _sequence(case: Case) -> str:
    wanted, known = case.order["offer/seq"], case.of["sequence/no"]
    return "" if wanted == known else f"the order is for number {wanted}, the offer has {known}"


def _provider(case: Case) -> str:
    for key in ("provider/node-id", "provider/participant-id"):
        if case.order[key] != case.of[key]:
            return f"`{key}` is not that of the offer"
    return ""


def _term(classifier: str) -> tuple[str, Callable[[Case], str]]:
    return classifier, lambda case: TERMS[classifier](case.order, case.of)


def _constraints(case: Case) -> str:
    schema = case.of.get("constraints/input", {})
    if problem := input_problem(schema, case.order["request/input"]):
        return problem
    wanted = case.order.get("request/output-constraints")
    if problem := output_problem(case.of.get("constraints/output"), wanted):
        return problem
    by = case.order.get("delivery/requested-by")
    if by is not None and (moment(by) or 0) <= case.now:
        return "`delivery/requested-by` has passed"
    return ""


def _queue(case: Case) -> str:
    depth = int(case.of.get("queue/current-depth", 0)) + case.depth
    most = case.of["queue/max-depth"]
    return "" if depth < most else f"{depth} orders wait at the provider, who takes {most}"


def _custodian(case: Case) -> str:
    signer = case.signer
    custodians = {signer.org_id: signer.participant_id} if signer.org_id else {}
    return custodian_problem(case.order, custodians)


def _settlement(case: Case) -> str:
    total = total_of(case.order, case.of)
    if rail_of(case.of, total) != "host-ledger":
        return ""
    if not case.can_settle:
        return "this node takes no money on hold at the moment"
    if case.of["pricing/currency"] != UNIT:
        return f"the ledger of this node keeps {UNIT} and no other currency"
    if case.balance < total:
        return f"the price is {total}, the account of the buyer has {case.balance}"
    return ""


#: Schema and replay come before these, the hold after them.
CHECKS: tuple[tuple[str, Callable[[Case], str]], ...] = (
    ("other-reason", _buyer),
    ("offer-not-found", _offer_known),
    ("offer-expired", _offer_active),
    ("offer-seq-mismatch", _sequence),
    ("provider-mismatch", _provider),
    _term("service-type-mismatch"),
    ("other-reason", _constraints),
    _term("currency-mismatch"),
    _term("price-exceeded"),
    ("queue-saturated", _queue),
    ("custodian-mismatch", _custodian),
    ("settlement-blocked", _settlement),
)


def rejection(case: Case) -> Rejection | None:
    """Why the order is not opened; None where it may be."""
    for classifier, check in CHECKS:
        if reason := check(case):
            return Rejection(classifier, reason)
    return None

"""Documents of a purchase: the contract, its receipt, the answer, and the hold on its price."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.documents.rules import (
    follows,
    forbids,
    needs,
    valid_from,
    valid_until,
    when,
)
from anabranch.market.documents.shapes import (
    FLAG,
    FREE_TEXT,
    INSTANT,
    NAME,
    OBJECT,
    Constant,
    Fields,
    ListOf,
    Number,
    Object,
    TextOr,
    Whole,
    choice,
    pattern,
    whole_of,
)
from anabranch.market.documents.signing import SIGNATURE
from anabranch.market.documents.values import (
    ACCOUNT,
    ACCOUNT_HOLDER,
    AMOUNT,
    ANSWER_FORMAT,
    CONFIRMATION,
    CURRENCY,
    NODE,
    PARTICIPANT,
    VERSION,
)

LEDGER_CURRENCY = "ORC"
RAILS = ("external-invoice", "host-ledger", "manual-transfer", "none")
OUTCOMES = ("settled", "rejected", "expired", "canceled")

_DEADLINES = (
    "deadlines/work-by", "deadlines/accept-by", "deadlines/dispute-by", "deadlines/auto-release",
)  # fmt: skip
_OF_LEDGER = (
    "payer/account-ref", "payee/account-ref", "escrow/node-id", "escrow/hold-ref",
    "escrow-policy/ref",
)  # fmt: skip
_POLICY_REF = pattern("escrow-policy:…", r"escrow-policy:.+")

# -- contract --------------------------------------------------------------------------------


def _ledger_demands(contract: Object, path: str, found: Found) -> None:
    because = "`settlement/rail` host-ledger"
    needs(contract, path, found, (*_OF_LEDGER, *_DEADLINES), because)
    currency = contract.get("payment/currency")
    if isinstance(currency, str) and currency != LEDGER_CURRENCY:
        message = f"{shown(currency)} is here; the ledger of a host keeps {LEDGER_CURRENCY}"
        found.add(below(path, "payment/currency"), "conflicting-values", message)


def _all_deadlines_or_none(contract: Object, path: str, found: Found) -> None:
    given = [key for key in _DEADLINES if key in contract]
    if given:
        needs(contract, path, found, _DEADLINES, f"`{given[0]}`")


def _arbiters_are_named(contract: Object, path: str, found: Found) -> None:
    because = "`confirmation/mode` arbiter-confirmed"
    needs(contract, path, found, ("acceptance/arbiter-set",), because)


def _lengths_are_in_order(contract: Object, path: str, found: Found) -> None:
    least = whole_of(contract, "acceptance/min-length")
    most = whole_of(contract, "acceptance/max-length")
    if least is not None and most is not None and least > most:
        message = f"{most} is less than `acceptance/min-length` {least}; no answer can fit"
        found.add(below(path, "acceptance/max-length"), "conflicting-values", message)


CONTRACT = Fields(
    {
        "schema/v": VERSION,
        "contract/id": NAME,
        "question/id": NAME,
        "room/id": NAME,
        "selected-offer/id": NAME,
        "created-at": INSTANT,
        "asker/node-id": NODE,
        "asker/participant-id": PARTICIPANT,
        "responder/node-id": NODE,
        "responder/participant-id": PARTICIPANT,
        "payment/amount": AMOUNT,
        "payment/currency": CURRENCY,
        "deadline-at": INSTANT,
        "acceptance/answer-format": ANSWER_FORMAT,
        "acceptance/min-length": Whole(1),
        "acceptance/max-length": Whole(1),
        "confirmation/mode": CONFIRMATION,
        "status": choice("pending", *OUTCOMES),
    },
    {
        "settlement/rail": choice(*RAILS),
        "payer/account-ref": ACCOUNT_HOLDER,
        "payee/account-ref": ACCOUNT_HOLDER,
        "escrow/node-id": NODE,
        "escrow/hold-ref": NAME,
        "escrow-policy/ref": _POLICY_REF,
        **dict.fromkeys(_DEADLINES, INSTANT),
        "acceptance/arbiter-set": ListOf(NAME, least=1, distinct=True),
    },
    rules=(
        when("settlement/rail", "host-ledger", _ledger_demands),
        _all_deadlines_or_none,
        when("confirmation/mode", "arbiter-confirmed", _arbiters_are_named),
        _lengths_are_in_order,
        follows("created-at", "deadline-at"),
        follows("created-at", "deadlines/work-by"),
        follows("deadlines/work-by", "deadlines/accept-by", same_is_fine=True),
        valid_from("created-at"),
        when("status", "pending", valid_until("deadline-at")),
    ),
)

# -- receipt ---------------------------------------------------------------------------------


def _settled_demands(receipt: Object, path: str, found: Found) -> None:
    because = "`outcome` settled"
    keys = ("settled-at", "answer/accepted", "payer/signature", "payee/signature")
    needs(receipt, path, found, keys, because)
    if receipt.get("answer/accepted") is False:
        message = "what is settled was accepted; write true, or another `outcome`"
        found.add(below(path, "answer/accepted"), "conflicting-values", message)


def _others_have_a_reason(receipt: Object, path: str, found: Found) -> None:
    outcome = receipt.get("outcome")
    if outcome in OUTCOMES and outcome != "settled":
        needs(receipt, path, found, ("rejection/reason",), f"`outcome` {outcome}")


def _paid_from_the_ledger(receipt: Object, path: str, found: Found) -> None:
    keys = ("settlement/ref", "settlement/hold-ref", "settlement/transfer-refs")
    needs(receipt, path, found, keys, "`settlement/rail` host-ledger")


RECEIPT = Fields(
    {
        "schema/v": VERSION,
        "receipt/id": NAME,
        "contract/id": NAME,
        "question/id": NAME,
        "created-at": INSTANT,
        "payer/participant-id": PARTICIPANT,
        "payee/participant-id": PARTICIPANT,
        "outcome": choice(*OUTCOMES),
        "confirmation/mode": CONFIRMATION,
    },
    {
        "settled-at": INSTANT,
        "answer/accepted": FLAG,
        "payer/signature": SIGNATURE,
        "payee/signature": SIGNATURE,
        "rejection/reason": FREE_TEXT,
        "settlement/rail": choice(*RAILS),
        "settlement/ref": NAME,
        "settlement/hold-ref": NAME,
        "settlement/transfer-refs": ListOf(NAME, least=1),
    },
    rules=(
        when("outcome", "settled", _settled_demands),
        _others_have_a_reason,
        when("settlement/rail", "host-ledger", _paid_from_the_ledger),
        valid_from("created-at"),
    ),
)

# -- answer ----------------------------------------------------------------------------------

RESPONSE = Fields(
    {
        "schema/v": VERSION,
        "response/id": NAME,
        "question/id": NAME,
        "created-at": INSTANT,
        "source/node-id": NODE,
        "source/participant-id": PARTICIPANT,
        "answer/content": TextOr(OBJECT),
        "answer/format": ANSWER_FORMAT,
        "confidence/signal": Number(0, 1),
        "human-linked-participation": FLAG,
        "provenance/origin-classes": ListOf(
            choice("node-generated", "node-mediated-human", "human-live"), distinct=True
        ),
    },
    rules=(valid_from("created-at"),),
)

# -- hold ------------------------------------------------------------------------------------

_RESOLVED = ("released", "partially-released", "refunded", "expired")
_PAID: Mapping[str, tuple[str, ...]] = {
    "released": ("released/amount",),
    "partially-released": ("released/amount", "refunded/amount"),
    "refunded": ("refunded/amount",),
    "expired": (),
}


def _resolution(hold: Object, path: str, found: Found) -> None:
    status = hold.get("status")
    if status in ("active", "disputed"):
        keys = ("resolved-at", "released/amount", "refunded/amount")
        forbids(hold, path, found, keys, f"`status` {status}")
    if not isinstance(status, str) or status not in _PAID:
        return
    needs(hold, path, found, ("resolved-at", *_PAID[status]), f"`status` {status}")
    held = whole_of(hold, "amount")
    parts = [whole_of(hold, key) for key in ("released/amount", "refunded/amount")]
    paid = [part for part in parts if part is not None]
    if held is not None and paid and sum(paid) != held:
        message = f"{sum(paid)} was paid out of a hold of {held}; they must be equal"
        found.add(below(path, "amount"), "wrong-sum", message)


HOLD = Fields(
    {
        "schema/v": VERSION,
        "hold/id": NAME,
        "contract/id": NAME,
        "payer/account-id": ACCOUNT,
        "payee/account-id": ACCOUNT,
        "escrow/node-id": NODE,
        "escrow-policy/ref": _POLICY_REF,
        "amount": Whole(1),
        "unit": Constant(LEDGER_CURRENCY),
        "status": choice("active", "disputed", *_RESOLVED),
        "created-at": INSTANT,
        "work-by": INSTANT,
        "accept-by": INSTANT,
        "dispute-by": INSTANT,
        "auto-release-after": INSTANT,
    },
    {"resolved-at": INSTANT, "released/amount": AMOUNT, "refunded/amount": AMOUNT},
    rules=(
        _resolution,
        follows("created-at", "work-by"),
        follows("work-by", "accept-by", same_is_fine=True),
        follows("created-at", "resolved-at", same_is_fine=True),
        valid_from("created-at"),
    ),
)

KINDS: Mapping[str, Fields] = {
    "procurement-contract.v1": CONTRACT,
    "procurement-receipt.v1": RECEIPT,
    "response-envelope.v1": RESPONSE,
    "ledger-hold.v1": HOLD,
}

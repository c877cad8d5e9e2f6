"""Contracts, receipts, answers and holds."""

from __future__ import annotations

from typing import Any

import pytest

from .examples import (
    AFTER,
    BEFORE,
    BUYER_ID,
    BUYER_NODE,
    GONE,
    LATER,
    LEDGER_FIELDS,
    NOW,
    ORG_ID,
    Document,
    contract,
    hold,
    ledger_contract,
    receipt,
    response,
)
from .tables import Problems, found, rows

DEADLINES = sorted(field for field in LEDGER_FIELDS if field.startswith("deadlines/"))


def at(field: str) -> str:
    return "/" + field.replace("/", "~1")


@rows(
    [
        ("amount", contract(**{"payment/amount": -1}), {"/payment~1amount": "bad-number"}),
        ("cents", contract(**{"payment/amount": 1.5}), {"/payment~1amount": "wrong-type"}),
        (
            "format",
            contract(**{"acceptance/answer-format": "application/json"}),
            {"/acceptance~1answer-format": "bad-choice"},
        ),
        (
            "least",
            contract(**{"acceptance/min-length": 0}),
            {"/acceptance~1min-length": "bad-number"},
        ),
        (
            "no length fits",
            contract(**{"acceptance/min-length": 9, "acceptance/max-length": 8}),
            {"/acceptance~1max-length": "conflicting-values"},
        ),
        ("status", contract(status="released"), {"/status": "bad-choice"}),
        ("rail", contract(**{"settlement/rail": "cash"}), {"/settlement~1rail": "bad-choice"}),
        ("deadline", contract(**{"deadline-at": BEFORE}), {"/deadline-at": "times-out-of-order"}),
        (
            "an arbiter nobody named",
            contract(**{"confirmation/mode": "arbiter-confirmed"}),
            {"/acceptance~1arbiter-set": "missing-field"},
        ),
        (
            "an empty set",
            contract(**{"confirmation/mode": "arbiter-confirmed", "acceptance/arbiter-set": []}),
            {"/acceptance~1arbiter-set": "bad-list"},
        ),
        (
            "another currency",
            ledger_contract(**{"payment/currency": "EUR"}),
            {"/payment~1currency": "conflicting-values"},
        ),
        (
            "a policy by name",
            ledger_contract(**{"escrow-policy/ref": "default"}),
            {"/escrow-policy~1ref": "bad-text"},
        ),
        (
            "paid by a node",
            ledger_contract(**{"payer/account-ref": BUYER_NODE}),
            {"/payer~1account-ref": "wrong-role"},
        ),
        (
            "accepted before it is done",
            ledger_contract(**{"deadlines/accept-by": NOW, "deadlines/work-by": LATER}),
            {"/deadlines~1accept-by": "times-out-of-order"},
        ),
        (
            "asked by a node",
            contract(**{"asker/participant-id": BUYER_NODE}),
            {"/asker~1participant-id": "wrong-role"},
        ),
    ]
)
def test_what_is_wrong_with_a_contract_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems


@pytest.mark.parametrize("field", sorted(set(LEDGER_FIELDS) - {"settlement/rail"}))
def test_the_ledger_of_a_host_demands_each_of_these(field: str) -> None:
    assert found(ledger_contract(**{field: GONE})) == {(at(field), "missing-field")}
    for rail in ("external-invoice", "manual-transfer", "none"):
        others: dict[str, Any] = dict.fromkeys(LEDGER_FIELDS, GONE)
        assert found(contract(**{**others, "settlement/rail": rail})) == set()


@pytest.mark.parametrize("field", DEADLINES)
def test_one_deadline_asks_for_all_four(field: str) -> None:
    missing = {(at(other), "missing-field") for other in DEADLINES if other != field}
    assert len(missing) == 3
    assert found(contract(**{field: LATER})) == missing


def test_more_good_contracts() -> None:
    pod = BUYER_ID.replace("participant:", "pod-user:")
    for document in (
        ledger_contract(),
        ledger_contract(**{"payer/account-ref": ORG_ID, "payee/account-ref": pod}),
        contract(**{"payment/amount": 0, "settlement/rail": "none"}),
        contract(**{"confirmation/mode": "arbiter-confirmed", "acceptance/arbiter-set": ["a"]}),
        contract(**{"payment/currency": "EUR"}),
        contract(status="settled"),
    ):
        assert found(document) == set()
    assert found(contract(), at=AFTER) == {("/deadline-at", "expired")}
    assert found(contract(status="settled"), at=AFTER) == set(), "what is over cannot expire"


UNSETTLED: dict[str, Any] = dict.fromkeys(
    ("settled-at", "answer/accepted", "payer/signature", "payee/signature"), GONE
)


@rows(
    [
        ("outcome", receipt(outcome="released"), {"/outcome": "bad-choice"}),
        ("when", receipt(**{"settled-at": GONE}), {"/settled-at": "missing-field"}),
        ("accepted", receipt(**{"answer/accepted": GONE}), {"/answer~1accepted": "missing-field"}),
        (
            "settled, not accepted",
            receipt(**{"answer/accepted": False}),
            {"/answer~1accepted": "conflicting-values"},
        ),
        ("payer", receipt(**{"payer/signature": GONE}), {"/payer~1signature": "missing-field"}),
        ("payee", receipt(**{"payee/signature": GONE}), {"/payee~1signature": "missing-field"}),
        (
            "a placeholder",
            receipt(**{"payee/signature": {"alg": "ed25519", "value": "base64url:…"}}),
            {"/payee~1signature/value": "bad-signature"},
        ),
        (
            "no reason",
            receipt(outcome="rejected", **UNSETTLED),
            {"/rejection~1reason": "missing-field"},
        ),
        (
            "from the ledger",
            receipt(**{"settlement/rail": "host-ledger"}),
            {
                "/settlement~1ref": "missing-field",
                "/settlement~1hold-ref": "missing-field",
                "/settlement~1transfer-refs": "missing-field",
            },
        ),
        (
            "without transfers",
            receipt(
                **{
                    "settlement/rail": "host-ledger",
                    "settlement/ref": "s",
                    "settlement/hold-ref": "h",
                    "settlement/transfer-refs": [],
                }
            ),
            {"/settlement~1transfer-refs": "bad-list"},
        ),
    ]
)
def test_what_is_wrong_with_a_receipt_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems


@pytest.mark.parametrize("outcome", ["rejected", "expired", "canceled"])
def test_other_outcomes_need_a_reason_and_no_signatures(outcome: str) -> None:
    reason = {"rejection/reason": "late"}
    assert found(receipt(outcome=outcome, **UNSETTLED, **reason)) == set()


@rows(
    [
        ("content", response(**{"answer/content": []}), {"/answer~1content": "wrong-type"}),
        (
            "more than sure",
            response(**{"confidence/signal": 1.01}),
            {"/confidence~1signal": "bad-number"},
        ),
        (
            "less than nothing",
            response(**{"confidence/signal": -0.1}),
            {"/confidence~1signal": "bad-number"},
        ),
        (
            "sure as a word",
            response(**{"confidence/signal": "1"}),
            {"/confidence~1signal": "wrong-type"},
        ),
        (
            "sure as a flag",
            response(**{"confidence/signal": True}),
            {"/confidence~1signal": "wrong-type"},
        ),
        (
            "origin",
            response(**{"provenance/origin-classes": ["oracle"]}),
            {"/provenance~1origin-classes/0": "bad-choice"},
        ),
        ("format", response(**{"answer/format": "html"}), {"/answer~1format": "bad-choice"}),
        (
            "human",
            response(**{"human-linked-participation": "no"}),
            {"/human-linked-participation": "wrong-type"},
        ),
    ]
)
def test_what_is_wrong_with_an_answer_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems
    for signal in (0, 1, 0.5, 1e-7):
        assert found(response(**{"confidence/signal": signal, "answer/content": {}})) == set()


def resolved(status: str, **changes: Any) -> Document:
    return hold(**{"status": status, "resolved-at": LATER, **changes})


@rows(
    [
        ("nothing held", hold(amount=0), {"/amount": "bad-number"}),
        ("another unit", hold(unit="EUR"), {"/unit": "wrong-value"}),
        ("status", hold(status="frozen"), {"/status": "bad-choice"}),
        (
            "no policy",
            hold(**{"escrow-policy/ref": GONE}),
            {"/escrow-policy~1ref": "missing-field"},
        ),
        ("account", hold(**{"payer/account-id": BUYER_ID}), {"/payer~1account-id": "bad-text"}),
        (
            "account of a node",
            hold(**{"payer/account-id": f"account:{BUYER_NODE}"}),
            {"/payer~1account-id": "wrong-role"},
        ),
        ("no time to work", hold(**{"work-by": NOW}), {"/work-by": "times-out-of-order"}),
        (
            "released, when",
            hold(status="released", **{"released/amount": 500}),
            {"/resolved-at": "missing-field"},
        ),
        ("released, how much", resolved("released"), {"/released~1amount": "missing-field"}),
        ("refunded, how much", resolved("refunded"), {"/refunded~1amount": "missing-field"}),
        (
            "in part",
            resolved("partially-released", **{"released/amount": 200}),
            {"/refunded~1amount": "missing-field", "/amount": "wrong-sum"},
        ),
        (
            "more than was held",
            resolved("released", **{"released/amount": 501}),
            {"/amount": "wrong-sum"},
        ),
        (
            "parts that do not add up",
            resolved("partially-released", **{"released/amount": 200, "refunded/amount": 200}),
            {"/amount": "wrong-sum"},
        ),
        ("active and resolved", resolved("active"), {"/resolved-at": "forbidden-field"}),
        (
            "disputed and paid",
            hold(status="disputed", **{"released/amount": 1}),
            {"/released~1amount": "forbidden-field"},
        ),
        (
            "resolved before it was made",
            resolved("expired", **{"resolved-at": BEFORE}),
            {"/resolved-at": "times-out-of-order"},
        ),
    ]
)
def test_what_is_wrong_with_a_hold_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems


def test_every_way_a_hold_ends() -> None:
    for document in (
        hold(status="disputed"),
        resolved("released", **{"released/amount": 500}),
        resolved("refunded", **{"refunded/amount": 500}),
        resolved("partially-released", **{"released/amount": 200, "refunded/amount": 300}),
        resolved("expired"),
        hold(**{"payee/account-id": "account:community-pool"}),
    ):
        assert found(document) == set()

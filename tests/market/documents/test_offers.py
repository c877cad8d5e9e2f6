"""Offers, relays, trusted providers and the messages that carry them."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market import check
from anabranch.market.documents.offers import UNIT_KINDS

from .examples import (
    AFTER,
    BEFORE,
    BEGIN,
    BUYER,
    BUYER_ID,
    END,
    GONE,
    NOW,
    PROVIDER,
    PROVIDER_ID,
    PROVIDER_NODE,
    STRANGER,
    Document,
    offer,
    relay,
    trusted_provider,
)
from .tables import Problems, found, rows

OFFER = "service-offer.v1"


@rows(
    [
        ("another version", offer(**{"schema/v": 2}), {"/schema~1v": "wrong-value"}),
        ("version as text", offer(**{"schema/v": "1"}), {"/schema~1v": "wrong-value"}),
        ("version true", offer(**{"schema/v": True}), {"/schema~1v": "wrong-value"}),
        ("id of an order", offer(**{"offer/id": "order:1"}), {"/offer~1id": "bad-text"}),
        ("empty id", offer(**{"offer/id": "offer:"}), {"/offer~1id": "bad-text"}),
        ("id with a newline", offer(**{"offer/id": "offer:1\n"}), {"/offer~1id": "bad-text"}),
        ("id too long", offer(**{"offer/id": "offer:" + "a" * 2000}), {"/offer~1id": "bad-text"}),
        ("odd status", offer(**{"offer/status": "sold"}), {"/offer~1status": "bad-choice"}),
        ("no zone", offer(**{"created-at": "2026-06-01"}), {"/created-at": "bad-time"}),
        ("a number", offer(**{"published-at": 5}), {"/published-at": "wrong-type"}),
        ("month 13", offer(**{"created-at": "2026-13-01T00:00:00Z"}), {"/created-at": "bad-time"}),
        ("ends at start", offer(**{"expires-at": BEGIN}), {"/expires-at": "times-out-of-order"}),
        ("ends before", offer(**{"expires-at": BEFORE}), {"/expires-at": "times-out-of-order"}),
        ("sequence -1", offer(**{"sequence/no": -1}), {"/sequence~1no": "bad-number"}),
        ("sequence text", offer(**{"sequence/no": "1"}), {"/sequence~1no": "wrong-type"}),
        ("price in floats", offer(**{"pricing/amount": 2.5}), {"/pricing~1amount": "wrong-type"}),
        ("negative price", offer(**{"pricing/amount": -1}), {"/pricing~1amount": "bad-number"}),
        ("price true", offer(**{"pricing/amount": True}), {"/pricing~1amount": "wrong-type"}),
        ("currency", offer(**{"pricing/currency": "O"}), {"/pricing~1currency": "bad-text"}),
        ("long one", offer(**{"pricing/currency": "O" * 17}), {"/pricing~1currency": "bad-text"}),
        ("unit", offer(**{"pricing/unit-kind": "per-day"}), {"/pricing~1unit-kind": "bad-choice"}),
        (
            "no time to deliver",
            offer(**{"delivery/max-duration-sec": 0}),
            {"/delivery~1max-duration-sec": "bad-number"},
        ),
        ("a word", offer(**{"queue/auto-accept": "yes"}), {"/queue~1auto-accept": "wrong-type"}),
        ("depth", offer(**{"queue/max-depth": -1}), {"/queue~1max-depth": "bad-number"}),
        ("in use", offer(**{"queue/current-depth": -1}), {"/queue~1current-depth": "bad-number"}),
        ("input", offer(**{"constraints/input": []}), {"/constraints~1input": "wrong-type"}),
        ("output", offer(**{"constraints/output": ""}), {"/constraints~1output": "wrong-type"}),
        ("model first", offer(**{"model-first": True}), {"/model-first": "conflicting-values"}),
        (
            "confirmation",
            offer(**{"confirmation/mode": "automatic"}),
            {"/confirmation~1mode": "bad-choice"},
        ),
        (
            "a name for the node",
            offer(**{"provider/node-id": "node:seller"}),
            {"/provider~1node-id": "bad-identity"},
        ),
        (
            "participant as node",
            offer(**{"provider/node-id": PROVIDER_ID}),
            {"/provider~1node-id": "wrong-role"},
        ),
        (
            "node as participant, with its own key",
            offer(**{"provider/participant-id": PROVIDER_NODE}),
            {"/provider~1participant-id": "wrong-role"},
        ),
        (
            "org as participant",
            offer(**{"provider/participant-id": PROVIDER.identity("org")}),
            {"/provider~1participant-id": "wrong-role"},
        ),
        (
            "a key written in another way",
            offer(**{"provider/participant-id": PROVIDER_ID.replace(":z", ":z1")}),
            {"/provider~1participant-id": "bad-identity"},
        ),
    ]
)
def test_what_is_wrong_with_an_offer_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems


@rows(
    [
        ("no signature", offer(signature=GONE), {"/signature": "missing-field"}),
        ("a text", offer(signature="base64url:…"), {"/signature": "bad-signature"}),
        (
            "a placeholder",
            offer(signature={"alg": "ed25519", "value": "base64url:placeholder"}),
            {"/signature/value": "bad-signature"},
        ),
        (
            "with padding",
            offer(signature={"alg": "ed25519", "value": "A" * 86 + "=="}),
            {"/signature/value": "bad-signature"},
        ),
        (
            "another algorithm",
            offer(signature={**offer()["signature"], "alg": "none"}),
            {"/signature/alg": "bad-signature"},
        ),
        (
            "of zeros",
            offer(signature={"alg": "ed25519", "value": "A" * 86}),
            {"/signature": "wrong-signature"},
        ),
        ("of a stranger", offer(STRANGER), {"/signature": "wrong-signature"}),
        ("of the buyer", offer(BUYER), {"/signature": "wrong-signature"}),
        (
            "of other content",
            offer(signature=offer(**{"pricing/amount": 1})["signature"]),
            {"/signature": "wrong-signature"},
        ),
        (
            "with a fraction inside",
            offer(policy_annotations={"weight": 0.5}),
            {"/policy_annotations/weight": "not-signable"},
        ),
    ]
)
def test_only_the_key_of_the_provider_signs_an_offer(
    document: Document, problems: Problems
) -> None:
    assert found(document) == problems


@pytest.mark.parametrize("field", sorted(set(offer()) - {"signature"}))
def test_no_field_of_an_offer_can_be_changed_after_its_signature(field: str) -> None:
    good = offer()
    other: Any = offer(**{"offer/id": "offer:other", "offer/status": "withdrawn"}).get(field)
    changed = {**good, field: other if other != good[field] else "2026-06-02T00:00:00Z"}
    assert check(changed)


def test_a_measure_of_confidence_can_be_signed_and_money_with_a_point_cannot() -> None:
    assert found(offer(policy_annotations={"confidence/signal": 0.5})) == set()


def test_an_offer_is_checked_for_the_instant_that_is_given() -> None:
    document = offer()
    assert found(document, at=NOW) == set()
    assert found(document, at=BEFORE) == {("/published-at", "not-yet-valid")}
    assert found(document, at=BEGIN) == set()
    assert found(document, at=END) == {("/expires-at", "expired")}, "the end is not part of it"
    assert found(document, at=AFTER) == {("/expires-at", "expired")}


@pytest.mark.parametrize("unit", UNIT_KINDS)
def test_every_unit_kind_is_taken(unit: str) -> None:
    assert found(offer(**{"pricing/unit-kind": unit})) == set()


def test_more_good_offers() -> None:
    for changes in (
        {"offer/status": "withdrawn"},
        {"pricing/amount": 0},
        {"hybrid": True, "model-first": True},
        {"model-first": False},
        {"constraints/input": {}, "x/other": {"deep": [1, "é", None]}},
        {"expires-at": "2026-07-01T02:00:00.250+02:00"},
    ):
        assert found(offer(**changes)) == set(), changes


@rows(
    [
        ("id", relay(**{"relay/id": "relay:1"}), {"/relay~1id": "bad-text"}),
        ("four hops", relay(**{"relay/hops": 4}), {"/relay~1hops": "too-many-hops"}),
        ("hops below zero", relay(**{"relay/hops": -1}), {"/relay~1hops": "too-many-hops"}),
        (
            "a participant as origin",
            relay(**{"relay/origin-node-id": PROVIDER_ID}),
            {"/relay~1origin-node-id": "wrong-role"},
        ),
        (
            "meant for a participant",
            relay(**{"relay/intended-node-id": BUYER_ID}),
            {"/relay~1intended-node-id": "wrong-role"},
        ),
        ("advice", relay(**{"relay/do-not-forward": 1}), {"/relay~1do-not-forward": "wrong-type"}),
        ("no offer in it", relay(offer=[]), {"/offer": "wrong-type"}),
        (
            "an offer that was changed",
            relay(offer={**offer(), "pricing/amount": 1}),
            {"/offer/signature": "wrong-signature"},
        ),
        (
            "an offer without signature",
            relay(offer=offer(signature=GONE)),
            {"/offer/signature": "missing-field"},
        ),
    ]
)
def test_what_is_wrong_with_a_relay_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems


def test_a_relay_is_as_old_as_its_offer() -> None:
    assert found(relay(), at=AFTER) == {("/offer/expires-at", "expired")}
    assert found(relay(**{"relay/hops": 3, "relay/do-not-forward": True}), at=NOW) == set()


@rows(
    [
        (
            "a node",
            trusted_provider(**{"entry/participant-id": PROVIDER_NODE}),
            {"/entry~1participant-id": "wrong-role"},
        ),
        (
            "by whom",
            trusted_provider(**{"entry/added-by": "me"}),
            {"/entry~1added-by": "bad-identity"},
        ),
        ("when", trusted_provider(**{"entry/added-at": "today"}), {"/entry~1added-at": "bad-time"}),
        ("a note", trusted_provider(**{"entry/note": 5}), {"/entry~1note": "wrong-type"}),
    ]
)
def test_what_is_wrong_with_a_trusted_provider_is_told(
    document: Document, problems: Problems
) -> None:
    assert found(document) == problems
    assert found(trusted_provider(**{"entry/added-by": BUYER_ID})) == set()


PUSH = "offer-catalog.push"
FETCHED = "offer-catalog.fetch.response"


@pytest.mark.parametrize(
    ("kind", "document", "problems"),
    [
        (PUSH, {"relay": relay()}, set()),
        (PUSH, relay(), set()),
        (PUSH, {}, {("/offers", "missing-field")}),
        (
            PUSH,
            {"offers": [relay()]},
            {("/node_id", "missing-field"), ("/pushed_at", "missing-field")},
        ),
        (PUSH, relay(**{"relay/hops": 9}), {("/relay~1hops", "too-many-hops")}),
        (PUSH, {"relay": 1}, {("/relay", "wrong-type")}),
        (FETCHED, {}, set()),
        (FETCHED, {"error": "busy"}, set()),
        (FETCHED, {"error": {"code": "busy"}}, set()),
        (FETCHED, {"error": 5}, {("/error", "wrong-type")}),
        (FETCHED, {"offers": [relay(), 7]}, {("/offers/1", "wrong-type")}),
        (FETCHED, {"node_id": PROVIDER_ID}, {("/node_id", "wrong-role")}),
        ("offer-catalog.fetch.request", {}, set()),
        ("offer-catalog.fetch.request", {"filter": []}, {("/filter", "wrong-type")}),
        ("offer-catalog-query-response.v1", {"offers": [5]}, {("/offers/0", "wrong-type")}),
        (
            "offer-catalog-query-response.v1",
            {"offers": [{"offer": offer(), "source": "rumour"}]},
            {("/offers/0/source", "bad-choice")},
        ),
    ],
)
def test_messages_of_catalogs_are_taken_in_their_forms(
    kind: str, document: Document, problems: Problems
) -> None:
    assert found(document, kind=kind) == problems

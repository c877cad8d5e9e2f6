"""Passports, revocations, advertisements and the rows of a directory."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.market.passports import read_passport, revoke_passport

from .examples import (
    AFTER,
    BEFORE,
    BEGIN,
    BUYER,
    BUYER_ID,
    BUYER_NODE,
    END,
    GONE,
    MAKERS,
    NOW,
    PROVIDER,
    PROVIDER_ID,
    STRANGER,
    STRANGER_NODE,
    Document,
    advertisement,
    passport,
    revocation,
)
from .tables import Problems, found, rows

SPACES = {"account_namespaces": ["account:"]}


@rows(
    [
        ("id", passport(passport_id="passport:1"), {"/passport_id": "bad-text"}),
        ("a participant", passport(node_id=PROVIDER_ID), {"/node_id": "wrong-role"}),
        ("capability", passport(capability_id="Offer Catalog"), {"/capability_id": "bad-text"}),
        ("with a dot", passport(capability_id="offer.catalog"), {"/capability_id": "bad-text"}),
        ("scope", passport(scope=[]), {"/scope": "wrong-type"}),
        ("issued", passport(issued_at="2026"), {"/issued_at": "bad-time"}),
        ("over before", passport(expires_at=BEFORE), {"/expires_at": "times-out-of-order"}),
        ("over at once", passport(expires_at=BEGIN), {"/expires_at": "times-out-of-order"}),
        (
            "issued by a node, with its key",
            passport(**{"issuer/participant_id": BUYER_NODE}),
            {"/issuer~1participant_id": "wrong-role"},
        ),
        (
            "issuer's node",
            passport(**{"issuer/node_id": BUYER_ID}),
            {"/issuer~1node_id": "wrong-role"},
        ),
        ("revocation", passport(revocation_ref=5), {"/revocation_ref": "wrong-type"}),
        ("signed by its subject", passport(PROVIDER), {"/signature": "wrong-signature"}),
        ("forged", passport(STRANGER), {"/signature": "wrong-signature"}),
        (
            "a placeholder",
            passport(signature={"alg": "ed25519", "value": ""}),
            {"/signature/value": "bad-signature"},
        ),
        ("changed since", {**passport(), "expires_at": AFTER}, {"/signature": "wrong-signature"}),
        ("a fraction", passport(scope={"weight": 1.5}), {"/scope/weight": "not-signable"}),
        (
            "a ledger without accounts",
            passport(capability_id="network-ledger"),
            {"/scope/account_namespaces": "missing-field"},
        ),
        (
            "a ledger with no account",
            passport(capability_id="network-ledger", scope={"account_namespaces": []}),
            {"/scope/account_namespaces": "bad-list"},
        ),
        (
            "a ledger with odd accounts",
            passport(capability_id="network-ledger", scope={"account_namespaces": [1]}),
            {"/scope/account_namespaces/0": "wrong-type"},
        ),
        (
            "accounts without a ledger",
            passport(scope=SPACES),
            {"/scope/account_namespaces": "forbidden-field"},
        ),
        (
            "half a delegation",
            passport(issuer_delegation={"delegation_id": "delegation:key:1"}),
            {
                f"/issuer_delegation/{field}": "missing-field"
                for field in (
                    "proxy_key",
                    "principal_key",
                    "grants",
                    "expires_at",
                    "principal_signature",
                )
            },
        ),
    ]
)
def test_what_is_wrong_with_a_passport_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems


@pytest.mark.parametrize(
    "changes",
    [
        {"passport_id": "passport:1"},
        {"node_id": PROVIDER_ID},
        {"capability_id": "Offer Catalog"},
        {"scope": SPACES},
        {"capability_id": "network-ledger"},
        {"issued_at": "2026"},
        {"signature": {"alg": "ed25519", "value": "A" * 86}},
        {"issuer/participant_id": BUYER_NODE},
    ],
)
def test_what_the_directory_refuses_the_check_refuses(changes: dict[str, Any]) -> None:
    document = passport(**changes)
    with pytest.raises(InputError):
        read_passport(document)
    assert found(document)


def test_more_good_passports() -> None:
    for changes in (
        {"expires_at": None},
        {"expires_at": GONE},
        {"capability_id": "network-ledger", "scope": SPACES},
        {"capability_id": f"network-ledger@{BUYER_ID}", "scope": SPACES},
        {"capability_id": f"~role/x@{BUYER_ID}"},
        {"revocation_ref": "revocation:1", "policy_annotations": {}},
        {"issuer_delegation": None},
    ):
        document = passport(**changes)
        assert found(document) == set(), changes
        assert read_passport(document)


def test_a_passport_is_checked_for_the_instant_that_is_given() -> None:
    assert found(passport(), at=NOW) == set()
    assert found(passport(), at=BEFORE) == {("/issued_at", "not-yet-valid")}
    assert found(passport(), at=END) == {("/expires_at", "expired")}
    assert found(passport(expires_at=None), at=AFTER) == set()


@rows(
    [
        ("by the node", revocation(PROVIDER), {}),
        ("id", revocation(revocation_id="r:1"), {"/revocation_id": "bad-text"}),
        ("of nothing", revocation(passport_id=GONE), {"": "conflicting-fields"}),
        ("of two things", revocation(target_id="delegation:key:1"), {"": "conflicting-fields"}),
        (
            "of a delegation",
            revocation(passport_id=GONE, target_id="delegation:key:1"),
            {},
        ),
        (
            "of something else",
            revocation(passport_id=GONE, target_id="passport:1"),
            {"/target_id": "bad-text"},
        ),
        ("by whom", revocation(signed_by="operator"), {"/signed_by": "bad-choice"}),
        (
            "an issuer without a name",
            revocation(**{"issuer/participant_id": GONE}),
            {"/issuer~1participant_id": "missing-field"},
        ),
        (
            "a subject that names an issuer",
            revocation(PROVIDER, **{"issuer/participant_id": BUYER_ID}),
            {"/issuer~1participant_id": "forbidden-field"},
        ),
        (
            "by a stranger for the issuer",
            revocation(signature=STRANGER.sign(revocation())["signature"]),
            {"/signature": "wrong-signature"},
        ),
        (
            "by the issuer for the subject",
            revocation(BUYER, signed_by="subject", **{"issuer/participant_id": GONE}),
            {"/signature": "wrong-signature"},
        ),
    ]
)
def test_what_is_wrong_with_a_revocation_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems


def test_a_revocation_that_was_made_here_is_good() -> None:
    for signer in (BUYER, PROVIDER):
        assert found(revoke_passport(signer, passport(), revoked_at=NOW), at=AFTER) == set()


def presented(**changes: Any) -> list[Document]:
    return [{**advertisement()["capabilities/presented"][0], **changes}]


PRESENTED = "/capabilities~1presented/0"


@rows(
    [
        (
            "core",
            advertisement(**{"capabilities/core": []}),
            {"/capabilities~1core": "missing-field"},
        ),
        (
            "transport",
            advertisement(**{"transport/profiles": []}),
            {"/transport~1profiles": "bad-list"},
        ),
        (
            "twice",
            advertisement(**{"messages/supported": ["a", "a"]}),
            {"/messages~1supported/1": "bad-list"},
        ),
        ("a participant", advertisement(**{"node/id": PROVIDER_ID}), {"/node~1id": "wrong-role"}),
        ("of a stranger", advertisement(STRANGER), {"/signature": "wrong-signature"}),
        ("unsigned", advertisement(signature=GONE), {"/signature": "missing-field"}),
        (
            "a passport of another node",
            advertisement(
                STRANGER,
                **{"node/id": STRANGER_NODE},
            ),
            {f"{PRESENTED}/passport/node_id": "conflicting-values"},
        ),
        (
            "a passport for something else",
            advertisement(**{"capabilities/presented": presented(**{"capability/id": "ledger"})}),
            {f"{PRESENTED}/capability~1id": "conflicting-values"},
        ),
        (
            "a forged passport",
            advertisement(**{"capabilities/presented": presented(passport=passport(STRANGER))}),
            {f"{PRESENTED}/passport/signature": "wrong-signature"},
        ),
    ]
)
def test_what_is_wrong_with_an_advertisement_is_told(
    document: Document, problems: Problems
) -> None:
    assert found(document) == problems


def test_the_time_of_an_advertisement_and_of_its_passports_counts() -> None:
    assert found(advertisement(), at=NOW) == set()
    assert found(advertisement(), at=AFTER) == {(f"{PRESENTED}/passport/expires_at", "expired")}


REGISTRATION, ROW = MAKERS["seed-directory-registration"], MAKERS["seed-directory-row"]


@rows(
    [
        ("sequence", REGISTRATION(**{"sequence/no": 0}), {"/sequence~1no": "bad-number"}),
        (
            "another node's passport",
            REGISTRATION(passport=passport(node_id=BUYER_NODE)),
            {"/passport/node_id": "conflicting-values"},
        ),
        (
            "a forged passport",
            REGISTRATION(passport=passport(STRANGER)),
            {"/passport/signature": "wrong-signature"},
        ),
        ("row of another node", ROW(node_id=STRANGER_NODE), {"/node_id": "conflicting-values"}),
        ("of another capability", ROW(capability_id="x"), {"/capability_id": "conflicting-values"}),
        ("endpoints", ROW(endpoints=[{}]), {
            f"/endpoints/0/endpoint~1{field}": "missing-field"
            for field in ("url", "transport", "role", "priority")
        }),
    ]
)  # fmt: skip
def test_what_is_wrong_with_registrations_and_rows_is_told(
    document: Document, problems: Problems
) -> None:
    assert found(document) == problems

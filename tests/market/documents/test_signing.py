"""Who signs what: the key that the document names, once, in its role."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.market.documents import buyer_fields, check, custodian_problem, sign
from anabranch.market.documents.signing import AUTHORITIES
from anabranch.market.identities import SigningKey, is_signed_by

from .examples import (
    BUYER,
    BUYER_ID,
    BUYER_NODE,
    GONE,
    MAKERS,
    ORG,
    ORG_ID,
    PROVIDER,
    STRANGER,
    STRANGER_ID,
    offer,
    order,
    org_order,
)

SIGNERS: dict[str, SigningKey] = {
    "service-offer.v1": PROVIDER,
    "service-order.v1": BUYER,
    "capability-passport.v1": BUYER,
    "capability-passport-revocation.v1": BUYER,
    "capability-advertisement.v1": PROVIDER,
    "agora-record.v1": PROVIDER,
    "workflow-template.v1": PROVIDER,
}


def unsigned(kind: str) -> dict[str, Any]:
    return {name: value for name, value in MAKERS[kind]().items() if name != "signature"}


def test_every_signed_document_has_its_authority() -> None:
    assert set(SIGNERS) == set(AUTHORITIES)


@pytest.mark.parametrize("kind", SIGNERS)
def test_the_named_key_signs_and_no_other(kind: str) -> None:
    document = unsigned(kind)
    made = sign(kind, document, SIGNERS[kind])
    assert "signature" not in document, "what was given is as it was"
    if kind != "agora-record.v1":  # which has the public key in its signature, too
        assert made == MAKERS[kind]()
        assert check(made, kind=kind) == []
    for other in {BUYER, PROVIDER, ORG, STRANGER} - {SIGNERS[kind]}:
        with pytest.raises(InputError, match="not its own"):
            sign(kind, document, other)


@pytest.mark.parametrize("kind", SIGNERS)
def test_a_signature_is_never_replaced(kind: str) -> None:
    with pytest.raises(InputError, match="never replaced"):
        sign(kind, MAKERS[kind](), SIGNERS[kind])


def test_an_order_of_an_org_is_signed_with_the_key_of_its_custodian() -> None:
    draft = org_order(signature=GONE)
    assert sign("service-order.v1", draft, BUYER) == org_order()
    for other in (ORG, STRANGER):
        with pytest.raises(InputError, match="operator-participant-id"):
            sign("service-order.v1", draft, other)


def test_the_fields_of_a_buyer_make_an_order_that_can_be_signed() -> None:
    for org in (None, ORG_ID):
        fields = buyer_fields(BUYER_NODE, BUYER_ID, org_id=org)
        made = sign("service-order.v1", order(signature=GONE) | fields, BUYER)
        assert check(made) == []
        assert made["buyer/subject-kind"] == ("org" if org else "participant")


def test_the_custodian_of_an_org_is_the_one_that_the_host_knows() -> None:
    assert custodian_problem(order(), {}) == ""
    assert custodian_problem(org_order(), {ORG_ID: BUYER_ID}) == ""
    assert "is not the custodian" in custodian_problem(org_order(), {ORG_ID: STRANGER_ID})
    assert "is known here" in custodian_problem(org_order(), {})


def test_without_the_package_signatures_are_not_taken_on_trust(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    document = offer()
    monkeypatch.setitem(sys.modules, "cryptography", None)
    (problem,) = check(document)
    assert (problem.path, problem.code) == ("/signature", "signature-unchecked")
    assert "anabranch[market]" in problem.message


def test_what_was_signed_is_signed_by_the_role_that_is_named() -> None:
    assert is_signed_by(offer(), PROVIDER.identity("participant"))
    document = offer(**{"provider/participant-id": PROVIDER.identity("node")})
    assert is_signed_by(document, PROVIDER.identity("node")), "the key would do"
    assert [(one.path, one.code) for one in check(document)] == [
        ("/provider~1participant-id", "wrong-role")
    ]

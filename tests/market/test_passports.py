"""Passports: all of it must hold, and whatever is in doubt does not count."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import InputError
from anabranch.market.passports import (
    NOT_SIGNED,
    Issuers,
    instant,
    issue_passport,
    problem_of,
    read_passport,
    read_revocation,
    revoke_passport,
)

from .support import ISSUED, ISSUER, NODE, NOW, STRANGER, key, node, participant, passport

ALLOWED = Issuers(frozenset({participant(1)}))


def test_a_passport_of_an_allowed_issuer_counts() -> None:
    read = read_passport(passport())
    assert (read.node_id, read.capability_id, read.issuer) == (
        node(2),
        "offer-catalog",
        participant(1),
    )
    assert problem_of(read, NOW, set(), ALLOWED) == ""
    assert read_passport(json.loads(json.dumps(passport()))) == read, "it travels as JSON"


@pytest.mark.parametrize("field", sorted(set(passport()) - {"signature"}))
def test_no_field_can_be_changed_or_left_out_after_the_signature(field: str) -> None:
    good = passport()
    for changed in (
        "passport:capability:other",
        None,
        7,
        {"more": 1},
        node(9),
        "2026-03-01T00:00:00Z",
    ):
        if changed != good[field]:
            with pytest.raises(InputError):
                read_passport({**good, field: changed})
    with pytest.raises(InputError):
        read_passport({name: value for name, value in good.items() if name != field})


def test_what_is_added_after_the_signature_breaks_it_except_the_delegation() -> None:
    with pytest.raises(InputError):
        read_passport({**passport(), "policy_annotations": {}})
    assert read_passport({**passport(), "issuer_delegation": {"note": "is not signed"}})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"passport_id": "pass:1"}, "must start with passport:capability:"),
        ({"capability_id": "Offer Catalog"}, "is no capability"),
        ({"scope": []}, "without `scope`"),
        ({"node_id": participant(2)}, "`node_id` must be a node"),
        ({"node_id": "node:did:key:zabc"}, "is not an identity"),
        ({"issuer/participant_id": node(1)}, "the issuer must be a participant"),
        ({"issued_at": "2026-01-01"}, "no time with a time zone"),
        ({"issued_at": "2026-01-01T00:00:00"}, "no time with a time zone"),
        ({"expires_at": "soon"}, "no time with a time zone"),
        ({"expires_at": "2026-13-01T00:00:00Z"}, "is no time"),
        ({"schema": "capability-passport.v2"}, "this is not a"),
        ({"passport_id": "passport:capability:" + "x" * 5000}, "without `passport_id`"),
        ({"scope": {"weight": 1.5}}, "cannot be signed"),
    ],
)
def test_a_signed_passport_still_needs_its_form(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_passport(ISSUER.sign({**passport(), **changes}, NOT_SIGNED))
    assert words in caught.value.message


def test_the_key_of_a_node_does_not_sign_as_a_participant() -> None:
    """Not even for its own passport: the role is part of who signs."""
    by_node = NODE.sign({**passport(), "issuer/participant_id": participant(1)}, NOT_SIGNED)
    with pytest.raises(InputError, match="signature"):
        read_passport(by_node)
    as_node = NODE.sign({**passport(), "issuer/participant_id": node(2)}, NOT_SIGNED)
    with pytest.raises(InputError, match="must be a participant"):
        read_passport(as_node)


def test_time_and_issuer_decide_whether_it_counts_now() -> None:
    read = read_passport(
        passport(issued_at="2026-02-02T02:40:00Z", expires_at="2026-02-02T02:40:01Z")
    )
    assert problem_of(read, NOW - 1, (), ALLOWED) == "it is not valid yet"
    assert problem_of(read, NOW, (), ALLOWED) == ""
    assert problem_of(read, NOW + 999, (), ALLOWED) == ""
    assert problem_of(read, NOW + 1000, (), ALLOWED) == "it has expired"
    assert "may not issue" in problem_of(read, NOW, (), Issuers())
    assert "may not issue" in problem_of(read, NOW, (), Issuers(frozenset({participant(3)})))
    assert read_passport(passport(expires_at=None)).expires_at is None


def test_an_operator_may_issue_for_its_own_node_and_for_no_other() -> None:
    operators = Issuers(operators={node(2): participant(4), node(3): participant(3)})
    own = read_passport(passport(2, key(4)))
    other = read_passport(passport(3, key(4)))
    assert problem_of(own, NOW, (), operators) == ""
    assert "may not issue" in problem_of(other, NOW, (), operators)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.0015z", 1),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("0001-01-01T00:00:00+14:00", -62_135_647_200_000),
    ],
)
def test_times_are_read_as_rfc_3339_says(text: str, milliseconds: int) -> None:
    assert instant(text, "x") == milliseconds


def test_issuing_refuses_what_could_not_be_read_again() -> None:
    with pytest.raises(InputError):
        issue_passport(ISSUER, participant(2), "offer-catalog", issued_at=ISSUED)


# -- revocations -----------------------------------------------------------------------------


def revoked(document: Any, *passports: dict[str, Any]) -> list[Any]:
    read = [read_passport(each) for each in passports or (passport(),)]
    return read_revocation(document, {read[0].passport_id: read})


def test_the_issuer_and_the_node_itself_can_revoke() -> None:
    key_of_it = read_passport(passport()).key
    for signer in (ISSUER, NODE):
        document = revoke_passport(signer, passport(), revoked_at=ISSUED)
        assert revoked(document) == [key_of_it]
        assert problem_of(read_passport(passport()), NOW, {key_of_it}, ALLOWED) == "it is revoked"


@pytest.mark.parametrize("signed_by", ["issuer", "subject", "operator", None, ["issuer"]])
def test_nobody_else_can_revoke(signed_by: Any) -> None:
    document = revoke_passport(STRANGER, passport(), revoked_at=ISSUED)
    with pytest.raises(InputError):
        revoked(STRANGER.sign({**document, "signed_by": signed_by}))


def test_the_node_cannot_revoke_as_the_issuer_nor_the_issuer_as_the_node() -> None:
    for signer, word in ((NODE, "issuer"), (ISSUER, "subject")):
        document = revoke_passport(signer, passport(), revoked_at=ISSUED)
        with pytest.raises(InputError):
            revoked(signer.sign({**document, "signed_by": word}))


def test_somebody_who_copies_the_id_of_a_passport_can_revoke_only_the_copy() -> None:
    good = passport()
    copy = passport(3, STRANGER, passport_id=good["passport_id"])
    document = revoke_passport(STRANGER, copy, revoked_at=ISSUED)
    assert revoked(document, good, copy) == [read_passport(copy).key]


@pytest.mark.parametrize(
    "changes", [{"passport_id": None}, {"target_id": "delegation:key:1"}, {"schema": "x"}]
)
def test_a_revocation_names_one_passport(changes: dict[str, Any]) -> None:
    document = ISSUER.sign({**revoke_passport(ISSUER, passport(), revoked_at=ISSUED), **changes})
    with pytest.raises(InputError):
        revoked(document)


# -- anything --------------------------------------------------------------------------------

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from([node(2), participant(1), ISSUED]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(max_size=6) | st.sampled_from(sorted(passport())), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@settings(deadline=None)
@given(anything, st.dictionaries(st.sampled_from(sorted(passport())), anything, max_size=4))
def test_whatever_it_is_it_is_read_or_refused_and_nothing_else(value: Any, changes: Any) -> None:
    for document in (value, {**passport(), **changes}):
        try:
            read_passport(document)
        except InputError:
            continue
        assert document == passport()


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(passport())), anything, max_size=3))
def test_whatever_an_issuer_signs_is_read_or_refused_and_nothing_else(changes: Any) -> None:
    try:
        document = ISSUER.sign({**passport(), **changes}, NOT_SIGNED)
        read = read_passport(document)
    except InputError:
        return
    problem_of(read, NOW, (), ALLOWED)
    with pytest.raises(InputError):
        read_revocation({**document, "signed_by": "issuer"}, {read.passport_id: [read]})

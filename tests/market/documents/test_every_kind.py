"""What holds for every kind of document."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.market import check
from anabranch.market.documents import CODES, KINDS
from anabranch.market.documents.problems import below
from anabranch.market.documents.shapes import ANYTHING, Anything, Fields

from .examples import GONE, MAKERS, NAMELESS

ODD: list[Any] = [None, True, -1, 1.5, "", "\x00 odd", [], [[]], {"odd": 1}]


def test_there_is_a_good_document_of_every_kind() -> None:
    assert set(MAKERS) == set(KINDS)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_good_document_has_no_problems_and_says_what_it_is(kind: str) -> None:
    document = MAKERS[kind]()
    assert check(document, kind=kind) == []
    assert check(json.loads(json.dumps(document)), kind=kind) == []
    if kind not in NAMELESS:
        assert check(document) == []


@pytest.mark.parametrize("kind", MAKERS)
def test_a_good_document_is_good_as_text(kind: str) -> None:
    assert check(json.dumps(MAKERS[kind]()).encode(), kind=kind) == []


@pytest.mark.parametrize("kind", MAKERS)
def test_every_required_field_is_missed(kind: str) -> None:
    for field in KINDS[kind].required:
        found = check(MAKERS[kind](**{field: GONE}), kind=kind)
        assert ("missing-field", below("", field)) in {(one.code, one.path) for one in found}


@pytest.mark.parametrize("kind", MAKERS)
def test_every_field_refuses_values_of_other_types(kind: str) -> None:
    shape = KINDS[kind]
    for field, inner in {**shape.required, **shape.optional}.items():
        found = [check(MAKERS[kind](**{field: odd}), kind=kind) for odd in ODD]
        assert all(one.code in CODES for problems in found for one in problems)
        if not isinstance(inner, Anything):
            at = below("", field)
            wrong = [any(one.path.startswith(at) for one in problems) for problems in found]
            assert sum(wrong) >= 3, (
                f"{field} takes {[o for o, w in zip(ODD, wrong, strict=True) if not w]}"
            )


@pytest.mark.parametrize("kind", MAKERS)
def test_closed_documents_take_no_other_field_and_open_ones_do(kind: str) -> None:
    found = check(MAKERS[kind](**{"x/unheard-of": 1}), kind=kind)
    codes = {(one.code, one.path) for one in found}
    assert codes == ({("unknown-field", "/x~1unheard-of")} if KINDS[kind].closed else set())


CLOSED = {
    "service-order.dispatch.request.v1",
    "service-order.result.v1",
    "artifact-delivery-envelope.v1",
    "deferred-operation.v1",
    "deferred-operation-status.v1",
}


def test_the_documents_that_others_close_are_closed() -> None:
    assert {kind for kind, shape in KINDS.items() if shape.closed} == CLOSED | {
        "artifact-delivery-outbound-rule",
        "artifact-delivery-acceptor",
    }


def test_every_code_says_what_it_means_in_kebab_case() -> None:
    assert all(code == code.lower() and " " not in code and "_" not in code for code in CODES)
    assert all(CODES.values())


def test_every_field_says_what_it_takes() -> None:
    for kind, shape in KINDS.items():
        for field, inner in {**shape.required, **shape.optional}.items():
            assert inner.words().isprintable(), f"{kind}: {field}"
            assert inner.words(), f"{kind}: {field}"


def test_shapes_are_declared_with_fields_that_can_be_listed() -> None:
    assert all(isinstance(shape, Fields) for shape in KINDS.values())
    assert isinstance(ANYTHING, Anything)

"""What is typed into forms, and how ids and instants are shown."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.surfaces.ui.node.frame import Refusal, json_in, number_in
from anabranch.surfaces.ui.node.views import milliseconds, short_id


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", '{"a": 1, "a": 2}', '"\\ud800"', "[" * 200 + "]" * 200, "{'a': 1}"],
)
def test_what_is_no_json_is_refused_by_the_name_of_its_field(text: str) -> None:
    with pytest.raises(Refusal) as refused:
        json_in(text, "the offer")
    assert refused.value.status == 400
    assert "the body" not in refused.value.message


def test_json_that_the_api_takes_is_taken() -> None:
    assert json_in(' {"a": [1, null, "é"]} ', "the input") == {"a": [1, None, "é"]}


@pytest.mark.parametrize("text", ["", "-1", "1.5", "ten", "١٢", "1" * 16])
def test_an_amount_is_a_whole_number(text: str) -> None:
    with pytest.raises(Refusal, match="the amount is a whole number"):
        number_in(text, "the amount")


def test_a_long_id_keeps_its_kind_its_beginning_and_its_end() -> None:
    node = "node:did:key:z6MkfVJAvfWEfSPHmFyc7mm84n3oQiTrGrv8tY9fGLcjU1RS"
    assert short_id(node) == "node:z6MkfVJAvfWEfS…cjU1RS"
    assert short_id("offer:summaries") == "offer:summaries"
    assert len({short_id(f"{node[:-6]}{number:06}") for number in range(50)}) == 50


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1970-01-01T00:00:01.500Z", 1500),
        ("1970-01-01T01:00:01+01:00", 1000),
        (7, 7),
        ("<script>", None),
        (None, None),
    ],
)
def test_an_instant_of_a_document_is_shown_or_is_none(given: Any, expected: int | None) -> None:
    assert milliseconds(given) == expected

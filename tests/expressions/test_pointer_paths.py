"""One resolver for every path-like field: pointers, dotted paths, `$` paths, keys with slashes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from anabranch.errors import ExpressionError
from anabranch.expressions.pointer import MISSING, PATH_SEGMENTS_MAX, parse_path, same

OFFER = {
    "offer": {"pricing/amount": 12, "tags": ["a", "b"], "deep": {"er": None}},
    "verification/status": "fulfilled",
    "a.b": 1,
    "a": {"b": 2, "": "empty", "~": "tilde"},
    "0": "zero",
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", OFFER),
        ("$", OFFER),
        ("/offer/pricing~1amount", 12),
        ("/offer/pricing/amount", 12),  # joined with the next segment
        ("/verification/status", "fulfilled"),
        ("/offer/tags/1", "b"),
        ("/offer/deep/er", None),
        ("/a/", "empty"),
        ("/a/~0", "tilde"),
        ("/0", "zero"),
        ("offer.tags[0]", "a"),
        ("$.offer.tags[1]", "b"),
        ("$['offer']['pricing/amount']", 12),
        ('offer["deep"].er', None),
        ("a.b", 2),  # an exact key goes first
        (" /a/b ", 2),
        ("/nothing", MISSING),
        ("/offer/tags/2", MISSING),
        ("/offer/tags/-1", MISSING),
        ("/offer/tags/01", MISSING),
        ("/offer/tags/x", MISSING),
        ("/offer/tags/0/x", MISSING),
        ("/verification", MISSING),
        ("offer.none.er", MISSING),
    ],
)
def test_a_path_finds(path: str, found: Any) -> None:
    assert parse_path(path).find(OFFER) is found or parse_path(path).find(OFFER) == found


def test_a_dollar_that_begins_a_name_belongs_to_it() -> None:
    assert parse_path("$x").find({"x": 1, "$x": 2}) == 2


def test_a_joined_key_is_found_where_an_exact_one_leads_nowhere() -> None:
    value = {"a": {"x": 1}, "a/b": {"c": 2}}
    assert parse_path("/a/b/c").find(value) == 2
    assert parse_path("/a/x").find(value) == 1


def test_nothing_is_not_null() -> None:
    assert parse_path("/a").find({"a": None}) is None
    assert parse_path("/b").find({"a": None}) is MISSING
    assert not MISSING
    assert repr(MISSING) == "MISSING"


@pytest.mark.parametrize(
    ("path", "found"),
    [("/ ", "blank"), ("/", "empty"), ("/a /b", 1), ("/a/b", MISSING), ("/list/1\n", "y")],
)
def test_blanks_belong_to_the_keys_of_a_pointer(path: str, found: Any) -> None:
    value = {"": "empty", " ": "blank", "a ": {"b": 1}, "list": ["x", "y"]}
    assert parse_path(path).find(value) == found


@pytest.mark.parametrize("path", ["/list/1\u0661", "list[1\u0661]", "$.list[1\u0661]"])
def test_an_index_is_written_in_ascii_digits(path: str) -> None:
    with suppress(ExpressionError):
        assert parse_path(path).find({"list": ["x"] * 20}) is MISSING
    assert parse_path("/\u0661").find({"\u0661": 1}) == 1


@pytest.mark.parametrize("path", ["a..b", "a[", "a[x]", "[", ".", "a.", "$.", "/a~", "/~2"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ExpressionError):
        parse_path(path)


def test_endless_paths_are_refused() -> None:
    assert parse_path("/a" * PATH_SEGMENTS_MAX).find({}) is MISSING
    with pytest.raises(ExpressionError, match="more than 64 segments"):
        parse_path("/a" * (PATH_SEGMENTS_MAX + 1))


def test_a_path_that_fits_in_many_ways_is_found_in_reasonable_time() -> None:
    value: Any = {}
    for _ in range(20):
        value = {"/".join("a" * count): value for count in (1, 2, 3)}
    assert parse_path("/a" * 60 + "/b").find(value) is MISSING


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, True),
        (True, True, True),
        (True, 1, False),
        (False, 0, False),
        (1, "1", False),
        ("true", True, False),
        (None, False, False),
        (None, None, True),
        ({"a": [1, True]}, {"a": [1, True]}, True),
        ({"a": [1, True]}, {"a": [1, 1]}, False),
        ({"a": 1}, {"a": 1, "b": 1}, False),
        ([1, 2], [1], False),
        ([], {}, False),
    ],
)
def test_values_are_compared_as_json(left: Any, right: Any, equal: bool) -> None:
    assert same(left, right) is equal
    assert same(right, left) is equal

"""The functions that rule documents add to CEL, one promise at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.expressions.cel.cel import compile_cel
from anabranch.expressions.cel.functions import FUNCTIONS, IMPLEMENTATIONS, METHODS
from anabranch.expressions.cel.values import CelEvalError, UInt, Uint256


def value(text: str, **names: Any) -> Any:
    return compile_cel(text).evaluate(names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abs(-3)", 3.0),
        ("abs(u256(5))", 5.0),
        ("pow(2, 10)", 1024.0),
        ("pow('a', 2)", 0.0),
        ("pow(10.0, 400)", math.inf),
        ("pow(-10.0, 401)", -math.inf),
        ("relDiff(100, 110)", 10 / 105),
        ("relDiff(0, 0)", 0.0),
        ("relDiff(-5, 5)", 1e18),
        ("safeDiv(7, 2, 0)", 3.5),
        ("safeDiv(7, 0, 'none')", "none"),
        ("safeDiv('x', 2, -1)", -1),
        ("clamp(5, 1, 3)", 3),
        ("clamp(5, 3, 1)", 3),
        ("clamp(-5.5, 1, 3)", 1),
        ("clamp(2, 1, 3)", 2),
        ("clamp('x', 1, 3)", "x"),
        ("join(['a', 1, 2.0, true], '-')", "a-1-2-true"),
        ("unique([1, 2, 1.0, 'a', 'a'])", [1, 2, "a"]),
        ("u256('5') + uint256(1)", 6),
        ("u256(1e20)", 10**20),
        ("int64(5.0)", 5),
        ("uint64('7')", 7),
        ("int(2.9)", 2),
        ("int(-2.9)", -2),
        ("int('12')", 12),
        ("uint(3.7)", 3),
        ("double('1.5e2')", 150.0),
        ("double(u256(4))", 4.0),
        ("string(1.0) + string(true) + string(u256(7))", "1true7"),
        ("bool('true')", True),
        ("dyn(5)", 5),
        ("bytes('é')", b"\xc3\xa9"),
    ],
)
def test_numbers_casts_and_lists(text: str, expected: Any) -> None:
    result = value(text)
    assert result == expected
    if isinstance(expected, float | str | bool | list):
        assert type(result) is type(expected)


def test_the_wide_casts_give_wide_integers_and_the_short_ones_short() -> None:
    assert type(value("u256(1)")) is type(value("uint256('1')")) is Uint256
    assert type(value("int64(UInt)", UInt=UInt(3))) is int
    assert type(value("uint64(3)")) is UInt


@pytest.mark.parametrize(
    "text",
    ["int64(1.5)", "uint64('x')", "u256(0.5)", "int(0.0 / 0.0)", "abs(1.0 / 0.0)", "abs(null)"],
)
def test_a_cast_or_number_that_cannot_be_is_an_error(text: str) -> None:
    with pytest.raises(CelEvalError):
        value(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max([3, 1, 2])", 3.0), ("min([3, 1u, 2.5])", 1.0), ("sum([1, 2, 3.5])", 6.5),
        ("avg([1, 2, 3, 4])", 2.5), ("median([3, 1, 2])", 2.0), ("median([4, 1, 2, 3])", 2.5),
        ("stdev([2, 4, 4, 4, 5, 5, 7, 9])", 2.0), ("cv([2, 4, 4, 4, 5, 5, 7, 9])", 0.4),
        ("cv([-1, 1])", 0.0), ("mad([1, 1, 2, 2, 4, 6, 9])", 1.0), ("sum([u256(5), 1])", 6.0),
    ],
)  # fmt: skip
def test_statistics_are_doubles(text: str, expected: float) -> None:
    result = value(text)
    assert result == pytest.approx(expected)
    assert type(result) is float


@pytest.mark.parametrize("name", ["max", "min", "sum", "avg", "median", "stdev", "cv", "mad"])
def test_an_empty_or_not_numeric_list_has_the_statistics_zero(name: str) -> None:
    assert value(f"{name}([])") == 0.0
    assert value(f"{name}([1, 'x'])") == 0.0
    with pytest.raises(CelEvalError, match="takes a list"):
        value(f"{name}(5)")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dist('', 100, 110)", 10 / 105),
        ("dist('rel', 100, 110)", 10 / 105),
        ("dist('Relative', 0, 0)", 0.0),
        ("dist('relDiff', 1, -1)", 1e18),
        ("dist('abs', 3, 10)", 7.0),
        ("dist('eq', 'a', 'a')", 0.0),
        ("dist('equal', 1, 2)", 1.0),
        ("dist('hamming', 'karolin', 'kathrin')", 3 / 7),
        ("dist('ham', 'ab', 'abc')", 1e18),
        ("dist('HAM', '', '')", 0.0),
        ("dist('ham', 'ÄBC', 'ABC')", 1 / 3),
        ("dist('lev', 'kitten', 'sitting')", 3 / 7),
        ("dist('levenshtein', '', 'abc')", 1.0),
        ("dist('lev', '', '')", 0.0),
        ("within('hamming', 'ABC', 'ABD', 0.34)", True),
        ("within('hamming', 'ABC', 'ABD', 0.33)", False),
        ("within('lev', 'ABC', 'ABCD', 0.25)", True),
        ("quorum(['ABC', 'ABD', 'XYZ'], 'hamming', 0.34, 2)", True),
        ("quorum(['ABC', 'ABD', 'XYZ'], 'hamming', 0.34, 3)", False),
        ("within('abs', 3, 5, 2)", True),
        ("within('abs', 3, 5, 1.9)", False),
    ],
)
def test_distances_follow_their_metric(text: str, expected: Any) -> None:
    assert value(text) == pytest.approx(expected)


def test_levenshtein_gives_up_beyond_256_characters() -> None:
    assert value("dist('lev', a, b)", a="x" * 256, b="x" * 255) == 1 / 256
    assert value("dist('lev', a, b)", a="x" * 257, b="x") == 1e18


@pytest.mark.parametrize("metric", ["", "rel", "relDiff", "abs", "Absolute"])
@pytest.mark.parametrize("pair", ["'a', 'a'", "'1', 2", "3, 'x'", "true, 1", "[1], [1]"])
def test_a_distance_of_what_is_no_number_is_an_error(metric: str, pair: str) -> None:
    for text in (f"dist('{metric}', {pair})", f"within('{metric}', {pair}, 1)"):
        with pytest.raises(CelEvalError, match="takes numbers"):
            value(text)


@pytest.mark.parametrize("metric", ["hamming", "lev"])
def test_a_distance_of_what_is_no_text_is_an_error_where_characters_are_counted(
    metric: str,
) -> None:
    with pytest.raises(CelEvalError, match="takes texts"):
        value(f"dist('{metric}', 'a', 1)")


@given(st.sampled_from(["hamming", "lev"]), st.text(max_size=12), st.text(max_size=12))
def test_a_distance_of_texts_is_a_share_or_there_is_none(metric: str, a: str, b: str) -> None:
    found = value("dist(m, a, b)", m=metric, a=a, b=b)
    assert 0 <= found <= 1 or (found == 1e18 and metric == "hamming" and len(a) != len(b))
    assert (found == 0) == (a == b)
    assert found == value("dist(m, a, b)", m=metric, a=b, b=a)


@pytest.mark.parametrize(
    "text",
    [
        "dist('far', 1, 2)", "dist(1, 1, 2)", "within('abs', 1, 2, -1)", "within('abs', 1, 2, 'x')",
        "quorum([1], 'abs', 0, 0)", "quorum([1], 'abs', 'star', 0, 1)", "quorum(1, 'abs', 0, 1)",
        "consensus([1], 'abs', 'best', 0, 1)", "relDiff('a', 1)",
    ],
)  # fmt: skip
def test_unknown_metrics_modes_and_bad_bounds_are_errors(text: str) -> None:
    with pytest.raises(CelEvalError):
        value(text)


FEEDS = [100.0, 101.0, 99.5, 150.0, 100.5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("quorum(feeds, 'rel', 0.02, 4)", True),
        ("quorum(feeds, 'rel', 0.02, 5)", False),
        ("quorum(feeds, 'rel', 'ball', 0.02, 4)", True),
        ("quorum([0, 1, 2], 'abs', 1, 3)", True),  # around the middle one
        ("quorum([0, 1, 2], 'abs', 'pairwise', 1, 3)", False),
        ("quorum([0, 1, 2], 'abs', 'clique', 1, 2)", True),
        ("quorum(['a', 'b', 'a'], 'eq', 0, 2)", True),
        ("quorum([], 'abs', 0, 1)", False),
        ("quorum([100, 'gone', 101], 'rel', 0.02, 2)", True),  # what is no number agrees with none
        ("quorum(['gone', 'gone'], 'rel', 0.02, 2)", False),
        ("consensus([100, 'gone', 100], 'abs', 'median', 0, 2)", 100.0),
        ("consensus(feeds, 'rel', 'median', 0.02, 4)", 100.25),
        ("consensus(feeds, 'rel', 'mean', 0.02, 4)", 100.25),
        ("consensus(feeds, 'rel', 'medoid', 0.02, 4)", 100.5),
        ("consensus(feeds, 'rel', 'median', 0.02, 5)", 0.0),
        ("consensus([0, 1, 2], 'abs', 'pairwise', 'mean', 1, 2)", 0.5),
        ("consensus(['x', 'y', 'x'], 'eq', 'mode', 0, 2)", "x"),
        ("consensus(['x', 'x'], 'eq', 'mean', 0, 2)", 0.0),
        ("consensus([10, 20, 1, 2], 'abs', 'medoid', 1, 2)", 1),
    ],
)
def test_quorum_and_consensus_find_those_who_agree(text: str, expected: Any) -> None:
    assert value(text, feeds=FEEDS) == expected


def test_of_two_equally_large_groups_the_earliest_centre_wins() -> None:
    assert value("consensus([5, 5, 9, 9], 'abs', 'mean', 0, 2)") == 5.0
    assert value("consensus([9, 9, 5, 5], 'abs', 'mean', 0, 2)") == 9.0


def test_every_function_that_can_be_called_exists() -> None:
    assert {*FUNCTIONS, *METHODS} == set(IMPLEMENTATIONS)


# -- matches ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("^a+b$", "aaab", "aaabc"),
        ("b", "abc", "acd"),
        ("a|bc|", "zzz", None),
        ("^(foo|bar){2}$", "foobar", "foo"),
        ("^[a-c_\\d]+$", "ab_7", "abd"),
        ("^[^x-z]+$", "abc", "axc"),
        ("^a{2,3}$", "aaa", "aaaa"),
        ("^a{2}b{1,}$", "aabbb", "ab"),
        ("\\bword\\b", "a word.", "swords"),
        ("\\Bx", "ax", "x"),
        ("(?i)^HeLLo$", "hEllO", "hell"),
        ("(?i:A)b", "ab", "aB"),
        ("^.$", "x", "\n"),
        ("(?s)^.$", "\n", "ab"),
        ("(?m)^b$", "a\nb\nc", "abc"),
        ("^\\w+@\\w+\\.\\w{2,}$", "me@host.org", "me@host"),
        ("^[[:alpha:]]+[[:^digit:]]$", "abc-", "abc1"),
        ("^\\p{Lu}\\pL*$", "Édith", "édith"),
        ("^\\x41\\x{e9}\\.$", "Aé.", "Ae."),
        ("^(?P<year>\\d{4})-(?:\\d\\d)$", "2024-05", "24-05"),
        ("^[]a]+$", "]a", "b"),
        ("^[a-]+$", "a-", "b"),
        ("^a*?b+?$", "aabb", "a"),
        ("\\A\\s\\z", " ", "  "),
        ("^0x[0-9a-fA-F]{40}$", "0x" + "aB" * 20, "0x12"),
        ("a{", "a{", "a"),
    ],
)
def test_patterns_match_like_re2(pattern: str, yes: str, no: str | None) -> None:
    assert value("t.matches(p)", t=yes, p=pattern) is True
    assert no is None or value("matches(t, p)", t=no, p=pattern) is False


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "[a", "*a", "a**", "(?=x)", "(?<!x)", "(a)\\1", "\\k", "[z-a]", "a{3,2}",
        "a{1001}", "[[:what:]]", "\\p{Greek}", "\\xZZ", "((a{1000}){1000})", "\\",
        "(?:(?:(?:){1000}){1000}){1000}", "(" * 60 + ")" * 60,
    ],
)  # fmt: skip
def test_patterns_that_re2_has_not_are_refused(pattern: str) -> None:
    with pytest.raises(CelEvalError, match="matches:"):
        value("'x'.matches(p)", p=pattern)


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|aa)+$", "^(a|a?)+$", "(.*)*x", "(a*)*(b*)*c"])
def test_no_pattern_takes_exponential_time(pattern: str) -> None:
    """Each of these is hopeless for an engine that tracks back."""
    assert value("t.matches(p)", t="a" * 2000 + "!", p=pattern) is False

"""CEL where public conformance suites look: escapes, casts, borders of numbers, names, map keys."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.expressions.cel.cel import compile_cel
from anabranch.expressions.cel.tree import written
from anabranch.expressions.cel.values import (
    CelEvalError,
    CelLimitError,
    Int256,
    UInt,
    plain_of,
)


def value(text: str, **names: Any) -> Any:
    return compile_cel(text).evaluate(names)


@pytest.mark.parametrize(
    ("text", "expected"), [(r"'\X41\x41'", "AA"), (r"b'\X41\XfF'", b"A\xff"), (r"r'\X41'", "\\X41")]
)
def test_hexadecimal_escapes_take_both_letters(text: str, expected: Any) -> None:
    assert value(text) == expected


@pytest.mark.parametrize("word", ["1", "t", "T", "true", "True", "TRUE"])
def test_bool_takes_every_spelling_of_true(word: str) -> None:
    assert value("bool(w)", w=word) is True


@pytest.mark.parametrize("word", ["0", "f", "F", "false", "False", "FALSE"])
def test_bool_takes_every_spelling_of_false(word: str) -> None:
    assert value("bool(w)", w=word) is False


@pytest.mark.parametrize("word", ["tRuE", "fAlSe", "yes", "", " true", "10"])
def test_bool_refuses_other_texts_and_says_which_it_takes(word: str) -> None:
    with pytest.raises(CelEvalError, match=r"bool: the text is none of 1, t, T, .*FALSE, False"):
        value("bool(w)", w=word)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9223372036854775807 < 9223372036854775808.0", False),
        ("9223372036854775807 == 9223372036854775808.0", True),
        ("9223372036854775807 >= 9223372036854775808.0", True),
        ("9223372036854775808.0 > 9223372036854775807", False),
        ("9223372036854775808.0 <= 9223372036854775807", True),
        ("9223372036854775807 < 9223372036854777857.0", True),
        ("-9223372036854775808 < -9223372036854775809.0", False),
        ("18446744073709551615u == 18446744073709551616.0", True),
        ("18446744073709551615u < 18446744073709590000.0", True),
        ("9223372036854775807 in [9223372036854775808.0]", True),
        ("9223372036854775807 < 1e300 && -1 > -1e300 && 0u > -1.0", True),
        ("1 == 0.0 / 0.0 || 1 < 0.0 / 0.0 || 1 >= 0.0 / 0.0", False),
    ],
)
def test_a_64_bit_integer_meets_a_double_as_a_double(text: str, expected: bool) -> None:
    assert value(text) is expected


def test_a_256_bit_integer_is_compared_exactly() -> None:
    assert value("a > 1e30 && a != 1e30", a=Int256(int(1e30) + 1)) is True


@pytest.mark.parametrize("text", ["-5u", "-(5u)", "-u", "-uint(3)"])
def test_an_unsigned_number_has_no_negative(text: str) -> None:
    with pytest.raises(CelEvalError, match="`-` does not take uint"):
        value(text, u=UInt(7))


@pytest.mark.parametrize("text", ["-(-9223372036854775808)", "--9223372036854775808", "-n"])
def test_the_least_integer_has_no_negative(text: str) -> None:
    with pytest.raises(CelEvalError, match="overflow"):
        value(text, n=-(2**63))
    assert value("-9223372036854775808") == -(2**63)
    assert value("-(9223372036854775807)") == -(2**63) + 1


@pytest.mark.parametrize("text", ["int(9223372036854775808.0)", "int(-9223372036854775808.0)"])
def test_a_double_at_the_border_of_64_bits_is_no_int(text: str) -> None:
    with pytest.raises(CelEvalError, match="overflow"):
        value(text)


def test_32_parentheses_nest_and_33_do_not() -> None:
    assert value("(" * 32 + "7" + ")" * 32) == 7
    with pytest.raises(CelLimitError, match="more than 32"):
        value("(" * 33 + "7" + ")" * 33)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".x", 5),
        (".x + x", 10),
        (".m.a", 1),
        ("[{'a': 0}].exists(m, .m.a == 1 && m.a == 0)", True),
        ("[1].map(x, .x)", [5]),
        (".size([1])", 1),
        ("[1, 2].map(y, [.x, y])", [[5, 1], [5, 2]]),
    ],
)
def test_a_leading_dot_names_what_comes_from_outside(text: str, expected: Any) -> None:
    compiled = compile_cel(text)
    assert compiled.evaluate({"x": 5, "m": {"a": 1}}) == expected
    assert compile_cel(written(compiled.tree)).tree == compiled.tree


def test_a_name_with_a_dot_is_missing_when_only_a_variable_has_it() -> None:
    compiled = compile_cel("[1].map(y, .y)")
    assert compiled.names == {"y"}
    with pytest.raises(CelEvalError, match="there is no y"):
        compiled.evaluate({})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 in {true: 1}", False),
        ("true in {1: 1}", False),
        ("0.0 in {false: 1}", False),
        ("true in {true: 1}", True),
        ("size({true: 'a', 1: 'b', false: 'c', 0: 'd'})", 4),
        ("{true: 'a', 1: 'b'}[true] + {true: 'a', 1: 'b'}[1] + {1: 'b'}[1u]", "abb"),
        ("{true: 1} == {1: 1}", False),
        ("{true: 1, 'x': 2} == {'x': 2, true: 1}", True),
        ("{true: 1}.exists(k, k) && {false: 1}.all(k, !k)", True),
        ("{false: 1, true: 2}.map(k, k)", [False, True]),
    ],
)
def test_true_and_one_are_different_keys(text: str, expected: Any) -> None:
    result = value(text)
    assert result == expected
    assert type(result) is type(expected)


def test_a_map_with_boolean_keys_leaves_as_json() -> None:
    assert plain_of(value("{true: 1, 'a': {false: 2}}")) == {"true": 1, "a": {"false": 2}}
    with pytest.raises(CelEvalError, match="stands twice"):
        value("{true: 1, true: 2}")


def test_what_string_makes_of_numbers_that_are_not_finite() -> None:
    assert value("[string(0.0 / 0.0), string(1.0 / 0.0), string(-1.0 / 0.0)]") == [
        "nan",
        "inf",
        "-inf",
    ]


# -- matches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("(?i)^[k]$", "\u212a", "x"),
        ("(?i)^[^k]$", "x", "\u212a"),
        ("(?i)^k$", "\u212a", "c"),
        ("(?i)^[a-z]$", "\u017f", "\u00e9"),
        ("(?i)^[A-Z_]+$", "snake_case", "kebab-case"),
        ("(?i)^[[:upper:]]$", "q", "1"),
        ("(?i)^[^[:upper:]]$", "1", "q"),
        ("(?i)^\\p{Lu}$", "q", "1"),
        ("(?i)^\\P{Lu}$", "1", "q"),
        ("(?i)^[α-ω]$", "Σ", "a"),
        ("(?i)^[Ā]$", "ā", "a"),
        ("(?i)^ß$", "ẞ", "s"),
        ("(?i)^\\w$", "\u017f", "\u00e9"),
        ("(?i)^[x-]$", "-", "y"),
        ("^\\Qa.b*\\E$", "a.b*", "axb"),
        ("^\\Q(\\E+$", "((", "("[:0]),
        ("^\\Qa.b", "a.bc", "axb"),
        ("^\\101\\060\\0$", "A0\0", "A"),
        ("(?U)^a+$", "aa", "b"),
        ("(?sU-i)^.$", "\n", "ab"),
        ("^\\p{Any}$", "\n", ""),
        ("^\\pC$", "\x01", "\u0378"),
        ("^a{,2}$", "a{,2}", "aa"),
        ("^(a{2}|b)$", "aa", "a"),
        ("^a{02}$", "a{02}", "aa"),
        ("^a{0,01}$", "a{0,01}", "a"),
        ("^a(?i)*$", "aa", "A"),
        ("^a\\Q\\E+$", "aa", ""),
        ("^()(?s)*a$", "a", "b"),
        ("^(?P<1st>a)(?<größe_2>b)$", "ab", "a"),
        ("^[[:alpha]+$", "[:a", "x"),
    ],
)
def test_patterns_match_like_re2_in_its_corners(pattern: str, yes: str, no: str) -> None:
    assert value("t.matches(p)", t=yes, p=pattern) is True
    assert value("t.matches(p)", t=no, p=pattern) is False


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{2}", "nothing to repeat"),
        ("a|{2}", "nothing to repeat"),
        ("({2,3})", "nothing to repeat"),
        ("a{2}{3}", "a repetition is repeated"),
        ("\\p{Xx}", "there is no such general category"),
        ("\\p{Lx}", "there is no such general category"),
        ("\\pX", "there is no such general category"),
        ("\\p{Greek}", "RE2's scripts, .* are not supported here"),
        ("(a)\\1", "back references are not part of RE2"),
        ("\\8", "back references are not part of RE2"),
        ("\\y", "RE2 has no such escape"),
        ("\\C", "RE2's `\\\\C` .* is not supported here"),
        ("(?=a)", "look-around is not part of RE2"),
        ("(?<!a)", "look-around is not part of RE2"),
        ("(?P=n)", "this form of .* is not part of RE2"),
        ("(?>a)", "this form of .* is not part of RE2"),
        ("(?x)a", "RE2 has the flags i, m, s and U"),
        ("\\é", "RE2 has no such escape"),
        ("[\\é]", "RE2 has no such escape"),
        ("\\٣", "RE2 has no such escape"),
        ("[[:Alpha:]]", "unknown character class"),
        ("[[:alpha][:foo:]]", "unknown character class"),
        ("(?P<>a)", "the name of a group"),
        ("(?<a-b>a)", "the name of a group"),
        ("(?i)*", "nothing to repeat"),
        ("a|(?i)*", "nothing to repeat"),
        ("a{٣}b{٣", None),
    ],
)
def test_a_refused_pattern_says_whether_re2_has_it(pattern: str, message: str | None) -> None:
    if message is None:  # digits of other scripts are no count
        assert value("t.matches(p)", t=pattern, p=f"^{pattern}$") is True
        return
    with pytest.raises(CelEvalError, match=f"matches: .*{message}"):
        value("'x'.matches(p)", p=pattern)

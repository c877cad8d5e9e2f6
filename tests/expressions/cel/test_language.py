"""CEL as a language: operators, promotion, absorption of errors, macros, access."""

from __future__ import annotations

import math
from typing import Any

import pytest

from anabranch.expressions.cel.cel import Cel, compile_cel
from anabranch.expressions.cel.values import (
    CelEvalError,
    CelMissingName,
    CelSyntaxError,
    Int256,
    UInt,
    Uint256,
    from_json,
    plain_of,
    text_of,
)

NAMES: dict[str, Any] = {
    "n": 7,
    "u": UInt(3),
    "d": 1.5,
    "s": "hello",
    "t": True,
    "none": None,
    "wide": Uint256(10**30),
    "signed": Int256(-5),
    "l": [1, 2, 3],
    "m": {"a": 1, "b": {"c": "deep"}},
}


def value(text: str, **names: Any) -> Any:
    return compile_cel(text).evaluate({**NAMES, **names})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7),
        ("(1 + 2) * 3", 9),
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("10 - 4 - 3", 3),
        ("'a' + \"b\"", "ab"),
        ("[1] + [2]", [1, 2]),
        ("b'a' + b'b'", b"ab"),
        ("-n", -7),
        ("--n", 7),
        ("!t || t", True),
        ("1 < 2 == true", True),
        ("n > 5 ? 'big' : 'small'", "big"),
        ("false ? 1 : true ? 2 : 3", 2),
        ("2 in l", True),
        ("'a' in m", True),
        ("'z' in m", False),
        ("m.b.c", "deep"),
        ("m['b']['c']", "deep"),
        ("l[0] + l[2]", 4),
        ("{'x': n}.x", 7),
        ("{1: 'one'}[1]", "one"),
        ("0x10 + 1", 17),
        ("1e3", 1000.0),
        (".5 + 0.5", 1.0),
        ("r'\\n'", "\\n"),
        ("'\\u00e9\\t\\x41'", "é\tA"),
        ("'''it's'''", "it's"),
        ("null == none", True),
        ("[1, [2, 3]] == [1, [2, 3]]", True),
        ("{'a': 1} == {'a': 1.0}", True),
        ("'b' > 'a'", True),
        ("false < true", True),
        ("size('héllo')", 5),
        ("'Hello'.lowerAscii() + 'x'.upperAscii()", "helloX"),
        ("s.startsWith('he') && s.endsWith('lo') && s.contains('ell')", True),
        ("[1, 2,]", [1, 2]),
    ],
)
def test_operators_and_literals_give_what_cel_says(text: str, expected: Any) -> None:
    result = value(text)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("text", "expected", "kind"),
    [
        ("n + d", 8.5, float),
        ("u * d", 4.5, float),
        ("n + u", 10, int),
        ("u + u", 6, UInt),
        ("wide + 1", 10**30 + 1, Int256),
        ("wide + wide", 2 * 10**30, Uint256),
        ("signed + 1", -4, Int256),
        ("wide / 3u", 10**30 // 3, Uint256),
        ("18446744073709551615u", 2**64 - 1, UInt),
        ("9223372036854775808", 2**63, Int256),
        ("-9223372036854775808", -(2**63), int),
        ("wide * 1.0", 1e30, float),
        ("9223372036854775807u + 1", 2**63, UInt),
    ],
)
def test_mixed_numbers_are_promoted(text: str, expected: Any, kind: type) -> None:
    result = value(text)
    assert result == expected
    assert type(result) is kind


def test_the_strict_form_refuses_to_mix_numbers() -> None:
    for text in ("n + d", "n * u", "u / 2.0"):
        with pytest.raises(CelEvalError, match="does not take"):
            compile_cel(text, strict=True).evaluate(NAMES)
    assert compile_cel("wide + 1 > 0 && n + 1 > 0 && n < d + 10.0", strict=True).evaluate(NAMES)


@pytest.mark.parametrize(
    "text",
    [
        "n == 7.0 && 7u == n && 7.0 == 7u",
        "n > d && u < 3.5 && u >= 3",
        "9007199254740993 == 9007199254740992.0",  # beside a double, 64 bits are a double
        "wide > n && wide > d && wide > 0u",
        "wide == '1000000000000000000000000000000'",
        "wide > '0' && '0' < wide && signed < '0'",
        "wide != 'many'",
        "1 != 'x' && 1 != null && true != 1",
        "0.0 / 0.0 != 0.0 / 0.0",
        "n in [7.0] && wide in ['1000000000000000000000000000000']",
    ],
)
def test_comparisons_cross_the_kinds_of_number(text: str) -> None:
    assert value(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "9223372036854775807 + 1",
        "-9223372036854775807 - 2",
        "9223372036854775807 * 2",
        "-(-9223372036854775807 - 1)",
        "0u - 1u",
        "u256(0) - u256(1)",
        f"u256('{2**256 - 1}') + u256(1)",
        f"int256('{2**255 - 1}') * 2",
        "int64('9223372036854775808')",
        "uint64(-1)",
        "u256(-1)",
        "int(1e30)",
    ],
)
def test_integers_overflow_with_an_error_and_never_wrap_around(text: str) -> None:
    with pytest.raises(CelEvalError, match="overflow"):
        value(text)


@pytest.mark.parametrize(
    "text",
    [
        "1 / 0",
        "1 % 0",
        "1.5 % 2.0",
        "1 + 'a'",
        "'a' - 'b'",
        "1 < 'a'",
        "wide < 'many'",
        "!1",
        "-'a'",
        "1 ? 2 : 3",
        "m.nothing",
        "s.field",
        "l[3]",
        "l[-1]",
        "l['0']",
        "l[0.5]",
        "m['zz']",
        "1 in 2",
        "{1.5: 2}",
        "{'a': 1, 'a': 2}",
        "'x'.matches('(')",
        "abs('x')",
        "bool('yes')",
        "double('1.2.3')",
        "string([1])",
        "[1].map(x, y)",
    ],
)
def test_what_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises(CelEvalError):
        value(text)


def test_doubles_follow_ieee() -> None:
    assert value("1.0 / 0.0") == math.inf
    assert value("-1.0 / 0.0") == -math.inf
    assert math.isnan(value("0.0 / 0.0"))
    with pytest.raises(CelEvalError, match="finite"):
        plain_of(value("1.0 / 0.0"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true || 1 / 0 > 0", True),
        ("1 / 0 > 0 || true", True),
        ("false && 1 / 0 > 0", False),
        ("1 / 0 > 0 && false", False),
        ("1 && false", False),
        ("'x' || true", True),
        ("[0, 1].exists(x, 1 / x > 0)", True),
        ("[0, 2].all(x, 1 / x > 5)", False),
        ("true ? 1 : 1 / 0", 1),
        ("false ? 1 / 0 : 2", 2),
    ],
)
def test_a_deciding_term_absorbs_the_errors_of_the_others(text: str, expected: Any) -> None:
    assert value(text) == expected


@pytest.mark.parametrize("text", ["1 / 0 > 0 || false", "true && 1 / 0 > 0", "false || 1"])
def test_an_error_that_nothing_decides_against_stays_one(text: str) -> None:
    with pytest.raises(CelEvalError):
        value(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l.map(x, x * 2)", [2, 4, 6]),
        ("l.map(x, x > 1, x * 2)", [4, 6]),
        ("l.filter(x, x != 2)", [1, 3]),
        ("l.exists(x, x == 2)", True),
        ("l.exists_one(x, x > 2)", True),
        ("l.exists_one(x, x > 1)", False),
        ("l.all(x, x > 0)", True),
        ("[].all(x, false)", True),
        ("m.map(k, k)", ["a", "b"]),
        ("l.map(x, l.map(y, x * y)).map(row, size(row))", [3, 3, 3]),
        ("[1, 2].map(n, n + 1)", [2, 3]),
        ("l.map(n, n)[0] + n", 8),
        ("has(m.a) && !has(m.z) && has(m.b.c)", True),
    ],
)
def test_macros_go_through_lists_and_keys(text: str, expected: Any) -> None:
    assert value(text) == expected


def test_free_names_are_those_no_macro_binds() -> None:
    assert compile_cel("a.b + l.map(x, x + y)[0] + max([z])").names == {"a", "l", "y", "z"}
    assert compile_cel("x + [1].map(x, x)[0]").names == {"x"}
    assert compile_cel("A > 1").missing({"B": 2}) == {"A"}


def test_a_missing_name_is_an_error_of_its_own() -> None:
    with pytest.raises(CelMissingName, match="there is no nobody"):
        value("nobody + 1")


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("", "empty", 1),
        ("1 +", "the expression ends where a value", 4),
        ("1 = 2", "write `==`", 3),
        ("a & b", "write `&&`", 3),
        ("(1", r"`\)` is expected", 3),
        ("'abc", "not closed", 1),
        ("maximum([1])", "there is no function maximum", 1),
        ("medain([1])", "did you mean median", 1),
        ("s.containz('x')", "did you mean contains", 3),
        ("abs(1, 2)", "takes 1 argument", 1),
        ("has(a)", "takes one field", 1),
        ("l.map(1, x)", "the variable of map", 7),
        ("12abc", "runs into a name", 1),
        ("'\\q'", "no escape", 1),
        ("99999999999999999999u", "does not fit uint", 1),
        ("a b", "the end of the expression", 3),
        ("a ? b", "`:` is expected", 6),
        ("a..b", "a name is expected", 3),
        ("1" + "0" * 90, "does not fit 256 bits", 1),
    ],
)
def test_syntax_errors_say_what_is_wrong_and_where(text: str, message: str, column: int) -> None:
    with pytest.raises(CelSyntaxError, match=message) as caught:
        compile_cel(text)
    assert caught.value.column == column


def test_an_error_quotes_the_expression_and_no_value() -> None:
    with pytest.raises(CelEvalError) as caught:
        compile_cel("secret + 1").evaluate({"secret": "hunter2"})
    assert "secret + 1" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_json_numbers_are_doubles_and_large_integers_stay_exact() -> None:
    seen = from_json({"a": 1, "b": [2, 2.5], "c": 2**60 + 1, "d": 10**30, "e": 2**255})
    assert seen == {"a": 1.0, "b": [2.0, 2.5], "c": 2**60 + 1, "d": 10**30, "e": 2**255}
    assert [type(seen[key]) for key in "acde"] == [float, int, Int256, Uint256]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (5.0, "5"), (0.1, "0.1"), (1e25, "1e+25"), (True, "true"), (None, "null"),
        (Uint256(10**20), "100000000000000000000"), ("x", "x"), (b"\x01\xff", "0x01ff"),
        ([1, "a", UInt(2)], '[1,"a",2]'), ({"k": Int256(3)}, '{"k":"3"}'),
    ],
)  # fmt: skip
def test_values_inside_texts_look_as_people_write_them(given: Any, text: str) -> None:
    assert text_of(given) == text


def test_a_compiled_expression_is_a_value() -> None:
    assert compile_cel("a + 1") == compile_cel("a + 1")
    assert isinstance(compile_cel("1"), Cel)

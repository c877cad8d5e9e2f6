"""Only plain JSON gets in, and a refusal leads to the value that is to blame."""

from __future__ import annotations

import datetime
import decimal
import enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InputError
from anabranch.work.values.json_check import MAX_DEPTH, NotJsonError, plain, to_json
from anabranch.work.values.json_values import require_json

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**80), max_value=2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=20,
)


class Color(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Money:
    pass


@given(json_values)
def test_plain_json_is_taken_as_it_is(value: Any) -> None:
    assert require_json(value, "the value") == value
    assert plain(value) == value


def test_the_copy_does_not_follow_later_changes() -> None:
    original = {"items": [1]}
    copy = require_json(original, "the value")
    original["items"].append(2)
    assert copy == {"items": [1]}


@pytest.mark.parametrize(
    ("given_value", "expected"),
    [
        ((1, (2, 3)), [1, [2, 3]]),
        ({"a": (1,)}, {"a": [1]}),
        (Color.RED, "red"),
        ([Level.HIGH, (1,)], [3, [1]]),
        (True, True),
    ],
)
def test_near_relatives_become_plain(given_value: Any, expected: Any) -> None:
    for copy in (require_json(given_value, "the value"), plain(given_value)):
        assert copy == expected
        assert type(copy) is type(expected)


def circular() -> Any:
    value: list[Any] = []
    value.append({"again": value})
    return value


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


REFUSED = [
    ({"a": [1, {2, 3}]}, "result.a[1]", "set"),
    ({"when": datetime.datetime(2026, 1, 1)}, "result.when", "isoformat"),
    ([b"raw"], "result[0]", "base64"),
    ({"price": decimal.Decimal(1)}, "result.price", "Decimal"),
    ([1.0, float("nan")], "result[1]", "nan"),
    ({"x": float("-inf")}, "result.x", "-inf"),
    ({"a": {1: "one"}}, "result.a", "keys must be text"),
    ({"two words": Money()}, "result['two words']", "Money"),
    (["ok", "\ud800"], "result[1]", "surrogate"),
    ({"\ud800": 1}, "result", "surrogate"),
    (circular(), "result[0].again", "contains itself"),
    (nested(MAX_DEPTH + 1), "result[0]", "levels deep"),
    (nested(5_000), "result[0]", "levels deep"),
    (10**5_000, "result", "digits"),
    (len, "result", "builtin_function_or_method"),
]


@pytest.mark.parametrize(
    ("value", "path", "reason"), [pytest.param(*case, id=case[2]) for case in REFUSED]
)
def test_a_refusal_names_the_path_and_the_cure(value: Any, path: str, reason: str) -> None:
    with pytest.raises(InputError) as refusal:
        require_json(value, "the result of tool 'price'")
    assert refusal.value.code == "not_json"
    assert str(refusal.value).startswith(f"the result of tool 'price' is not JSON: {path}")
    assert reason in str(refusal.value)
    with pytest.raises(NotJsonError) as same:
        to_json(value)
    assert str(same.value) in str(refusal.value)


def test_the_deepest_allowed_value_passes() -> None:
    value = nested(MAX_DEPTH)
    assert require_json(value, "the value") == value
    assert to_json(value) == "[" * MAX_DEPTH + "1" + "]" * MAX_DEPTH


def test_a_shared_part_is_not_a_circle() -> None:
    part = (1,)
    assert require_json([part, part], "the value") == [[1], [1]]


def test_brackets_in_text_are_not_depth() -> None:
    value = {"text": "[" * 1_000}
    assert require_json(value, "the value") == value

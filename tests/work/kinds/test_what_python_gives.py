"""Results of Python code: what has a stated form becomes JSON, the rest is refused by its path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.work.kinds.python.json_results import result_json
from anabranch.work.kinds.python.performer import run_inline
from anabranch.work.sql.rows import json_safe
from anabranch.work.values.json_check import NotJsonError

from ..support import fault_of

FORMS: dict[str, Any] = {
    "{1: 'a', 2.5: 'b', None: 'c', True: 'd'}": {"1": "d", "2.5": "b", "null": "c"},
    "{False: 'no'}": {"false": "no"},
    "datetime(2026, 3, 1, 12, 30)": "2026-03-01T12:30:00",
    "datetime(2026, 3, 1, tzinfo=UTC)": "2026-03-01T00:00:00+00:00",
    "date(2026, 3, 1)": "2026-03-01",
    "{date(2026, 3, 1): 1}": {"2026-03-01": 1},
    "timedelta(seconds=90)": 90.0,
    "Decimal('12.50')": 12.5,
    "Decimal('7')": 7,
    "Decimal('0.1234567890123456789')": "0.1234567890123456789",
    "Decimal('NaN')": "NaN",
    "b'abc'": "YWJj",
    "bytearray(b'abc')": "YWJj",
    "{3, 1, 2}": [1, 2, 3],
    "{'b', 2, 'a', 1}": [1, 2, "a", "b"],
    "frozenset({(2, 1), (1, 2)})": [[1, 2], [2, 1]],
    "Order(7, [Order(8, None)])": {"id": 7, "parts": [{"id": 8, "parts": None}]},
    "Level.HIGH": "high",
    "UUID(int=1)": "00000000-0000-0000-0000-000000000001",
    "PurePosixPath('/a/b')": "/a/b",
    "ChainMap({'a': 1}, {'b': 2})": {"a": 1, "b": 2},
    "[(1, {2}), {'deep': {4: date(2026, 1, 1)}}]": [[1, [2]], {"deep": {"4": "2026-01-01"}}],
}
CODE = """
from collections import ChainMap
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from uuid import UUID

class Level(Enum):
    HIGH = "high"

@dataclass
class Order:
    id: int
    parts: object

result = {}
"""


@pytest.mark.parametrize("text", FORMS)
def test_what_has_a_form_in_json_is_given_in_it(text: str) -> None:
    answer = run_inline(CODE.replace("{}", text))
    assert answer.status == "ok", answer.fault
    assert answer.result == FORMS[text]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{1: 'a', '1': 'b'}", "result has two keys that are the same as text"),
        ("{'a': {1: 0, '1': 0}}", "result.a has two keys that are the same as text"),
        ("[float('nan')]", "result[0] is nan"),
        ("{'a': (n for n in [])}", "result.a is a generator"),
        ("{(1, 2): 3}", "has the key (1, 2); keys must be text"),
        ("[object()]", "result[0] is a object"),
        ("Order(1, {'self': print})", "result.parts.self is a builtin_function_or_method"),
    ],
)
def test_what_has_none_is_refused_with_the_path_to_it(text: str, words: str) -> None:
    fault = fault_of(run_inline(CODE.replace("{}", text)))
    assert (fault.kind, fault.retryable) == ("result", False)
    assert words in fault.message


def test_a_result_that_contains_itself_is_refused() -> None:
    looped = CODE.replace("{}", "Order(1, None)") + "result.parts = result\n"
    assert "levels deep" in fault_of(run_inline(looped)).message


@given(st.decimals(allow_nan=False, allow_infinity=False) | st.binary() | st.datetimes())
def test_rows_of_queries_follow_the_same_rules(value: Any) -> None:
    assert json.loads(result_json([value])) == [json_safe(value)]


keys = st.integers(0, 20) | st.integers(0, 20).map(str)


@given(st.dictionaries(keys, st.integers(), max_size=6))
def test_no_key_is_ever_lost(value: dict[Any, int]) -> None:
    if len({str(key) for key in value}) < len(value):
        with pytest.raises(NotJsonError, match="the same as text"):
            result_json(value)
    else:
        made = json.loads(result_json(value))
        assert made == {str(key): item for key, item in value.items()}

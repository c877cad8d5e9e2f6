"""Types cast as their table says; gas follows the price list."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dialects.xrc137.casts import TYPES, CastFailed, Overflow, cast, is_address
from anabranch.dialects.xrc137.gas import estimate, wait_gas
from anabranch.dialects.xrc137.read import read_rule
from anabranch.expressions.cel.values import Int256, UInt, Uint256

ADDRESS = "0x" + "aB" * 20
UUID = "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize(
    ("type_name", "given_value", "expected"),
    [
        ("bool", True, True), ("bool", "false", False), ("bool", 2, True), ("bool", 0.0, False),
        ("int64", 5, 5), ("int64", "-5", -5), ("int64", 5.0, 5), ("int64", "+7", 7),
        ("uint64", "7", UInt(7)), ("timestamp_ms", 1.7e12, 1700000000000), ("duration_ms", "5", 5),
        ("timestamp_ms", 0, 0), ("duration_ms", 2**63 - 1, 2**63 - 1),
        ("int256", "-12", Int256(-12)), ("uint256", 10**30, Uint256(10**30)),
        ("uint256", 1e20, Uint256(10**20)), ("uint256", str(2**256 - 1), Uint256(2**256 - 1)),
        ("double", 1, 1.0), ("double", "1.5e3", 1500.0), ("double", UInt(3), 3.0),
        ("decimal", "001.50", "001.50"), ("decimal", 1.5, "1.5"), ("decimal", 3, "3"),
        ("string", "x", "x"), ("string", 5.0, "5"), ("string", True, "true"),
        ("string", Uint256(7), "7"), ("address", ADDRESS, ADDRESS), ("uuid", UUID, UUID),
        ("bytes", "0x", "0x"), ("bytes", "0x01ff", "0x01ff"),
        ("bytes32", "0x" + "00" * 32, "0x" + "00" * 32),
    ],
)  # fmt: skip
def test_values_are_cast_to_their_type(type_name: str, given_value: Any, expected: Any) -> None:
    result = cast(given_value, type_name)
    assert result == expected
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    ("type_name", "given_value"),
    [
        ("bool", "yes"), ("bool", None), ("bool", float("nan")), ("int64", 1.5), ("int64", "1.0"),
        ("int64", True), ("int64", ""), ("int64", [1]), ("int64", float("inf")), ("double", "x"),
        ("double", True), ("double", "1_000"), ("decimal", "1e3"), ("decimal", None),
        ("string", None), ("string", [1]), ("string", {"a": 1}), ("address", "0x12"),
        ("address", ADDRESS[2:]), ("address", 5), ("uuid", UUID[:-1]), ("bytes", "0x123"),
        ("bytes", "ff"), ("bytes32", "0x00"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_refused(type_name: str, given_value: Any) -> None:
    with pytest.raises(CastFailed) as caught:
        cast(given_value, type_name)
    assert not isinstance(caught.value, Overflow)


@pytest.mark.parametrize(
    ("type_name", "given_value"),
    [
        ("int64", 2**63), ("int64", "-9223372036854775809"), ("uint64", -1), ("uint64", 2**64),
        ("int256", 2**255), ("uint256", -1), ("uint256", 2**256), ("uint256", "9" * 90),
        ("double", "1e999"), ("double", 10**400), ("string", "x" * 8193), ("timestamp_ms", 1e30),
        ("timestamp_ms", -1), ("timestamp_ms", "-1"), ("duration_ms", -1), ("duration_ms", -5.0),
        ("duration_ms", 2**63),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_an_overflow(type_name: str, given_value: Any) -> None:
    with pytest.raises(Overflow):
        cast(given_value, type_name)


@given(
    st.sampled_from(TYPES),
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.none())),
)
def test_a_cast_raises_nothing_but_its_own_errors_and_casts_once(
    type_name: str, value: Any
) -> None:
    with suppress(CastFailed):
        once = cast(value, type_name)
        assert cast(once, type_name) == once


@pytest.mark.parametrize("type_name", [name for name in TYPES if name not in ("string", "bool")])
def test_the_message_of_a_failed_cast_never_repeats_the_value(type_name: str) -> None:
    with pytest.raises(CastFailed) as caught:
        cast("hunter2!", type_name)
    assert "hunter2" not in caught.value.message


def test_an_address_is_recognised() -> None:
    assert is_address(ADDRESS)
    assert not is_address(ADDRESS + "0")
    assert not is_address(5)


# -- gas -------------------------------------------------------------------------------------


def bill(document: dict[str, Any], **options: Any) -> Any:
    found, problems = read_rule(json.dumps({"payload": {}, **document}))
    assert found is not None, problems
    return estimate(found, **options)


def test_an_empty_rule_costs_the_base() -> None:
    empty = bill({})
    assert (empty.common, empty.valid, empty.invalid, empty.worst_case) == (10_000, 0, 0, 10_000)


@pytest.mark.parametrize(
    ("document", "more"),
    [
        ({"payload": {"A": {"type": "bool"}}}, 1000),
        ({"payload": {"A": {"type": "bool", "default": True}}}, 200),
        ({"rules": ["true"]}, 1200),
        ({"rules": ["[A] > 1"]}, 1200 + 600 + 250),
        ({"rules": ["max([[A],[B]]) > 1.0"]}, 1200 + 600 + 800 + 500),
        ({"rules": ["[A].matches('x')"]}, 1200 + 800 + 4000 + 250),
        ({"rules": ["string([A]).matches('x')"]}, 1200 + 2 * 800 + 250 + 4000),
        ({"rules": ["[A].matches('x') && [B].matches('y')"]},
         1200 + 600 + 2 * (800 + 250) + 4000),
        ({"rules": ["[1, 2].all(x, string(x).matches('1'))"]},
         1200 + 800 + 2 * (800 + 600 + 2 * 800) + 4000),
        ({"rules": ["[1, 2].all(x, x < [A])"]}, 1200 + 800 + 2 * (800 + 600 + 600) + 250),
        ({"rules": ["size(from) > 1 && '[A]' != pid"]}, 1200 + 3 * 600 + 800),
        ({"contractReads": [{"to": ADDRESS, "function": "f(int64)",
          "args": [{"type": "int64", "value": "1"}],
          "saveAs": {"0": {"key": "A", "type": "bool"},
                     "1": {"key": "B", "type": "bool", "default": True}}}]},
         6000 + 600 + 2 * 400 + 250),
        ({"apiCalls": [{"name": "a", "method": "POST", "contentType": "json",
          "urlTemplate": "http://x.test/[from]", "headers": {"h": "[pid]"},
          "bodyTemplate": "[from][pid]",
          "extractMap": {"A": {"type": "double", "value": "double(resp.a) + 1.0"},
                         "B": {"type": "bool", "value": "resp.s.matches('x')"}}}]},
         8000 + 3 * 200 + 2 * 600 + 400 + 500 + 400 + 4000),
    ],
)  # fmt: skip
def test_the_common_part_follows_the_price_list(document: dict[str, Any], more: int) -> None:
    assert bill(document).common == 10_000 + more


def test_a_branch_pays_for_outputs_execution_log_and_waiting_children() -> None:
    branch = {
        "payload": {"A": "[from]", "B": "size([from]) > 1", "C": 1},
        "execution": {
            "to": ADDRESS,
            "args": [{"type": "int64", "value": "1"}] * 2,
            "value": {"type": "uint256", "value": "1"},
        },
        "encryptLogs": True,
        "waitSec": 3601,
    }
    found = bill({"onValid": branch}, valid_spawns=3)
    outputs = 3 * 400 + 250 + (600 + 250 + 600 + 800)
    expected = outputs + 1200 + 2 * 700 + 800 + 2000 + 2 * 3 * 100
    assert (found.valid, found.invalid) == (expected, 0)
    assert found.worst_case == found.total_valid == 10_000 + expected
    assert sum(line.gas for line in found.lines if line.part == "valid") == expected
    assert found.total_invalid == 10_000


@pytest.mark.parametrize(
    ("value", "gas"),
    [
        (1, 400),
        ("text", 400),
        ("[A]", 400 + 250),
        ("ID-[A]-[B]", 400 + 2 * 250),
        ("[A] - [B]", 400 + 2 * 250 + 600 + 600),
        ("[A].matches('x') || [A].matches('y')", 400 + 2 * 250 + 600 + 600 + 2 * 800 + 4000),
        ({"a": "[A]"}, 400),
    ],
)
def test_an_output_pays_for_its_placeholders_and_what_it_computes(value: Any, gas: int) -> None:
    names = {"A": {"type": "string"}, "B": {"type": "string"}}
    assert bill({"payload": names, "onValid": {"payload": {"K": value}}}).valid == gas


@pytest.mark.parametrize(
    ("value", "gas"),
    [
        ("7", 0),
        ("[A]", 250),
        ("[A] + 1", 250 + 600),
        ("size([S]) + size([S])", 2 * 250 + 600 + 2 * 800),
        ("[S].matches('x') ? 1 : 2", 250 + 600 + 800 + 4000),
    ],
)
def test_an_execution_pays_for_what_its_arguments_and_its_value_compute(
    value: str, gas: int
) -> None:
    names = {"A": {"type": "int64"}, "S": {"type": "string"}}
    given = {"type": "int64", "value": value}
    plain = {"to": "[S]", "function": "f(int64,int64)", "args": [given, given]}
    found = bill({"payload": names, "onValid": {"execution": plain}})
    assert found.valid == 1200 + 2 * (700 + gas)
    found = bill({"payload": names, "onInvalid": {"execution": {**plain, "value": given}}})
    assert found.invalid == 1200 + 2 * (700 + gas) + 800 + gas


def test_the_worst_case_is_the_dearer_branch() -> None:
    found = bill({"onInvalid": {"payload": {"A": 1}}}, encrypted=True)
    assert (found.valid, found.invalid, found.worst_case) == (2000, 2400, 12_400)


def test_a_computed_wait_is_estimated_as_one_hour_and_billed_as_it_was() -> None:
    found, _ = read_rule(
        json.dumps({"payload": {"N": {"type": "int64"}}, "onValid": {"waitSec": "[N] * 60"}})
    )
    assert found is not None
    bill = estimate(found, valid_spawns=2)
    assert bill.valid == 200
    assert bill.taken("valid", wait_ms=7_200_001, spawns=2) == 600
    assert bill.taken("invalid", wait_ms=7_200_001, spawns=2) == 600


@pytest.mark.parametrize(("wait_ms", "gas"), [(0, 0), (1, 100), (3_600_000, 100), (3_600_001, 200)])
def test_every_started_hour_counts(wait_ms: int, gas: int) -> None:
    assert wait_gas(wait_ms, 1) == gas
    assert wait_gas(wait_ms, 0) == 0

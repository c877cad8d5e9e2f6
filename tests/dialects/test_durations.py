"""Durations: every spelling, and a clear sentence for what is none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dialects.durations import DURATION_MS_MAX, parse_duration


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        (30, 30_000),
        (0, 0),
        (1.5, 1_500),
        (0.1, 100),
        ("90", 90_000),
        ("0.25", 250),
        ("250ms", 250),
        ("30s", 30_000),
        ("1.5s", 1_500),
        ("5m", 300_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("2d", 172_800_000),
        ("1d2h3m4s5ms", 93_784_005),
        (" 7s ", 7_000),
        ("PT30S", 30_000),
        ("PT0.5S", 500),
        ("PT1H30M", 5_400_000),
        ("P1D", 86_400_000),
        ("P1W", 604_800_000),
        ("P1DT12H", 129_600_000),
        ("P1DT1.5H", 91_800_000),
        ("0.0006s", 1),
    ],
)
def test_spellings(written: Any, milliseconds: int) -> None:
    assert parse_duration(written) == milliseconds


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (-1, "negative"),
        (-0.5, "negative"),
        ("-5s", "negative"),
        ("-PT5S", "negative"),
        ("", "empty duration"),
        ("5x", "not a duration"),
        ("s", "not a duration"),
        ("5 minutes", "not a duration"),
        ("1e3", "not a duration"),
        ("٣s٣", "not a duration"),
        ("٣", "not a duration"),
        ("٣s", "not a duration"),
        ("1٣m", "not a duration"),
        ("PT٣S", "ISO 8601"),
        ("30m1h", "large to small"),
        ("1s1s", "large to small"),
        ("P", "ISO 8601"),
        ("PT", "ISO 8601"),
        ("P1Y", "ISO 8601"),
        ("P1M", "ISO 8601"),
        ("PT1H30", "ISO 8601"),
        ("pt5m", "write PT5M"),
        ("PT5m", "ISO 8601"),
        ("PT1.5H30M", "last part"),
        ("P1.5DT1H", "last part"),
        (float("nan"), "not a duration"),
        (float("inf"), "not a duration"),
        (10**400, "hundred years"),
        (1e300, "hundred years"),
        ("101000d", "hundred years"),
        ("9999999999999999999s", "not a duration"),
        (True, "not a duration"),
        (None, "not a duration"),
        ([5], "not a duration"),
    ],
)
def test_what_is_no_duration_says_why(written: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_duration(written)


@given(st.integers(0, 10**5), st.sampled_from(["ms", "s", "m", "h"]))
def test_units_agree_with_arithmetic(count: int, unit: str) -> None:
    size = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}[unit]
    assert parse_duration(f"{count}{unit}") == count * size


@given(st.text(max_size=12) | st.integers() | st.floats() | st.booleans() | st.none())
def test_anything_is_a_duration_or_a_sentence(value: Any) -> None:
    try:
        milliseconds = parse_duration(value)
    except ValueError:
        return
    assert 0 <= milliseconds <= DURATION_MS_MAX

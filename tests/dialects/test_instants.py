"""Instants are read with their zone, to the millisecond, or refused with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.dialects.instants import INSTANT_MS_MAX, parse_instant


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T01:00:01+01:00", 1_000),
        ("1970-01-01 00:00:01.25+00:00", 1_250),
        ("2027-03-28T02:30:00+01:00", 1_806_197_400_000),
        (1, 1_000),
        (1.5, 1_500),
        ("1.5", 1_500),
        (0, 0),
        ("1969-12-31T23:59:59Z", 0),
        ("9999-12-31T23:59:59.999Z", INSTANT_MS_MAX),
        ("9999-12-31T23:59:59.999-23:59", INSTANT_MS_MAX),
    ],
)
def test_an_instant_is_milliseconds_since_1970(given: Any, milliseconds: int) -> None:
    assert parse_instant(given) == milliseconds


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("2027-03-28T09:00:00", "does not say in which time zone"),
        ("2027-03-28", "does not say in which time zone"),
        ("next Monday", "is not an instant"),
        ("2027-02-30T00:00:00Z", "is not an instant"),
        ("", "is not an instant"),
        (None, "is not an instant"),
        (True, "is not an instant"),
        ([], "is not an instant"),
        (-1, "is not an instant before the year 10000"),
        (1_806_217_200_000, "seconds since 1970, not milliseconds"),
        (float("inf"), "is not an instant"),
        (float("nan"), "is not an instant"),
        ("1e400", "is not an instant"),
    ],
)
def test_what_is_no_instant_is_refused_with_a_reason(given: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_instant(given)

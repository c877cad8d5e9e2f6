"""Instants as people and programs write them, as whole milliseconds since 1970 in UTC.

"2027-03-28T09:00:00+02:00"    ISO 8601 with the offset of its zone
"2027-03-28T07:00:00Z"         the same instant
1806217200                     seconds since 1970, as a number or as text
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

EXAMPLES = 'write an instant such as "2027-03-28T09:00:00+02:00", or seconds since 1970'
#: The end of the year 9999, where the calendar of Python ends.
INSTANT_MS_MAX = 253_402_300_800_000 - 1
_START = datetime(1970, 1, 1, tzinfo=UTC)


def parse_instant(value: Any) -> int:
    """The instant in milliseconds. Raises ValueError with a sentence that says why not."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r:.60} is not an instant; {EXAMPLES}")
    number = _number(value)
    return _of_number(number) if number is not None else _of_text(str(value).strip())


def _number(value: float | str) -> float | None:
    if not isinstance(value, str):
        return value
    try:
        return float(value) if value.strip().lstrip("-")[:1].isdecimal() else None
    except ValueError:
        return None


def _of_number(seconds: float) -> int:
    if not isfinite(seconds) or not 0 <= seconds * 1000 <= INSTANT_MS_MAX:
        raise ValueError(
            f"{seconds!r:.60} is not an instant before the year 10000; "
            "write seconds since 1970, not milliseconds"
        )
    return round(seconds * 1000)


def _of_text(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r:.60} is not an instant; {EXAMPLES}") from None
    if found.tzinfo is None:
        raise ValueError(
            f"{text!r:.60} does not say in which time zone; add its offset, as +02:00, or Z"
        )
    try:
        milliseconds = (found - _START) // timedelta(milliseconds=1)
    except OverflowError:
        raise ValueError(f"{text!r:.60} is not an instant; {EXAMPLES}") from None
    return max(0, min(milliseconds, INSTANT_MS_MAX))

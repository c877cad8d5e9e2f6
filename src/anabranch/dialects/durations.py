"""Durations as people write them, as whole milliseconds.

30            seconds            "250ms"       with a unit: ms, s, m, h, d
1.5           seconds            "1h30m"       units from large to small
"90"          seconds            "PT1H30M"     ISO 8601, weeks to seconds, in capital letters,
                                               with a fraction in the last part only
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal
from math import isfinite
from typing import Any

#: A hundred years: anything longer is a slip of the pen.
DURATION_MS_MAX = 100 * 366 * 86_400_000

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_PLAIN = re.compile(_NUMBER)
_PARTS = re.compile(rf"({_NUMBER})\s*(ms|d|h|m|s)\s*")
_ISO = re.compile(
    rf"P(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_ISO_UNITS_MS = (7 * 86_400_000, 86_400_000, 3_600_000, 60_000, 1_000)

#: What `parse_duration` takes of a text, and the part of it that is ISO 8601, for JSON Schema.
ISO_PATTERN = (
    r"\s*P(?=[0-9T])(?:{n}W)?(?:{n}D)?(?:T(?=[0-9])(?:{n}H)?(?:{n}M)?(?:{n}S)?)?\s*"
).replace("{n}", _NUMBER)
PATTERN = (
    rf"\s*{_NUMBER}\s*"
    + r"|\s*(?=[0-9])"
    + "".join(rf"(?:{_NUMBER}\s*{unit}\s*)?" for unit in _UNITS_MS)
    + f"|{ISO_PATTERN}"
)

EXAMPLES = 'write seconds (30) or units ("250ms", "30s", "5m", "1h30m", "PT30S")'


def parse_duration(value: Any) -> int:
    """The duration in milliseconds. Raises ValueError with a sentence that says why not."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r} is not a duration; {EXAMPLES}")
    text = str(value).strip()
    if text.startswith("-"):
        raise ValueError(f"{value!r} is negative; a duration is zero or more")
    milliseconds = _milliseconds(text, value)
    if milliseconds > DURATION_MS_MAX:
        raise ValueError(f"{value!r} is longer than a hundred years")
    return int(milliseconds.to_integral_value(ROUND_HALF_UP))


def _milliseconds(text: str, value: Any) -> Decimal:
    if isinstance(value, float):
        return _seconds(value)
    if isinstance(value, int):
        return Decimal(value) * 1000
    if _PLAIN.fullmatch(text):
        return Decimal(text) * 1000
    return _iso(text, value) if text[:1] in ("P", "p") else _units(text, value)


def _seconds(value: float) -> Decimal:
    if not isfinite(value):
        raise ValueError(f"{value!r} is not a duration; {EXAMPLES}")
    # Through the shortest spelling, so that 0.1 is a tenth and not a little more.
    return Decimal(repr(value)) * 1000


def _units(text: str, value: Any) -> Decimal:
    total, position, allowed = Decimal(0), 0, list(_UNITS_MS)
    while position < len(text):
        part = _PARTS.match(text, position)
        if part is None:
            raise ValueError(f"{value!r} is not a duration; {EXAMPLES}")
        number, unit = part.groups()
        if unit not in allowed:
            raise ValueError(f"{value!r}: each unit once, from large to small (d, h, m, s, ms)")
        allowed = allowed[allowed.index(unit) + 1 :]
        total += Decimal(number) * _UNITS_MS[unit]
        position = part.end()
    if not text:
        raise ValueError(f"an empty duration; {EXAMPLES}")
    return total


def _iso(text: str, value: Any) -> Decimal:
    parts = _ISO.fullmatch(text)
    if parts is None or not any(parts.groups()) or text.endswith("T"):
        upper = f"; write {text.upper()}" if _ISO.fullmatch(text.upper()) else ""
        raise ValueError(
            f"{value!r} is not an ISO 8601 duration of weeks, days, hours, minutes and seconds"
            + upper
        )
    numbers = [number for number in parts.groups() if number]
    if any("." in number for number in numbers[:-1]):
        raise ValueError(
            f"{value!r}: only the last part of an ISO 8601 duration may have a fraction; "
            "write PT2H for PT1.5H30M"
        )
    given = zip(parts.groups(), _ISO_UNITS_MS, strict=True)
    return sum((Decimal(number) * unit for number, unit in given if number), Decimal(0))

"""How much one evaluation may make and read, and which numbers may leave it.

`meter.py` counts against these limits. Nothing here loads Jinja: whatever only looks values up does
without it.
"""

from __future__ import annotations

from math import isfinite

import msgspec


class TemplateLimits(msgspec.Struct, frozen=True):
    """The limits of one evaluation. An error that reports one names its field."""

    text_max: int = 4 * 1024 * 1024  # characters of any one text
    items_max: int = 250_000  # values in a result or in one sequence that was made
    range_max: int = 100_000  # numbers in one range()
    turns_max: int = 1_000_000  # turns of all loops together
    bits_max: int = 8_192  # size of a whole number
    #: What one evaluation reads, compares and makes. A unit takes five nanoseconds at most on a
    #: machine of 2020: a character is one, an element 8, a call of a filter for an element 64. All
    #: evaluations of one turn of a run share `budget.TURN_WORK_MAX` of the same units.
    work_max: int = 64 * 1024 * 1024


#: As large as a result of work may be: what is stored can be used.
WHOLE_BITS_MAX = 14_000


def whole(value: int) -> int:
    if value.bit_length() > WHOLE_BITS_MAX:
        raise ValueError(f"the whole number has more than {WHOLE_BITS_MAX:,} bits")
    return int(value)


def finite(value: float) -> float:
    if not isfinite(value):
        raise ValueError(f"{value} is not a JSON number")
    return value

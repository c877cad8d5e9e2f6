"""Ages as people write them (`30d`, `12h`), and how long runs of each status are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches

from anabranch.errors import InputError

DAY_MS = 86_400_000
ENDED = ("completed", "failed", "partial", "cancelled", "deadline_exceeded", "step_timeout")
REST = "all"  # every status that has no entry of its own
NEVER = "never"
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([smhdw])")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
_HINT = 'write "completed=30d failed=90d", or "all=365d"'


def age_ms(text: str) -> int:
    """`30d`, `12h`, `90m`, `4w` or `45s` in milliseconds."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise InputError(f"an age is written 30d, 12h or 90m, not {text!r:.40}", code="usage")
    return int(float(found[1]) * _UNITS_MS[found[2]])


def kept_ages(text: str, what: str = "keep_runs") -> Mapping[str, int]:
    """How long runs that ended are kept, in milliseconds by status: `completed=30d failed=90d`.

    `all` is for the statuses that are not named; `never` deletes none. Statuses that are left out
    are kept for good. `what` is the setting as a message calls it."""
    given: dict[str, int | None] = {}
    for entry in filter(None, re.split(r"[\s,]+", text)):
        status, equals, age = entry.partition("=")
        if not equals or not age:
            raise InputError(f"{what}: {entry!r:.60} is no status with an age: {_HINT}")
        _require_status(status, what)
        if status in given:
            raise InputError(f"{what} names {status} twice")
        given[status] = _age(status, age, what)
    rest = given.pop(REST, None)
    whole = {status: given.get(status, rest) for status in ENDED}
    return {status: age for status, age in whole.items() if age is not None}


def _require_status(status: str, what: str) -> None:
    if status in (*ENDED, REST):
        return
    close = get_close_matches(status, (*ENDED, REST), n=1)
    known = f"did you mean {close[0]}?" if close else f"runs end as {', '.join(ENDED)}"
    raise InputError(f"{what}: no run ends as {status!r:.40}; {known}")


def _age(status: str, text: str, what: str) -> int | None:
    if text == NEVER:
        return None
    try:
        age = age_ms(text)
    except InputError:
        message = f"{what}: {status} is kept for an age as 30d, 12h or 90m, or {NEVER}"
        raise InputError(f"{message}, not {text!r:.40}") from None
    if not age:
        raise InputError(f"{what}: {status} must be kept for longer than {text}")
    return age

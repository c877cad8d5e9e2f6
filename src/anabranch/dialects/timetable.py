"""When a schedule comes round: cron in a time zone, an interval, or instants that are listed.

Instants are whole milliseconds since the epoch and fall on whole seconds. What a time zone does to
the clocks of its people is decided here, once for every schedule:

- A local time that does not exist comes once, at the next instant that does: `30 2 * * *` comes at
  03:00 on the day on which the clocks go from 02:00 to 03:00. Several of them come once together.
- A local time that exists twice comes once, the first time.
- Where the hour is `*` the cron is about how often, not about when. It follows the hours as they
  pass: nothing is brought forward, and the hour that comes twice counts twice.

`croniter` reads expressions and goes through the calendar, always without a time zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from threading import Lock
from typing import Protocol
from zoneinfo import ZoneInfo, available_timezones

from anabranch.net.problems import closest

UTC = timezone.utc  # noqa: UP017 - as it is shown
YEARS_MAX = 50  # without a match: leap days and fifth Mondays come sooner
LAST_YEAR = 9000
CRON_LETTERS = 200
SHORT = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
FIELDS = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31, or L for the last"),
    ("month", "1 to 12, or jan to dec"),
    ("day of the week", "0 to 7 (0 and 7 are Sunday), sun to sat, or fri#2 for the second Friday"),
)
EXAMPLE = "write five fields, such as `0 3 * * mon-fri`, or one of " + ", ".join(SHORT)
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
ZONE = re.compile(r"[A-Za-z0-9_+-]{1,40}(?:/[A-Za-z0-9_+-]{1,40}){0,2}")
ALIKE = 0.75  # two names, one of which is a slip of the pen
_WORD = re.compile(r"[A-Za-z]+")
_STEPS_MAX = 10_000  # candidates in a row that a time zone leaves out


class Timetable(Protocol):
    def next_after(self, instant: int) -> int | None:
        """The first instant after this one; None when there is none any more."""


def times(table: Timetable, after: int, before: int | None = None) -> Iterator[int]:
    """Every instant after one, and before the other."""
    at = table.next_after(after)
    while at is not None and (before is None or at < before):
        yield at
        at = table.next_after(at)


def next_times(table: Timetable, after: int, count: int) -> list[int]:
    return list(islice(times(table, after), count))


class IntervalTable:
    """Counted from an instant; nothing comes before it."""

    def __init__(self, every_ms: int, begin: int | None = None) -> None:
        self._every = every_ms
        self._begin = begin

    def next_after(self, instant: int) -> int | None:
        anchor = self._begin or 0
        if self._begin is not None and instant < self._begin:
            return self._begin
        return anchor + ((instant - anchor) // self._every + 1) * self._every


class InstantsTable:
    def __init__(self, at: Sequence[int]) -> None:
        self._at = sorted(at)

    def next_after(self, instant: int) -> int | None:
        return next((at for at in self._at if at > instant), None)


class CronTable:
    """A cron expression by the clocks of a time zone."""

    def __init__(self, text: str, zone: str) -> None:
        self._cron = _Cron(text)
        self._zone = zone_of(zone)
        self._found: tuple[int, int | None] = (-1, None)  # asked last: many share a timetable

    def next_after(self, instant: int) -> int | None:
        before, found = self._found
        if before != instant:
            found = self._next_after(instant)
            self._found = (instant, found)
        return found

    def _next_after(self, instant: int) -> int | None:
        try:
            if self._cron.every_hour:
                return self._as_hours_pass(instant)
            return self._by_local_time(instant)
        except (OverflowError, ValueError):  # the calendar ends with the year 9999
            return None

    def _by_local_time(self, instant: int) -> int | None:
        naive = local_time(instant, self._zone).replace(tzinfo=None)
        for _ in range(_STEPS_MAX):
            following = self._cron.after(naive)
            if following is None:
                return None
            at = instant_of(following, self._zone)
            if at > instant:  # the first time of what exists twice may be over
                return at
            naive = following
        return None

    def _as_hours_pass(self, instant: int) -> int | None:
        at, offset = instant, _offset(instant, self._zone)
        for _ in range(8):
            naive = self._cron.after(_shifted(at, offset))
            if naive is None:
                return None
            found = _milliseconds(naive - offset)
            after = _offset(found, self._zone)
            if after == offset:
                return found
            change = _change(self._zone, at, found)
            at, offset = change - 1000, _offset(change, self._zone)
        return None


class _Cron:
    """An expression, read once."""

    def __init__(self, text: str) -> None:
        from croniter import croniter  # few commands need it

        self._iterator = croniter(
            checked_cron(text), datetime(2000, 1, 1), max_years_between_matches=YEARS_MAX
        )
        hours = self._iterator.expanded[1]
        self.every_hour = hours == ["*"] or len(hours) == 24
        self._reading = Lock()

    def after(self, naive: datetime) -> datetime | None:
        from croniter import CroniterBadDateError

        with self._reading:
            try:
                found: datetime = self._iterator.get_next(datetime, start_time=naive)
            except CroniterBadDateError:
                return None
        return found if found.year < LAST_YEAR else None


@lru_cache(maxsize=1000)
def checked_cron(text: str) -> str:
    """The expression as it is evaluated. Raises ValueError with a sentence that says why not."""
    shown = text[:80]
    words = text.lower().split()
    if len(text) > CRON_LETTERS:
        raise ValueError(f"{shown!r}… is too long for a cron expression; {EXAMPLE}")
    if len(words) == 1 and words[0].startswith("@"):
        if words[0] not in SHORT:
            raise ValueError(f"there is no {shown!r}; {EXAMPLE}")
        return words[0]
    if len(words) != len(FIELDS):
        more = " (seconds are not possible: take `every`)" if len(words) in (6, 7) else ""
        raise ValueError(f"{shown!r} has {len(words)} fields and not five{more}; {EXAMPLE}")
    for number, word in enumerate(words):
        _check_field(number, word, shown)
    joined = " ".join(words)
    _require_possible(joined, shown)
    return joined


def _check_field(number: int, word: str, shown: str) -> None:
    """Each alone, so that the one that is wrong can be named."""
    from croniter import CroniterError, croniter

    name, range_ = FIELDS[number]
    known = {2: ("l",), 3: MONTHS, 4: (*DAYS, "l")}.get(number, ())
    unknown = [each for each in _WORD.findall(word) if each not in known]
    alone = ["*"] * len(FIELDS)
    alone[number] = word
    try:
        if unknown:
            raise ValueError
        croniter.expand(" ".join(alone))
    except (CroniterError, ValueError):
        meant = closest(unknown[0], known) if unknown else ""
        hint = f"; {meant}" if meant else ""
        raise ValueError(
            f"the {name} of the cron {shown!r} cannot be {word[:40]!r}: it is {range_}{hint}"
        ) from None


def _require_possible(text: str, shown: str) -> None:
    from croniter import CroniterBadDateError, CroniterError, croniter

    try:
        made = croniter(text, datetime(2000, 1, 1), max_years_between_matches=YEARS_MAX)
        made.get_next(datetime)
    except CroniterBadDateError:
        _, _, day, month, _ = text.split()
        named = MONTHS[int(month) - 1].title() if month.isdecimal() else month
        raise ValueError(
            f"the cron {shown!r} never comes: there is no day {day} in month {named}"
        ) from None
    except CroniterError as error:
        raise ValueError(f"{shown!r} is no cron expression: {error}") from None


@lru_cache(maxsize=1000)
def zone_of(name: str) -> ZoneInfo:
    """Raises ValueError for a time zone that nobody knows."""
    try:
        if ZONE.fullmatch(name):  # a name of any other form would be looked for among modules
            return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        pass  # of the right form
    zone = _closest_zone(name[:60].replace(" ", "_").lower())
    hint = f"did you mean {zone!r}?" if zone else "write one such as Europe/Berlin or UTC"
    raise ValueError(f"there is no time zone {name[:60]!r}; {hint}")


def _closest_zone(word: str) -> str:
    """By its whole name, or by that of the city."""
    known = {zone.lower(): zone for zone in sorted(available_timezones())}
    cities = {zone.rpartition("/")[2]: zone for zone in known}
    for names in (known, cities):
        if found := get_close_matches(word, names, 1, ALIKE):
            return known[found[0]] if names is known else known[cities[found[0]]]
    return ""


def local_time(instant: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(instant // 1000, zone)


def instant_of(naive: datetime, zone: ZoneInfo) -> int:
    """Of a local time: the first, where it exists twice; the next, where it does not exist."""
    before = naive.replace(tzinfo=zone, fold=0)
    at = int(before.timestamp()) * 1000
    if local_time(at, zone).replace(tzinfo=None) == naive.replace(microsecond=0):
        return at
    later = naive.replace(tzinfo=zone, fold=1)  # by the clocks after the change: an earlier instant
    return _change(zone, int(later.timestamp()) * 1000, at)


def iso(instant: int, zone: ZoneInfo | None = None) -> str:
    return datetime.fromtimestamp(instant / 1000, zone or UTC).isoformat()


def read_instant(text: str, zone: str = "UTC") -> int:
    """ISO 8601; without an offset it is a local time. Raises ValueError."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text[:60]!r} is no instant: write 2026-11-17T03:00, with an offset if you like "
            "(2026-11-17T03:00+01:00)"
        ) from None
    if not 1970 <= read.year < LAST_YEAR:
        raise ValueError(f"{text[:60]!r} is out of range: the year is 1970 to {LAST_YEAR - 1}")
    if read.tzinfo is None:
        return instant_of(read.replace(microsecond=0), zone_of(zone))
    return max(0, int(read.timestamp())) * 1000


def _offset(instant: int, zone: ZoneInfo) -> timedelta:
    offset = local_time(instant, zone).utcoffset()
    assert offset is not None, "a zone has one at every instant"
    return offset


def _shifted(instant: int, offset: timedelta) -> datetime:
    return datetime.fromtimestamp(instant // 1000, UTC).replace(tzinfo=None) + offset


def _milliseconds(utc: datetime) -> int:
    return int(utc.replace(tzinfo=UTC).timestamp()) * 1000


def _change(zone: ZoneInfo, low: int, high: int) -> int:
    """The first instant with the offset that the zone has at `high`, in whole seconds."""
    wanted, low, high = _offset(high, zone), low // 1000, high // 1000
    while low < high:
        middle = (low + high) // 2
        if _offset(middle * 1000, zone) == wanted:
            high = middle
        else:
            low = middle + 1
    return low * 1000

"""A schedule as an author writes it: in a definition, on the command line, over HTTP.

    schedule:
      cron: "0 3 * * mon-fri"        # or `every: 15m`, or `at: [2026-12-24T08:00]`
      timezone: Europe/Berlin        # UTC without one
      overlap: skip                  # while the run before goes on: skip, queue or cancel_running
      catch_up: 1h                   # how late a run may begin when nothing could begin it in time
      jitter: 30s                    # spread the beginnings over so long
      input: {day: "{{ schedule.date }}"}
      labels: {team: data}

Everything that can be wrong is found when it is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from functools import lru_cache
from typing import Any, Literal, get_args

import msgspec

from anabranch.dialects.durations import parse_duration
from anabranch.dialects.timetable import (
    CronTable,
    InstantsTable,
    IntervalTable,
    Timetable,
    checked_cron,
    instant_of,
    iso,
    read_instant,
    zone_of,
)
from anabranch.errors import ExpressionError
from anabranch.expressions.jinja.jinja import Jinja
from anabranch.expressions.port import Expression
from anabranch.net.problems import closest

Overlap = Literal["skip", "queue", "cancel_running"]
KEYS = (
    *("cron", "every", "at", "timezone", "begin", "overlap", "catch_up", "jitter", "input"),
    *("labels", "paused"),
)
CATCH_UP_MS = 3_600_000
CATCH_UP_LEAST_MS = 10_000  # a busy machine must be able to begin it
EVERY_LEAST_MS = 1000
JITTER_MOST_MS = 86_400_000
INSTANTS_MAX = 1000
INPUT_BYTES_MAX = 64 * 1024
LABELS_MAX = 32


class ScheduleError(ValueError):
    """What is wrong with the value of one key; "" where it is about several."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class ScheduleSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """When to begin runs, and how. One of `cron`, `every_ms` and `at` is given."""

    cron: str = ""
    every_ms: int = 0
    at: tuple[int, ...] = ()
    timezone: str = "UTC"
    begin: int | None = None  # nothing comes before; intervals are counted from here
    overlap: Overlap = "skip"
    catch_up_ms: int = CATCH_UP_MS
    jitter_ms: int = 0
    input: dict[str, Any] = {}
    labels: dict[str, str] = {}


def timetable_of(spec: ScheduleSpec) -> Timetable:
    """Kept for a while: to read a cron takes longer than to ask it."""
    if spec.cron:
        table = _cron_table(spec.cron, spec.timezone)
        return table if spec.begin is None else _FromThen(table, spec.begin)
    if spec.every_ms:
        return IntervalTable(spec.every_ms, spec.begin)
    return InstantsTable(spec.at)


class _FromThen:
    def __init__(self, table: Timetable, begin: int) -> None:
        self._table = table
        self._begin = begin

    def next_after(self, instant: int) -> int | None:
        return self._table.next_after(max(instant, self._begin - 1))


@lru_cache(maxsize=10_000)
def _cron_table(cron: str, zone: str) -> CronTable:
    return CronTable(cron, zone)


# -- reading ------------------------------------------------------------------------------------


def read_schedule(given: Mapping[str, Any]) -> ScheduleSpec:
    """Raises `ScheduleError` for what is wrong with it. `paused` is not for the timetable."""
    for key in given:
        if key not in KEYS:
            meant = closest(str(key), KEYS)
            hint = meant or f"it has {', '.join(KEYS)}"
            raise ScheduleError(str(key), f"a schedule has no {str(key)[:40]!r}; {hint}")
    chosen = [key for key in ("cron", "every", "at") if given.get(key) not in (None, "", [])]
    if len(chosen) != 1:
        said = f"it has {' and '.join(chosen)}" if chosen else "it has none of them"
        raise ScheduleError(
            chosen[1] if chosen else "", f"a schedule is a cron, an `every` or an `at`; {said}"
        )
    zone = _zone(given.get("timezone"))
    return ScheduleSpec(
        cron=_cron(given["cron"]) if "cron" in chosen else "",
        every_ms=_every(given["every"]) if "every" in chosen else 0,
        at=_instants(given["at"], zone) if "at" in chosen else (),
        timezone=zone,
        begin=_begin(given.get("begin"), zone),
        overlap=_overlap(given.get("overlap")),
        catch_up_ms=_duration("catch_up", given.get("catch_up"), CATCH_UP_MS, CATCH_UP_LEAST_MS),
        jitter_ms=_jitter(given.get("jitter")),
        input=_input(given.get("input")),
        labels=_labels(given.get("labels")),
    )


def plain_schedule(spec: ScheduleSpec) -> dict[str, Any]:
    """As an author would write it; `read_schedule` reads the same from it."""
    shown: dict[str, Any] = {}
    if spec.cron:
        shown["cron"] = spec.cron
    if spec.every_ms:
        shown["every"] = spoken(spec.every_ms)
    if spec.at:
        shown["at"] = [iso(at, zone_of(spec.timezone)) for at in spec.at]
    shown["timezone"] = spec.timezone
    if spec.begin is not None:
        shown["begin"] = iso(spec.begin, zone_of(spec.timezone))
    shown |= {"overlap": spec.overlap, "catch_up": spoken(spec.catch_up_ms)}
    if spec.jitter_ms:
        shown["jitter"] = spoken(spec.jitter_ms)
    shown |= {"input": spec.input} if spec.input else {}
    return shown | ({"labels": spec.labels} if spec.labels else {})


def spoken(milliseconds: int) -> str:
    """A duration in the largest units that say it exactly."""
    parts = []
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _cron(value: Any) -> str:
    if not isinstance(value, str):
        raise ScheduleError("cron", f"a cron is a text such as `0 3 * * *`, not {value!r:.60}")
    return str(_told("cron", checked_cron, value))


def _zone(value: Any) -> str:
    if value is None:
        return "UTC"
    if not isinstance(value, str):
        raise ScheduleError("timezone", f"a time zone is a name, not {value!r:.60}")
    return str(_told("timezone", zone_of, value).key)


def _every(value: Any) -> int:
    found = _duration("every", value, 0, EVERY_LEAST_MS)
    if found % 1000:
        raise ScheduleError("every", f"`every` is in whole seconds, not {value!r:.40}")
    return found


def _jitter(value: Any) -> int:
    found = _duration("jitter", value, 0, 0)
    if found > JITTER_MOST_MS:
        raise ScheduleError("jitter", f"`jitter` is at most a day, not {value!r:.40}")
    return found


def _duration(key: str, value: Any, default: int, least: int) -> int:
    if value is None:
        return default
    found: int = _told(key, parse_duration, value)
    if found < least:
        raise ScheduleError(key, f"`{key}` is at least {spoken(least)}, not {value!r:.40}")
    return found


def _instants(value: Any, zone: str) -> tuple[int, ...]:
    listed = value if isinstance(value, list | tuple) else [value]
    if len(listed) > INSTANTS_MAX:
        raise ScheduleError(
            "at", f"`at` has at most {INSTANTS_MAX:,} instants, not {len(listed):,}"
        )
    return tuple(sorted({_instant("at", one, zone) for one in listed}))


def _begin(value: Any, zone: str) -> int | None:
    return None if value is None else _instant("begin", value, zone)


def _instant(key: str, value: Any, zone: str) -> int:
    if isinstance(value, datetime) and value.tzinfo is None:
        return instant_of(value.replace(microsecond=0), zone_of(zone))
    if isinstance(value, datetime | date):  # as YAML reads it
        value = value.isoformat()
    if not isinstance(value, str):
        raise ScheduleError(key, f"an instant is written as 2026-11-17T03:00, not {value!r:.40}")
    try:
        return read_instant(value, zone)
    except (ValueError, OverflowError) as error:
        raise ScheduleError(key, str(error)) from None


def _overlap(value: Any) -> Overlap:
    if value is None:
        return "skip"
    for word in get_args(Overlap):
        if value == word:
            chosen: Overlap = word
            return chosen
    words = ", ".join(get_args(Overlap))
    raise ScheduleError("overlap", f"`overlap` is one of {words}, not {value!r:.40}")


def _input(value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ScheduleError("input", f"the input is a mapping, not {type(value).__name__}")
    found = dict(value)
    try:
        size = len(msgspec.json.encode(found))
    except (TypeError, ValueError) as error:
        raise ScheduleError("input", f"the input is no plain data: {error}") from None
    if size > INPUT_BYTES_MAX:
        raise ScheduleError("input", f"the input has {size:,} bytes, more than {INPUT_BYTES_MAX:,}")
    _compiled("input", found)
    return found


def _labels(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or len(value) > LABELS_MAX:
        raise ScheduleError("labels", f"labels are a mapping with at most {LABELS_MAX} texts")
    found = {str(key): text if isinstance(text, str) else str(text) for key, text in value.items()}
    _compiled("labels", found)
    return found


def _told(key: str, read: Any, value: Any) -> Any:
    try:
        return read(value)
    except ValueError as error:
        raise ScheduleError(key, str(error)) from None


# -- what a run is given ------------------------------------------------------------------------


def _compiled(key: str, structure: Any) -> Expression:
    try:
        return Jinja().tree(structure)
    except (ExpressionError, ValueError) as error:
        said = getattr(error, "message", str(error))
        raise ScheduleError(key, f"a template in `{key}` cannot be read: {said}") from None


def names_at(name: str, spec: ScheduleSpec, tick: int) -> dict[str, Any]:
    """What templates of the schedule can read, under `schedule`."""
    local = iso(tick, zone_of(spec.timezone))
    return {
        "schedule": {
            "name": name,
            "time": local,
            "date": local[:10],
            "time_utc": iso(tick).replace("+00:00", "Z"),
            "timestamp": tick // 1000,
        }
    }


def given_at(name: str, spec: ScheduleSpec, tick: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Input and labels of the run of this tick, the same whenever it is asked for."""
    if not spec.input and not spec.labels:
        return {}, {}
    names = names_at(name, spec, tick)
    rendered = Jinja().tree(spec.input).evaluate(names)
    labels = Jinja().tree(spec.labels).evaluate(names)
    return dict(rendered), {key: str(text) for key, text in labels.items()}

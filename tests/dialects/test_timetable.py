"""When schedules come round: changed clocks by table, and against a calendar counted out."""

from __future__ import annotations

from collections.abc import Sequence, Set
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given
from hypothesis import strategies as st

from anabranch.dialects.timetable import (
    CronTable,
    InstantsTable,
    IntervalTable,
    checked_cron,
    instant_of,
    iso,
    next_times,
    read_instant,
    times,
    zone_of,
)

#: cron, zone, the local time before, and the local times that follow.
CHANGES = [
    # The clocks go forward: what does not exist comes at the next instant that does, once.
    ("30 2 * * *", "Europe/Berlin", "2026-03-28T03:00", ["03-29T03:00+02", "03-30T02:30+02"]),
    ("*/15 2 * * *", "Europe/Berlin", "2026-03-28T03:00", ["03-29T03:00+02", "03-30T02:00+02"]),
    ("0 2,3 * * *", "Europe/Berlin", "2026-03-28T04:00", ["03-29T03:00+02", "03-30T02:00+02"]),
    ("30 2 * * *", "America/New_York", "2026-03-07T03:00", ["03-08T03:00-04", "03-09T02:30-04"]),
    ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T03:00",
     ["10-04T02:30+11", "10-05T02:15+11"]),
    ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T01:00", ["11-04T01:00-02", "11-05T00:00-02"]),
    ("0 12 * * *", "Pacific/Apia", "2011-12-29T13:00", ["12-31T00:00+14", "12-31T12:00+14"]),
    # The clocks go back: what exists twice comes the first time.
    ("30 2 * * *", "Europe/Berlin", "2026-10-24T03:00", ["10-25T02:30+02", "10-26T02:30+01"]),
    ("30 1 * * *", "America/New_York", "2026-10-31T02:00", ["11-01T01:30-04", "11-02T01:30-05"]),
    ("0,30 2 * * *", "Europe/Berlin", "2026-10-24T03:00",
     ["10-25T02:00+02", "10-25T02:30+02", "10-26T02:00+01"]),
    ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T02:00",
     ["04-05T01:45+11", "04-06T01:45+10"]),
    # With every hour it is about how often: the hours as they pass.
    ("30 * * * *", "Europe/Berlin", "2026-10-25T01:00",
     ["10-25T01:30+02", "10-25T02:30+02", "10-25T02:30+01", "10-25T03:30+01"]),
    ("30 * * * *", "Europe/Berlin", "2026-03-29T01:00", ["03-29T01:30+01", "03-29T03:30+02"]),
    ("*/20 * * * *", "America/New_York", "2026-11-01T01:30",
     ["11-01T01:40-04", "11-01T01:00-05", "11-01T01:20-05", "11-01T01:40-05", "11-01T02:00-05"]),
    # No change at all.
    ("0 3 * * *", "Asia/Kolkata", "2026-10-03T04:00", ["10-04T03:00+05", "10-05T03:00+05"]),
    ("0 3 * * *", "UTC", "2026-03-28T04:00", ["03-29T03:00+00", "03-30T03:00+00"]),
]  # fmt: skip


@pytest.mark.parametrize(("cron", "zone", "before", "expected"), CHANGES)
def test_a_cron_meets_a_change_of_clocks_as_the_page_says(
    cron: str, zone: str, before: str, expected: list[str]
) -> None:
    found = next_times(CronTable(cron, zone), read_instant(before, zone), len(expected))
    shown = [iso(at, zone_of(zone)) for at in found]
    assert [f"{text[5:16]}{text[19:22]}" for text in shown] == expected


FIXED = ("0 3 * * *", "30 2 * * *", "*/20 1-3 * * *", "15 0,2 * * sun", "0 2 1,15 * *")
FREE = ("*/7 * * * *", "0 * * * *", "59 * * * mon-fri", "*/30 * 1-7 * *")
ZONES = (
    *("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Asia/Kolkata"),
    *("America/St_Johns", "Pacific/Chatham", "UTC", "Asia/Tehran", "Europe/London"),
)


def matches(fields: Sequence[Set[int | str]], local: datetime) -> bool:
    """Of two days that are both restricted one is enough."""
    minute, hour, day, month, weekday = fields
    for value, allowed in ((local.minute, minute), (local.hour, hour), (local.month, month)):
        if value not in allowed and "*" not in allowed:
            return False
    by_day, by_week = local.day in day, local.isoweekday() % 7 in weekday
    if "*" in day or "*" in weekday:
        return (by_day or "*" in day) and (by_week or "*" in weekday)
    return by_day or by_week


def counted_out(cron: str, zone: ZoneInfo, begin: int, end: int) -> list[int]:
    """The plain way: look at every minute of the time, and at every local time of every day."""
    fields = [set(field) for field in croniter.expand(cron)[0]]
    found = set()
    if fields[1] == {"*"}:
        for minute in range(begin // 60_000 + 1, end // 60_000 + 1):
            if matches(fields, datetime.fromtimestamp(minute * 60, zone)):
                found.add(minute * 60_000)
        return sorted(at for at in found if begin < at < end)
    day = datetime.fromtimestamp(begin // 1000, zone).replace(
        tzinfo=None, hour=0, minute=0, second=0
    ) - timedelta(days=1)
    last = datetime.fromtimestamp(end // 1000, zone).replace(tzinfo=None) + timedelta(days=1)
    while day < last:
        if matches(fields, day):
            found.add(instant_of(day, zone))
        day += timedelta(minutes=1)
    return sorted(at for at in found if begin < at < end)


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("cron", [*FIXED, *FREE])
def test_a_cron_comes_at_the_instants_of_a_calendar_that_is_counted_out(
    cron: str, zone: str
) -> None:
    """Two days around each change of clocks in a year."""
    known = zone_of(zone)
    for at in changes_of(known, 2026, 2027):
        begin, end = at - 86_400_000 + 1234, at + 86_400_000
        found = list(times(CronTable(cron, zone), begin, end))
        assert found == counted_out(cron, known, begin, end), (cron, zone, iso(at, known))


@cache
def changes_of(zone: ZoneInfo, first: int, last: int) -> list[int]:
    """Instants around which the offset changes, and one without a change."""
    at, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last, 1, 1, tzinfo=UTC)
    found, before = [int(at.timestamp()) * 1000 + 40 * 86_400_000], at.astimezone(zone).utcoffset()
    while at < end:
        at += timedelta(hours=6)
        offset = at.astimezone(zone).utcoffset()
        if offset != before:
            found.append(int(at.timestamp()) * 1000)
        before = offset
    return found


@given(
    st.sampled_from([*FIXED, *FREE, "0 0 29 2 *", "0 0 * * mon#5", "5 4 L * *"]),
    st.sampled_from(ZONES),
    st.integers(0, 4_000_000_000),
)
def test_every_time_is_later_than_the_one_before_and_reached_from_in_between(
    cron: str, zone: str, second: int
) -> None:
    table = CronTable(cron, zone)
    first, after = next_times(table, second * 1000, 2)
    assert second * 1000 < first < after
    assert table.next_after(first - 1) == first
    assert table.next_after((first + after) // 2) == after


def test_an_interval_is_counted_from_1970_or_from_where_it_begins() -> None:
    day = read_instant("2026-11-17T00:00")
    assert next_times(IntervalTable(900_000), day + 1, 2) == [day + 900_000, day + 1_800_000]
    begin = day + 7_000
    table = IntervalTable(900_000, begin)
    assert next_times(table, 0, 2) == [begin, begin + 900_000]
    assert table.next_after(begin) == begin + 900_000


def test_instants_come_in_order_and_then_no_more() -> None:
    table = InstantsTable([5000, 1000])
    assert next_times(table, 0, 9) == [1000, 5000]
    assert table.next_after(5000) is None


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 0 31 2 *", ["31 2", "never comes", "day 31", "Feb"]),
        ("0 0 30 feb *", ["never comes", "day 30"]),
        ("0 0 31 4,6 *", ["never comes", "day 31"]),
        ("0 24 * * *", ["hour", "'24'", "0 to 23"]),
        ("60 * * * *", ["minute", "'60'"]),
        ("0 0 0 * *", ["day of the month", "'0'"]),
        ("0 0 * 13 *", ["month", "'13'"]),
        ("0 0 * * fry", ["day of the week", "'fry'", "'fri'"]),
        ("0 0 * * 8", ["day of the week", "'8'"]),
        ("* * * * * *", ["6 fields", "every"]),
        ("* * *", ["3 fields"]),
        ("R R * * *", ["minute", "'r'"]),
        ("h * * * *", ["minute", "'h'"]),
        ("*/0 * * * *", ["minute", "'*/0'"]),
        ("@reboot", ["@reboot", "@daily"]),
        ("", ["0 fields"]),
        ("1," * 150 + "1 * * * *", ["too long"]),
        ("0 0 * * mon#6", ["day of the week"]),
    ],
)
def test_a_cron_that_cannot_be_is_refused_with_its_reason(cron: str, words: list[str]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        checked_cron(cron)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("Europe/Berlni", "Europe/Berlin"),
        ("europe/berlin", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("New York", "America/New_York"),
        ("Mars/Base", "such as"),
        ("../../etc/passwd", "such as"),
        ("Europe", "such as"),
        ("", "such as"),
        ("a\0b", "such as"),
    ],
)
def test_an_unknown_time_zone_is_refused_with_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match="there is no time zone") as caught:
        zone_of(name)
    assert meant in str(caught.value)


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01", "1969-01-01", "9999-01-01T00:00"])
def test_an_instant_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"instant|range"):
        read_instant(text)

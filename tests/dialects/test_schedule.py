"""A schedule as its author writes it."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.dialects.schedule import (
    ScheduleError,
    given_at,
    plain_schedule,
    read_schedule,
    spoken,
    timetable_of,
)
from anabranch.dialects.timetable import next_times, read_instant
from anabranch.operations.definitions.prepare import check

PLAYBOOK = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: n}}
{schedule}
workflow:
- step: a
  tool: {{kind: noop}}
"""


@pytest.mark.parametrize(
    "given",
    [
        {"cron": "0 3 * * mon-fri", "timezone": "Europe/Berlin", "overlap": "queue"},
        {"every": "1h30m", "jitter": "20s", "catch_up": "2d", "begin": "2026-01-01T00:00"},
        {"at": ["2026-12-24T08:00", "2026-12-24T08:00+05:00"], "timezone": "Asia/Tokyo"},
        {"cron": "@daily", "input": {"d": "{{ schedule.date }}"}, "labels": {"a": "b"}},
    ],
)
def test_what_is_shown_of_a_schedule_is_read_as_the_same(given: dict[str, Any]) -> None:
    spec = read_schedule(given)
    assert read_schedule(plain_schedule(spec)) == spec


@pytest.mark.parametrize(
    ("given", "key", "word"),
    [
        ({}, "", "none of them"),
        ({"cron": "* * * * *", "every": "5m"}, "every", "cron and every"),
        ({"cron": 5}, "cron", "a text"),
        ({"cron": "0 0 31 2 *"}, "cron", "never comes"),
        ({"crn": "* * * * *"}, "crn", "'cron'"),
        ({"every": "0s"}, "every", "at least 1s"),
        ({"every": "1500ms"}, "every", "whole seconds"),
        ({"every": "soon"}, "every", "duration"),
        ({"at": "soon"}, "at", "instant"),
        ({"at": ["2026-01-01"] * 1001}, "at", "1,000"),
        ({"cron": "* * * * *", "timezone": "Nowhere"}, "timezone", "time zone"),
        ({"cron": "* * * * *", "timezone": 3}, "timezone", "a name"),
        ({"cron": "* * * * *", "overlap": "both"}, "overlap", "cancel_running"),
        ({"cron": "* * * * *", "catch_up": "1s"}, "catch_up", "at least 10s"),
        ({"cron": "* * * * *", "jitter": "2d"}, "jitter", "a day"),
        ({"cron": "* * * * *", "input": [1]}, "input", "mapping"),
        ({"cron": "* * * * *", "input": {"a": "{{ x"}}, "input", "cannot be read"),
        ({"cron": "* * * * *", "input": {"a": "x" * 70_000}}, "input", "bytes"),
        ({"cron": "* * * * *", "labels": "x"}, "labels", "mapping"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_named(given: dict[str, Any], key: str, word: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        read_schedule(given)
    assert caught.value.key == key
    assert word in str(caught.value)


def test_runs_are_given_what_their_tick_says_in_the_time_of_the_zone() -> None:
    given = {"day": "{{ schedule.date }}", "n": "{{ schedule.timestamp }}", "plain": [1, None]}
    labels = {"when": "{{ schedule.time }}", "of": "{{ schedule.name }}"}
    spec = read_schedule(
        {"cron": "0 0 * * *", "timezone": "Asia/Tokyo", "input": given, "labels": labels}
    )
    (tick,) = next_times(timetable_of(spec), read_instant("2026-11-16T20:00"), 1)
    assert given_at("nightly", spec, tick) == (
        {"day": "2026-11-18", "n": tick // 1000, "plain": [1, None]},
        {"when": "2026-11-18T00:00:00+09:00", "of": "nightly"},
    )


def test_nothing_comes_before_it_begins() -> None:
    spec = read_schedule({"cron": "0 * * * *", "begin": "2026-11-17T10:00"})
    first = next_times(timetable_of(spec), 0, 1)
    assert first == [read_instant("2026-11-17T10:00")]


def test_durations_are_told_as_they_are_read() -> None:
    assert [spoken(ms) for ms in (0, 1500, 5_400_000, 86_400_000)] == [
        "0s",
        "1s500ms",
        "1h30m",
        "1d",
    ]


@pytest.mark.parametrize("where", ["schedule: {{}}", "metadata_schedule"])
def test_a_playbook_says_its_schedule_at_the_root_or_in_its_metadata(where: str) -> None:
    said = "{cron: '0 3 * * *', timezone: Europe/Berlin}"
    text = PLAYBOOK.format(schedule=f"schedule: {said}")
    if where == "metadata_schedule":
        text = text.replace("{name: n}", f"{{name: n, schedule: {said}}}").replace(
            f"\nschedule: {said}", "", 1
        )
    compiled = check(text)
    assert compiled.net is not None
    assert not compiled.problems
    assert compiled.net.schedule == {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}


def test_a_playbook_with_an_impossible_schedule_is_told_where_and_why() -> None:
    compiled = check(PLAYBOOK.format(schedule="schedule:\n  cron: 0 0 31 2 *"))
    (problem,) = compiled.problems
    assert (problem.code, problem.position.line) == ("bad-schedule", 5)
    assert "never comes" in problem.message
    twice = PLAYBOOK.format(schedule="schedule: {every: 5m}").replace(
        "{name: n}", "{name: n, schedule: {every: 5m}}"
    )
    assert [each.code for each in check(twice).problems] == ["conflict"]

"""A server that is killed around ticks: each tick has one run, and none within its window is lost.

The runs themselves write a line, with the tick, so that a second run of a tick would be seen also
where it had another id.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from anabranch.clock import SystemClock
from anabranch.dialects.schedule import read_schedule, timetable_of
from anabranch.dialects.timetable import times
from anabranch.operations.schedules.schedule import (
    FAMILY,
    SCHEDULES,
    Schedule,
    Target,
    record_of,
    run_of,
)
from anabranch.store.ports import HeadFilter
from anabranch.store.sqlite.store import SqliteStore
from seeds import seeds

from .test_server_kill_nine import ask, server

PLAYBOOK = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: tick, path: tick}
workload: {at: 0}
workflow:
  - step: note
    tool: {kind: noop, result: "{{ workload.at }}"}
"""
NAMES = ("queued", "again")
KILLS = len(seeds(6, least=3))


def add(folder: Path, url: str) -> None:
    definition = {"definitions": [{"definition": PLAYBOOK}]}
    ask(url, "/catalog", definition)
    for name, overlap in zip(NAMES, ("queue", "cancel_running"), strict=True):
        body = {
            "name": name,
            "path": "tick",
            "every": "1s",
            "overlap": overlap,
            "input": {"at": "{{ schedule.timestamp }}"},
        }
        ask(url, "/schedules", body)


def schedule_in(folder: Path, name: str) -> Schedule:
    with closing(SqliteStore(folder / "s.db", read_only=True)) as store:
        record = store.record(FAMILY, name)
        assert record is not None
        return SCHEDULES.document(record)


def test_a_tick_has_one_run_however_often_the_server_is_killed(tmp_path: Path) -> None:
    dice = random.Random(7)
    begun: dict[str, int] = {}
    for number in range(KILLS):
        with server(tmp_path) as (process, url):
            if not number:
                add(tmp_path, url)
                begun = {name: schedule_in(tmp_path, name).created_at for name in NAMES}
            before = schedule_in(tmp_path, NAMES[0]).fired
            while schedule_in(tmp_path, NAMES[0]).fired == before:
                time.sleep(dice.random() / 50)  # then at any moment around a tick
            time.sleep(dice.random())
            process.send_signal(signal.SIGKILL)
            process.wait()
    with server(tmp_path) as (_, url):
        for name in NAMES:
            ask(url, f"/schedules/{name}")
        while any(schedule_in(tmp_path, NAMES[0]).queued):
            time.sleep(0.05)
    for name in NAMES:
        check(tmp_path, name, begun[name])


def check(folder: Path, name: str, created: int) -> None:
    after = schedule_in(folder, name)
    ticks = list(times(timetable_of(after.spec), created, after.next_tick))
    assert after.skipped == {}, "every tick was in its window of an hour"
    assert after.fired == len(ticks) - len(after.queued)
    wanted = HeadFilter(labels={"schedule": name}, limit=100_000)
    with closing(SqliteStore(folder / "s.db", read_only=True)) as store:
        found = Counter(head.run for head in store.heads(wanted))
        times_of = Counter(head.labels["schedule_time"] for head in store.heads(wanted))
    assert set(times_of.values()) == {1}, "a tick has one run"
    expected = {run_of(name, tick) for tick in ticks} - {run_of(name, t) for t in after.queued}
    assert after.next_tick is not None
    following = times(timetable_of(after.spec), after.next_tick - 1, SystemClock().now())
    left = {run_of(name, tick) for tick in (*after.queued, *following)}
    assert expected <= set(found) <= expected | left, "only the next ones were begun and not noted"


def test_a_tick_that_was_begun_before_the_kill_is_found_and_not_begun_again(tmp_path: Path) -> None:
    """The record is set back to before a tick whose run is there, as a crash between would."""
    now = SystemClock().now()
    with server(tmp_path) as (_, url):
        add(tmp_path, url)
        ask(url, f"/schedules/{NAMES[1]}/pause", {})
        while schedule_in(tmp_path, NAMES[0]).fired < 2:
            time.sleep(0.05)
        ask(url, f"/schedules/{NAMES[0]}/pause", {})
    spec = read_schedule({"every": "1s", "input": {"at": "{{ schedule.timestamp }}"}})
    with closing(SqliteStore(tmp_path / "s.db")) as store:
        record = store.record(FAMILY, NAMES[0])
        assert record is not None
        heads = store.heads(HeadFilter(labels={"schedule": NAMES[0]}))
        before = SCHEDULES.document(record)
        first = next(times(timetable_of(spec), before.created_at))
        back = Schedule(
            name=NAMES[0], spec=spec, target=Target(path="tick"), next_tick=first, created_at=now
        )
        assert store.put_record(record_of(back, now), record.version)
    with server(tmp_path) as (_, url):
        while schedule_in(tmp_path, NAMES[0]).fired < len(heads) + 1:
            time.sleep(0.05)
    with closing(SqliteStore(tmp_path / "s.db", read_only=True)) as store:
        after = store.heads(HeadFilter(labels={"schedule": NAMES[0]}, limit=1000))
        assert len({head.labels["schedule_time"] for head in after}) == len(after)
        assert {head.run: head.created_at for head in heads}.items() <= {
            head.run: head.created_at for head in after
        }.items(), "the runs of before are the same"

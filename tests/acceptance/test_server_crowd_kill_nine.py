"""Server and workers are killed while a crowd starts and watches runs: nothing is lost or doubled.

The kills follow what has been done, not the clock, so each hits a server and workers that are at
work, however slow the machine is. `make crowd` does it with more clients and for longer.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
import urllib.request
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bench.crowd import POOL, Crowd, Visit
from bench.station import Station

from anabranch.kernel import events as e
from anabranch.store.ports import Head, HeadFilter
from anabranch.store.sqlite.store import SqliteStore
from hangs import HANG_SECONDS

from .log import Story, read_story

CLIENTS = int(os.environ.get("ANABRANCH_CROWD_CLIENTS", "24"))
SECONDS = float(os.environ.get("ANABRANCH_CROWD_SECONDS", "0"))
WORKERS = 3
SERVER_KILLS, WORKER_KILLS = 2, 2  # at least
RUNS_BETWEEN = CLIENTS // 2  # so many end between two kills
STARTS_HIT = CLIENTS // 15  # so many wait for the answer to their start when the server is killed
LAST_SECONDS = SECONDS + HANG_SECONDS


@dataclass
class Killer:
    """Kills the server and the workers by turns, each in the middle of its work."""

    station: Station
    crowd: Crowd
    servers: int = 0
    workers: int = 0
    over: bool = False
    until: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    def going_on(self) -> bool:
        enough = self.servers >= SERVER_KILLS and self.workers >= WORKER_KILLS
        return not self.over and (not enough or time.monotonic() < self.until)

    async def go(self) -> None:
        try:
            while await self._progress():
                if self.servers <= self.workers:
                    await self._kill_server()
                else:
                    await self._kill_worker()
        finally:
            self.over = True

    async def _progress(self) -> bool:
        """Until some more runs have ended, and others are under way; false when it is enough."""
        notes = self.crowd.notes
        wanted = notes.ended + RUNS_BETWEEN
        while notes.ended < wanted or not self._under_way():
            assert not notes.errors, notes.errors[0]
            if not self.going_on():
                return False
            await asyncio.sleep(0.002)
        return self.going_on()

    def _under_way(self) -> bool:
        """Runs are watched, and some starts are not answered yet."""
        now = [visit for visit in self.crowd.notes.visits[-2 * CLIENTS :] if not visit.status]
        starts = sum(not visit.run for visit in now)
        return starts >= STARTS_HIT and len(now) - starts >= CLIENTS // 4

    async def _kill_server(self) -> None:
        self.station.kill_server()
        self.servers += 1
        self.station.serve()
        while not self.station.ready():
            await asyncio.sleep(0.02)

    async def _kill_worker(self) -> None:
        """One that has a job just now."""
        while not (busy := await asyncio.to_thread(self._at_work)) & self.station.workers.keys():
            await asyncio.sleep(0.01)
        self.station.kill_worker(min(busy & self.station.workers.keys()))
        self.workers += 1
        self.station.work()

    def _at_work(self) -> set[str]:
        with urllib.request.urlopen(
            f"{self.station.url}/api/v1/pools", timeout=HANG_SECONDS
        ) as answer:
            pools = json.load(answer)["items"]
        return {job["worker"] for pool in pools if pool["pool"] == POOL for job in pool["leased"]}


@pytest.mark.slow
@pytest.mark.soak  # the crowd at servers of a cluster, and kills without a crowd, stay in the suite
def test_server_and_workers_killed_under_load_lose_nothing_and_double_nothing(
    tmp_path: Path,
) -> None:
    with Station(tmp_path, work_seconds=0.2) as station:
        station.serve()
        station.wait_ready()
        for _ in range(WORKERS):
            station.work()
        crowd = Crowd(station.url, timer_ms=200, poll_seconds=0.05, patient=True)
        killer = Killer(station, crowd)
        asyncio.run(under_fire(crowd, killer))
        station.kill_server()
    visits = crowd.notes.visits
    assert crowd.notes.errors == []
    assert (killer.servers >= SERVER_KILLS, killer.workers >= WORKER_KILLS) == (True, True)
    every_acknowledged_run_is_there_once_and_right(station.store, visits)
    every_stream_had_every_event_once(station.store, visits)
    the_file_is_sound(station.store)
    lost = every_log_is_whole_and_every_report_counted_once(station, visits)
    assert lost["its lease ran out"] >= 1, f"no worker was hit at work: {lost}"
    assert sum(lost.values()) >= killer.servers + killer.workers, f"hardly any was hit: {lost}"
    the_kills_hit_clients_of_every_kind(visits, killer)


async def under_fire(crowd: Crowd, killer: Killer) -> None:
    killing = asyncio.ensure_future(killer.go())
    async with asyncio.timeout(LAST_SECONDS):
        await crowd.go(CLIENTS, killer.going_on)
        await killing


def heads_of(path: Path) -> dict[str, Head]:
    store = SqliteStore(path, read_only=True)
    try:
        return {head.run: head for head in store.heads(HeadFilter(limit=1_000_000))}
    finally:
        store.close()


def every_acknowledged_run_is_there_once_and_right(path: Path, visits: list[Visit]) -> None:
    heads = heads_of(path)
    assert sorted(heads) == sorted(visit.run for visit in visits), "a run is missing, or one more"
    assert {head.status for head in heads.values()} == {"completed"}
    assert [(visit.status, visit.result) for visit in visits] == [
        ("completed", visit.expected) for visit in visits
    ]


def every_stream_had_every_event_once(path: Path, visits: list[Visit]) -> None:
    heads = heads_of(path)
    for visit in visits:
        if visit.way == "stream":
            assert visit.seen == list(range(1, heads[visit.run].seq + 1)), visit.key


def the_file_is_sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def every_log_is_whole_and_every_report_counted_once(
    station: Station, visits: list[Visit]
) -> Counter[str]:
    """And why jobs were lost, how often."""
    lost = Counter[str]()
    done = Counter((station.folder / "done.keys").read_text().split())
    for visit in visits:
        story = read_story(station.store, visit.run)  # replays: log, snapshot and head agree
        (job,) = jobs_of(story, "worked")
        key = story.key(job)
        assert 1 <= done[key] <= story.started()[key], f"{key}: done {done[key]} times"
        reports = [x for x in story.events if isinstance(x, e.JobReported) and x.job == job]
        assert [report.answer.result for report in reports] == [{"v": visit.n}]
        lost.update(x.reason for x in story.events if isinstance(x, e.JobLost))
    return lost


def jobs_of(story: Story, step: str) -> list[str]:
    scheduled = [event for event in story.events if isinstance(event, e.JobScheduled)]
    return sorted({event.job for event in scheduled if story.steps[event.token] == step})


def the_kills_hit_clients_of_every_kind(visits: list[Visit], killer: Killer) -> None:
    for way in ("stream", "poll", "wait"):
        cut = sum(visit.cuts > 0 for visit in visits if visit.way == way)
        assert cut >= killer.servers, f"the kills hit {cut} clients of kind {way}"
    assert sum(visit.repeated for visit in visits) >= killer.servers, "hardly a start was repeated"

"""Servers on one PostgreSQL are killed and stopped, and PostgreSQL is restarted, while a crowd
starts runs and watches them at any server: nothing is lost, nothing happens twice.

What is done next follows what has been done, not the clock, so each blow hits servers that are at
work, however slow the machine is. `make crowd STORE=postgres SERVERS=3` does it with more clients
and for longer, `make soak` with a hundred restarts.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import pytest
from bench.crowd import Crowd, Visit
from bench.station import Station

from anabranch.kernel import events as e
from anabranch.store.ports import HeadFilter
from hangs import HANG_SECONDS
from postgres_server import PostgresServer, running_postgres

from .log import Story, story_in

SERVERS = int(os.environ.get("ANABRANCH_CROWD_SERVERS", "2"))
CLIENTS = int(os.environ.get("ANABRANCH_CROWD_CLIENTS", "4"))
BLOWS = int(os.environ.get("ANABRANCH_CROWD_RESTARTS", "2"))
SCHEMA = "crowd"
LEASE_SECONDS = 2.0
RUNS_BETWEEN = max(2, CLIENTS // 2)  # so many end between two blows
SETTINGS = {
    "ANABRANCH_SERVER_LEASE_SECONDS": f"{LEASE_SECONDS:g}",
    "ANABRANCH_STORE_PARTITIONS": "16",
    "ANABRANCH_POLL_SECONDS": "0.05",
}


@dataclass
class Striker:
    """Kills a server, stops one for longer than its lease, restarts the database, by turns."""

    station: Station
    crowd: Crowd
    database: PostgresServer
    blows: Counter[str] = field(default_factory=Counter)
    over: bool = False

    def going_on(self) -> bool:
        return not self.over and self.blows.total() < BLOWS

    async def go(self) -> None:
        numbers = cycle(range(SERVERS))
        kinds = cycle(("kill", "fast", "stop", "immediate"))
        try:
            while self.going_on():
                await self._progress()
                kind = next(kinds)
                if kind in ("fast", "immediate"):
                    await asyncio.to_thread(self.database.stop, kind)
                    await asyncio.to_thread(self.database.start)
                elif kind == "kill":
                    await self._kill(next(numbers))
                else:
                    await self._stop(next(numbers))
                self.blows[kind] += 1
        finally:
            self.over = True

    async def _progress(self) -> None:
        """Until some more runs have ended, and others are under way."""
        notes = self.crowd.notes
        wanted = notes.ended + RUNS_BETWEEN
        while notes.ended < wanted:
            assert not notes.errors, notes.errors[0]
            await asyncio.sleep(0.01)

    async def _kill(self, number: int) -> None:
        self.station.kill_server(number)
        await asyncio.sleep(1.5 * LEASE_SECONDS)  # the others take over
        self.station.serve(number)
        while not self.station.ready(number):
            await asyncio.sleep(0.05)

    async def _stop(self, number: int) -> None:
        self.station.signal_server(number, signal.SIGSTOP)
        try:
            await asyncio.sleep(2 * LEASE_SECONDS)
        finally:
            self.station.signal_server(number, signal.SIGCONT)


@pytest.mark.slow
def test_servers_and_database_struck_under_load_lose_nothing_and_double_nothing(
    tmp_path: Path,
) -> None:
    with running_postgres() as database:
        address = database.uri(schema=SCHEMA)
        with Station(
            tmp_path, work_seconds=0.1, servers=SERVERS, store=address, settings=SETTINGS
        ) as station:
            for number in range(SERVERS):
                station.serve(number)
                station.wait_ready(number)
                station.work(number)
            crowd = Crowd(station.urls, timer_ms=200, poll_seconds=0.1, patient=True)
            striker = Striker(station, crowd, database)
            asyncio.run(under_fire(crowd, striker))
        assert crowd.notes.errors == []
        assert striker.blows.total() >= BLOWS
        assert any(visit.cuts for visit in crowd.notes.visits), "no blow has hit a client"
        every_run_is_there_and_right(address, station, crowd.notes.visits)
        the_numbers_of_partitions_are_those_of_the_log(database)


async def under_fire(crowd: Crowd, striker: Striker) -> None:
    striking = asyncio.ensure_future(striker.go())
    async with asyncio.timeout(HANG_SECONDS * max(1, BLOWS / 4)):
        await crowd.go(CLIENTS, striker.going_on)
        await striking


def every_run_is_there_and_right(address: str, station: Station, visits: list[Visit]) -> None:
    """Every acknowledged start is there and has completed, with each transition once."""
    from anabranch.store.postgres.store import PostgresStore

    done = Counter((station.folder / "done.keys").read_text().split())
    store = PostgresStore(address, read_only=True)
    try:
        heads = {head.run: head for head in store.heads(HeadFilter(limit=1_000_000))}
        assert sorted(heads) == sorted(visit.run for visit in visits), "one missing, or one more"
        assert {head.status for head in heads.values()} == {"completed"}
        for visit in visits:
            assert (visit.status, visit.result) == ("completed", visit.expected), visit.key
            if visit.way == "stream":
                assert visit.seen == list(range(1, heads[visit.run].seq + 1)), visit.key
            every_report_counts_once(story_in(store, visit.run), visit, done)
    finally:
        store.close()


def every_report_counts_once(story: Story, visit: Visit, done: Counter[str]) -> None:
    """Work may be done again where a server was lost; its result is recorded once."""
    reports = Counter(
        x.job for x in story.events if isinstance(x, e.JobReported) and x.answer.status == "ok"
    )
    assert set(reports.values()) == {1}, f"{visit.key}: {reports}"
    (job,) = jobs_of(story, "worked")
    key = story.key(job)
    assert 1 <= done[key] <= story.started()[key], f"{key}: done {done[key]} times"


def jobs_of(story: Story, step: str) -> list[str]:
    scheduled = [event for event in story.events if isinstance(event, e.JobScheduled)]
    return sorted({event.job for event in scheduled if story.steps[event.token] == step})


def the_numbers_of_partitions_are_those_of_the_log(database: PostgresServer) -> None:
    """No row has a number that its partition has not reached: a server that lost it wrote none."""
    ahead = database.sql(
        f"SELECT log.partition, max(log.number) FROM {SCHEMA}.log JOIN {SCHEMA}.partitions AS at "
        "ON at.partition = log.partition GROUP BY log.partition, at.number "
        "HAVING max(log.number) > at.number"
    )
    assert ahead == []

"""E3: the overview page over 10⁵ runs, and a search that finds none of them.

All runs began in the last 24 hours, so every one is counted, and no page comes from an answer that
was kept. The probe reads as many rows of four columns.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import anabranch
from anabranch.operations.overview.overview import KeptOverviews
from anabranch.store.ports import Batch, Commit, Head, HeadFilter, Store
from anabranch.surfaces.http.app import make_application
from anabranch.surfaces.http.overview import KEPT
from anabranch.surfaces.ui.routes import mount
from bench.rows import Row

RUNS = 100_000
AT_ONCE = 5_000
DAY_MS = 86_400_000
TIMES = 5
AIM_SECONDS = 0.3


async def e3(folder: Path) -> list[Row]:
    from aiohttp.test_utils import TestClient, TestServer

    async with anabranch.Engine(folder / "e3.db") as engine:
        parts = engine._open
        _fill(parts.store)
        app = make_application(parts, parts._settings, mounts=(mount,))
        async with TestClient(TestServer(app)) as client:

            async def asked(path: str) -> None:
                app[KEPT] = KeptOverviews()
                async with client.get(path) as response:
                    text = await response.text()
                assert response.status == 200, text[:500]

            page = await _least(lambda: asked("/overview"))
            runs = await _least(lambda: asked("/runs"))
        nothing = HeadFilter(search="nowhere-to-be-found", limit=51)
        search = await _least(lambda: asyncio.to_thread(parts.store.heads, nothing))
    probe = await _least(lambda: asyncio.to_thread(_probe, folder / "e3.db"))
    return [
        *_rows("E3 overview of 10⁵ runs", page, probe, AIM_SECONDS),
        *_rows("E3 list of 10⁵ runs", runs, probe),
        *_rows("E3 search that finds none", search, probe),
    ]


def _rows(name: str, took: Took, probe: Took, aim: float | None = None) -> list[Row]:
    """On the wall, and by processor: on a busy machine only the second says what a page costs."""
    met = None if aim is None else took.wall <= aim
    said = [f"{RUNS:,} raw rows: {one * 1000:.0f} ms" for one in (probe.wall, probe.cpu)]
    words = "" if aim is None else f"≤ {aim:g} s"
    return [
        Row(name, took.wall, "s", said[0], took.wall / probe.wall, words, met),
        Row(f"{name}, by processor", took.cpu, "s", said[1], took.cpu / probe.cpu, "", None),
    ]


class Took(NamedTuple):
    wall: float
    cpu: float  # of the whole process


async def _least(work: Callable[[], Awaitable[Any]]) -> Took:
    walls, cpus = [], []
    for _ in range(TIMES):
        wall, cpu = time.perf_counter(), time.process_time()
        await work()
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return Took(min(walls), min(cpus))


def _probe(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("SELECT name, status, created_at, updated_at FROM heads").fetchall()
    connection.close()


def _fill(store: Store) -> None:
    draw = random.Random(3)
    begin = int(time.time() * 1000) - DAY_MS + 3_600_000
    for first in range(0, RUNS, AT_ONCE):
        commits = []
        for number in range(first, first + AT_ONCE):
            status = draw.choices(("completed", "failed", "waiting"), (85, 12, 3))[0]
            at = begin + number * (DAY_MS - 2 * 3_600_000) // RUNS
            head = Head(
                run=f"run-{number:06}",
                definition="d",
                name=f"definition-{number % 40}",
                dialect="noetl",
                status=status,
                seq=1,
                created_at=at,
                updated_at=at + int(draw.lognormvariate(7, 1.5)),
                labels={"tenant": f"t{number % 100}"},
                finished=status != "waiting",
                reason="" if status == "completed" else f"step: HTTP 500 for order {number}",
            )
            commits.append(Commit(head=head, at=at, events=b"[{}]", count=1))
        store.commit(Batch(commits=commits))

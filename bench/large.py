"""S7: looking at what is large: a run of 10⁶ items, one of 10⁵ events, a list of 10⁶ runs, and
deleting runs beside live ones.

The runs are made by the engine and still open, at a gate behind their loop. They are shown by
`anabranch serve`, a process of its own; the times are those of the whole answer by the clock and by
the server's processor. The probe is a bare server's answer to a GET.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from anabranch.operations.runs.purge import purge
from anabranch.store.ports import Batch, Commit, Head
from anabranch.store.sqlite.store import SqliteStore
from bench import world
from bench.bare import bare_server
from bench.chains import one_run
from bench.requests import Connection, cpu_seconds
from bench.rows import Row
from bench.station import Station

ITEMS = 10**6
JOBS = 33_400  # a loop of shards of one item records three events for each
RUNS, AT_ONCE = 10**6, 20_000
NAMES, TENANTS = 1_000, 10_000
ENDED = 10**5
AIM_MS = 50.0
TIMES = 5
RUN = "large"


def looped(items: int, shard_size: int) -> str:
    """A loop over a range, and behind it a gate that stays closed."""
    fanout: dict[str, Any] = {"max_concurrent": 3 if shard_size == 0 else 64}
    if shard_size:
        fanout["shard_size"] = shard_size
    rules = [{"when": "{{ ctx.go }}", "then": {"allow": True}}]
    steps = [
        {
            "step": "each",
            "spec": {"loop_mode": "fanout", "fanout": fanout},
            "loop": {"in": {"range": [0, items]}, "iterator": "n"},
            "tool": {"kind": "noop", "result": "{{ iter.n }}"},
            "next": {"arcs": [{"step": "held"}]},
        },
        {
            "step": "held",
            "spec": {"policy": {"admit": {"rules": rules}}},
            "tool": {"kind": "noop"},
        },
    ]
    return world.playbook(f"looped-{items}", steps)


_MAKE = """
import asyncio, sys
from pathlib import Path
from bench import large
asyncio.run(large.make(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
"""


async def make(path: Path, items: int, shard_size: int) -> None:
    """Called in a process of its own, so that the next one begins with little memory."""
    prepared = world.prepared(looped(items, shard_size))
    async with world.engine(path) as parts:
        await parts.engine.start(prepared.definition, prepared.net, run=RUN)
        while True:
            head = parts.store.head(RUN)
            if head is not None and head.status == "waiting":
                return
            await asyncio.sleep(0.1)


async def s7(folder: Path) -> list[Row]:
    rows: list[Row] = []
    async with bare_server(folder) as bare:
        probe = await _asked(bare.process, bare.port, "/")
        for words, items, shard_size in (("10⁶ items", ITEMS, 0), ("10⁵ events", JOBS, 1)):
            place = folder / f"run-{items}"
            place.mkdir()
            command = [sys.executable, "-c", _MAKE, str(place / "site.db"), str(items)]
            subprocess.run([*command, str(shard_size)], check=True)
            rows += await _shown(place, words, PATHS, probe)
        place = folder / "list"
        place.mkdir()
        fill(place / "site.db", RUNS)
        rows += await _shown(place, "10⁶ runs", LISTS, probe)
    return [*rows, *await purged(folder)]


PATHS = {
    "show": f"/api/v1/runs/{RUN}",
    "explain": f"/api/v1/runs/{RUN}/explain",
    "items": f"/api/v1/runs/{RUN}/loops/each/items",
    "page": f"/runs/{RUN}",
}
LISTS = {
    "list": "/api/v1/runs",
    "by name": "/api/v1/runs?name=definition-500",
    "by label": "/api/v1/runs?label=tenant%3Dt5000",
    "by a name that no run has": "/api/v1/runs?name=nothing",
    "by a label that no run has": "/api/v1/runs?label=tenant%3Dnobody",
}


async def _shown(
    folder: Path, words: str, paths: dict[str, str], probe: tuple[float, float, float]
) -> list[Row]:
    rows = []
    with Station(folder) as station:
        station.serve()
        station.wait_ready()
        assert station.server is not None
        for name, path in paths.items():
            first, best, cpu = await _asked(station.server.pid, station.port, path)
            said = f"first {first:.0f} ms, cpu {cpu:.1f} ms; bare GET: {probe[1]:.1f} ms"
            case = f"S7 {words}: {name}"
            met = best <= AIM_MS
            rows.append(Row(case, best, "ms", said, best / probe[1], f"≤ {AIM_MS:g} ms", met))
    return rows


async def _asked(process: int, port: int, path: str) -> tuple[float, float, float]:
    """In milliseconds: the first answer, the quickest of the others, and the processor's time."""
    taken, used = [], []
    async with Connection(port) as connection:
        for _ in range(TIMES + 1):
            cpu, begin = cpu_seconds(process), time.perf_counter()
            status, answered = await connection.ask("GET", path)
            taken.append((time.perf_counter() - begin) * 1000)
            used.append((cpu_seconds(process) - cpu) * 1000)
            assert status == 200, answered[:1000]
    return taken[0], min(taken[1:]), sum(used[1:]) / TIMES


def fill(path: Path, runs: int) -> None:
    """Heads of runs that have ended, each with a log of one row."""
    store = SqliteStore(path, synchronous="NORMAL")
    for first in range(0, runs, AT_ONCE):
        commits = []
        for number in range(first, min(first + AT_ONCE, runs)):
            at = 1_700_000_000_000 + number
            head = Head(
                run=f"run-{number:07}",
                definition="d",
                name=f"definition-{number % NAMES}",
                dialect="noetl",
                status="completed",
                seq=1,
                created_at=at,
                updated_at=at,
                labels={"tenant": f"t{number % TENANTS}", "kind": "order"},
                finished=True,
            )
            commits.append(Commit(head=head, at=at, events=b"[{}]", count=1))
        store.commit(Batch(commits=commits))
    store.close()


# -- deleting beside live runs ---------------------------------------------------------------------


async def purged(folder: Path, runs: int = ENDED) -> list[Row]:
    """Runs of three steps that have ended are deleted while others go on."""
    path = folder / "ended.db"
    prepared = world.prepared(world.chain(3, "nothing_in_place"))
    async with world.engine(path, evict_after_seconds=1.0) as parts:
        for _ in range(runs // 2_000):
            await asyncio.gather(*(one_run(parts, prepared) for _ in range(2_000)))
        size = sum(each.stat().st_size for each in folder.glob("ended.db*"))
        alone = sorted([await one_run(parts, prepared) for _ in range(200)])
        doing = asyncio.create_task(asyncio.to_thread(_purge, path))
        beside = []
        while not doing.done():
            beside.append(await one_run(parts, prepared))
        gone, seconds, cpu = await doing
    turns = 4  # of such a run: its start and the three reports
    p99 = sorted(beside)[int(len(beside) * 0.99)] * 1000 / turns
    quiet = alone[int(len(alone) * 0.99)] * 1000 / turns
    rate, each = gone / seconds, cpu / gone * 1e6
    words = f"raw deletes: {_raw_deletes(folder):,.0f}/s; cpu {each:.0f} µs a run"
    said = f"alone: {quiet:.1f} ms"
    return [
        Row("S7 bytes a run of 3 steps", size / runs, "bytes", f"{runs:,} runs", None, "", None),
        Row("S7 purge", rate, "runs/s", words, None, "≥ 5,000/s", rate >= 5_000),
        Row("S7 a turn beside it, p99", p99, "ms", said, p99 / quiet, "≤ 50 ms", p99 <= 50),
    ]


def _purge(path: Path) -> tuple[int, float, float]:
    """As `anabranch purge` does it, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", _PURGE, str(path)], check=True, capture_output=True, text=True
    )
    gone, seconds, cpu = json.loads(done.stdout)
    return gone, seconds, cpu


_PURGE = """
import json, sys, time
from pathlib import Path
from bench import large
print(json.dumps(large.purge_all(Path(sys.argv[1]))))
"""


def purge_all(path: Path) -> tuple[int, float, float]:
    store = SqliteStore(path)
    begin, used = time.perf_counter(), time.process_time()
    gone = purge(store, 0, int(time.time() * 1000))
    seconds, cpu = time.perf_counter() - begin, time.process_time() - used
    store.close()
    return gone.runs, seconds, cpu


def _raw_deletes(folder: Path, rows: int = 20_000) -> float:
    """Rows of a table deleted by their key, a hundred in each durable transaction."""
    db = sqlite3.connect(folder / "raw.db", isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE raw (run TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID")
    db.execute("BEGIN")
    db.executemany(
        "INSERT INTO raw VALUES (?, ?)", ((f"r{number:07}", b"x" * 400) for number in range(rows))
    )
    db.execute("COMMIT")
    begin = time.perf_counter()
    for first in range(0, rows, 100):
        db.execute("BEGIN")
        keys = ((f"r{number:07}",) for number in range(first, first + 100))
        db.executemany("DELETE FROM raw WHERE run = ?", keys)
        db.execute("COMMIT")
    rate = rows / (time.perf_counter() - begin)
    db.close()
    return rate

"""Many clients of one server: how long do they wait, and does anything fail?

The server and its workers are processes of their own. The clients are a crowd (`bench/crowd.py`):
each starts a run with a fan-out, a timer, a join and, every fourth time, a job for a worker,
watches it to its end and starts the next one. Beside every figure stands that of a bare server
(`bench/bare.py`), asked by the same process at the same time.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.bare import Probe, probing
from bench.crowd import Crowd, Notes, for_seconds
from bench.rows import Row
from bench.station import Station

CLIENTS = int(os.environ.get("ANABRANCH_BENCH_CLIENTS", "200"))
SECONDS = float(os.environ.get("ANABRANCH_BENCH_SECONDS", "30"))
TIMER_MS = int(os.environ.get("ANABRANCH_BENCH_TIMER_MS", "1500"))
#: Shorter and shorter runs, until the answers come too late.
TIMERS_MS = (3000, 2000, 1500, 1000, 700, 500, 300)
TOP_SECONDS = 10.0
FIRST_SECONDS = 2.0
POLL_SECONDS = 0.25
WORKERS = 3
AIM_MS = 50.0
POST_AIM_MS = 60.0
LEAST_REQUESTS = 1_000


@dataclass(slots=True)
class Load:
    """What a crowd saw in so many seconds, and the probe beside it."""

    notes: Notes
    probe: Probe
    seconds: float
    cpu: float  # seconds of the processor, of the server process

    @property
    def words(self) -> str:
        return f"{CLIENTS} clients, {self.requests:,.0f} requests/s, {self.runs:,.0f} runs/s"

    @property
    def requests(self) -> float:
        return self.notes.requests / self.seconds

    @property
    def runs(self) -> float:
        return self.notes.ended / self.seconds


async def server(folder: Path) -> list[Row]:
    load = await _load(folder, TIMER_MS, SECONDS)
    notes, probe = load.notes, load.probe
    for error in notes.errors[:5]:
        print(f"  {error}", file=sys.stderr)
    failed = len(notes.errors) + sum(_wrong(notes))
    rate, cpu = load.requests, load.cpu / max(1, notes.requests) * 1e6
    aim, met = f"≥ {LEAST_REQUESTS:,}/s", rate >= LEAST_REQUESTS
    return [
        *_pair("server GET run", notes.shown, probe.got, AIM_MS),
        *_pair("server POST /runs", notes.begun, probe.posted, POST_AIM_MS),
        *_pair("server event to stream", notes.told, probe.told),
        Row("server requests", rate, "/s", load.words, None, aim, met, cpu),
        Row("server errors", failed, "", load.words, None, "0", failed == 0),
    ]


async def server_top(folder: Path) -> list[Row]:
    """The highest rate at which a run is still shown in time."""
    rows: list[Row] = []
    for timer_ms in TIMERS_MS:
        place = folder / str(timer_ms)
        place.mkdir()
        load = await _load(place, timer_ms, TOP_SECONDS)
        p99, bare = _part(load.notes.shown, 0.99), _part(load.probe.got, 0.99)
        met = p99 <= AIM_MS and not load.notes.errors
        name = f"server, timer {timer_ms:,} ms: p99"
        rows.append(Row(name, p99, "ms", f"{load.words}; bare: {bare:.1f} ms", None, "", met))
        if not met:
            break
    return rows


async def _load(folder: Path, timer_ms: int, seconds: float) -> Load:
    with Station(folder) as station:
        station.serve()
        station.wait_ready()
        for _ in range(WORKERS):
            station.work()
        first = Crowd(station.url, timer_ms=timer_ms, poll_seconds=POLL_SECONDS, name="first")
        await first.go(8, for_seconds(FIRST_SECONDS))  # modules are loaded, definitions compiled
        crowd = Crowd(station.url, timer_ms=timer_ms, poll_seconds=POLL_SECONDS)
        async with probing(folder) as probe:
            begin, busy = time.perf_counter(), station.server_cpu_seconds()
            await crowd.go(CLIENTS, for_seconds(seconds))
            taken = time.perf_counter() - begin
            used = station.server_cpu_seconds() - busy
    return Load(crowd.notes, probe, taken, used)


def _wrong(notes: Notes) -> list[bool]:
    """Runs that did not come to what they must come to, or whose stream has a gap."""
    return [
        visit.status != "completed"
        or visit.result != visit.expected
        or visit.seen != list(range(1, len(visit.seen) + 1))
        for visit in notes.visits
    ]


def _pair(name: str, ours: list[float], bare: list[float], aim: float | None = None) -> list[Row]:
    p50, p99 = _part(ours, 0.5), _part(ours, 0.99)
    bare50, bare99 = _part(bare, 0.5), _part(bare, 0.99)
    said, met = (f"≤ {aim:g} ms", p99 <= aim) if aim is not None else ("", None)
    return [
        Row(f"{name}, median", p50, "ms", f"bare: {bare50:.1f} ms", p50 / bare50, "", None),
        Row(f"{name}, p99", p99, "ms", f"bare: {bare99:.1f} ms", p99 / bare99, said, met),
    ]


def _part(taken: list[float], part: float) -> float:
    """In milliseconds; of very short times at least a tenth, which is what clocks are good for."""
    return max(0.1, sorted(taken)[int(len(taken) * part)] * 1000)

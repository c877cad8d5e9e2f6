"""Loads that are counted: each is put on an engine through its public names, on a real store."""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anabranch import Engine, Settings, Toolbox

TOGETHER = 500  # runs that are begun at once
ANSWER = {"price": 5}
REST_SECONDS = 12.0  # twice as long as between two looks at runs that rest


@dataclass(frozen=True, slots=True)
class Counted:
    """What a load left behind in its store, and what it took."""

    events: int
    rows: int  # of the log
    log_bytes: int  # of its events
    heads: int
    snapshots: int
    snapshot_bytes: int
    payload_bytes: int
    file_bytes: int
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    memory_kib: int = 0  # above that of an engine that has nothing to do
    opening_seconds: float = 0.0  # of an engine that finds it in the store: of the processor
    opening_kib: int = 0  # and the most memory that takes


def counted(path: Path) -> Counted:
    """What is in the file."""
    db = sqlite3.connect(path)
    try:
        row = db.execute(_COUNT).fetchone()
    finally:
        db.close()
    names = ("events", "rows", "log_bytes", "heads", "snapshots", "snapshot_bytes", "payload_bytes")
    return Counted(**dict(zip(names, row, strict=True)), file_bytes=path.stat().st_size)


_COUNT = """
SELECT (SELECT coalesce(sum(count), 0) FROM log), (SELECT count(*) FROM log),
       (SELECT coalesce(sum(length(events)), 0) FROM log), (SELECT count(*) FROM heads),
       (SELECT count(*) FROM snapshots), (SELECT coalesce(sum(length(state)), 0) FROM snapshots),
       (SELECT coalesce(sum(length(content)), 0) FROM payloads)
"""


def memory_kib() -> int:
    """What this process has in memory now."""
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def peak_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def forget_peak() -> None:
    """The most memory counts from here on."""
    Path("/proc/self/clear_refs").write_text("5")


def toolbox() -> Toolbox:
    box = Toolbox()

    @box.tool("give", blocking=False)
    def give(value: Any) -> Any:
        return value

    return box


# -- definitions -----------------------------------------------------------------------------


def playbook(name: str, workflow: list[dict[str, Any]]) -> str:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name}}
    return json.dumps({**head, "workflow": workflow}) + "\n"


def chain(steps: int) -> str:
    """So many steps in a row, each with a small result."""
    workflow: list[dict[str, Any]] = [
        {"step": f"s{number}", "tool": {"kind": "give", "value": number}} for number in range(steps)
    ]
    for number in range(steps - 1):
        workflow[number]["next"] = {"arcs": [{"step": f"s{number + 1}"}]}
    return playbook("chain", workflow)


def fan_out(items: int, shard_size: int, *, keep_results: bool = False, pool: str = "") -> str:
    """A loop over a range, each item of which gives its number."""
    fanout = {"max_concurrent": 8, "shard_size": shard_size, "keep_results": keep_results}
    spec = {"loop_mode": "fanout", "fanout": fanout, **({"pool": pool} if pool else {})}
    step = {
        "step": "each",
        "spec": spec,
        "loop": {"in": {"range": items}, "iterator": "n"},
        "tool": {"kind": "give", "value": "{{ iter.n }}"},
    }
    return playbook("items", [step])


def gate(*, timer: bool) -> str:
    """A run that waits for a person, with a timer or without one."""
    spec = {"spec": {"timeout": "30d"}} if timer else {}
    return playbook("held", [{"step": "ask", **spec, "tool": {"kind": "decision", "ask": "Go?"}}])


def solicit(names: list[str]) -> str:
    step = {
        "step_id": "ask",
        "service_type": "price",
        "target": {"resolve": "static", "participants": names},
        "fan_in": {"policy": "all"},
    }
    return json.dumps({"workflow_id": "solicit", "plan": {"steps": [step]}})


# -- loads -----------------------------------------------------------------------------------


async def steps(path: Path, count: int) -> Counted:
    """That many steps, in runs of 10."""
    return await _completed(path, chain(10), count // 10)


async def items(path: Path, count: int, shard_size: int) -> Counted:
    """One loop of so many items; nothing but counts is kept."""
    return await _completed(path, fan_out(count, shard_size), 1)


async def kept_items(path: Path, count: int, shard_size: int) -> Counted:
    """One loop of so many items; their results are kept."""
    return await _completed(path, fan_out(count, shard_size, keep_results=True), 1)


async def participants(path: Path, count: int) -> Counted:
    """One run that asks so many and waits for all of them."""

    async def answer(_request: Any) -> Any:
        return ANSWER

    names = [f"p{number:06}" for number in range(count)]
    book = {"participants": dict.fromkeys(names, answer)}
    return await _completed(path, solicit(names), 1, participants=book)


async def _completed(path: Path, text: str, runs: int, **parts: Any) -> Counted:
    """So many runs of a definition from their start to their end."""
    async with Engine(path, toolbox=toolbox(), **parts) as engine:
        before = memory_kib()
        wall, cpu = time.perf_counter(), time.process_time()
        for begin in range(0, runs, TOGETHER):
            some = min(TOGETHER, runs - begin)
            await asyncio.gather(*(_to_its_end(engine, text) for _ in range(some)))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        memory = peak_kib() - before
    return replace(counted(path), cpu_seconds=cpu, wall_seconds=wall, memory_kib=memory)


async def _to_its_end(engine: Engine, text: str) -> None:
    done = await engine.wait(await engine.start(text))
    if done.status != "completed":
        raise RuntimeError(f"{done.run} is {done.status}: {done.problem}")


async def waiting(path: Path, count: int, rest_seconds: float = REST_SECONDS) -> Counted:
    """So many open runs that wait for a person."""
    return await _open_runs(path, gate(timer=False), count, rest_seconds)


async def timed(path: Path, count: int, rest_seconds: float = REST_SECONDS) -> Counted:
    """The same, each with a timer."""
    return await _open_runs(path, gate(timer=True), count, rest_seconds)


async def _open_runs(path: Path, text: str, runs: int, rest_seconds: float) -> Counted:
    """Begin them, and let those that can leave memory do so."""
    settings = Settings(evict_after_seconds=0.0)
    async with Engine(path, toolbox=toolbox(), settings=settings) as engine:
        before = memory_kib()
        wall, cpu = time.perf_counter(), time.process_time()
        for begin in range(0, runs, TOGETHER):
            some = min(TOGETHER, runs - begin)
            await asyncio.gather(*(engine.start(text) for _ in range(some)))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        await asyncio.sleep(rest_seconds)
        memory = memory_kib() - before
    return replace(counted(path), cpu_seconds=cpu, wall_seconds=wall, memory_kib=memory)


async def opened(path: Path) -> Counted:
    """An engine that finds a store as another one left it."""
    async with Engine(":memory:", toolbox=toolbox()) as engine:
        await _to_its_end(engine, chain(1))  # what is loaded once is loaded
    before, opening = memory_kib(), time.process_time()
    forget_peak()
    async with Engine(path, toolbox=toolbox()):
        opening = time.process_time() - opening
        most = peak_kib() - before
    return replace(counted(path), opening_seconds=opening, opening_kib=most)

"""B7: joins. What one costs late in a long session, and many short sessions at once.

The steps evaluate real rules (kind `rule`), as small as rules can be.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
from pathlib import Path
from typing import Any

from anabranch.operations.definitions.prepare import Prepared
from bench import probe, world
from bench.rows import Row

SESSIONS = 1_000


def bundle(name: str, structure: dict[str, Any], rules: dict[str, Any]) -> str:
    orchestration = {"id": name, "structure": structure}
    return json.dumps({"bundle": "xrc729", "orchestration": orchestration, "rules": rules})


def step(rule: str, spawns: list[str] | None = None, join: Any = None) -> dict[str, Any]:
    written: dict[str, Any] = {"rule": f"${{addr:{rule}}}"}
    if spawns is not None:
        written["onValid"] = {"spawns": spawns, **({"join": join} if join else {})}
    return written


def join(target: str, k: int, *producers: str) -> dict[str, Any]:
    entries = [{"node": node, "when": "valid"} for node in producers]
    mode = {"mode": "kofn", "k": k}
    return {"joinid": target, **mode, "waitonjoin": "kill", "from": entries}


#: Says yes to everything, and hands on a counter.
PASS = {"payload": {"n": {"type": "int64", "default": 0}}, "onValid": {"payload": {"n": "[n]"}}}


def looping(joins: int) -> str:
    """A session that opens that many joins of 2 of 3, one after the other."""
    again = {
        "payload": {"n": {"type": "int64", "default": 0}},
        "rules": [f"[n] < {joins - 1}"],
        "onValid": {"payload": {"n": "[n] + 1"}},
    }
    structure = {
        "A": step("pass", ["G", "H", "I"], join("J", 2, "G", "H", "I")),
        "G": step("pass"),
        "H": step("pass"),
        "I": step("pass"),
        "J": step("again", ["A"]),
    }
    return bundle(f"joins-{joins}", structure, {"pass": PASS, "again": again})


def nested() -> str:
    """The nested joins that everybody who writes orchestrations reads first."""
    structure = {
        "A1": step("pass", ["G1", "H1"], join("J1", 1, "G1", "H1")),
        "G1": step("pass"),
        "H1": step("pass"),
        "J1": step("pass", ["P1", "Q1"], join("J2", 2, "P1", "Q1")),
        "P1": step("pass"),
        "Q1": step("pass"),
        "J2": step("pass", ["Z1"]),
        "Z1": step("pass"),
    }
    return bundle("nested", structure, {"pass": PASS})


async def b7(folder: Path) -> list[Row]:
    """The cost of a join, early and late in a session, and many sessions with nested ones."""
    rows, work = [], {}
    for joins, times in ((100, 20), (1_000, 3), (10_000, 1)):
        commit = probe.commit_seconds(folder)
        spent = [await _one_session(folder / f"b7-{joins}-{n}.db", joins) for n in range(times)]
        commit = (commit + probe.commit_seconds(folder)) / 2
        seconds = statistics.median(wall for wall, _ in spent) / joins
        work[joins] = statistics.median(cpu for _, cpu in spent) / joins
        words = f"one raw commit: {commit * 1000:.2f} ms"
        case = f"B7 a join of {joins:,}"
        rows.append(Row(case, seconds * 1000, "ms", words, seconds / commit, "", None))
        rows.append(Row(f"{case}, CPU", work[joins] * 1000, "ms", "", None, "", None))
    grown = work[10_000] / work[100]
    rows.append(Row("B7 CPU of a join, 10⁴ / 10²", grown, "×", "", None, "≤ 1.3", grown <= 1.3))
    return [*rows, *await _many_sessions(folder)]


async def _one_session(path: Path, joins: int) -> tuple[float, float]:
    """Seconds by the clock and of the processor."""
    prepared = world.prepared(looping(joins))
    async with world.engine(path) as parts:
        await parts.engine.wait(await parts.engine.start(*_of(world.prepared(looping(20)))))
        gc.collect()
        begin, busy = time.perf_counter(), time.process_time()
        state = await parts.engine.wait(await parts.engine.start(*_of(prepared)))
        spent = time.perf_counter() - begin, time.process_time() - busy
    closed = state.steps["J"].runs
    if closed != joins or state.status != "completed":
        raise RuntimeError(f"{closed} joins of {joins}, {state.status}: {state.problem}")
    return spent


async def _many_sessions(folder: Path) -> list[Row]:
    prepared = world.prepared(nested())
    async with world.engine(folder / "b7-many.db") as parts:
        await parts.engine.wait(await parts.engine.start(*_of(prepared)))
        gc.collect()
        begin, busy = time.perf_counter(), time.process_time()

        async def whole() -> None:
            state = await parts.engine.wait(await parts.engine.start(*_of(prepared)))
            if state.steps["Z1"].statuses != ["done"]:
                raise RuntimeError(f"a session ended {state.status}: {state.steps}")

        await asyncio.gather(*(whole() for _ in range(SESSIONS)))
        rate = SESSIONS / (time.perf_counter() - begin)
        by_cpu = SESSIONS / (time.process_time() - busy)
    best = probe.rows_per_second(folder)
    words = f"{best:,.0f} raw rows/s"
    return [
        Row("B7 nested ×1,000", rate, "sess./s", words, rate / best, "≥ 500/s", rate >= 500),
        Row("B7 nested ×1,000, a CPU second", by_cpu, "sessions", "", None, "", None),
    ]


def _of(prepared: Prepared) -> tuple[Any, Any]:
    return prepared.definition, prepared.net

"""P1 to P6: what the engine does on PostgreSQL, beside what the same server does without it."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

from anabranch.kernel import events as e
from bench import world
from bench.chains import many, no_worse, one_run
from bench.loops import count_on
from bench.postgres.database import Database, database
from bench.postgres.member import Member, member, owns, patch
from bench.rows import Row

LEASE_SECONDS = 15.0
PARTITIONS = 128


# -- P1: latency of one run ------------------------------------------------------------------


async def p1(_folder: Path, runs: int = 300) -> list[Row]:
    """One run of 10 sequential no-op callables, against 11 raw commits of the same server."""
    rows = []
    with database() as db:
        for kind in ("nothing_in_place", "nothing_async"):
            prepared = world.prepared(world.chain(10, kind))
            before = db.commit_seconds()
            async with world.engine(db.address(f"p1_{kind}")) as parts:
                for _ in range(runs // 3):
                    await one_run(parts, prepared)
                seconds = statistics.median([await one_run(parts, prepared) for _ in range(runs)])
            limit = 11 * (before + db.commit_seconds()) / 2
            words, ratio = f"11 commits: {limit * 1000:.2f} ms", seconds / limit
            aim, met = "≤ 2.5×", ratio <= 2.5
            rows.append(Row(f"P1 {kind}", seconds * 1000, "ms", words, ratio, aim, met))
    return rows


# -- P2 and P3: throughput of many runs ------------------------------------------------------


async def p2(_folder: Path, few: int = 2_000, more: int = 10_000) -> list[Row]:
    """Many runs of 3 steps started together, on one server."""
    rows = []
    with database() as db:
        for kind in ("nothing_in_place", "nothing_async"):
            per_step: dict[int, float] = {}
            for runs in (few, more):
                seconds, busy = await many(db.address(f"p2_{kind}_{runs}"), kind, runs)
                best = db.rows_per_second()
                rate = runs * 3 / seconds
                per_step[runs] = seconds / (runs * 3)
                aim, met = ("≥ 5,000/s", rate >= 5_000)
                if runs == more:
                    aim, met = no_worse(per_step[more] / per_step[few])
                words = f"{best:,.0f} raw rows/s"
                name = f"P2 {kind} ×{runs:,}"
                cpu = busy / (runs * 3) * 1e6
                rows.append(Row(name, rate, "steps/s", words, rate / best, aim, met, cpu))
    return rows


async def p3(_folder: Path, runs: int = 4_000) -> list[Row]:
    """The same on one server process and on two at once."""
    kind = "nothing_in_place"
    with database() as db:
        address = db.address("p3")
        with member(address) as first:
            first.ask("own", partitions=PARTITIONS)
            alone, alone_words = _together(db, [first], kind, runs)
            with member(address) as second:
                both = [first, second]
                for one in both:
                    one.tell("own", partitions=PARTITIONS // 2)
                for one in both:
                    one.hear()
                pair, pair_words = _together(db, both, kind, runs)
    ratio = pair / alone
    words = f"{pair_words}; one: {alone:,.0f} steps/s, {alone_words}"
    return [Row("P3 two server processes", pair, "steps/s", words, ratio, "≥ 1.2×", ratio >= 1.2)]


def _together(db: Database, members: list[Member], kind: str, runs: int) -> tuple[float, str]:
    """Steps a second of so many servers at once, and who used the processors."""
    begin, used = time.perf_counter(), db.cpu_seconds()
    for one in members:
        one.tell("many", kind=kind, runs=runs)
    found = [one.hear() for one in members]
    seconds = max(one["seconds"] for one in found)
    elapsed = time.perf_counter() - begin
    ours = sum(one["cpu"] for one in found) / elapsed
    theirs = (db.cpu_seconds() - used) / elapsed
    words = f"cores: {ours:.2f} servers, {theirs:.2f} PostgreSQL"
    return len(members) * runs * 3 / seconds, words


# -- P4: runs of another server --------------------------------------------------------------


async def p4(_folder: Path, times: int = 200, pause: float = 0.03) -> list[Row]:
    """A verb at a server that does not own the run, and an event on a stream elsewhere."""
    with database() as db:
        address = db.address("p4")
        commit = db.commit_seconds()
        with member(address) as owner:
            owner.ask("own", partitions=PARTITIONS)
            async with world.engine(address) as parts:
                await owns(parts, PARTITIONS // 2)
                await asyncio.to_thread(owner.ask, "own", partitions=PARTITIONS // 2)
                run = await asyncio.to_thread(owner.ask, "gated")
                told = {"run": run, "times": times, "pause": pause}
                at_owner = await asyncio.to_thread(owner.ask, "patches", **told)
                here = statistics.median([await _timed(parts, run, pause) for _ in range(times)])
                late = statistics.median(await _seen_late(parts, owner, told))
    there = statistics.median(at_owner["taken"])
    over = (here - there) * 1000
    words = f"at the owner: {there * 1000:.2f} ms; one commit: {commit * 1000:.2f} ms"
    name = "P4 verb at another server, over the owner's"
    tell = f"one commit: {commit * 1000:.2f} ms"
    return [
        Row(name, over, "ms", words, here / there, "≤ 15 ms", over <= 15),
        Row(
            "P4 event on a stream elsewhere",
            late * 1000,
            "ms",
            tell,
            late / commit,
            "≤ 30 ms",
            late <= 0.03,
        ),
    ]


async def _timed(parts: Any, run: str, pause: float) -> float:
    await asyncio.sleep(pause)
    begin = time.perf_counter()
    await patch(parts, run, -1.0)
    return time.perf_counter() - begin


async def _seen_late(parts: Any, owner: Member, told: dict[str, Any]) -> list[float]:
    """How long after it was durable at its owner each event was seen here."""
    seen: list[float] = []
    before = parts.store.head(told["run"]).seq

    async def watch() -> None:
        async for _, _, event in parts.engine.events(told["run"], before):
            if isinstance(event, e.ContextPatched):
                seen.append(time.time())
                if len(seen) == told["times"]:
                    return

    watching = asyncio.create_task(watch())
    durable = (await asyncio.to_thread(owner.ask, "patches", **told))["durable"]
    await asyncio.wait_for(watching, 60)
    return [max(0.0, at - then) for at, then in zip(seen, durable, strict=True)]


# -- P5: takeover ----------------------------------------------------------------------------


async def p5(_folder: Path, runs: int = 10_000, lease: float = LEASE_SECONDS) -> list[Row]:
    """A server dies (kill -9) with so many open runs; until the other one has moved all of them."""
    with database() as db:
        address = db.address("p5")
        limit = lease + 5
        async with world.engine(address, server_lease_seconds=lease) as parts:
            with member(address, lease=lease, hang=True) as other:
                await owns(parts, PARTITIONS // 2)
                await asyncio.to_thread(other.ask, "own", partitions=PARTITIONS // 2)
                open_runs = await asyncio.to_thread(other.ask, "hang", runs=runs)
                moved = _moved(parts, set(open_runs))
                other.process.kill()
                begin = time.perf_counter()
                await owns(parts, PARTITIONS)
                taken = time.perf_counter() - begin
                await asyncio.wait_for(moved, 300)
                seconds = time.perf_counter() - begin
        db.rows_per_second(20_000)
        raw = runs / db.read_rows_per_second()
    words = f"{runs:,} runs; lease {lease:g} s; reading as many raw rows: {raw * 1000:.0f} ms"
    after = seconds - taken
    return [
        Row("P5 until all moved", seconds, "s", words, None, f"≤ {limit:g} s", seconds <= limit),
        Row("P5 of it after the claim", after, "s", words, after / raw, "", None),
    ]


def _moved(parts: Any, left: set[str]) -> asyncio.Future[None]:
    moved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def hear(news: Any) -> None:
        left.discard(news.run)
        if not left and not moved.done():
            moved.set_result(None)

    parts.engine.listen(hear)
    return moved


# -- P6: loops -------------------------------------------------------------------------------


async def p6(_folder: Path, items: int = 100_000, times: int = 3) -> list[Row]:
    """B4 on PostgreSQL: a fan-out whose items do nothing and are summed, sharded automatically."""
    with database() as db:
        found = [await count_on(db.address(f"p6_{number}"), items, 0) for number in range(times)]
        best = db.rows_per_second()
        size = db.bytes_of("p6_0") / items
    rate = items / min(one["seconds"] for one in found)
    words = f"{best:,.0f} raw rows/s; {size:.0f} bytes an item"
    aim, met = "≥ 25,000/s", rate >= 25_000
    return [Row(f"P6 ×{items:,}", rate, "items/s", words, rate / best, aim, met)]

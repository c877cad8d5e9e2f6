"""Benchmarks of asking participants: B8 and B9 over HTTP, B10 with callables and many timeouts."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

from anabranch.kernel import events as e
from anabranch.operations.definitions.prepare import Prepared, prepare
from anabranch.parts import Parts
from anabranch.runtime.effects import DurableEvents
from bench import world
from bench.rows import Row


def solicit(names: Sequence[str], timeout: str, **fan_in: Any) -> str:
    """A definition with one step that asks those participants."""
    step = {
        "step_id": "ask",
        "service_type": "price",
        "input": {"of": "a voyage"},
        "target": {"resolve": "static", "participants": list(names)},
        "fan_in": fan_in,
        "timing": {"timeout": timeout, "on_timeout": "skip"},
    }
    return json.dumps({"workflow_id": "solicit", "plan": {"steps": [step]}}, indent=1)


class Providers:
    """The process of providers, and what it saw."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def book(self, paths: Mapping[str, str]) -> dict[str, Any]:
        return {"participants": {name: {"url": self._base + path} for name, path in paths.items()}}

    def urls(self, paths: Mapping[str, str]) -> list[str]:
        return [self._base + path for path in paths.values()]

    async def log(self) -> list[tuple[str, str, float]]:
        async with aiohttp.ClientSession() as session, session.get(f"{self._base}/log") as response:
            return [(str(p), str(w), float(at)) for p, w, at in await response.json()]


@asynccontextmanager
async def providers() -> AsyncIterator[Providers]:
    command = [sys.executable, "-m", "bench.provider"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield Providers(int(process.stdout.readline()))
    finally:
        process.kill()
        process.wait()


async def _run(parts: Parts, prepared: Prepared) -> tuple[str, Any, float]:
    """One run to its end: its id, its state, and when its end was known here."""
    run = await parts.engine.start(prepared.definition, prepared.net)
    state = await parts.engine.wait(run)
    return run, state, time.monotonic()


# -- B8: the first answer of fifty -----------------------------------------------------------


async def b8(folder: Path, count: int = 50, rounds: int = 10) -> list[Row]:
    """One answers at once, the others would take 30 s."""
    paths = {f"p{n}": f"/{0 if n == count // 2 else 30_000}/{n}" for n in range(count)}
    first = paths[f"p{count // 2}"]
    prepared = prepare(solicit(list(paths), "PT60S", policy="any_one"))
    goes_on, closed, raw_on, raw_closed = [], [], [], []
    async with providers() as server:
        book = server.book(paths)
        async with world.engine(folder / "b8.db", participants=book) as parts:
            for _ in range(rounds):
                before = len(await server.log())
                *_, at = await _run(parts, prepared)
                on, off = await _delays(server, before, first, at, count)
                goes_on.append(on)
                closed.append(off)
                before = len(await server.log())
                at = await _raw_first(server.urls(paths))
                on, off = await _delays(server, before, first, at, count)
                raw_on.append(on)
                raw_closed.append(off)
    words = "bare client: {:.1f} ms"
    rows = []
    for case, found, raw, aim in (
        ("B8 goes on after the answer", goes_on, raw_on, 50),
        ("B8 others closed after it", closed, raw_closed, 100),
    ):
        worst, beside = max(found) * 1000, max(raw) * 1000
        rows.append(
            Row(
                case, worst, "ms", words.format(beside), worst / beside, f"≤ {aim} ms", worst <= aim
            )
        )
    return rows


async def _delays(
    server: Providers, before: int, first: str, at: float, count: int
) -> tuple[float, float]:
    """From the answer until the run went on, and until the last connection was closed."""
    while True:
        log = (await server.log())[before:]
        closings = [when for path, what, when in log if what == "closed" and path != "/log"]
        if len(closings) >= count:
            break
        await asyncio.sleep(0.01)
    answered = next(when for path, what, when in log if what == "answered" and path == first)
    return at - answered, max(closings) - answered


async def _raw_first(urls: Sequence[str]) -> float:
    """The same with nothing but the client: ask all, take the first, cancel the others."""
    async with _client() as session:
        asking = [asyncio.ensure_future(_post(session, url)) for url in urls]
        done, left = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
        at = time.monotonic()
        assert all(task.exception() is None for task in done)
        for task in left:
            task.cancel()
        await asyncio.wait(left)
    return at


def _client() -> aiohttp.ClientSession:
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    return aiohttp.ClientSession(connector=connector)


async def _post(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.post(url, json={"of": "a voyage"}) as response:
        return await response.json()


# -- B9: the best of a thousand --------------------------------------------------------------


async def b9(folder: Path, count: int = 1000, timeout_ms: int = 600) -> list[Row]:
    """They answer within half a second; the cheapest of those that were in time is chosen."""
    dice = random.Random(9)
    prices = dice.sample(range(1, 10 * count), count)
    paths = {f"p{n}": f"/{dice.randrange(500)}/{price}" for n, price in enumerate(prices)}
    seconds = f"PT{timeout_ms / 1000:g}S"
    chosen = {"policy": "best_of", "score_field": "/price", "score_order": "asc"}
    prepared = prepare(solicit(list(paths), seconds, **chosen))
    async with providers() as server:
        raw = await _raw_all(server.urls(paths), timeout_ms)
        async with world.engine(folder / "b9.db", participants=server.book(paths)) as parts:
            begun, busy = time.monotonic(), time.process_time()
            run, state, at = await _run(parts, prepared)
            taken, used = (at - begun) * 1000, time.process_time() - busy
            records = parts.verbs.read.dispatches(run)
    answered = {r.record.target: r for r in records if r.record.status == "responded"}
    if not answered:
        raise RuntimeError("no participant was asked and answered in time: the machine is busy")
    cheapest = min(answered, key=lambda name: prices[int(name[1:])])
    right = state.results["ask"]["price"] == prices[int(cheapest[1:])]
    if not right or sorted(r.record.target for r in records) != sorted(paths):
        raise RuntimeError("the wrong one was chosen, or somebody was not asked once")
    limit = timeout_ms + 100
    words = f"bare client: {raw:,} in time"
    share, beside = len(answered) / count * 100, len(answered) / max(1, raw)
    cpu, aim = used / count * 1e6, f"≤ {limit} ms"
    return [
        Row(f"B9 best of {count:,}", taken, "ms", words, None, aim, taken <= limit, cpu),
        Row("B9 answers in time", share, "%", words, beside, "≥ 0.95×", beside >= 0.95),
    ]


async def _raw_all(urls: Sequence[str], timeout_ms: int) -> int:
    """How many answers the bare client has in that time."""
    async with _client() as session:
        asking = [asyncio.ensure_future(_post(session, url)) for url in urls]
        done, left = await asyncio.wait(asking, timeout=timeout_ms / 1000)
        for task in left:
            task.cancel()
        with suppress(ValueError):
            await asyncio.wait(left)
    return len(done)


# -- B10: many timeouts ----------------------------------------------------------------------


async def b10(folder: Path, runs: int = 1000, timeout_ms: int = 3000) -> list[Row]:
    """Eight dispatches a run and a quorum, which half of the runs do not get in time."""
    people = {f"p{n}": _answering(n) for n in range(8)}
    seconds = f"PT{timeout_ms / 1000:g}S"
    prepared = [
        prepare(solicit(list(people), seconds, policy="quorum", min_responses=wanted))
        for wanted in (5, 6)  # p5 to p7 never answer
    ]
    async with world.engine(folder / "b10.db", participants={"participants": people}) as parts:
        fans = Fans(parts, timeout_ms)
        raw = asyncio.ensure_future(_raw_lateness(runs // 2, timeout_ms))
        begun = time.perf_counter()
        names = await asyncio.gather(
            *(
                parts.engine.start(each.definition, each.net)
                for each in (prepared[n % 2] for n in range(runs))
            )
        )
        took = (time.perf_counter() - begun) * 1000
        states = await asyncio.gather(*(parts.engine.wait(name) for name in names))
        beside = await raw
    for number, name in enumerate(names):
        met = states[number].results.get("ask") is not None
        if met != (number % 2 == 0) or (name in fans.late) == met or fans.settled[name] != 1:
            raise RuntimeError(f"run {name}: a quorum or a timeout was missed, or came twice")
    decided, known = _p99(fans.decided.values()), _p99(fans.late.values())
    words = f"bare timers: {beside:.1f} ms"
    return [
        Row(
            f"B10 {len(fans.late):,} timeouts late by (p99)",
            decided,
            "ms",
            words,
            decided / max(beside, 0.1),
            "≤ 50 ms",
            decided <= 50,
        ),
        Row("B10 and durable after (p99)", known, "ms", words, None, "", None),
        Row(f"B10 starting {runs:,} runs", took, "ms", "", None, "", None),
    ]


class Fans:
    """Hears how late each timeout was when it was decided, and when that was durable."""

    def __init__(self, parts: Parts, timeout_ms: int) -> None:
        self._clock = parts.engine.clock
        self._timeout_ms = timeout_ms
        self._due: dict[str, int] = {}
        self.late: dict[str, float] = {}
        self.decided: dict[str, float] = {}
        self.settled: Counter[str] = Counter()
        parts.engine.listen(self._hear)

    def _hear(self, news: DurableEvents) -> None:
        for event in news.events:
            if isinstance(event, e.GatherOpened):
                self._due[news.run] = news.at + self._timeout_ms
            elif isinstance(event, e.GatherSettled):
                self.settled[news.run] += 1
                if event.verdict != "closed":
                    self.late[news.run] = self._clock.now() - self._due[news.run]
                    self.decided[news.run] = news.at - self._due[news.run]


def _p99(values: Iterable[float]) -> float:
    found = sorted(values)
    return found[int(len(found) * 0.99)]


def _answering(number: int) -> Any:
    async def answer(_request: Any) -> Any:
        await asyncio.sleep(3600 if number >= 5 else 0.02 * number)
        return {"price": number}

    return answer


async def _raw_lateness(count: int, timeout_ms: int) -> float:
    """The same number of timers in the same busy loop, without an engine around them."""
    loop = asyncio.get_running_loop()

    async def one() -> float:
        due = loop.time() + timeout_ms / 1000
        await asyncio.sleep(timeout_ms / 1000)
        return (loop.time() - due) * 1000

    return _p99(await asyncio.gather(*(one() for _ in range(count))))

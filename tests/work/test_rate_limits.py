"""Rates: never faster than they say, also across restarts and servers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.kernel.values import succeeded
from anabranch.rates import Rate, read_rates
from anabranch.settings import Settings, parse
from anabranch.store.memory.store import MemoryStore
from anabranch.store.record_ports import NamedRecord
from anabranch.work.port import Task
from anabranch.work.rate_limits import RateLimit, RateLimitedPerformer, RateLimits, host_of


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("kind:http=5/s", {"kind:http": Rate(200_000)}),
        ("host:API.example.org=300/m+10, pool:gpu=1/h", {
            "host:api.example.org": Rate(200_000, 10), "pool:gpu": Rate(3_600_000_000)}),
        ("", {}),
    ],
)  # fmt: skip
def test_rates_as_people_write_them(text: str, found: dict[str, Rate]) -> None:
    assert read_rates(text) == found
    assert parse("rate_limits", text, "rate_limits") == text


@pytest.mark.parametrize(
    "text",
    [
        *("http=5/s", "kind:http", "kind:http=0/s", "kind:http=-1/s", "kind:http=5", "kind:=5/s"),
        *("kind:http=5/s+0", "kind:http=5/y", "kind:a=1/s kind:a=2/s", "kind:http=9999999/s"),
    ],
)
def test_a_bad_rate_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="rate_limits"):
        parse("rate_limits", text, "rate_limits")


class VirtualTime:
    """A clock that sleeps by moving; several processes share it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at_ms = 1_700_000_000_000.0
        monkeypatch.setattr(asyncio, "sleep", self._sleep)
        monkeypatch.setattr(asyncio, "to_thread", self._inline)

    async def _sleep(self, seconds: float) -> None:
        self.at_ms += seconds * 1000

    async def _inline(self, act: Any, *given: Any) -> Any:
        return act(*given)

    def now(self) -> int:
        return int(self.at_ms)


def never_faster(taken: Sequence[float], rate: Rate) -> None:
    """In any time no more than its slots, and the burst."""
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            allowed = (taken[last] - taken[first] + 1) * 1000 / rate.interval_us + rate.burst
            assert last - first + 1 <= allowed + 1, (first, last)


@pytest.mark.parametrize("rate", [Rate(200_000), Rate(50_000, 5), Rate(1_500_000, 3)])
def test_servers_that_crash_and_rest_are_never_faster_together_than_the_rate(
    rate: Rate, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(10):
        dice, time, store = Random(seed), VirtualTime(monkeypatch), MemoryStore()

        def process(time: VirtualTime = time, store: MemoryStore = store) -> RateLimit:
            return RateLimit("kind:http", rate, store, time.now)

        async def work(dice: Random = dice, time: VirtualTime = time) -> list[float]:
            servers = [process(), process()]
            taken = []
            for _ in range(60):
                chance = dice.random()
                if chance < 0.1:  # kill -9, and another one begins
                    servers[dice.randrange(2)] = process()
                elif chance < 0.2:
                    time.at_ms += dice.choice((1, 300, 5_000))
                await dice.choice(servers).take()
                taken.append(time.at_ms)
            return taken

        never_faster(asyncio.run(work()), rate)


def test_a_restart_begins_no_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    time, store, rate = VirtualTime(monkeypatch), MemoryStore(), Rate(100_000, 4)

    async def work() -> list[float]:
        taken = []
        for _ in range(12):  # a process that takes one and dies, again and again
            await RateLimit("kind:http", rate, store, time.now).take()
            taken.append(time.at_ms)
        return taken

    never_faster(asyncio.run(work()), rate)


def test_it_reaches_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    time, rate = VirtualTime(monkeypatch), Rate(10_000)
    limit = RateLimit("kind:http", rate, MemoryStore(), time.now)
    began = time.at_ms

    async def work() -> None:
        for _ in range(500):
            await limit.take()

    asyncio.run(work())
    assert 4_900 <= time.at_ms - began <= 5_200, "500 at a hundred a second"


def test_what_passes_while_the_store_takes_its_time_is_not_made_up_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    time = VirtualTime(monkeypatch)

    class Slow(MemoryStore):
        def put_record(self, record: NamedRecord, seen: int = 0) -> bool:
            written = super().put_record(record, seen)
            time.at_ms += 1000
            return written

    limit = RateLimit("pool:gpu", Rate(50_000), Slow(), time.now)
    for _ in range(3):
        assert asyncio.run(limit.ready()) == 1, "of the four that were taken"
        limit.consume(1)


def test_a_damaged_record_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    time, store = VirtualTime(monkeypatch), MemoryStore()
    store.put_record(NamedRecord(family="rate", name="kind:http", body=b"{}"))
    asyncio.run(RateLimit("kind:http", Rate(1000), store, time.now).take())


class Recorder:
    closed = False

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def perform(self, task: Task) -> Any:
        self.seen.append(str(task.inputs.get("url")))
        return succeeded(None)

    async def close(self) -> None:
        self.closed = True


def task(url: str) -> Task:
    return Task(run="r", step="s", job="1", attempt=1, key="k", kind="http", inputs={"url": url})


def test_calls_wait_for_their_kind_and_their_host_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    time, inner, noop = VirtualTime(monkeypatch), Recorder(), Recorder()
    rates = RateLimits("host:api.example.org=1/s kind:http=100/s", MemoryStore(), time.now)
    made = rates.limited({"http": inner, "noop": noop})
    assert list(made) == ["http"]
    performer = made["http"]
    assert isinstance(performer, RateLimitedPerformer)

    async def work() -> float:
        began = time.at_ms
        for path in range(3):
            await performer.perform(task(f"https://API.example.org/{path}"))
        for path in range(3):
            await performer.perform(task(f"https://other.example.org/{path}"))
        await performer.close()
        return time.at_ms - began

    assert 2_000 <= asyncio.run(work()) < 3_000
    assert len(inner.seen) == 6
    assert inner.closed


@pytest.mark.parametrize("given", [{}, {"url": 5}, {"url": "http://[bad"}, {"url": "no url"}])
def test_a_call_without_a_host_has_none(given: dict[str, Any]) -> None:
    assert host_of(given) == ""


def test_without_rates_no_performer_is_changed() -> None:
    inner = Recorder()
    made = RateLimits(Settings().rate_limits, None, lambda: 0).limited({"http": inner})
    assert made == {}

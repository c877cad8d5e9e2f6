"""Rate limits of kinds of work, of hosts and of pools, shared by all that share a store.

Slots in time are given out by GCRA: one every interval, and up to `burst` at once after a rest. The
store keeps how far slots were given out (the ceiling); a process takes a few of them at a time and
moves the ceiling first. So after a crash the next process begins at the ceiling: what was taken and
not used is lost, and nothing is done twice as fast. Several servers take from the same ceiling.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from anabranch.rates import Rate, read_rates
from anabranch.store.record_ports import NamedRecord, Records
from anabranch.work.port import Performer, Task

FAMILY = "rate"
TAKEN_US = 200_000  # of slots in time that a process takes at once: a crash loses no more
TAKEN_MAX = 1000
TRIES_MAX = 100  # of others who take at the same moment
WAITED_MAX_SECONDS = 3600.0


class Ceiling(msgspec.Struct):
    """The record of a rate: slots before this instant were given out."""

    until_us: int


class RateLimit:
    """One rate. Without a store it counts for this process alone."""

    def __init__(
        self, name: str, rate: Rate, records: Records | None, now: Callable[[], int]
    ) -> None:
        self.name = name
        self.rate = rate
        self._records = records
        self._now = now  # milliseconds
        self._slots: deque[int] = deque()
        self._ceiling = 0  # where there is no store
        self._taking = asyncio.Lock()
        self.waited = 0  # how often somebody had to wait

    async def take(self) -> None:
        """Returns when the next one may begin. Whoever is cancelled meanwhile gives up its slot."""
        slot = await self._slot()
        delay = slot - self._now() * 1000
        if delay > 0:
            self.waited += 1
            await asyncio.sleep(delay / 10**6)

    async def ready(self) -> int:
        """How many may begin now; `consume` says how many did."""
        async with self._taking:
            slack_us = self.rate.interval_us  # who asks now and then is late
            if not self._fresh(slack_us):
                await self._refill()
                self._fresh(slack_us, keep=1)  # the store may have been slower than the rate is
        now = self._now() * 1000
        return sum(slot <= now for slot in self._slots)

    def consume(self, count: int) -> None:
        for _ in range(min(count, len(self._slots))):
            self._slots.popleft()

    def next_seconds(self) -> float:
        """Until the next one may begin, as far as is known."""
        if not self._slots:
            return self.rate.interval_us / 10**6
        return max(0.0, self._slots[0] / 10**6 - self._now() / 1000)

    async def _slot(self) -> int:
        async with self._taking:
            while not self._fresh():
                await self._refill()
            return self._slots.popleft()

    def _fresh(self, slack_us: int = 0, keep: int = 0) -> bool:
        """Slots of a rest that is longer than the burst are lost, all but the last `keep`."""
        oldest = self._now() * 1000 - (self.rate.burst - 1) * self.rate.interval_us - slack_us
        while len(self._slots) > keep and self._slots[0] < oldest:
            self._slots.popleft()
        return bool(self._slots)

    async def _refill(self) -> None:
        if self._records is None:
            first = self._reserve(self._ceiling)
            self._ceiling = first[-1] + self.rate.interval_us
            self._slots.extend(first)
            return
        self._slots.extend(await asyncio.to_thread(self._take_from, self._records))

    def _reserve(self, ceiling: int) -> list[int]:
        interval, burst = self.rate
        now = self._now() * 1000
        first = max(ceiling, now - (burst - 1) * interval)
        count = min(TAKEN_MAX, max(1, burst, TAKEN_US // interval))
        return [first + number * interval for number in range(count)]

    def _take_from(self, records: Records) -> list[int]:
        """Move the ceiling in the store, then the slots below it are ours."""
        for _ in range(TRIES_MAX):
            known = records.record(FAMILY, self.name)
            ceiling = 0 if known is None else _read(known)
            slots = self._reserve(ceiling)
            body = msgspec.json.encode(Ceiling(slots[-1] + self.rate.interval_us))
            new = NamedRecord(
                family=FAMILY, name=self.name, body=body, updated_at=self._now(), due=None
            )
            if records.put_record(new, 0 if known is None else known.version):
                return slots
        return []  # others are faster: asked again


def _read(record: NamedRecord) -> int:
    try:
        return msgspec.json.decode(record.body, type=Ceiling).until_us
    except msgspec.MsgspecError:
        return 0


class RateLimits:
    """The rates of the settings, by what they are for."""

    def __init__(self, text: str, records: Records | None, now: Callable[[], int]) -> None:
        self.limits = {
            name: RateLimit(name, rate, records, now) for name, rate in read_rates(text).items()
        }

    def pool(self, pool: str) -> RateLimit | None:
        return self.limits.get(f"pool:{pool}")

    def limited(self, performers: Mapping[str, Performer]) -> dict[str, Performer]:
        """Those of these performers that have to wait for a rate, in what makes them wait."""
        hosts = any(name.startswith("host:") for name in self.limits)
        return {
            kind: RateLimitedPerformer(one, self, kind)
            for kind, one in performers.items()
            if f"kind:{kind}" in self.limits or (hosts and kind == "http")
        }

    def of_task(self, kind: str, task: Task) -> list[RateLimit]:
        names = [f"kind:{kind}"]
        if kind == "http" and (host := host_of(task.inputs)):
            names.append(f"host:{host}")
        return [self.limits[name] for name in names if name in self.limits]


def host_of(inputs: Mapping[str, Any]) -> str:
    url = inputs.get("url") or inputs.get("endpoint")
    if not isinstance(url, str):
        return ""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


class RateLimitedPerformer:
    """Waits until the rate of its kind, and that of the host, allows it. That counts as work."""

    def __init__(self, inner: Performer, rates: RateLimits, kind: str) -> None:
        self.inner = inner
        self._rates = rates
        self._kind = kind

    async def perform(self, task: Task) -> Any:
        for limit in self._rates.of_task(self._kind, task):
            await limit.take()
        return await self.inner.perform(task)

    def parks(self, inputs: Mapping[str, Any]) -> bool:
        parks = getattr(self.inner, "parks", None)
        return parks is not None and bool(parks(inputs))

    async def close(self) -> None:
        if hasattr(self.inner, "close"):
            await self.inner.close()

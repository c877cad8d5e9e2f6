"""A cluster that does what a test says, behind the port of the real ones: for what people see of
it. Real ones are in `clusters`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any, ClassVar

import pytest

from anabranch.errors import AnabranchError
from anabranch.pools import backends
from anabranch.pools.address import PoolOptions
from anabranch.pools.backend import Capacity, Event, Started

DASHBOARD = "http://127.0.0.1:8787/status"


class Script:
    """What the cluster of a pool is like; a test changes it at any time, from any thread."""

    def __init__(self, **given: Any) -> None:
        self.refuses: AnabranchError | None = None
        self.capacity = Capacity(
            **{"slots": 2, "workers": 1, "dashboard": DASHBOARD, "version": "1.2.3", **given}
        )
        self.backend: ScriptedBackend | None = None


class ScriptedBackend:
    """One per engine that is opened."""

    scripts: ClassVar[dict[str, Script]] = {}

    def __init__(self, options: PoolOptions, **_limits: int) -> None:
        self.engine, self.address = options.engine, options.shown
        self._script = self.scripts[options.name]
        self._script.backend = self
        self.tickets: dict[str, bytes] = {}
        self.cancelled: list[tuple[str, bool]] = []  # and whether by force
        self.closed = False
        self._loop = asyncio.get_running_loop()
        self._news: asyncio.Queue[list[Event]] = asyncio.Queue()

    async def open(self) -> Capacity:
        return await self.capacity()

    async def capacity(self) -> Capacity:
        if self._script.refuses is not None:
            raise self._script.refuses
        return self._script.capacity

    async def submit(self, ticket: str, blob: bytes) -> None:
        self.tickets[ticket] = blob

    async def cancel(self, tickets: Collection[str], *, force: bool = False) -> None:
        self.cancelled += [(ticket, force) for ticket in tickets]
        for ticket in tickets:
            self.tickets.pop(ticket, None)

    async def events(self) -> AsyncIterator[Sequence[Event]]:
        while not self.closed:
            yield await self._news.get()

    async def close(self) -> None:
        self.closed = True
        self._news.put_nowait([])

    # -- what a test says --------------------------------------------------------------------

    def tell(self, *events: Event) -> None:
        """In the loop of the engine."""
        self._news.put_nowait(list(events))

    def tell_soon(self, *events: Event) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self.tell, *events)

    def begin_soon(self, ticket: str, worker: str) -> None:
        self.tell_soon(Started(ticket, worker, worker))


def use_scripts(patch: pytest.MonkeyPatch) -> dict[str, Script]:
    """Pool → its cluster; whatever address is given for it."""
    known: dict[str, Script] = {}
    patch.setattr(ScriptedBackend, "scripts", known)
    for engine in ("dask", "ray"):
        patch.setitem(backends._ENGINES, engine, ("anabranch", __name__, "ScriptedBackend"))
    return known


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Script]:
    return use_scripts(monkeypatch)

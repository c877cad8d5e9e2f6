"""The book of requests: those that are open, in memory and at the host.

A change is written at the host first. One process writes here, so what is in memory is what the
host has, or what it is just about to have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from anabranch.modules.dator.requests import DONE, OPEN, ORDERS, Ending, Request
from anabranch.modules.dator.tasks import until_taken
from anabranch.modules.kit.host import Host
from anabranch.work.participants.performers import rfc3339


class Book:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._open: dict[str, Request] = {}
        self._queued: Counter[str] = Counter()  # by offer
        #: Being admitted: the offer and the buyer, once it has a place there.
        self._arriving: dict[str, tuple[str, str] | None] = {}
        self.on_depth: Callable[[], None] = lambda: None

    async def load(self) -> list[Request]:
        """What is open, the oldest first. Raises `HostUnavailable`."""
        rows = await self._host.records(OPEN)
        found = [msgspec.convert(row["payload"], Request) for row in rows]
        found.sort(key=lambda one: (one.admitted_at, one.key))
        for one in found:
            self.remember(one)
        return found

    # -- reading -----------------------------------------------------------------------------

    def get(self, key: str) -> Request | None:
        return self._open.get(key)

    def named(self, name: str) -> list[Request]:
        """By its id, or by the id that its buyer gave it."""
        found = self._open.get(name)
        return [found] if found else [one for one in self if one.request_id == name]

    def __iter__(self) -> Iterator[Request]:
        return iter(sorted(self._open.values(), key=lambda one: (one.admitted_at, one.key)))

    def __len__(self) -> int:
        """With those that have a place and are not written yet."""
        return len(self._open) + sum(place is not None for place in self._arriving.values())

    def depth(self, offer_id: str) -> int:
        """Orders from this offer that wait or are being done."""
        arriving = sum(place[0] == offer_id for place in self._arriving.values() if place)
        return self._queued[offer_id] + arriving

    def of_buyer(self, buyer: str) -> int:
        """Open requests of one node."""
        arriving = sum(place[1] == buyer for place in self._arriving.values() if place)
        return sum(one.buyer == buyer for one in self._open.values()) + arriving

    async def done(self, key: str) -> Any:
        """The record of a request that has ended, or None."""
        found = await self._host.record(DONE, key)
        return found["payload"] if found else None

    async def unheard(self, key: str) -> Request | None:
        """The record of a request of which only the host knows that it is open."""
        found = await self._host.record(OPEN, key)
        return msgspec.convert(found["payload"], Request) if found else None

    async def request_of_order(self, order_key: str) -> Any:
        """The key of the request that an order came with, or None."""
        found = await self._host.record(ORDERS, order_key)
        return found["payload"]["request"] if found else None

    async def ended(self, limit: int) -> list[Any]:
        return [row["payload"] for row in await self._host.records(DONE, limit)]

    # -- forgetting --------------------------------------------------------------------------

    async def forget(self, before: int) -> None:
        """Requests that had ended and orders that had come before that instant: no order as old is
        taken again."""
        for kind in (DONE, ORDERS):
            while rows := await self._host.records(kind, created_before=rfc3339(before)):
                for row in rows:
                    await self._host.delete_record(kind, row["record_id"])

    # -- changing ----------------------------------------------------------------------------

    @contextmanager
    def arriving(self, key: str) -> Iterator[None]:
        """The one call that decides about a request."""
        self._arriving[key] = None
        try:
            yield
        finally:
            self._arriving.pop(key, None)

    def is_arriving(self, key: str) -> bool:
        return key in self._arriving

    def take_place(self, key: str, offer_id: str, buyer: str) -> None:
        self._arriving[key] = offer_id, buyer

    async def claim(self, order_key: str, key: str) -> None:
        """An order belongs to one request."""
        await self._host.put_record(ORDERS, order_key, {"request": key})

    async def put(self, request: Request) -> Request:
        """Raises where the host does not take it; nothing has changed then."""
        await self._host.put_record(OPEN, request.key, msgspec.to_builtins(request))
        return self.remember(request)

    async def move(self, request: Request, **changes: Any) -> Request:
        """As `put`, until the host takes it."""
        after = msgspec.structs.replace(request, **changes)
        return await until_taken(lambda: self.put(after))

    async def end(self, request: Request, ending: Ending, now: int, reason: str = "") -> None:
        done = request.ended(ending, now, reason)
        await until_taken(lambda: self._host.put_record(DONE, request.key, done))
        await until_taken(lambda: self._host.delete_record(OPEN, request.key))
        self._count(self._open.pop(request.key, None), -1)
        self.on_depth()

    def remember(self, request: Request) -> Request:
        """What the host has of it."""
        self._count(self._open.get(request.key), -1)
        self._open[request.key] = request
        self._count(request, 1)
        if request.key in self._arriving:
            self._arriving[request.key] = None
        self.on_depth()
        return request

    def _count(self, request: Request | None, sign: int) -> None:
        if request is not None and request.is_queued:
            self._queued[request.offer_id] += sign

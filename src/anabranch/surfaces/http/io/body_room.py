"""How many bytes of bodies may be coming in at once, of all callers of one sort together.

A limit for each body says little where as many may come as there are connections. When there are
too many bytes, the body that has been coming for longest is given up: whoever sends in one go is
done long before. What has come as a whole and waits to be parsed counts until it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.surfaces.http.io.problems import ApiError

RETRY_SECONDS = 5


class BodyRoom:
    """One for each sort of callers."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._coming: dict[Coming, None] = {}  # the oldest first
        self.bytes = 0

    @contextmanager
    def take(self, transport: asyncio.BaseTransport | None) -> Iterator[Coming]:
        body = self.begin(transport)
        try:
            yield body
        finally:
            body.end()

    def begin(self, transport: asyncio.BaseTransport | None) -> Coming:
        """A body that is going to come; whoever began it ends it."""
        body = Coming(self, transport)
        self._coming[body] = None
        return body

    def end(self, body: Coming) -> None:
        self._coming.pop(body, None)
        self.bytes -= body.bytes
        body.bytes = 0

    def grow(self, body: Coming, size: int) -> None:
        body.bytes += size
        self.bytes += size
        while self.bytes > self._most:
            oldest = next(iter(self._coming), None)
            if oldest is None or oldest is body:
                said = f"more than {self._most:,} bytes of bodies are on their way to this place"
                headers = {"Retry-After": str(RETRY_SECONDS), "Connection": "close"}
                raise ApiError(503, "too_many_bytes", said, "try again later", headers=headers)
            self._give_up(oldest)

    def has_come(self, body: Coming) -> None:
        """It is not given up any more: what was read of it stays until it is parsed."""
        self._coming.pop(body, None)

    def _give_up(self, body: Coming) -> None:
        del self._coming[body]
        self.bytes -= body.bytes
        body.bytes = 0
        if isinstance(body.transport, asyncio.Transport):
            body.transport.abort()


class Coming:
    def __init__(self, room: BodyRoom, transport: asyncio.BaseTransport | None) -> None:
        self._room = room
        self.transport = transport
        self.bytes = 0

    def grow(self, size: int) -> None:
        """So many bytes more have come. Raises `ApiError` where there is no room for them."""
        self._room.grow(self, size)

    def has_come(self) -> None:
        self._room.has_come(self)

    def end(self) -> None:
        self._room.end(self)

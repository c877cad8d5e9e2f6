"""Large bodies, from when they begin to come until their request is over: so many bytes a caller.

What becomes of a body in memory is larger than the body. Who shows a token has a share: a body that
does not fit into it any more is not read until others of that token are done with. All who show
none share a room, in which the body that takes longest makes way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web

from anabranch.surfaces.http.guard.auth import CALLER
from anabranch.surfaces.http.io.body_room import BodyRoom, Coming

LARGE = 64 * 1024  # a connection keeps as much of a body in any case
SHARE_BYTES = 256 * 1024 * 1024  # of one token, and of all who ask without one where none is needed
STRANGERS_BYTES = 64 * 1024 * 1024


class _Share(msgspec.Struct):
    """What one caller has in hand; a body that is larger than the share has it for itself."""

    bytes: int = 0
    waiting: deque[tuple[int, asyncio.Future[None]]] = msgspec.field(default_factory=deque)

    def fits(self, size: int) -> bool:
        return not self.bytes or self.bytes + size <= SHARE_BYTES


class Bodies:
    """One per server. Only for the event loop."""

    def __init__(self) -> None:
        self._shares: dict[str, _Share] = {}
        self._room = BodyRoom(STRANGERS_BYTES)
        self.held: dict[Any, Callable[[], None]] = {}  # transport → how it gives back

    def of(self, caller: str) -> int:
        """Bytes that this token has in hand."""
        return self._shares[caller].bytes if caller in self._shares else 0

    async def admit(self, request: web.Request, size: int) -> Callable[[int], None]:
        """Before a body of at most so many bytes is read; what it gives is told of each part."""
        transport = request.transport
        if transport is None or transport in self.held:  # the client has left; or it has its room
            return lambda _size: None
        if CALLER in request:
            await self._take(request[CALLER].token, size, transport)
            return lambda _size: None
        coming = self._room.begin(transport)
        self.held[transport] = coming.end
        return _growing(coming, size)

    async def _take(self, caller: str, size: int, transport: Any) -> None:
        share = self._shares.setdefault(caller, _Share())
        if share.waiting or not share.fits(size):
            turn = asyncio.get_running_loop().create_future()
            share.waiting.append((size, turn))
            try:
                await turn
            except asyncio.CancelledError:
                self._leave(caller, share, size, turn)
                raise
        else:
            share.bytes += size
        self.held[transport] = lambda: self._give_back(caller, share, size)

    def _leave(self, caller: str, share: _Share, size: int, turn: asyncio.Future[None]) -> None:
        """Whoever waits no longer; perhaps its turn had just come."""
        if turn.done() and not turn.cancelled():
            self._give_back(caller, share, size)
        else:
            share.waiting = deque(one for one in share.waiting if one[1] is not turn)

    def _give_back(self, caller: str, share: _Share, size: int) -> None:
        share.bytes -= size
        while share.waiting and share.fits(share.waiting[0][0]):
            size, turn = share.waiting.popleft()
            if not turn.done():
                share.bytes += size
                turn.set_result(None)
        if not (share.bytes or share.waiting):
            self._shares.pop(caller, None)

    def give_back(self, transport: Any) -> None:
        """The request of this connection is over."""
        if (held := self.held.pop(transport, None)) is not None:
            held()


BODIES = web.AppKey("anabranch.bodies", Bodies)


def _growing(coming: Coming, size: int) -> Callable[[int], None]:
    left = size

    def grow(part: int) -> None:
        nonlocal left
        coming.grow(part)
        left -= part
        if left <= 0:
            coming.has_come()

    return grow


async def admitted(
    request: web.Request, most: int, grow: Callable[[int], None] | None
) -> Callable[[int], None]:
    """Who is told of the parts of a body that is about to be read."""
    if grow is not None:
        return grow
    bodies, size = request.app.get(BODIES), request.content_length
    if bodies is None or (size is not None and size <= LARGE):
        return lambda _size: None
    return await bodies.admit(request, most if size is None else size)

"""Bodies that come in at once are so many bytes together, however many connections there are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from traceback import walk_tb
from typing import Any

import pytest

from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.surfaces.http import table
from anabranch.surfaces.http.io.body_room import BodyRoom
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.request_body import read_at_most
from anabranch.surfaces.http.node.server import NodeServer
from hangs import HANG_SECONDS
from in_loop import in_loop

HEAD = (
    b"POST /peer/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n"
)


class Connection(asyncio.Transport):
    aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_the_oldest_that_is_still_coming_makes_room() -> None:
    room = BodyRoom(100)
    first, second, third = Connection(), Connection(), Connection()
    with ExitStack() as left:
        bodies = [left.enter_context(room.take(one)) for one in (first, second, third)]
        for body in bodies:
            body.grow(30)
        bodies[0].has_come()  # it waits to be parsed, and is not given up for others
        bodies[2].grow(20)
        assert [one.aborted for one in (first, second, third)] == [False, True, False]
        assert room.bytes == 80
        with pytest.raises(ApiError, match="100 bytes of bodies"):
            bodies[2].grow(60)
        assert not first.aborted
    assert room.bytes == 0


class HalfABody:
    """A request whose sender leaves in the middle."""

    content_length = None
    app: Mapping[Any, Any] = {}

    def __init__(self) -> None:
        self.content = self

    def is_eof(self) -> bool:
        return False

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * size
        raise ConnectionResetError("gone")


@in_loop
async def test_what_came_of_a_body_goes_with_it() -> None:
    """An error holds the frames that it came through, and with them what they hold: until the
    collector came by, hundreds of megabytes."""
    request: Any = HalfABody()
    with pytest.raises(ApiError) as refused:
        await read_at_most(request, 1 << 30, HANG_SECONDS, "", "")
    assert held_by(refused.value) == 0


def held_by(error: BaseException | None) -> int:
    """Bytes in lists of the frames that an error, and the one before it, came through."""
    if error is None:
        return 0
    lists = [
        value
        for frame, _ in walk_tb(error.__traceback__)
        for value in frame.f_locals.values()
        if isinstance(value, list)
    ]
    parts = [one for each in lists for one in each if isinstance(one, bytes)]
    return sum(map(len, parts)) + held_by(error.__context__)


def test_bodies_that_never_end_are_given_up_for_those_that_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty bodies of 7 MB, none of them whole, were 210 MB of memory of a node."""
    monkeypatch.setattr(table, "STRANGERS_BYTES", 1)  # as few as the largest body leaves
    folder = NodeFolder(tmp_path / "n")
    folder.create(NodeFile(name="n"))
    KeyFolder.create(folder.keys, ("node", "participant"))

    @in_loop
    async def scenario() -> None:
        async with asyncio.timeout(HANG_SECONDS), NodeServer(folder) as server:
            host, port = server._sockets[0].getsockname()[:2]
            largest = max(one.body_bytes for one in server.node.api.endpoints)
            each, crowd = 4_000_000, 2 * largest // 4_000_000 + 6
            writers: list[asyncio.StreamWriter] = []
            ended: list[asyncio.Future[Any]] = []
            for _ in range(crowd):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(HEAD % (each + 1) + b" " * each)
                writers.append(writer)
                ended.append(asyncio.ensure_future(_ends(reader)))
            while sum(one.done() for one in ended) < 6:
                await asyncio.wait(
                    [one for one in ended if not one.done()], return_when=asyncio.FIRST_COMPLETED
                )
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(HEAD % 2 + b"{}")
            assert (await reader.readline()).split()[1] not in (b"500", b"503"), "others are read"
            for one in (*writers, writer):
                one.close()
            for each_one in ended:
                each_one.cancel()

    scenario()


async def _ends(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True

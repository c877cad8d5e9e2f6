"""Large bodies of one caller are so many bytes together, however many connections bring them."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import pytest

from anabranch.surfaces.http.guard import bodies
from anabranch.surfaces.http.guard.bodies import LARGE, Bodies
from anabranch.surfaces.http.routes import API

from ..access import Door, serving
from ..support import run

SIZE = 32 * LARGE  # more than is read of a connection at once
BODY = json.dumps({"definition": "x" * SIZE}).encode()


class Sender:
    """A connection that sends a body as somebody likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @staticmethod
    async def begin(door: Door, path: str, token: str, size: int) -> Sender:
        where = urlsplit(door.server.url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(
            f"POST {API}{path} HTTP/1.1\r\nHost: {where.netloc}\r\nConnection: close\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {size}\r\n\r\n".encode()
        )
        return Sender(reader, writer)

    def send(self, part: bytes) -> None:
        self._writer.write(part)

    async def status(self) -> int:
        line = await self._reader.readline()
        return int(line.split()[1])

    async def leave(self) -> None:
        self._writer.transport.abort()
        with suppress(ConnectionError):
            await self._writer.wait_closed()


def test_who_has_too_many_bytes_in_hand_waits_and_others_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "SHARE_BYTES", len(BODY))

    async def go() -> None:
        async with serving(require_tokens="yes") as door:
            hers, his = door.token("read", name="ann"), door.token("read", name="bob")
            whose, counted = hers.split("_")[1], door.server.limiter.bodies
            slow = await Sender.begin(door, "/definitions/check", hers, len(BODY))
            slow.send(BODY[:LARGE])
            while not counted.of(whose):
                await asyncio.sleep(0)
            second = await Sender.begin(door, "/definitions/check", hers, len(BODY))
            second.send(BODY)
            while not counted._shares[whose].waiting:
                await asyncio.sleep(0)
            other = await Sender.begin(door, "/definitions/check", his, len(BODY))
            other.send(BODY)
            assert await other.status() == 200
            assert counted.of(whose) == len(BODY), "the second is not read yet"
            await slow.leave()
            assert await second.status() == 200
            while counted.of(whose):
                await asyncio.sleep(0)
            for one in (second, other):
                await one.leave()

    run(go())


def test_who_waits_for_room_and_leaves_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "SHARE_BYTES", 100)

    async def go() -> None:
        held = Bodies()
        await held._take("token", 80, "first")
        waiting = [asyncio.ensure_future(held._take("token", 80, n)) for n in ("a", "b", "c")]
        await asyncio.sleep(0)
        waiting[0].cancel()
        held.give_back("first")
        waiting[1].cancel()  # its turn has just come
        await asyncio.wait(waiting[:2])
        await waiting[2]
        assert held.of("token") == 80
        held.give_back("c")
        assert held.of("token") == 0
        assert not held._shares

    run(go())


def test_of_strangers_the_body_that_takes_longest_makes_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "STRANGERS_BYTES", 100)

    class Connection(asyncio.Transport):
        aborted = False

        def abort(self) -> None:
            self.aborted = True

    class Stranger(dict[Any, Any]):
        def __init__(self) -> None:
            super().__init__()
            self.transport = Connection()

    async def go() -> None:
        held, first, second = Bodies(), Stranger(), Stranger()
        (await held.admit(first, 90))(60)  # type: ignore[arg-type]
        (await held.admit(second, 90))(60)  # type: ignore[arg-type]
        assert (first.transport.aborted, second.transport.aborted) == (True, False)

    run(go())


def test_no_byte_of_a_payload_is_read_before_its_job_is_known() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes") as door:
            token = door.token("work")
            path = "/jobs/nowhere/1.0/1/payloads?worker=w1"
            sender = await Sender.begin(door, path, token, 60_000_000)
            assert await sender.status() == 404
            await sender.leave()

    run(go())

"""Too much, too slow, too many: whoever does it is let go, and nobody else notices."""

from __future__ import annotations

import asyncio
import io
import json
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.errors import StoreError
from anabranch.store.access_ports import AuditEntry
from anabranch.surfaces.http.guard import unread_answers
from anabranch.surfaces.http.guard.connection_limits import ConnectionLimiter
from anabranch.surfaces.http.io.request_body import Limits
from anabranch.surfaces.http.serve import Server
from virtual import VirtualLoop, run_virtually

from ..access import START, Door, serving
from ..support import run

HALF_A_HEAD = b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-More: "


async def connected(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(server.url.rpartition(":")[2])
    return await asyncio.open_connection("127.0.0.1", port)


async def hangs_up(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


def test_a_thousand_half_open_connections_keep_nobody_out() -> None:
    async def go() -> None:
        async with serving(serve_connections_max=300) as door:
            writers = []
            for n in range(1000):
                _, writer = await connected(door.server)
                if n % 2:
                    writer.write(HALF_A_HEAD)
                writers.append(writer)
            for _ in range(20):
                assert (await door.ask("POST", "/runs", body=START)).status == 201
            assert len(door.server.limiter) <= 300
            for writer in writers:
                writer.close()

    run(go())


def test_a_connection_that_never_finishes_its_head_is_closed() -> None:
    async def go() -> None:
        async with serving() as door:
            door.server.limiter.idle_seconds = 0.2
            reader, writer = await connected(door.server)
            writer.write(HALF_A_HEAD)
            assert await hangs_up(reader)
            writer.close()

    run(go())


def test_a_connection_whose_head_comes_letter_by_letter_is_closed_all_the_same() -> None:
    async def go() -> None:
        async with serving() as door:
            door.server.limiter.idle_seconds = 0.3
            reader, writer = await connected(door.server)
            writer.write(HALF_A_HEAD)
            ended = asyncio.ensure_future(hangs_up(reader))
            while not ended.done():  # the test's own limit makes a hang a failure
                writer.write(b"x")
                await asyncio.sleep(0.02)
            assert await ended
            assert len(door.server.limiter) == 0
            writer.close()

    run(go())


def test_a_connection_on_which_a_request_is_served_is_not_idle() -> None:
    async def go() -> None:
        async with serving() as door:
            door.server.limiter.idle_seconds = 0.2
            begun = await door.ask("POST", "/runs", body=START)
            url = f"{door.server.url}/api/v1/runs/{begun.json['run']}/wait?seconds=1"
            async with door.session.get(url) as response:
                assert (await response.json())["settled"] is False

    run(go())


def test_a_request_whose_entry_in_the_audit_trail_takes_long_is_answered() -> None:
    async def go() -> None:
        async with serving() as door:
            door.server.limiter.idle_seconds = 0.05
            audit_log = door.server.keeper.audit_log
            write = audit_log.write

            async def slowly(entry: AuditEntry) -> None:
                reader, writer = await connected(door.server)
                assert await hangs_up(reader)  # this one is idle, and came after the request
                writer.close()
                await write(entry)

            audit_log.write = slowly  # type: ignore[method-assign]
            assert (await door.ask("POST", "/runs", body=START)).status == 201

    run(go())


class Transport:
    aborted = False

    def abort(self) -> None:
        self.aborted = True

    def get_write_buffer_size(self) -> int:
        return 0


def test_time_in_which_the_server_itself_was_held_up_makes_no_connection_idle() -> None:
    async def go() -> None:
        limiter = ConnectionLimiter(idle_seconds=30.0)
        transport: Any = Transport()
        limiter.came(transport)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.skip(100.0)
        await asyncio.sleep(25.0)
        assert not transport.aborted
        await asyncio.sleep(7.0)
        assert transport.aborted
        limiter.close()

    run_virtually(go())


class Answering(Transport):
    left = 1000

    def get_write_buffer_size(self) -> int:
        return self.left


class AnsweringOverTls(Transport):
    """As asyncio has it: what is encrypted waits below, where nobody counts it above."""

    def __init__(self) -> None:
        self._below = Answering()
        self._ssl_protocol = SimpleNamespace(_transport=self._below)

    @property
    def left(self) -> int:
        return self._below.left

    @left.setter
    def left(self, size: int) -> None:
        self._below.left = size


@pytest.mark.parametrize("kind", [Answering, AnsweringOverTls])
def test_a_connection_whose_answer_nobody_reads_is_closed(
    kind: type[Answering] | type[AnsweringOverTls],
) -> None:
    async def go() -> None:
        limiter: Any = ConnectionLimiter(idle_seconds=30.0)
        slow, deaf = kind(), kind()
        for one in (slow, deaf):
            limiter.came(one)
            limiter.begin(one)
            limiter.end(one)
        for _ in range(12):
            await asyncio.sleep(20.0)
            slow.left -= 1
        assert (slow.aborted, deaf.aborted) == (False, True)
        await asyncio.sleep(70.0)
        assert slow.aborted, "ten times as long as others"
        limiter.close()

    run_virtually(go())


def test_who_does_not_read_answers_gets_no_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_answers, "UNREAD_MAX", 1024 * 1024)

    async def go() -> None:
        async with serving() as door:
            large = io.BytesIO(json.dumps({**START, "input": {"x": "y" * 8_000_000}}).encode())
            async with door.session.post(
                f"{door.server.url}/api/v1/runs",
                data=large,
                headers={"Content-Type": "application/json"},
            ) as begun:
                path = f"/api/v1/runs/{(await begun.json())['run']}"
            writers = []
            while (found := await door.ask("GET", "/runs")).status == 200:
                _, writer = await connected(door.server)
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
                writers.append(writer)
                assert len(writers) < 20
                await asyncio.sleep(0.05)
            assert (found.status, found.json["code"]) == (429, "unread_answers")
            assert "Retry-After" in found.headers
            for writer in writers:
                writer.transport.abort()
            while (await door.ask("GET", "/runs")).status != 200:
                await asyncio.sleep(0.02)

    run(go())


def test_when_every_connection_is_busy_the_next_one_is_turned_away() -> None:
    async def go() -> None:
        limiter = ConnectionLimiter(most=2)
        idle, busy, late, last = (Transport() for _ in range(4))
        door: Any = limiter
        assert door.came(busy)
        assert door.came(idle)
        door.begin(busy)
        assert door.came(late)
        assert idle.aborted
        door.begin(late)
        assert not door.came(last)
        assert last.aborted
        assert len(limiter) == 2
        door.end(late)
        assert door.came(Transport())
        limiter.close()

    run(go())


async def _raw(door: Door, sent: bytes) -> tuple[int, dict[str, Any]]:
    reader, writer = await connected(door.server)
    writer.write(sent)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    body = await reader.readexactly(length)
    writer.close()
    return int(head.split()[1]), json.loads(body)


def test_a_body_that_comes_too_slowly_is_given_up() -> None:
    async def go() -> None:
        async with serving(limits=Limits(body_seconds=0.2)) as door:
            sent = (
                b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
            )
            status, problem = await _raw(door, sent)
            assert (status, problem["code"]) == (408, "slow_body")
            assert (await door.ask("GET", "/runs")).json["items"] == []

    run(go())


def test_a_body_that_is_too_large_is_refused_before_it_is_read() -> None:
    async def go() -> None:
        async with serving() as door:
            sent = (
                b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Type: application/json\r\nContent-Length: 99999999999\r\n\r\n"
            )
            status, problem = await _raw(door, sent)
            assert (status, problem["code"]) == (413, "too_large")

    run(go())


def test_a_request_without_a_right_token_is_answered_before_its_body_is_read() -> None:
    async def go() -> None:
        async with serving(require_tokens="yes") as door:
            sent = (
                b"POST /api/v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Type: application/json\r\nContent-Length: 15000000\r\n\r\n{"
            )
            status, problem = await _raw(door, sent)
            assert (status, problem["code"]) == (401, "token_missing")

    run(go())


def test_a_server_whose_engine_has_stopped_says_so_and_knows_why(monkeypatch: Any) -> None:
    async def go() -> None:
        async with serving() as door:

            def full(_batch: Any) -> None:
                raise StoreError("the disk is full")

            monkeypatch.setattr(door.server.parts.store, "commit", full)
            reply = await door.ask("POST", "/runs", body=START)
            assert (reply.status, reply.code) == (503, "engine_stopped")
            reason = await door.server.broken()
            assert "the disk is full" in reason.message

    run(go())

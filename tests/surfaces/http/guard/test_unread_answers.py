"""What callers have not read of their answers: counted where it waits, and bounded."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.surfaces.http import openapi
from anabranch.surfaces.http.guard import unread_answers
from anabranch.surfaces.http.guard.connection_limits import unsent
from anabranch.surfaces.http.guard.unread_answers import PIECE, STRANGERS
from anabranch.surfaces.http.io.ended_runs import EndedRuns
from anabranch.surfaces.http.io.readers import THREADS
from anabranch.surfaces.http.node.server import NodeServer
from anabranch.surfaces.http.serve import Server
from anabranch.surfaces.ui import rendering
from hangs import HANG_SECONDS

from ..access import START, serving
from ..support import run

CERTIFICATES = Path(__file__).parents[2] / "cli" / "commands" / "tls"
WRITTEN = 16_000_000  # the kernel takes some of it


def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server, and of a client that does not ask who it is."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(CERTIFICATES / "localhost.pem", CERTIFICATES / "localhost.key")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    return server, client


async def connected(
    port: int, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection of which the kernel keeps as little as it can."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
    return await asyncio.open_connection(
        sock=client, ssl=tls, server_hostname="localhost" if tls else None
    )


async def end(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(ConnectionError, ssl.SSLError):
        await writer.wait_closed()


class Writing(asyncio.Protocol):
    """Writes much at once, and waits for nobody."""

    def __init__(self, made: asyncio.Future[asyncio.Transport]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"x" * WRITTEN)
        self._made.set_result(transport)


@pytest.mark.parametrize("tls", [False, True])
def test_what_a_client_has_not_read_is_counted_wherever_it_waits(tls: bool) -> None:
    async def go() -> None:
        loop = asyncio.get_running_loop()
        made: asyncio.Future[asyncio.Transport] = loop.create_future()
        shown, asked = contexts() if tls else (None, None)
        listening = await loop.create_server(lambda: Writing(made), "127.0.0.1", 0, ssl=shown)
        reader, writer = await connected(listening.sockets[0].getsockname()[1], asked)
        transport = await made
        await asyncio.sleep(0.1)  # what the kernel takes it has taken
        before = unsent(transport)
        assert before > WRITTEN // 4
        await reader.readexactly(WRITTEN // 4)
        assert 0 < unsent(transport) < before
        await reader.readexactly(WRITTEN - WRITTEN // 4)
        while unsent(transport):
            await asyncio.sleep(0.01)
        transport.abort()
        await end(writer)
        listening.close()
        await listening.wait_closed()

    run(go())


SIZE, MOST, MANY = 4_000_000, 6_000_000, 40  # the kernel takes more than two million


async def silent(
    server: Server, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that reads nothing."""
    reader, writer = await connected(int(server.url.rpartition(":")[2]), tls)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    return reader, writer


def asking(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def transports(server: Server) -> list[Any]:
    limiter: Any = server.limiter
    return [*limiter._since, *limiter._busy]


async def status_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    writer.transport.resume_reading()  # type: ignore[attr-defined]
    return int((await reader.readline()).split()[1])


@pytest.mark.parametrize("tls", [False, True])
def test_of_large_answers_asked_for_at_once_few_are_kept(
    tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And few are built of the others. What is kept is given back when its connection ends."""
    monkeypatch.setattr(unread_answers, "UNREAD_MAX", MOST)
    built: list[int] = []
    show, (_, client) = EndedRuns.show, contexts()

    def counted(self: EndedRuns, *args: Any) -> bytes:
        document = show(self, *args)
        built.append(len(document))
        return document

    monkeypatch.setattr(EndedRuns, "show", counted)
    files = {"tls_cert": "localhost.pem", "tls_key": "localhost.key"} if tls else {}

    async def go() -> None:
        settings: dict[str, Any] = {name: str(CERTIFICATES / file) for name, file in files.items()}
        async with serving(**settings) as door:
            server, verbs = door.server, door.server.parts.verbs
            given = {"x": "y" * SIZE}
            begun = await verbs.start(START["definition"], given, allow_extra_input=True)
            path, secured = f"/api/v1/runs/{begun}", client if tls else None
            many = [await silent(server, secured) for _ in range(MANY)]
            for _, writer in many:
                writer.write(asking(path))
            statuses = await asyncio.gather(*[status_of(*one) for one in many])
            assert sorted(statuses) == [200, 200] + [429] * (MANY - 2)
            assert len(built) <= 2 + THREADS
            assert 2 * SIZE < server.limiter.unread.of("") < 3 * SIZE
            assert all(unsent(one) <= 4 * PIECE for one in transports(server))
            reader, writer = many[statuses.index(200)]
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            assert json.loads(await reader.readexactly(length))["input"] == given
            writer.write(asking("/api/v1/health"))
            assert await status_of(reader, writer) in (200, 503)  # the connection is good for more
            for _, writer in many:
                await end(writer)
            while server.limiter.unread.of(""):
                await asyncio.sleep(0.01)

    run(go())


@pytest.mark.parametrize("pages", [False, True])
def test_a_document_that_all_strangers_are_given_is_there_once(
    pages: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same of the files of the pages."""
    monkeypatch.setattr(rendering, "_static", lambda: {"page.js": b" " * SIZE})
    monkeypatch.setattr(rendering, "_version", lambda: "v1")
    path = "/static/v1/page.js" if pages else "/api/v1/openapi.json"

    async def go() -> None:
        async with serving(pages=pages, require_tokens="yes") as door:
            server: Any = door.server
            server._runner.app[openapi.DESCRIBED]._written = b" " * SIZE
            many = [await silent(server) for _ in range(MANY)]
            for _, writer in many:
                writer.write(asking(path))
            while sum(unsent(one) > 0 for one in transports(server)) < MANY:
                await asyncio.sleep(0.01)
            assert all(unsent(one) <= 4 * PIECE for one in transports(server))
            assert server.limiter.unread.of(STRANGERS) == 0
            for _, writer in many:
                await end(writer)

    run(go())


def test_of_answers_of_a_node_that_strangers_do_not_read_few_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And whoever reads is answered. Pages of a directory on five hundred connections were a
    gigabyte."""
    monkeypatch.setattr(unread_answers, "UNREAD_MAX", MOST)
    folder = NodeFolder(tmp_path / "n")
    folder.create(NodeFile(name="n"))
    KeyFolder.create(folder.keys)
    asked = 0

    async def large(_call: Call) -> Answer:
        nonlocal asked
        asked += 1
        return Answer(body="y" * SIZE)

    async def go() -> None:
        async with asyncio.timeout(HANG_SECONDS), NodeServer(folder) as node:
            port, limiter = int(node.url.rpartition(":")[2]), node._listening.limiter
            node.node.api.add(
                Endpoint(method="GET", path="/large", scopes=("open",), handler=large, summary="")
            )
            many = [await connected(port) for _ in range(MANY)]
            for _, writer in many:
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(asking("/large"))
            while asked < MANY:
                await asyncio.sleep(0.01)
            assert 0 < limiter.unread.of(STRANGERS) <= MOST + SIZE
            waiting = [unsent(one) for one in (*limiter._since, *limiter._busy)]
            assert sum(waiting) <= 4 * PIECE * (1 + MOST // SIZE + 1)
            reader, writer = await connected(port)
            writer.write(asking("/large"))
            assert await status_of(reader, writer) == 200
            await reader.readuntil(b"\r\n\r\n")
            assert len(await reader.readexactly(SIZE + 2)) == SIZE + 2
            for _, each in (*many, (reader, writer)):
                await end(each)

    run(go())

"""What callers have not read of their answers: counted where it waits, and bounded."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from pathlib import Path

import pytest

from anabranch.surfaces.http.guard.connection_limits import unsent

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

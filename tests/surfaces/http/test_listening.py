"""Every listener of the product has the same guards: nobody takes its files or fills its log."""

from __future__ import annotations

import ast
import asyncio
import gzip
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

import anabranch
from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import KeyFolder
from anabranch.modules.kit.module import Module
from anabranch.surfaces.http.guard import descriptors
from anabranch.surfaces.http.module.server import ModuleServer
from anabranch.surfaces.http.node.server import NodeServer
from hangs import HANG_SECONDS
from in_loop import in_loop

FILES = 64  # of which 40 are kept for what is no connection
CROWD = 100
HALF_A_HEAD = b"POST /peer/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nX-More: "
HALF_A_BODY = (
    b"POST /peer/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 8000000\r\n\r\n" + b" " * 1000
)


class Silent(Module):
    module_id = "silent"


@asynccontextmanager
async def node_in(path: Path) -> AsyncIterator[str]:
    folder = NodeFolder(path / "n")
    folder.create(NodeFile(name="n"))
    KeyFolder.create(folder.keys, ("node", "participant"))
    async with NodeServer(folder) as server:
        yield server.url


@asynccontextmanager
async def module_in(_path: Path) -> AsyncIterator[str]:
    async with ModuleServer(Silent(), ("127.0.0.1", 0)) as server:
        yield server.url


Listener = Callable[[Path], AbstractAsyncContextManager[str]]
LISTENERS = pytest.mark.parametrize("listener", [node_in, module_in])


async def connected(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    where = urlsplit(url)
    return await asyncio.open_connection(where.hostname, where.port)


async def hangs_up(reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        await reader.read()


@LISTENERS
@pytest.mark.parametrize("sent", [b"", HALF_A_HEAD, HALF_A_BODY], ids=["nothing", "head", "body"])
def test_who_only_sits_there_takes_no_file_of_a_listener(
    listener: Listener, sent: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(descriptors, "files_max", lambda: FILES)

    @in_loop
    async def scenario() -> None:
        async with asyncio.timeout(HANG_SECONDS), listener(tmp_path) as url:
            crowd = [await connected(url) for _ in range(CROWD)]
            for _, writer in crowd:
                writer.write(sent)
            gone = [asyncio.ensure_future(hangs_up(reader)) for reader, _ in crowd]
            async with aiohttp.ClientSession() as session:
                for _ in range(5):
                    async with session.get(f"{url}/healthz") as answer:
                        assert answer.status == 200
            while sum(one.done() for one in gone) < CROWD - FILES:
                await asyncio.wait(
                    [one for one in gone if not one.done()], return_when=asyncio.FIRST_COMPLETED
                )
            for one in gone:
                one.cancel()
            for _, writer in crowd:
                writer.close()

    scenario()


@LISTENERS
def test_what_is_no_http_leaves_no_traceback(
    listener: Listener, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    @in_loop
    async def scenario() -> None:
        async with asyncio.timeout(HANG_SECONDS), listener(tmp_path) as url:
            for sent in (b"\x16\x03\x01 secret\r\n\r\n", b"GET / HTTP/9.9 secret\r\n\r\n"):
                reader, writer = await connected(url)
                writer.write(sent)
                said = await reader.read()
                writer.close()
                assert b"400" in said.splitlines()[0]
                assert b"aiohttp" not in said.lower()
                assert b"secret" not in said

    scenario()
    assert "Traceback" not in caplog.text


@LISTENERS
def test_a_packed_body_is_not_unpacked(listener: Listener, tmp_path: Path) -> None:
    @in_loop
    async def scenario() -> None:
        packed = gzip.compress(b" " * 10_000_000)
        async with (
            asyncio.timeout(HANG_SECONDS),
            listener(tmp_path) as url,
            aiohttp.ClientSession() as session,
            session.post(
                f"{url}/peer/messages", data=packed, headers={"Content-Encoding": "gzip"}
            ) as answer,
        ):
            assert answer.status == 415

    scenario()


#: Where sockets may be made to listen: with all guards, while a server opens, in the demo.
LISTEN = {
    "surfaces/http/listening.py",
    "surfaces/http/opening.py",
    "surfaces/cli/demo/providers.py",
}
WAYS = {"AppRunner", "ServerRunner", "SockSite", "TCPSite", "UnixSite", "create_server"} | {
    "start_server",
    "run_app",
}


def test_nothing_listens_in_another_way() -> None:
    root = Path(anabranch.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        called = [
            node.func.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ]
        if WAYS & set(called):
            found.add(str(path.relative_to(root)))
    assert found == LISTEN

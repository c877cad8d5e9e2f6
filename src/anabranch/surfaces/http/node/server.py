"""One process that is a node: its folder, its socket on loopback, its store, its parts.

    start   bind → open the store → read what is open → listen → open the parts
    stop    listen no more → let requests end → stop modules and parts → close the store

The address is bound before the store is touched: a node that cannot listen changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Self

from anabranch.clock import SystemClock
from anabranch.errors import InputError, StoreInUse
from anabranch.market.node.folder import NodeFile, NodeFolder
from anabranch.market.node.keys import load_signer
from anabranch.market.node.node import MakePart, Node
from anabranch.market.node.parts import standard_parts
from anabranch.market.node.peers.http_transport import HttpPeerTransport
from anabranch.market.node.peers.settings import peer_settings
from anabranch.market.node.ports import NodeConfig
from anabranch.store.sqlite.store import SqliteStore
from anabranch.surfaces.http.listening import Listening
from anabranch.surfaces.http.node.application import node_application
from anabranch.surfaces.http.sockets import bind
from anabranch.surfaces.http.table import LINE_BYTES
from anabranch.surfaces.ui import node as pages
from anabranch.work.network.addresses import AddressPolicy, read_policy
from anabranch.work.network.loopback import is_loopback

END_SECONDS = 3.0  # how long requests in hand may still take when the node stops


class NodeServer:
    """`async with NodeServer(folder) as server:` — it listens at `server.url` until the end."""

    def __init__(
        self,
        folder: NodeFolder,
        makers: Sequence[MakePart] | None = None,
        *,
        open_store: Callable[[Path], SqliteStore] = SqliteStore,
    ) -> None:
        self.folder = folder
        self._makers = makers
        self._open_store = open_store
        self._sockets: list[socket.socket] = []
        self._store: SqliteStore | None = None
        self._listening = Listening()
        self._transport: HttpPeerTransport | None = None
        self._opened = False
        self.node: Node

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    @property
    def url(self) -> str:
        host, port = self._sockets[0].getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def start(self) -> None:
        file = self.folder.read()
        signer = load_signer(self.folder.keys)
        try:
            self._sockets = bind(*_address(file))
        except InputError:
            _require_unserved(self.folder)  # which is why its port is taken, or is not
            raise
        config = self.folder.config(file, self.url)
        self._store = self._open_store(self.folder.store)
        try:
            self._store.acquire("anabranch node")
        except StoreInUse:
            raise in_use(self.folder, self._store.owner()) from None
        self._transport = HttpPeerTransport(_policy(config))
        self.node = Node(
            self._store,
            SystemClock(),
            signer,
            config,
            self._transport,
            self._makers if self._makers is not None else standard_parts(),
        )
        self.node.load()  # a peer may ask as soon as it listens
        await self._listen()
        await self.node.open()
        self._opened = True
        self.folder.url.write_text(self.url + "\n")

    async def _listen(self) -> None:
        """Before the parts are opened: modules that they start call back."""
        app = node_application(self.node, self.node.context.tokens, (pages.mount,))
        await self._listening.begin(
            app, self._sockets, end_seconds=END_SECONDS, max_line_size=LINE_BYTES
        )

    async def stop(self) -> None:
        """In order, also when it never came to listen, and to the end, also where a step fails."""
        async with AsyncExitStack() as left:  # the last one first
            for one in self._sockets:
                left.callback(one.close)
            if self._store is not None:
                left.callback(self._store.close)
                left.callback(self._store.release)
            if self._transport is not None:
                left.push_async_callback(self._transport.close)
            if hasattr(self, "node"):
                left.push_async_callback(self.node.close)
            left.push_async_callback(self._listening.end)
            if self._opened:
                left.callback(self._forget_url)

    def _forget_url(self) -> None:
        with suppress(OSError):
            self.folder.url.unlink()

    async def broken(self) -> BaseException:
        """Returns when the node could not write its state, with the reason."""
        while self.node.entities.failure is None:
            await asyncio.sleep(0.2)
        return self.node.entities.failure


def in_use(folder: NodeFolder, owner: str | None) -> StoreInUse:
    return StoreInUse(
        f"the node in {folder.path} is in use by {owner or 'another process'}: ask that one, or "
        "stop it first"
    )


def _require_unserved(folder: NodeFolder) -> None:
    if not folder.store.exists():
        return
    store = SqliteStore(folder.store)
    try:
        owner = store.owner()
    finally:
        store.close()
    if owner is not None:
        raise in_use(folder, owner)


def _policy(config: NodeConfig) -> AddressPolicy:
    return read_policy(peer_settings(config.raw).addresses, "peers.addresses")


def _address(file: NodeFile) -> tuple[str, int]:
    try:
        local = file.host == "localhost" or is_loopback(file.host)
    except ValueError:  # a name could lead anywhere
        local = False
    if not local:
        raise InputError(
            f"a node listens on this machine alone, and {file.host[:100]!r} is no address of it "
            "that only it reaches: set `host` in node.json to 127.0.0.1",
            code="address",
        )
    return file.host, file.port

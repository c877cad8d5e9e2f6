"""A module at its endpoint: a socket on loopback, and the order in which it starts and stops.

    start   bind → start the module → listen
    stop    listen no more → let requests end → close the module

Where the host shows a token, every path but the two that say how the module is needs it. Where it
shows none, every program on this machine is answered, but no page in a browser: what a site of
others may post there would look like any other call.
"""

from __future__ import annotations

import hmac
import logging
import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Self

from aiohttp import web

from anabranch.errors import InputError
from anabranch.market.node.api import BODY_BYTES, OPEN, Caller
from anabranch.market.node.errors import NodeError
from anabranch.modules.kit.environment import ModuleEnvironment
from anabranch.modules.kit.module import Module
from anabranch.surfaces.http.guard.connection_limits import until_answered
from anabranch.surfaces.http.listening import Listening
from anabranch.surfaces.http.sockets import bind
from anabranch.surfaces.http.table import LINE_BYTES, add_table
from anabranch.work.network.loopback import is_loopback

logger = logging.getLogger("anabranch.module")

OPEN_PATHS = ("/healthz", "/readyz")
END_SECONDS = 3.0  # how long requests in hand may still take when the module stops
HOST = Caller("operator", actor="host")


class HostToken:
    """Who calls a module: its host, or nobody that it answers."""

    def __init__(self, header: str = "", token: str = "") -> None:
        if header and not token:
            raise InputError(f"the token of {header} is empty", code="no_token")
        if token and not header:
            said = "there is a token, and no header is named in which it is shown"
            raise InputError(said, code="no_token")
        self._header = header.lower()
        self._token = token.encode()

    def caller(self, path: str, headers: Mapping[str, str]) -> Caller:
        if not self._header:
            _require_no_page(path, headers)
            return HOST
        shown = headers.get(self._header, "").encode("utf-8", "surrogatepass")
        if hmac.compare_digest(shown, self._token):
            return HOST
        if path in OPEN_PATHS:
            return OPEN
        raise NodeError(401, "unauthorized", "the token of the host is needed for this")


def _require_no_page(path: str, headers: Mapping[str, str]) -> None:
    """Browsers say where a call is from, and no page can keep them from it."""
    if path not in OPEN_PATHS and ("origin" in headers or "sec-fetch-site" in headers):
        raise NodeError(403, "origin", "this module is for programs, not for pages in a browser")


class ModuleServer:
    """`async with ModuleServer(module, ("127.0.0.1", 47981)):` — it listens until the end."""

    def __init__(
        self, module: Module, address: tuple[str, int], token: HostToken | None = None
    ) -> None:
        host, self._port = address
        if not is_loopback(host):
            raise InputError(f"a module listens on loopback alone, not on {host}", code="address")
        self._host = host
        self.module = module
        self._token = token or HostToken()
        self._sockets: list[socket.socket] = []
        self._listening = Listening()
        self._started = False

    @classmethod
    def of(cls, module: Module, found: ModuleEnvironment) -> ModuleServer:
        """At the endpoint that the host has set, for the host alone."""
        return cls(module, found.address, HostToken(found.auth_header, found.auth_token))

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
        self._sockets = bind(self._host, self._port)
        self._started = True
        await self.module.start()
        app = web.Application(client_max_size=BODY_BYTES + 1, middlewares=(until_answered,))
        add_table(app, self.module.api, self._token.caller, name="module", logger=logger)
        await self._listening.begin(
            app, self._sockets, end_seconds=END_SECONDS, max_line_size=LINE_BYTES
        )

    async def stop(self) -> None:
        """In order, also when it never came to listen, and to the end, also where a step fails."""
        async with AsyncExitStack() as left:  # the last one first
            for one in self._sockets:
                left.callback(one.close)
            if self._started:
                self._started = False
                left.push_async_callback(self.module.close)
            left.push_async_callback(self._listening.end)

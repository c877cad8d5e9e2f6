"""An application at its sockets, with the guards that every listener of the product has.

    connections   as many as there are files for; the one that is idle longest makes room
    bytes         what is no HTTP is answered in few words, and is at most one line of the log
    bodies        come as they are: nobody knows how large a packed one is before it is unpacked

Servers, nodes and modules listen with it; `add_table` and the guards of a server say which
connections are in use.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web

from anabranch.surfaces.http.guard import bad_http, descriptors
from anabranch.surfaces.http.guard.connection_limits import LIMITER, ConnectionLimiter
from anabranch.surfaces.http.sockets import told_if_in_use

BACKLOG = 1024
CONNECTIONS_MAX = 500  # of a node or a module at once


class Listening:
    """`begin` → `no_more` → `end`, which also come alone: whoever fails to start stops as well."""

    def __init__(self, most: int = CONNECTIONS_MAX, *, setting: str = "") -> None:
        self._files = descriptors.files_max()
        self.limiter = ConnectionLimiter(
            most=descriptors.connections_max(most, self._files, setting)
        )
        self._servers: list[asyncio.Server] = []
        self._runner: web.AppRunner | None = None
        self._no_more_errors: Callable[[], None] | None = None

    @property
    def backlog(self) -> int:
        return descriptors.accepted_at_once(self._files)

    async def begin(
        self,
        app: web.Application,
        sockets: Sequence[socket.socket],
        *,
        end_seconds: float,  # how long requests in hand may still take at the end
        how: dict[str, Any] | None = None,  # for `create_server`
        **more: Any,  # for the runner
    ) -> web.AppRunner:
        app[LIMITER] = self.limiter
        runner = self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=end_seconds,
            keepalive_timeout=self.limiter.idle_seconds,
            auto_decompress=False,
            **more,
        )
        await runner.setup()
        assert runner.server is not None
        factory = self.limiter.admit(bad_http.listening(runner.server))
        loop = asyncio.get_running_loop()
        self._no_more_errors = descriptors.AcceptErrors().install()
        for one in sockets:
            with told_if_in_use(one):
                self._servers.append(
                    await loop.create_server(factory, sock=one, backlog=self.backlog, **(how or {}))
                )
            one.listen(BACKLOG)  # more may wait than are accepted at once
        return runner

    def no_more(self) -> None:
        """No connection is taken from now on."""
        for one in self._servers:
            one.close()
        self._servers.clear()

    async def end(self) -> None:
        """Requests in hand end first."""
        self.no_more()
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()
        self.limiter.close()
        if self._no_more_errors is not None:
            self._no_more_errors()
            self._no_more_errors = None

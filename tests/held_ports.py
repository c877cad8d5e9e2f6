"""Ports for programs that a test starts later, or again at the same address.

A port that is chosen and let go may be another program's before it is used. One that is held goes
to no program that asks for any port or connects to a server, and to each server that asks for this
one: on Linux, for sockets that reuse addresses, as long as the holder does not listen.
"""

from __future__ import annotations

import socket


class HeldPorts:
    """So many of them, until `close`."""

    def __init__(self, count: int, host: str = "127.0.0.1") -> None:
        self._sockets = [socket.socket() for _ in range(count)]
        for one in self._sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((host, 0))
        self.numbers = [int(one.getsockname()[1]) for one in self._sockets]

    def close(self) -> None:
        for one in self._sockets:
            one.close()

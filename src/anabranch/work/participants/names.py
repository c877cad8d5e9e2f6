"""Names to addresses, within a time limit and without a hold on the end of the program.

A look-up blocks a thread and cannot be stopped. So it is done in daemon threads of our own, and one
that hangs keeps nobody from leaving.
"""

from __future__ import annotations

import asyncio
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from anabranch.work.kinds.threads import Threads

LOOK_UPS = 32  # at once


class Names(AbstractResolver):
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._threads = Threads(LOOK_UPS, close_seconds=0.1)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        def look_up() -> list[ResolveResult]:
            found = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
            )
            return [
                ResolveResult(
                    hostname=host,
                    host=str(address[0]),
                    port=int(address[1]),
                    family=kind,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
                for kind, _, protocol, _, address in found
            ]

        try:
            async with asyncio.timeout(self._seconds):
                return await self._threads.run(look_up)
        except TimeoutError:
            raise OSError(None, f"no address of {host} within {self._seconds:g} s") from None
        except UnicodeError:  # a name that no address can have
            raise OSError(None, f"{host[:80]!r} is no name of a host") from None

    async def close(self) -> None:
        await self._threads.close()

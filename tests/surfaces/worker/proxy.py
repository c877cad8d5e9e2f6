"""A bad network: a proxy that cuts connections, before or after the server has answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from urllib.parse import urlsplit


class Proxy:
    """Passes bytes on; with `share` of the connections something goes wrong."""

    def __init__(self, target: str, seed: int, share: float) -> None:
        self._writers: set[asyncio.StreamWriter] = set()
        self.cuts = 0
        self.url = ""
        self.leads_to(target)
        self._dice, self._share = Random(seed), share

    def leads_to(self, target: str) -> None:
        """From now on; whoever was connected is cut off."""
        place = urlsplit(target)
        self._host, self._port = place.hostname, place.port
        self.cut_all()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there, out = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        self._writers.add(out)
        asked = asyncio.ensure_future(self._pass_on(reader, out, answers=False))
        answered = asyncio.ensure_future(self._pass_on(there, writer, answers=True))
        with suppress(asyncio.CancelledError):
            await asyncio.wait((asked, answered), return_when=asyncio.FIRST_COMPLETED)
        for task in (asked, answered):
            task.cancel()
        await asyncio.gather(asked, answered, return_exceptions=True)
        for end in (writer, out):
            self._writers.discard(end)
            end.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        """A piece is lost with its connection: a question, or an answer to what was done."""
        while piece := await reader.read(65536):
            if self._dice.random() < self._share * (1.0 if answers else 0.3):
                self.cuts += 1
                return
            writer.write(piece)
            await writer.drain()

    def cut_all(self) -> None:
        for writer in list(self._writers):
            self.cuts += 1
            writer.transport.abort()


@asynccontextmanager
async def bad_network(target: str, *, seed: int = 1, share: float = 0.2) -> AsyncIterator[Proxy]:
    proxy = Proxy(target, seed, share)
    listening = await asyncio.start_server(proxy, "127.0.0.1", 0)
    proxy.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listening.close()
        proxy.cut_all()
        await listening.wait_closed()
        for _ in range(3):
            await asyncio.sleep(0)

"""A server in a thread of this process, for commands that are run in this process too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anabranch.settings import Settings
from anabranch.surfaces.http.serve import Server
from hangs import HANG_SECONDS


@contextmanager
def served(store: Path | str, **settings: Any) -> Iterator[Server]:
    """Listens at `server.url` until the block ends."""
    made = Server(Settings(**{"store": str(store), "serve_port": 0, **settings}), grace_seconds=0)
    listening, failed = threading.Event(), list[BaseException]()
    end: list[Any] = []

    async def whole() -> None:
        stop = asyncio.Event()
        end.extend([asyncio.get_running_loop(), stop])
        async with made:
            listening.set()
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(whole())
        except BaseException as error:  # told to whoever waits
            failed.append(error)
            listening.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert listening.wait(HANG_SECONDS)
    try:
        if failed:
            raise failed[0]
        yield made
    finally:
        if end and not failed:
            end[0].call_soon_threadsafe(end[1].set)
        thread.join(HANG_SECONDS)
        assert not thread.is_alive()

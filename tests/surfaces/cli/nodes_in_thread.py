"""Nodes in a thread of this process, for commands that are run in this process too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

from anabranch.market.node.folder import NodeFolder
from anabranch.surfaces.http.node.server import NodeServer
from hangs import HANG_SECONDS


@contextmanager
def served_nodes(*folders: NodeFolder) -> Iterator[list[NodeServer]]:
    """They listen, one after the other, until the block ends."""
    made = [NodeServer(folder) for folder in folders]
    listening, failed = threading.Event(), list[BaseException]()
    end: list[Any] = []

    async def whole() -> None:
        stop = asyncio.Event()
        end.extend([asyncio.get_running_loop(), stop])
        async with AsyncExitStack() as stack:
            for server in made:
                await stack.enter_async_context(server)
            listening.set()
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(whole())
        except BaseException as error:  # told to the test that waits
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
        if not failed:
            end[0].call_soon_threadsafe(end[1].set)
        thread.join(HANG_SECONDS)
    if failed:
        raise failed[0]

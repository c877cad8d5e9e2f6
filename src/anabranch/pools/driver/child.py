"""What every driver is: a process that reads requests from its standard input and writes replies.

Frames go to what was its standard output; what libraries print goes to the standard error, which
the engine reads and does not show. When the engine is gone the process ends at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, NoReturn

from anabranch.pools.driver.wire import (
    LENGTH_BYTES,
    Connect,
    Reply,
    Request,
    framed,
    length_of,
    request_of,
)

CLOSE_SECONDS = 15.0


class Engine:
    """The engine, as its driver sees it."""

    def __init__(self) -> None:
        self._output: BinaryIO = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
        self._read = _reader(sys.stdin.buffer)

    def first(self) -> Connect:
        request = self._read()
        assert isinstance(request, Connect)
        return request

    def requests(self) -> asyncio.Queue[Request]:
        """Those that follow, in the loop that runs."""
        requests: asyncio.Queue[Request] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def hand_in() -> None:
            while True:
                loop.call_soon_threadsafe(requests.put_nowait, self._read())

        threading.Thread(target=hand_in, daemon=True).start()
        return requests

    def reply(self, message: Reply) -> None:
        """An engine that does not read makes this process wait: there is nothing else to do."""
        self._output.write(framed(message))
        self._output.flush()

    def say_last(self, message: Reply) -> NoReturn:
        """The way out of a library may wait for a cluster that is not there any more."""
        self.reply(message)
        os._exit(1)


def end_later() -> None:
    """End whatever still goes on then."""

    def end() -> None:
        time.sleep(CLOSE_SECONDS)
        os._exit(0)

    threading.Thread(target=end, daemon=True).start()


def _reader(source: BinaryIO) -> Callable[[], Request]:
    def read() -> Request:
        head = source.read(LENGTH_BYTES)
        body = source.read(length_of(head)) if len(head) == LENGTH_BYTES else b""
        if not body:
            os._exit(0)  # the engine is gone
        return request_of(body)

    return read


def _end_with_parent(parent: int) -> None:
    """The pipe stays open where a process that the engine forked has it as well."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)

"""How much a server may send while a driver waits for one thing.

A driver that reads by itself keeps an answer as a whole before anybody can count it. So while it
waits, the system is asked how much has come at its socket, and who sent too much is given up,
whatever it was. Linux counts for TCP; elsewhere, and at the sockets of this machine, nobody does.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

COUNTS = sys.platform == "linux"
_COUNT_AT = 128  # of a `tcp_info`, where it has the bytes that have come
_COUNT = struct.Struct("=Q")


def bound_steps(
    steps: Any, descriptor: int, most: int, give_up: Callable[[], None]
) -> Generator[Any, Any, Any]:
    """The same steps of a driver, as long as no more than so many bytes come at this socket
    meanwhile; then `give_up`, which raises."""
    with closing(socket.socket(fileno=os.dup(descriptor))) as counted, closing(steps):
        before = count_received(counted)
        try:
            state = next(steps)
            while True:
                ready = yield state
                if count_received(counted) - before > most:
                    give_up()
                state = steps.send(ready)
        except StopIteration as end:
            return end.value


def count_received(counted: socket.socket) -> int:
    """How many bytes have come at it so far; 0 where the system does not count them."""
    if not COUNTS or counted.family not in (socket.AF_INET, socket.AF_INET6):
        return 0
    size = _COUNT_AT + _COUNT.size
    about = counted.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
    return int(_COUNT.unpack_from(about, _COUNT_AT)[0]) if len(about) == size else 0

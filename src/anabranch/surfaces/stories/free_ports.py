"""Ports on loopback that are free now, outside the range from which the system takes its own."""

from __future__ import annotations

import random
import socket

from anabranch.errors import InputError

_RANGE = range(12_000, 32_000)
_TRIES = 1_000


def free_ports(count: int) -> list[int]:
    """Each stays free for as long as no other program takes it."""
    found: list[int] = []
    for port in random.sample(_RANGE, _TRIES):
        if len(found) == count:
            break
        if is_free(port):
            found.append(port)
    if len(found) < count:
        raise InputError("there are too few free ports on 127.0.0.1", code="no_ports")
    return found


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

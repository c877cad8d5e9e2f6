"""Ports for servers that have to know theirs before they listen, or keep it over a restart.

A port that the system chose is only free until the system chooses it again, for a connection of any
other process, and whoever asks a server there too early can be connected to itself. So these lie
outside the range of the system, and each is chosen once among all processes of tests on a machine:
a lock on its byte of a file says so until the process ends.
"""

from __future__ import annotations

import fcntl
import os
import random
from pathlib import Path

from anabranch.surfaces.stories.free_ports import is_free

_RANGE = range(20_000, 32_000)  # Ray takes its own below, and Linux from 32768 on
_claims: list[int] = []  # the file, once it is open: closing it would lose the locks


def free_ports(count: int) -> list[int]:
    """On loopback; nobody else who asks here is given one of them until this process ends."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_RANGE, len(_RANGE)):
        if len(found) == count:
            return found
        if _claim(port) and is_free(port):
            found.append(port)
    raise AssertionError("there are too few free ports on 127.0.0.1")


def free_port() -> int:
    return free_ports(1)[0]


def _claim(port: int) -> bool:
    if not _claims:
        file = Path("/tmp") / f"anabranch-test-ports-{os.getuid()}"
        _claims.append(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        fcntl.lockf(_claims[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True

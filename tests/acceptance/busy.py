"""Neighbours that only compute, so that whatever runs beside them has little of the machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

NEIGHBOURS = 6
LIFE_SECONDS = 3600  # one whose starter was killed ends by itself
COMPUTE = f"""
import os, time
end = time.monotonic() + {LIFE_SECONDS}
parent = os.getppid()
while time.monotonic() < end and os.getppid() == parent:
    for _ in range(100_000): pass
"""


@contextmanager
def busy_neighbours(count: int = NEIGHBOURS) -> Iterator[list[subprocess.Popen[bytes]]]:
    neighbours: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            neighbours.append(subprocess.Popen([sys.executable, "-c", COMPUTE]))
        yield neighbours
    finally:
        for neighbour in neighbours:
            neighbour.kill()
        for neighbour in neighbours:
            neighbour.wait()

"""Where the tests of a run write: in memory where there is room, since nothing of it is kept.

What tests prove of kills holds there as on a disk: a killed process loses nothing that it has
written. Only a power failure makes a difference, and no test has one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30  # a whole run has less than one of it at a time


def make() -> Path:
    """A folder for one run; whatever asks for a temporary file gets it there, too."""
    folder = Path(tempfile.mkdtemp(prefix="abt-", dir=_place()))  # short: sockets are in it
    folder.chmod(0o755)  # a database runs as another user
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder


def _place() -> Path | None:
    try:
        has_room = shutil.disk_usage(IN_MEMORY).free > ROOM_BYTES < _free_memory() // 2
    except OSError:
        return None
    return IN_MEMORY if has_room and os.access(IN_MEMORY, os.W_OK) else None


def _free_memory() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return int(kilobytes) * 1024

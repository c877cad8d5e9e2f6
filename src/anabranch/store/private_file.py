"""Files that only their owner may read: a store holds inputs, results, secrets and token hashes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

PRIVATE = 0o600
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def create_private(path: Path) -> None:
    """Create an empty file that only its owner may read, whatever the umask; leave one that is
    there. SQLite gives the files that it makes beside a database the mode of that database."""
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, PRIVATE)
    except OSError:
        return  # it is there, or whoever opens it next says why it cannot be
    try:
        os.fchmod(descriptor, PRIVATE)
    finally:
        os.close(descriptor)


def mode_beside(path: Path) -> int:
    """The mode for a file that belongs to this one: never wider, as SQLite does it."""
    try:
        return stat.S_IMODE(path.stat().st_mode) & 0o666 or PRIVATE
    except OSError:
        return PRIVATE


def exposure(path: Path) -> str:
    """What to say about a file that others than its owner may read or write, or nothing.

    It is said and not changed: an operator may have opened the file to a group on purpose.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return ""
    if not mode & _OTHERS:
        return ""
    return (
        f"{path} has the mode {mode:04o}: other users of this machine may get at its runs, secrets "
        f"and token hashes. `chmod 600 {path}*` closes it, if that is not meant"
    )

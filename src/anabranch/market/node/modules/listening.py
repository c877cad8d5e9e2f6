"""Which ports a module listens on, as the system knows (Linux; elsewhere nothing is known).

A module gets one loopback port. One that listens anywhere else, or on an address that other
machines reach, is refused; so is an endpoint that another process than the module has taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LISTEN = "0A"
_ENDED = "ZXx"
_PROC = Path("/proc")

Address = tuple[bool, int]  # whether it is a loopback address, and the port


def listening_sockets(group: int) -> set[Address] | None:
    """Where the processes of a group listen; None where the system does not say, or where none of
    them is alive any more."""
    sockets, processes = _sockets(), list(_processes(group))
    if sockets is None or not processes:
        return None
    try:
        return {
            sockets[inode]
            for process in processes
            for inode in _inodes(process)
            if inode in sockets
        }
    except PermissionError:
        return None


def port_problem(group: int, port: int) -> str:
    """What is wrong with where this module listens, or nothing."""
    found = listening_sockets(group)
    if found is None:
        return ""
    others = sorted({number for _, number in found if number != port})
    if others:
        return f"it listens on port {others[0]}, which is not its endpoint"
    if (False, port) in found:
        return f"it listens on port {port} beyond loopback"
    if not found:
        return f"another process listens on its port {port}"
    return ""


def _sockets() -> dict[str, Address] | None:
    """Listening TCP sockets of this machine by inode."""
    sockets: dict[str, Address] = {}
    read = False
    for table in ("net/tcp", "net/tcp6"):
        with suppress(OSError):
            lines = (_PROC / table).read_text("ascii").splitlines()[1:]
            read = True
            for fields in map(str.split, lines):
                if fields[3] == _LISTEN:
                    host, _, port = fields[1].partition(":")
                    sockets[fields[9]] = _is_loopback(host), int(port, 16)
    return sockets if read else None


def _is_loopback(host: str) -> bool:
    """`0100007F`: words of four bytes, each in the order of this machine."""
    data = b"".join(
        int(host[at : at + 8], 16).to_bytes(4, "little") for at in range(0, len(host), 8)
    )
    if len(data) == 16 and data[:12] == b"\0" * 10 + b"\xff\xff":
        data = data[12:]
    return data == b"\0" * 15 + b"\1" if len(data) == 16 else data[0] == 127


def _processes(group: int) -> Iterator[Path]:
    """Those of the group that have not ended."""
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError, IndexError):
                after_name = (entry / "stat").read_text("utf-8", "replace").rpartition(")")[2]
                state, _, found = after_name.split()[:3]
                if int(found) == group and state not in _ENDED:
                    yield entry


def _inodes(process: Path) -> Iterator[str]:
    with suppress(FileNotFoundError, ProcessLookupError):
        for descriptor in os.listdir(process / "fd"):
            with suppress(FileNotFoundError, ProcessLookupError):
                target = os.readlink(process / "fd" / descriptor)
                if target.startswith("socket:["):
                    yield target[8:-1]

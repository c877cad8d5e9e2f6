"""The processes that a child has started and that left its group: `setsid`, daemons.

Every child carries a mark in its environment, which all it starts inherit. A process belongs to the
child when it has the mark, stands below it in the tree of processes, or is in its session. So a
daemon is found as well, wherever it was moved to. It is not when it was given an environment
without the mark and has left both the tree and the session, nor when it runs as a user whose
environment may not be read. Linux only: elsewhere nothing is found.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

MARK = "ANABRANCH_PROCESS"


class SystemProcess(NamedTuple):
    pid: int
    parent: int
    session: int
    started: int  # in ticks since the machine was started

    @property
    def identity(self) -> tuple[int, int]:
        """Numbers are given again; with the start they are not."""
        return self.pid, self.started


class ProcessorUse(NamedTuple):
    seconds: float  # that it has computed
    sleeps: bool  # it wants no core just now


def now() -> int:
    """This instant as `started` counts, a little early: processes are dated in coarse ticks."""
    if not hasattr(time, "CLOCK_BOOTTIME"):
        return 0
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")) - 1


def processor_use(pid: int) -> ProcessorUse | None:
    """None where nobody can tell."""
    fields = _stat(pid)
    if not fields:
        return None
    ticks = int(fields[11]) + int(fields[12])
    return ProcessorUse(ticks / os.sysconf("SC_CLK_TCK"), fields[0] != b"R")


def descendants(leader: int, mark: str, since: int) -> list[SystemProcess]:
    """What belongs to the child `leader` and was started at `since` or later, without itself."""
    found = [each for each in _processes() if each.started >= since and each.pid != leader]
    below = _below(leader, found)
    wanted = f"{MARK}={mark}".encode()
    return [
        each
        for each in found
        if each.pid in below or each.session == leader or wanted in _environment(each.pid)
    ]


def send(number: int, processes: Iterable[SystemProcess]) -> None:
    for each in processes:
        with suppress(OSError, AttributeError):
            held = os.pidfd_open(each.pid)  # from here on the number stays with this process
            try:
                if (again := _read(each.pid)) is not None and again.identity == each.identity:
                    signal.pidfd_send_signal(held, number)
            finally:
                os.close(held)


def _below(leader: int, processes: list[SystemProcess]) -> set[int]:
    children: dict[int, list[int]] = {}
    for each in processes:
        children.setdefault(each.parent, []).append(each.pid)
    below: set[int] = set()
    open_ends = [leader]
    while open_ends:
        fresh = [pid for pid in children.get(open_ends.pop(), ()) if pid not in below]
        below.update(fresh)
        open_ends.extend(fresh)
    return below


def _processes() -> Iterator[SystemProcess]:
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if name.isdigit() and (found := _read(int(name))) is not None:
            yield found


def _read(pid: int) -> SystemProcess | None:
    """None for one that is gone, or only waits to be reaped."""
    fields = _stat(pid)
    if not fields or fields[0] in (b"Z", b"X"):
        return None
    return SystemProcess(pid, int(fields[1]), int(fields[3]), int(fields[19]))


def _stat(pid: int) -> list[bytes]:
    """What the system says of it, from its state on; nothing of one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def _environment(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []

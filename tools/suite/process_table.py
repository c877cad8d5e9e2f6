"""The processes of this machine as `/proc` shows them: whose they are, and what they have used."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")
PART = "ANABRANCH_TEST_PART"  # the variable by which the processes of a part are known
NAME = 15  # of prctl(2): a name, which forks inherit; the environment is that of a program's start
DEATH_SIGNAL = 1  # of prctl(2): what a process is sent when the one that forked it ends
NAMED = "abt part "


class Process(NamedTuple):
    pid: int
    parent: int
    began: int
    state: str
    seconds: float
    """Of the processor: its own, and those of its children that it has waited for."""

    @property
    def command(self) -> str:
        return _read(self.pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()

    @property
    def part(self) -> str:
        """The number of the part that it belongs to, if any."""
        name = _read(self.pid, "comm").decode(errors="replace").rstrip("\n")
        return name.removeprefix(NAMED) if name.startswith(NAMED) else self.inherited(PART)

    def inherited(self, variable: str) -> str:
        """What the variable of its environment was when it began."""
        wanted = f"{variable}=".encode()
        for line in _read(self.pid, "environ").split(b"\0"):
            if line.startswith(wanted):
                return line.removeprefix(wanted).decode(errors="replace")
        return ""


def name_part(number: int) -> None:
    """For this process and its forks, which have no environment of their own to tell."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(NAME, f"{NAMED}{number}".encode(), 0, 0, 0)


def end_with(parent: int) -> None:
    """End this process as soon as its parent has ended, however that came."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # before it was said
        os._exit(0)


def processes() -> dict[int, Process]:
    return {one.pid: one for one in _all()}


def below(roots: Iterable[int], table: Mapping[int, Process]) -> set[int]:
    """The children of these processes, theirs, and so on."""
    tops = set(roots)
    known = dict.fromkeys(tops, True)

    def is_below(pid: int) -> bool:
        if pid not in known:
            known[pid] = False
            known[pid] = pid in table and is_below(table[pid].parent)
        return known[pid]

    return {pid for pid in table if is_below(pid)} - tops


def living_below(pid: int) -> list[Process]:
    """Like `below`, of one process; where the kernel tells children, nobody else is looked at."""
    if not os.path.exists(f"/proc/{pid}/task/{pid}/children"):
        table = processes()
        return [table[one] for one in below([pid], table)]
    found: list[Process] = []
    waiting = [pid]
    while waiting:
        children = _children(waiting.pop())
        waiting += children
        found += [process for child in children if (process := _process(child)) is not None]
    return found


def _children(pid: int) -> list[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:  # it has ended
        return []
    return [int(one) for thread in threads for one in _read(pid, f"task/{thread}/children").split()]


def _all() -> Iterator[Process]:
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and (process := _process(int(name))) is not None:
            yield process


def _process(pid: int) -> Process | None:
    line = _read(pid, "stat")
    if not line:
        return None
    fields = line.rpartition(b")")[2].split()
    seconds = sum(map(int, fields[11:15])) / TICKS
    return Process(pid, int(fields[1]), int(fields[19]), fields[0].decode(), seconds)


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
            return file.readall()
    except OSError:  # it has ended
        return b""

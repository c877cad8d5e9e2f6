"""The processes of this machine as `/proc` shows them: whose they are, and what they have used."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

TICKS = os.sysconf("SC_CLK_TCK")


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

    def inherited(self, variable: str) -> str:
        """What the variable of its environment was when it began."""
        wanted = f"{variable}=".encode()
        for line in _read(self.pid, "environ").split(b"\0"):
            if line.startswith(wanted):
                return line.removeprefix(wanted).decode(errors="replace")
        return ""


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


def _all() -> Iterator[Process]:
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit() and (line := _read(int(name), "stat")):
            fields = line.rpartition(b")")[2].split()
            seconds = sum(map(int, fields[11:15])) / TICKS
            yield Process(int(name), int(fields[1]), int(fields[19]), fields[0].decode(), seconds)


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # it has ended
        return b""

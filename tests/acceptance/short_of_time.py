"""Processes that get little of the machine, without a busy one: they are stopped most of the time.

Each of them by itself and at random, so that now one and now another is far behind.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TICK_SECONDS = 0.1
SHARE = 0.3  # of the ticks in which a process runs

Known = tuple[int, str]  # a process and when it began: numbers are used again


class ShortOfTime(threading.Thread):
    """Stops and continues a process and all that it started, until it is told to leave them."""

    def __init__(self, root: int, seed: int) -> None:
        super().__init__(daemon=True)
        self.stops = 0
        self._root = root
        self._dice = random.Random(seed)
        self._known: set[Known] = set()  # also those whose parent is gone
        self._left = threading.Event()

    def run(self) -> None:
        while not self._left.wait(TICK_SECONDS):
            for one in self._alive():
                stopped = self._dice.random() >= SHARE
                self.stops += stopped
                _send(one, signal.SIGSTOP if stopped else signal.SIGCONT)

    def leave(self) -> None:
        self._left.set()
        self.join()
        for one in self._alive():
            _send(one, signal.SIGCONT)

    def _alive(self) -> list[Known]:
        began: dict[int, str] = {}
        children: dict[int, list[int]] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended meanwhile
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                pid = int(folder.name)
                children.setdefault(int(fields[1]), []).append(pid)
                began[pid] = fields[19]
        found = {pid for pid, at in self._known if began.get(pid) == at} | {self._root}
        waiting = list(found)
        while waiting:
            more = [pid for pid in children.get(waiting.pop(), []) if pid not in found]
            found.update(more)
            waiting.extend(more)
        self._known = {(pid, began[pid]) for pid in found if pid in began}
        return sorted(self._known)


def _send(one: Known, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(one[0], number)


@contextmanager
def short_of_time(root: int, seed: int = 0) -> Iterator[ShortOfTime]:
    made = ShortOfTime(root, seed)
    made.start()
    try:
        yield made
    finally:
        made.leave()

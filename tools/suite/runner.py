"""Runs parts side by side, hears how their tests go, and leaves no process of theirs behind."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.suite import part_process
from tools.suite.part_process import Options
from tools.suite.parts import Part
from tools.suite.plugin import HANG_SECONDS
from tools.suite.process_table import Process, below, processes

SILENCE_SECONDS = HANG_SECONDS + 30  # who says nothing for so long cannot say that it hangs either
LOOK_SECONDS = 0.5
SUBREAPER = 36  # of prctl(2): orphans below this process become its children
ENDING_SECONDS = 5.0  # for processes that were told to end with their part
#: Processes that a run keeps for all of its parts write their pids there, a line each.
KEPT = "kept"


@dataclass
class Failure:
    test: str
    text: str
    output: Path
    """What the whole part printed."""


@dataclass
class Running:
    """A part at work."""

    part: Part
    number: int
    pid: int
    channel: int
    folder: Path
    output: Path
    began: float
    heard: float = field(default_factory=time.monotonic)
    test: str = ""
    rest: bytes = b""
    collected: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    files: dict[str, dict[str, float]] = field(default_factory=dict)
    orphans: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    slowest: dict[str, float] = field(default_factory=dict)
    peak: int = 0
    seconds: float = 0.0
    struck: bool = False

    @property
    def at_work(self) -> str:
        """The file whose tests run now."""
        return (self.test or self.part.tests[0]).partition("::")[0]

    @property
    def took(self) -> float:
        return time.monotonic() - self.began


class Runner:
    """`ended` is told of every part when it has."""

    def __init__(self, folder: Path, options: Options, ended: Callable[[Running], None]) -> None:
        self.folder = folder
        self._options = options
        self._ended = ended
        self._running: dict[int, Running] = {}
        self._by_pid: dict[int, Running] = {}
        self._orphans: dict[int, Running] = {}
        self._gone: dict[int, tuple[int, float]] = {}
        self._number = 0
        self._selector = selectors.DefaultSelector()
        self._woken, self._waking = socket.socketpair()
        self._woken.setblocking(False)
        self._waking.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        adopt_orphans()

    def run(self, parts: Sequence[Part], side_by_side: int) -> None:
        waiting = deque(parts)
        looked = 0.0
        while waiting or self._running:
            while waiting and len(self._running) < side_by_side:
                self._begin(waiting.popleft())
            for key, _ in self._selector.select(LOOK_SECONDS):
                self._hear(key.fd)
            self._reap()
            for one in [one for one in self._by_pid.values() if one.pid in self._gone]:
                again = self._finish(one)
                if again is not None:
                    waiting.appendleft(again)
            if time.monotonic() - looked > LOOK_SECONDS:
                looked = time.monotonic()
                self._look_at_orphans()
                self._strike_silent()

    def stop(self) -> None:
        """End every process that the run has started, whatever it is at."""
        for pid in self._kept():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGQUIT)  # a database clears up
                self._wait_for(pid)
        for pid in below([os.getpid()], processes()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _wait_for(self, pid: int) -> None:
        for _ in range(100):
            self._reap()
            os.kill(pid, 0)
            time.sleep(0.05)

    # -- begin and hear ----------------------------------------------------------------------

    def _begin(self, part: Part) -> None:
        self._number += 1
        number = self._number
        folder, output = self.folder / str(number), self.folder / f"{number}.txt"
        began = time.monotonic()
        pid, channel = part_process.begin(part, number, folder, output, self._options)
        one = Running(part, number, pid, channel, folder, output, began)
        self._running[channel] = self._by_pid[pid] = one
        self._selector.register(channel, selectors.EVENT_READ)

    def _hear(self, file: int) -> None:
        if file == self._woken.fileno():
            with contextlib.suppress(BlockingIOError):
                self._woken.recv(4096)
            return
        one = self._running[file]
        data = os.read(file, 1 << 16)
        if not data:
            self._selector.unregister(file)
            return
        one.heard = time.monotonic()
        *lines, one.rest = (one.rest + data).split(b"\n")
        for line in lines:
            self._take(one, json.loads(line))

    def _take(self, one: Running, message: dict[str, Any]) -> None:
        if "begin" in message:
            one.test = message["begin"]
        elif "end" in message:
            test = message["end"]
            one.test = ""
            one.outcomes[test] = message["outcome"]
            if message["outcome"] == "failed":
                one.failures.append(Failure(test, message["text"], one.output))
            if message.get("seconds", 0) > 1:
                one.slowest[test] = message["seconds"]
        elif "collected" in message:
            one.collected = message["collected"]
        elif "files" in message:
            one.files, one.peak = message["files"], message["peak"]

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status, used = os.wait4(-1, os.WNOHANG)
                if not pid:
                    return
                seconds = used.ru_utime + used.ru_stime
                if pid in self._by_pid:
                    self._gone[pid] = (os.waitstatus_to_exitcode(status), seconds)
                elif (owner := self._orphans.pop(pid, None)) is not None:
                    owner.orphans[owner.at_work] += seconds

    # -- the end of a part -------------------------------------------------------------------

    def _finish(self, one: Running) -> Part | None:
        """Returns what it has left to do, where it died."""
        while one.channel in self._selector.get_map():
            self._hear(one.channel)
        os.close(one.channel)
        del self._running[one.channel], self._by_pid[one.pid]
        code, one.seconds = self._gone.pop(one.pid)
        one.seconds += sum(one.orphans.values())
        for file, seconds in one.orphans.items():
            if file in one.files:
                one.files[file]["seconds"] += seconds
        # Of processes that nobody waits for only a look while they live can tell.
        one.seconds = max(one.seconds, sum(row["seconds"] for row in one.files.values()))
        left = [test for test in one.collected if test not in one.outcomes]
        if left or (code not in (0, 1, 5) and not one.failures):
            self._blame(one, code, left)
        for test, command in self._end_strays(one.number):
            test = test or _last(one)
            what = f"it left a process behind: {command[:300]}"
            one.failures.append(Failure(test, what, one.output))
            one.outcomes[test] = "failed"
        if not one.failures:
            shutil.rmtree(one.folder, ignore_errors=True)
        self._ended(one)
        left = [test for test in left if test not in one.outcomes]
        return Part(f"{one.part.name} (the rest)", tuple(left)) if left else None

    def _blame(self, one: Running, code: int, left: list[str]) -> None:
        """Whatever was under way when the process ended has failed."""
        test = one.test or (left[0] if left else one.part.tests[0])
        printed = one.output.read_text(errors="replace")[-20_000:]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        one.outcomes[test] = "failed"
        one.failures.append(Failure(test, f"the process ended with {how}\n{printed}", one.output))

    def _end_strays(self, number: int) -> list[tuple[str, str]]:
        """End what still lives of the part, after a while for what is about to end by itself; of
        each, the test that began it and its command."""
        found = []
        for stray in self._wait_for_strays(number):
            test = stray.inherited("PYTEST_CURRENT_TEST").partition(" ")[0]
            found.append((test, stray.command))
            with contextlib.suppress(ProcessLookupError):
                os.kill(stray.pid, signal.SIGKILL)
        self._wait_for_strays(number)
        return found

    def _wait_for_strays(self, number: int) -> list[Process]:
        deadline = time.monotonic() + ENDING_SECONDS
        while (strays := self._strays(number)) and time.monotonic() < deadline:
            time.sleep(0.05)
            self._reap()
        self._reap()
        return strays

    def _strays(self, number: int) -> list[Process]:
        table = processes()
        kept = self._kept()
        kept |= below(kept, table)
        ours = [table[pid] for pid in below([os.getpid()], table) - kept]
        mark = str(number)
        return [one for one in ours if one.state != "Z" and one.part == mark]

    def _kept(self) -> set[int]:
        file = self.folder / KEPT
        return {int(line) for line in file.read_text().split()} if file.exists() else set()

    # -- what nobody waits for ---------------------------------------------------------------

    def _look_at_orphans(self) -> None:
        me = os.getpid()
        numbers = {str(one.number): one for one in self._by_pid.values()}
        for process in processes().values():
            if process.parent == me and process.pid not in self._by_pid:
                number = process.part
                if number in numbers:
                    self._orphans[process.pid] = numbers[number]

    def _strike_silent(self) -> None:
        if self._options.patient:
            return
        for one in self._by_pid.values():
            silent = time.monotonic() - one.heard
            if silent > SILENCE_SECONDS + 10:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, signal.SIGKILL)
            elif silent > SILENCE_SECONDS and not one.struck:
                one.struck = True
                os.kill(one.pid, signal.SIGABRT)  # it prints where all of its threads are


def _last(one: Running) -> str:
    return next(reversed(one.outcomes), one.part.tests[-1])


def adopt_orphans() -> None:
    """Whose parents ended: they can be found, and are waited for."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)

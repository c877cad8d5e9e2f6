"""Inside the process of a part: a plugin of pytest that tells the runner how each test went, what
it took, and where it hangs."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, TextIO

import pytest

from tools.suite.process_table import Process, living_below

#: No test waits longer than this for anything, nor does its set-up or its end.
HANG_SECONDS = 120
#: The runner hears at least so often that a part is not silent.
ALIVE_SECONDS = 10
#: Children are looked at after tests that took so long, and whenever a file ends: a look takes as
#: long as a small test.
LOOK_AFTER_SECONDS = 0.03


class Hang(BaseException):
    """Nothing in a test may take this for something it expected."""


class PartPlugin:
    def __init__(self, channel: TextIO, *, patient: bool = False) -> None:
        self._channel = channel
        self._seconds = 0 if patient else HANG_SECONDS
        self._outcomes: dict[str, str] = {}
        self._texts: dict[str, list[str]] = {}
        self._times = Times()
        self._told = 0.0
        signal.signal(signal.SIGALRM, _tell_hang)

    def _tell(self, **message: Any) -> None:
        self._channel.write(json.dumps(message) + "\n")
        self._channel.flush()
        self._told = time.monotonic()

    # -- how it went -------------------------------------------------------------------------

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._tell(end=report.nodeid, outcome="failed", text=report.longreprtext)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._tell(collected=[item.nodeid for item in session.items])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = report.nodeid
        if report.failed or report.when == "call" or report.skipped:
            self._outcomes[test] = "failed" if report.failed else report.outcome
        if report.failed:
            sections = [f"-- {name} --\n{text}" for name, text in report.sections]
            self._texts.setdefault(test, []).append("\n".join([report.longreprtext, *sections]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        test = item.nodeid
        self._tell(begin=test)
        self._times.begin(test)
        result = yield
        seconds = self._times.end()
        outcome = self._outcomes.pop(test, "failed")
        text = "\n".join(self._texts.pop(test, []))
        self._tell(end=test, outcome=outcome, text=text, seconds=round(seconds, 3))
        return result

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self) -> Iterator[None]:
        yield from self._with_alarm()
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        self._tell(files=self._times.finish(), peak=used)

    # -- where it hangs ----------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        yield from self._with_alarm()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        yield from self._with_alarm()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        yield from self._with_alarm()

    def _with_alarm(self) -> Iterator[None]:
        if time.monotonic() - self._told > ALIVE_SECONDS:
            self._tell(alive=True)
        signal.alarm(self._seconds)
        try:
            yield
        finally:
            signal.alarm(0)


def _tell_hang(_number: int, _frame: FrameType | None) -> None:
    print(
        f"\nnothing came of this within {HANG_SECONDS} s; where every thread is:", file=sys.stderr
    )
    sys.stderr.flush()
    faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
    for process in sorted(living_below(os.getpid())):
        _tell_process(process)
    raise Hang(f"it took more than {HANG_SECONDS} s: the stacks stand in what was printed")


def _tell_process(process: Process) -> None:
    print(f"\nprocess {process.pid} ({process.state}): {process.command[:300]}", file=sys.stderr)
    spy = shutil.which("py-spy", path=os.path.dirname(sys.executable))
    if spy is None or "python" not in process.command:
        return
    told = subprocess.run(
        [spy, "dump", "--nonblocking", "--pid", str(process.pid)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    print(told.stdout or told.stderr, file=sys.stderr)


class Times:
    """The processor seconds of tests, with those of the processes that they started."""

    def __init__(self) -> None:
        self._files: dict[str, dict[str, float]] = {}
        self._children = 0.0
        self._own = time.process_time()
        self._began = 0.0
        self._file = ""

    def begin(self, test: str) -> None:
        file = test.partition("::")[0]
        if file != self._file:
            self._look(self._file or file)
            self._file = file
        self._began = time.monotonic()

    def end(self) -> float:
        took = time.monotonic() - self._began
        file = self._row(self._file)
        file["tests"] += 1
        file["wall"] += took
        return self._look(self._file) if took > LOOK_AFTER_SECONDS else self._own_of(self._file)

    def finish(self) -> dict[str, dict[str, float]]:
        self._look(self._file)
        return self._files

    def _row(self, file: str) -> dict[str, float]:
        return self._files.setdefault(file, {"tests": 0, "seconds": 0.0, "wall": 0.0})

    def _own_of(self, file: str) -> float:
        now = time.process_time()
        used, self._own = now - self._own, now
        self._row(file)["seconds"] += used
        return used

    def _look(self, file: str) -> float:
        living = sum(process.seconds for process in living_below(os.getpid()))
        waited = resource.getrusage(resource.RUSAGE_CHILDREN)
        now = living + waited.ru_utime + waited.ru_stime
        used, self._children = max(0.0, now - self._children), now
        self._row(file)["seconds"] += used
        return used + self._own_of(file)

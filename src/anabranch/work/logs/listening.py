"""What callables print and log in this process, heard while a job is at work.

`print` goes through streams that pass everything on and hand a copy to the log of the job whose
context it is printed in. Log records are heard where they are made: a handler on the root logger
would turn `logging.basicConfig` of the program off. Both are put in place by the first call of a
callable and cost a look at a context variable for each line that is printed.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from anabranch.store.work_log_ports import Stream
from anabranch.work.logs.attempt_log import (
    WORD_LETTERS,
    AttemptLog,
    PrintTarget,
    print_target,
)

T = TypeVar("T")

_OWN = "anabranch"
_LOGGING = logging.Handler.handle.__code__.co_filename
_target, _frame = print_target.get, sys._getframe
_LEVELS = ((logging.CRITICAL, "critical"), (logging.ERROR, "error"), (logging.WARNING, "warning"))


class HeardStream:
    """A standard stream; whatever is not said here is that of the stream behind it."""

    def __init__(self, behind: Any, name: Stream) -> None:
        self._behind = behind
        self._name: Stream = name

    def write(self, text: str) -> int:
        target = _target()
        # What a log handler writes was heard as a record.
        if target is not None and _frame(1).f_code.co_filename != _LOGGING:
            if text and text[-1] != "\n" and len(text) <= WORD_LETTERS:
                target.hold(self._name, text)
            else:
                target.write(self._name, text)
        return len(text) if self._behind is None else self._behind.write(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self._behind is not None:
            self._behind.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)

    def __iter__(self) -> Any:
        return iter(self._behind)


class HeardRecords:
    """Makes log records like the factory before it, and hears them."""

    def __init__(self, behind: Callable[..., logging.LogRecord]) -> None:
        self.behind = behind

    def __call__(self, *given: Any, **more: Any) -> logging.LogRecord:
        record = self.behind(*given, **more)
        target = print_target.get()
        if target is not None and record.name and record.name.partition(".")[0] != _OWN:
            with suppress(Exception):  # a record that cannot be worded is its handler's to report
                target.write("log", f"{_worded(record)}\n", level_of(record.levelno))
        return record


def level_of(number: int) -> str:
    for least, name in _LEVELS:
        if number >= least:
            return name
    return "info" if number >= logging.INFO else "debug"


def _worded(record: logging.LogRecord) -> str:
    said = record.getMessage()
    if record.name != "root":
        said = f"{record.name}: {said}"
    if record.exc_info and record.exc_info[0] is not None:
        said += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return said


def listen() -> None:
    """From now on what is printed and logged is heard. On the way of every callable: nothing is
    called here where that is so already."""
    if sys.stdout.__class__ is not HeardStream:
        sys.stdout = HeardStream(sys.stdout, "stdout")
    if sys.stderr.__class__ is not HeardStream:
        sys.stderr = HeardStream(sys.stderr, "stderr")
    if logging._logRecordFactory.__class__ is not HeardRecords:  # type: ignore[attr-defined]
        logging.setLogRecordFactory(HeardRecords(logging.getLogRecordFactory()))


def stop_listening() -> None:
    """Put back what was there, unless somebody has put something else there since."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is HeardStream:
            setattr(sys, name, stream._behind)
    factory = logging.getLogRecordFactory()
    if type(factory) is HeardRecords:
        logging.setLogRecordFactory(factory.behind)


def heard(call: Callable[[], T]) -> Callable[[], T]:
    """The call for another thread, which is heard as if it were made here."""
    target = print_target.get()
    if target is None:
        return call
    listen()
    return lambda: heard_by(target, call)


def heard_by(target: AttemptLog | PrintTarget, call: Callable[[], T]) -> T:
    before = print_target.set(target)
    try:
        return call()
    finally:
        print_target.reset(before)

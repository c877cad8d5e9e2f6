"""SIGINT and SIGTERM: the first stops in order, the second ends the process, whatever it does.

Handlers of an event loop are called by the loop, and Python's own by the main thread between two
instructions: while either is stuck (a tool that computes in the loop, a read that never returns)
nobody hears a signal. So the number of the signal is written to a pipe by the C handler of the
interpreter (`signal.set_wakeup_fd`), and a thread of ours reads it there.

That thread needs the interpreter lock. C code that never lets go of it keeps all Python code out,
ours included; for that case the kernel gives a signal its default effect, the end of the process,
as soon as it was delivered once, and the thread takes that back when it has heard of it.

To end at once is as safe as any other crash: what was acknowledged is durable.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

INTERRUPTED = 130
STOPS = (signal.SIGINT, signal.SIGTERM)

_installed: _Listener | None = None


def hear() -> None:
    """Whatever this process has inherited: a shell without a terminal starts what it puts in the
    background with SIGINT ignored, and so would all of its children be."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def on_stop(
    stop: Callable[[], None],
    *,
    last_words: str = "stopped at once",
    also: Mapping[signal.Signals, Callable[[], None]] | None = None,
) -> None:
    """Call `stop` in the running event loop when the first signal comes. `also` are other signals
    that are heard, as often as they come. Only the main thread can ask for it."""
    global _installed
    restore()
    _installed = _Listener(asyncio.get_running_loop(), stop, last_words, also or {})


def restore() -> None:
    """Signals mean again what they meant before `on_stop`."""
    global _installed
    if _installed is not None:
        _installed.close()
        _installed = None


class _Listener:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stop: Callable[[], None],
        last_words: str,
        also: Mapping[signal.Signals, Callable[[], None]],
    ) -> None:
        self._loop = loop
        self._calls: dict[int, Callable[[], None]] = dict.fromkeys(map(int, STOPS), stop)
        self._calls |= {int(number): call for number, call in also.items()}
        self._last_words = last_words
        self._told = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._before_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._heard) for number in self._calls}
        self._reset = _reset_on_delivery()
        for number in STOPS:
            self._reset(number)
        threading.Thread(target=self._listen, name="anabranch-signals", daemon=True).start()

    def close(self) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)
        signal.set_wakeup_fd(self._before_fd)
        os.close(self._writer)  # the thread sees the end, and closes the other side

    def _listen(self) -> None:
        """In a thread of its own, until the pipe is closed."""
        while self._take():
            select.select([self._reader], [], [])
        os.close(self._reader)

    def _heard(self, _number: int, _frame: Any) -> None:
        """In the main thread: code in C that looks for signals may come here before the thread."""
        self._take()

    def _take(self) -> bool:
        """Act on the signals that are in the pipe; False when it is closed."""
        try:
            numbers = os.read(self._reader, 1024)
        except BlockingIOError:
            return True
        except OSError:
            return False
        for number in numbers:
            self._act(number)
        return bool(numbers)

    def _act(self, number: int) -> None:
        call = self._calls.get(number)
        if call is None:
            return
        if number in STOPS:
            if self._told:
                self._end()
            self._told = True
            self._reset(number)
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed: only threads that do not end are left
            if number in STOPS:
                self._end()

    def _end(self) -> None:
        said = f"{self._last_words}\n".encode()
        with suppress(OSError, ValueError):  # a reader that is stuck must not keep us either
            if select.select([], [sys.stderr.fileno()], [], 0)[1]:
                os.write(sys.stderr.fileno(), said)
        os._exit(INTERRUPTED)


def _reset_on_delivery() -> Callable[[int], None]:
    """How to say that the kernel resets a signal when it delivers it: Python cannot. Where the C
    library has no name for it, a signal stays what it is."""
    try:
        import ctypes

        arm = ctypes.CDLL(None).sysv_signal
        handler = ctypes.pythonapi.PyOS_getsig
    except (ImportError, AttributeError, OSError):
        return lambda _number: None
    arm.argtypes, arm.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
    handler.argtypes, handler.restype = [ctypes.c_int], ctypes.c_void_p
    handlers = {number: handler(number) for number in STOPS}  # the interpreter's own

    def reset(number: int) -> None:
        arm(number, handlers[signal.Signals(number)])

    return reset

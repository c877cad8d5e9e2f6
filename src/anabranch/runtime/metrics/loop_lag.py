"""Whether the event loop gets its turn: everything here waits while somebody blocks it.

A tick is due every twentieth of a second, and how late it comes is counted. Who is blocked cannot
say so; a thread beside the loop does, once for every time, with the place in the code that holds it
up.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback

from anabranch.runtime import slices
from anabranch.runtime.metrics.registry import Counter, Histogram

log = logging.getLogger("anabranch.engine")

TICK_SECONDS = 0.05
LOOK_SECONDS = 0.25  # between two looks of the thread
LATE_SECONDS = 0.1  # a tick that comes later for what this process did is counted by itself
HELD_SECONDS = 1.0  # a loop that is held up for longer is worth words
FRAMES = 12  # of the stack that is shown


class LoopLag:
    """Begin it in the loop that is to be watched, and stop it there."""

    def __init__(self) -> None:
        self.lag = Histogram(
            "anabranch_event_loop_lag_seconds", "how late the event loop came to its ticks"
        )
        self.late_ticks = Counter(
            "anabranch_event_loop_late_total",
            "ticks of the event loop that came a tenth of a second late or more, while the process "
            "computed as long",
        )
        self.held_seconds = 0.0  # how long it was held up, the last time that it was
        self.held_at = 0.0  # when that was over, on the monotonic clock; 0 for never
        self._due = 0.0
        self._computed = 0.0  # by the process, until the last tick
        self._handle: asyncio.TimerHandle | None = None
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._tick_later()
        where = threading.get_ident()
        self._thread = threading.Thread(
            target=self._watch, args=[where], name="anabranch-loop-watch", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _tick_later(self) -> None:
        self._due = time.monotonic() + TICK_SECONDS
        self._computed = time.process_time()
        self._handle = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        late = max(0.0, now - self._due)
        self.lag.observe(late)
        if min(late, time.process_time() - self._computed) >= LATE_SECONDS:
            self.late_ticks.add()
        if late >= HELD_SECONDS:
            self.held_seconds, self.held_at = late, now
        self._tick_later()

    def _watch(self, thread: int) -> None:
        said = 0.0  # the tick that was complained of
        looked = time.monotonic()
        while not self._over.wait(LOOK_SECONDS):
            due, before, looked = self._due, looked, time.monotonic()
            if looked - before >= LOOK_SECONDS + HELD_SECONDS:
                continue  # this thread did not get its turn either: the whole process was stopped
            if time.monotonic() - due >= HELD_SECONDS and due != said:
                said = due
                log.error(
                    "something holds up the event loop; nothing else moves:\n%s", _stack(thread)
                )


def _stack(thread: int) -> str:
    """Where the loop is, and the work for which it waits."""
    frames = sys._current_frames()
    beside = [each.ident for each in threading.enumerate() if each.name == slices.NAME]
    found = [frames[each] for each in (thread, *beside) if each in frames]
    return "\n".join("".join(traceback.format_stack(one)[-FRAMES:]) for one in found)

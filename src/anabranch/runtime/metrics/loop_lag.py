"""Whether the event loop gets its turn: everything here waits while somebody blocks it.

A tick is due every quarter of a second, and how late it comes is counted. Who is blocked cannot say
so; a thread beside the loop does, once for every time, with the place in the code that holds it up.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback

from anabranch.runtime.metrics.registry import Histogram

log = logging.getLogger("anabranch.engine")

TICK_SECONDS = 0.25
HELD_SECONDS = 1.0  # a loop that is held up for longer is worth words
FRAMES = 12  # of the stack that is shown


class LoopLag:
    """Begin it in the loop that is to be watched, and stop it there."""

    def __init__(self) -> None:
        self.lag = Histogram(
            "anabranch_event_loop_lag_seconds", "how late the event loop came to its ticks"
        )
        self.held_seconds = 0.0  # how long it was held up, the last time that it was
        self.held_at = 0.0  # when that was over, on the monotonic clock; 0 for never
        self._due = 0.0
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
        self._handle = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        now = time.monotonic()
        late = max(0.0, now - self._due)
        self.lag.observe(late)
        if late >= HELD_SECONDS:
            self.held_seconds, self.held_at = late, now
        self._tick_later()

    def _watch(self, thread: int) -> None:
        said = 0.0  # the tick that was complained of
        looked = time.monotonic()
        while not self._over.wait(TICK_SECONDS):
            due, before, looked = self._due, looked, time.monotonic()
            if looked - before >= TICK_SECONDS + HELD_SECONDS:
                continue  # this thread did not get its turn either: the whole process was stopped
            if time.monotonic() - due >= HELD_SECONDS and due != said:
                said = due
                frame = sys._current_frames().get(thread)
                stack = "".join(traceback.format_stack(frame)[-FRAMES:]) if frame else ""
                log.error("something holds up the event loop; nothing else moves:\n%s", stack)

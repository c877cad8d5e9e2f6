"""A thread that extends the lease of a server while its event loop is held up.

The event loop extends it as a rule. But it stands still while the runs of many partitions are
brought into memory, or while a commit waits for a lock of another server, and that can take longer
than a lease: the others would take runs from a server that is well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Thread

log = logging.getLogger("anabranch.cluster")

STOP_SECONDS = 10.0  # for a statement that is under way; the program ends without the thread


class LeaseBeat:
    """Calls `beat` every so many seconds until it is stopped."""

    def __init__(self, beat: Callable[[], None], seconds: float) -> None:
        self._beat = beat
        self._seconds = seconds
        self._over = Event()
        self._thread = Thread(target=self._run, name="anabranch-lease", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def halt(self) -> None:
        """Begin no other beat."""
        self._over.set()

    def stop(self) -> None:
        """Returns when none is under way, in a thread of the caller's."""
        self.halt()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            try:
                self._beat()
            except Exception:
                log.exception("the lease cannot be extended")

"""How often Python looks for garbage in cycles while an engine is open.

Runs make many objects that stay for a while and next to no cycles. With its usual threshold the
collector looks through all of them every few runs.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

COLLECTED_AFTER = 10_000  # objects that were made since
_USUAL = (700, 2_000)  # what Python begins with, by version; anything else is the program's choice


class _Collector:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._engines = 0
        self._before = 0  # the threshold that was raised, while it is

    def spare(self) -> Callable[[], None]:
        with self._lock:
            self._engines += 1
            now = gc.get_threshold()[0]
            if not self._before and now in _USUAL:
                self._before = now
                gc.set_threshold(COLLECTED_AFTER)
        return self._spare_no_more

    def _spare_no_more(self) -> None:
        with self._lock:
            self._engines -= 1
            if self._before and not self._engines:
                if gc.get_threshold()[0] == COLLECTED_AFTER:  # or the program has changed it since
                    gc.set_threshold(self._before)
                self._before = 0


_collector = _Collector()


def spare() -> Callable[[], None]:
    """An engine opens: collect less often, unless the program has chosen how often. Returns what
    the engine calls once when it closes; behind the last one everything is as it was."""
    return _collector.spare()

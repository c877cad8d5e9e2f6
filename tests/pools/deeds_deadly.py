"""The deeds in a process that dies when it is about to begin one."""

from __future__ import annotations

import os
import threading

from pools import deeds
from pools.deeds import perform, stop

__all__ = ["perform", "probe", "stop"]


def probe() -> dict[str, str]:
    """Jobs are done in threads; who is asked what it is answers in its loop."""
    if threading.current_thread() is not threading.main_thread():
        os._exit(9)
    return deeds.probe()

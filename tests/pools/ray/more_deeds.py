"""The deeds of the tests, and one that says what a process of Ray was given."""

from __future__ import annotations

import os
import threading
from typing import Any

from pools import deeds
from pools.deeds import probe, stop

__all__ = ["perform", "probe", "stop"]


def perform(given: bytes, tell: Any) -> Any:
    return deeds.perform(given, tell)


def _environment(said: Any, payload: bytes, tell: Any, stop: threading.Event) -> bytes:
    tell("started", b"")
    return os.environ.get(said["name"], "").encode()


deeds._DEEDS["environment"] = _environment

"""The deeds in a process that says that it has another Python."""

from __future__ import annotations

from pools import deeds
from pools.deeds import perform, stop

__all__ = ["perform", "probe", "stop"]


def probe() -> dict[str, str]:
    return {**deeds.probe(), "python": "3.9.7"}

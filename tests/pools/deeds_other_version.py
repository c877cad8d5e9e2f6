"""The deeds in a process that says that it has another version of us."""

from __future__ import annotations

from pools import deeds
from pools.deeds import perform, stop

__all__ = ["perform", "probe", "stop"]


def probe() -> dict[str, str]:
    return {**deeds.probe(), "anabranch": "0.0.7"}

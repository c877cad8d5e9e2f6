"""Tools for runs on real clusters: each thing they do is a line in a file, with the key under which
it was done and the process that did it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import anabranch

PAUSE_SECONDS = 0.02


def note(file: str, *words: object) -> None:
    with Path(file).open("a") as out:
        out.write(" ".join(map(str, words)) + "\n")


@anabranch.tool("mark", blocking=False)
def mark(n: int, file: str, task: Any, gate: str = "") -> int:
    note(file, "did", n, task.key, os.getpid())
    return n


@anabranch.tool("hold")
async def hold(n: int, file: str, gate: str, task: Any) -> int:
    """Begin, wait for the gate, and end; or stop as it is told."""
    note(file, "began", n, task.key, os.getpid())
    try:
        while not Path(gate).exists():
            await asyncio.sleep(PAUSE_SECONDS)
    except asyncio.CancelledError:
        note(file, "stopped", n, task.key, os.getpid())
        raise
    note(file, "did", n, task.key, os.getpid())
    return n


@anabranch.tool("crash", blocking=False)
def crash(n: int, file: str, task: Any, gate: str = "") -> None:
    note(file, "crashed", n, task.key, os.getpid())
    os._exit(9)

"""S2: what a person waits for at the command line, from shell to shell."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from bench.rows import Row

HELLO = Path(__file__).parents[1] / "examples" / "hello.yaml"
_BEGIN = "from anabranch.__main__ import main; main()"
_LIBRARIES = "import asyncio, sqlite3, yaml, jinja2, msgspec"
ROUNDS = 15


class Taken(NamedTuple):
    wall: float
    processor: float  # of the process and of those that it started


async def s2(folder: Path) -> list[Row]:
    """`anabranch --version` and `anabranch run hello.yaml`, by turns with a bare Python."""
    python = sys.executable
    commands = {
        "python -c pass": [python, "-c", "pass"],
        "the libraries alone": [python, "-c", _LIBRARIES],
        "--version": [python, "-c", _BEGIN, "--version"],
        "run hello.yaml": [python, "-c", _BEGIN, "run", str(HELLO)],
    }
    for command in commands.values():
        _once(command, folder)  # writes the bytecode
    taken: dict[str, list[Taken]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            taken[name].append(_once(command, folder))
    return [
        _row("--version", 0.080, taken, "python -c pass"),
        _row("run hello.yaml", 0.250, taken, "the libraries alone"),
    ]


def _once(command: list[str], folder: Path) -> Taken:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as where it is installed
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command[3:]} ended with {process.returncode}")
    return Taken(wall, used.ru_utime + used.ru_stime)


def _row(name: str, limit: float, taken: dict[str, list[Taken]], probe: str) -> Row:
    wall = statistics.median(one.wall for one in taken[name])
    processor, bare = (statistics.median(one.processor for one in taken[n]) for n in (name, probe))
    words = f"processor {processor * 1000:.0f} ms; {probe}: {bare * 1000:.0f} ms"
    aim = f"≤ {limit * 1000:.0f} ms"
    ratio = processor / bare
    return Row(f"S2 {name}", wall * 1000, "ms", words, ratio, aim, wall <= limit)

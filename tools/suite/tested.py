"""`build/tested`: which trees were tested whole and green, a line each."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

FILE = Path(__file__).parent.parent.parent / "build" / "tested"


def clean_tree() -> str:
    """The hash of the tree that git has here, or nothing where files differ from it."""
    if _git("status", "--porcelain"):
        return ""
    return _git("rev-parse", "HEAD^{tree}")


def note(tree: str, counts: Mapping[str, int], seconds: float) -> None:
    """`tree` is what it was when the run began; if it has changed since, nothing was tested."""
    if not tree or tree != clean_tree():
        print("build/tested says nothing of this run: files differ from what git has")
        return
    load = os.getloadavg()[2]
    said = ", ".join(f"{number} {name}" for name, number in counts.items())
    line = f"{tree} {datetime.now(UTC):%Y-%m-%dT%H:%MZ} {said}, {seconds:.0f} s, load {load:.1f}"
    FILE.parent.mkdir(exist_ok=True)
    with FILE.open("a") as file:
        file.write(line + "\n")
    print(f"written into build/tested: {line}")


def _git(*words: str) -> str:
    try:
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "no repository" if words[0] == "status" else ""
    return done.stdout.strip()

"""A virtual environment for each peer, made when it is first needed.

They are in this folder, or in the one that `ANABRANCH_BENCH_VENVS` names: several checkouts can
share them, and an environment cannot be moved once it was made.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = "ANABRANCH_BENCH_VENVS"
INSTALL_SECONDS = 900


class NotInstalled(Exception):
    """The peer cannot be installed here; the text says why."""


def folder() -> Path:
    named = os.environ.get(FOLDER)
    return Path(named).absolute() if named else HERE


def python_of(script: str, requirements: tuple[str, ...]) -> Path:
    """The interpreter of an environment that has exactly these requirements."""
    if not requirements:
        return Path(sys.executable)
    place = folder() / f".venv-{script}"
    python, stamp = place / "bin" / "python", place / ".installed"
    wanted = "\n".join(requirements)
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"installing {', '.join(requirements)} (once)", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "venv", "--clear", str(place)])
    _run([str(python), "-m", "pip", "install", "-qq", *requirements])
    stamp.write_text(wanted)
    return python


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NotInstalled(f"cannot be installed: {problem}") from problem
    if done.returncode:
        raise NotInstalled(f"cannot be installed: {last_line(done.stderr) or done.returncode}")


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""

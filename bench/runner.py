"""Each case in a process of its own, bounded in time: one that fails leaves the others' figures.

`python -m bench.runner CASE FOLDER` is that process. It writes its rows, or why there are none,
into the folder.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import cases
from bench.peers.measured import end_all
from bench.rows import Row

#: What a case takes at most; `ANABRANCH_BENCH_CASE_SECONDS` says another.
SECONDS = 300.0
#: Neighbours are bounded one by one.
PEERS_SECONDS = 1_800.0
#: Every process of a case has this variable, and so do those that it begins.
MARK = "ANABRANCH_BENCH_CASE"
WRITTEN = "rows.json"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The rows of a case, or why there are none, and the seconds that it took."""

    case: str
    rows: list[Row]
    seconds: float
    reason: str = ""

    @property
    def shown(self) -> list[Row]:
        """What cannot be measured is a line of the table with its reason."""
        return self.rows or [Row(self.case.upper(), None, "", self.reason, None, "", None)]


def limit_of(case: str) -> float:
    if case.startswith("peers"):
        return PEERS_SECONDS
    return float(os.environ.get("ANABRANCH_BENCH_CASE_SECONDS", SECONDS))


def run(case: str) -> Outcome:
    """It never raises for what a case does."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(
        prefix="anabranch-bench-", dir=_folder(), ignore_cleanup_errors=True
    ) as folder:
        reason = _ended(case, folder, limit_of(case))
        found = _read(Path(folder) / WRITTEN)
    seconds = time.perf_counter() - begin
    rows = [Row(**row) for row in found.get("rows", [])]
    return Outcome(case, rows, seconds, "" if rows else found.get("reason", reason))


def _ended(case: str, folder: str, limit: float) -> str:
    """Why the process of a case has written nothing, where it has not."""
    mark = uuid.uuid4().hex
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.runner", case, folder], env={**os.environ, MARK: mark}
    )
    try:
        return f"failed: its process ended with {process.wait(limit)}"
    except subprocess.TimeoutExpired:
        return f"did not end within {limit:g} s"
    finally:
        end_all(mark, MARK)
        process.kill()
        process.wait()


def _read(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return found


def _folder() -> str:
    """Beside the checkout rather than in a temporary file system, which may be memory."""
    return os.environ.get("ANABRANCH_BENCH_FOLDER") or str(Path.cwd())


def measure(case: str, folder: Path) -> dict[str, Any]:
    """The rows of a case in this process, or the reason why there are none."""
    try:
        rows = asyncio.run(cases.case(case)(folder))
    except Exception as problem:  # whatever it is, the other cases are measured
        traceback.print_exc()
        words = " ".join(str(problem).split())[:200]
        return {"reason": f"failed: {type(problem).__name__}: {words}".rstrip(": ")}
    return {"rows": [row.fields() for row in rows]}


if __name__ == "__main__":
    place = Path(sys.argv[2])
    (place / WRITTEN).write_text(json.dumps(measure(sys.argv[1], place)))

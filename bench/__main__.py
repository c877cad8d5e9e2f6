"""`python -m bench [CASE …]`: print the table and write `bench/results/latest.json`."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from bench.cases import CASES
from bench.rows import Row

RESULTS = Path(__file__).parent / "results" / "latest.json"


def main() -> None:
    chosen = sys.argv[1:] or list(CASES)
    unknown = [name for name in chosen if name not in CASES]
    if unknown:
        sys.exit(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    print(machine(), flush=True)
    rows: list[Row] = []
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="anabranch-bench-", dir=_folder()) as folder:
            found = asyncio.run(CASES[name](Path(folder)))
        for row in found:
            print(line(row), flush=True)
        rows += found
    RESULTS.parent.mkdir(exist_ok=True)
    written = {"machine": machine(), "at": int(time.time()), "rows": [row.fields() for row in rows]}
    RESULTS.write_text(json.dumps(written, indent=2) + "\n")


def _folder() -> str | None:
    """Beside the checkout rather than in a temporary file system, which may be memory."""
    return os.environ.get("ANABRANCH_BENCH_FOLDER") or str(Path.cwd())


def machine() -> str:
    return (
        f"{platform.python_implementation()} {platform.python_version()}, "
        f"SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores, {platform.system()}"
    )


def line(row: Row) -> str:
    ratio = f"{row.ratio:6.2f}×" if row.ratio is not None else "       "
    met = {True: "met", False: "NOT met", None: ""}[row.met]
    return (
        f"{row.case:<30} {row.figure:>12,.2f} {row.unit:<8} {ratio}  "
        f"{row.probe:<45} {row.aim:<28} {met}".rstrip()
    )


if __name__ == "__main__":
    main()

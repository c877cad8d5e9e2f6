"""What the tests of the last whole run took of the processor: `make times` prints it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.suite.kinds import KINDS, kind_of
from tools.suite.runner import Running

FILE = Path(__file__).parent.parent.parent / "build" / "times.json"
DEAREST = 40


def report(parts: Sequence[Running], seconds: float) -> dict[str, Any]:
    files: dict[str, Counter[str]] = {}
    for part in parts:
        for name, row in part.files.items():
            files.setdefault(name, Counter()).update(row)
    return {
        "seconds": round(seconds),
        "processor": round(sum(part.seconds for part in parts)),
        "peak": max((part.peak for part in parts), default=0),
        "peaks": {part.part.name: part.peak for part in parts},
        "files": files,
        "tests": {test: took for part in parts for test, took in part.slowest.items()},
    }


def write(report: dict[str, Any]) -> None:
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(report, indent=1))


def table(report: dict[str, Any]) -> str:
    files: dict[str, dict[str, float]] = report["files"]
    lines = ["processor   wall  tests"]
    dearest = sorted(files, key=lambda name: -files[name]["seconds"])[:DEAREST]
    lines += [_row(files[name], name) for name in dearest]
    lines.append("")
    for kind in KINDS:
        total: Counter[str] = Counter()
        for name, row in files.items():
            if kind_of(name) == kind:
                total.update(row)
        lines.append(_row(total, kind))
    everything: Counter[str] = Counter()
    for row in files.values():
        everything.update(row)
    lines.append(_row(everything, "all of them"))
    lines.append(
        f"{report['processor']} s of the processor with what parts take to begin, "
        f"{report['seconds']} s on the clock, {report['peak']} MiB in a test process at most"
    )
    return "\n".join(lines)


def _row(row: Any, name: str) -> str:
    numbers = f"{row['seconds']:7.1f} s {row['wall']:5.0f} s {int(row['tests']):6}"
    return f"{numbers}  {name.removeprefix('tests/')}"


if __name__ == "__main__":
    if not FILE.exists():
        sys.exit("no times yet: `make test` counts them")
    print(table(json.loads(FILE.read_text())))

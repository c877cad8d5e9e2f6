"""`python -m bench.scale [LOAD …] [--most N]`: what loads cost, beside what the formulas say.

Loads are put on at 10⁴, 10⁵ and 10⁶ (`--most 1000000`), each in a process of its own, on a real
SQLite store. Counts are the same on every machine; times and memory are of this one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from bench.scale import formulas, loads
from bench.scale.formulas import Cost
from bench.scale.loads import Counted

SIZES = (10_000, 100_000, 1_000_000)
RESULT_BYTES = {10_000: 4.9, 100_000: 5.9, 1_000_000: 6.9}  # of the number of an item, with comma
ANSWER_BYTES = len(json.dumps(loads.ANSWER, separators=(",", ":")))


class Load(NamedTuple):
    """How it is put on, with what beside the count, and what it should cost."""

    function: str
    more: Sequence[int]
    cost: Callable[[int], Cost]
    most: int = 1_000_000


LOADS: dict[str, Load] = {
    "steps": Load("steps", (), lambda n: formulas.runs(n // 10, 10)),
    "items-1": Load("items", (1,), lambda n: formulas.loop(n, 1, rows_per_shard=0.13), 100_000),
    "items-100": Load("items", (100,), lambda n: formulas.loop(n, 100)),
    "items-4096": Load("items", (4096,), lambda n: formulas.loop(n, 4096, rows_per_shard=0.6)),
    "kept-100": Load("kept_items", (100,), lambda n: formulas.loop(n, 100, RESULT_BYTES[n])),
    "kept-50000": Load(
        "kept_items", (50_000,), lambda n: formulas.loop(n, 50_000, RESULT_BYTES[n])
    ),
    "participants": Load(
        "participants", (), lambda n: formulas.fan(n, ANSWER_BYTES, 7), most=100_000
    ),
    "waiting": Load("waiting", (), lambda n: formulas.open_runs(n, timer=False)),
    "timed": Load("timed", (), lambda n: formulas.open_runs(n, timer=True)),
}

_MEASURE = """
import asyncio, json, sys
from dataclasses import asdict
from pathlib import Path
from bench.scale import loads
work = getattr(loads, sys.argv[2])
found = asyncio.run(work(Path(sys.argv[1]) / "load.db", *map(int, sys.argv[3:])))
print(json.dumps(asdict(found)))
"""


def measured(load: Load, count: int, folder: Path) -> Counted:
    """In a process of its own, for its memory."""
    command = [sys.executable, "-c", _MEASURE, str(folder), load.function, str(count)]
    command += [str(one) for one in load.more]
    found = _asked(command)
    if load.function in ("waiting", "timed"):
        again = _asked([sys.executable, "-c", _MEASURE, str(folder), "opened"])
        found = replace(found, opening_seconds=again.opening_seconds, opening_kib=again.opening_kib)
    return found


def _asked(command: Sequence[str]) -> Counted:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Counted(**json.loads(done.stdout))


def lines(name: str, count: int, cost: Cost, found: Counted) -> list[str]:
    """The table of one load: what was counted, what the formula says, their ratio."""
    pairs: list[tuple[str, float, float]] = [
        ("events", found.events, cost.events),
        ("log bytes", found.log_bytes, cost.log_bytes),
        ("log rows", found.rows, cost.rows),
        ("file bytes", found.file_bytes, cost.file_bytes),
    ]
    head = f"{name} ×{count:,}"
    told = [
        f"{head:<24} {what:<12} {seen:>16,.0f} {said:>16,.0f}  {seen / said:5.2f}"
        for what, seen, said in pairs
    ]
    each = found.cpu_seconds / count * 1e6
    told.append(
        f"{head:<24} {each:,.0f} µs of the processor each, {found.wall_seconds:,.1f} s in all, "
        f"memory +{found.memory_kib / 1024:,.0f} MiB"
    )
    if found.opening_seconds:
        told.append(
            f"{head:<24} opening takes {found.opening_seconds:,.2f} s of the processor, "
            f"memory +{found.opening_kib / 1024:,.0f} MiB"
        )
    return told


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("loads", nargs="*", choices=[*LOADS, []], metavar="LOAD")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="the largest size")
    parser.add_argument("--json", type=Path, help="write what was counted to this file, too")
    options = parser.parse_args()
    kept: list[dict[str, Any]] = []
    print(f"{'':<24} {'':<12} {'counted':>16} {'formula':>16}  ratio", flush=True)
    for name in options.loads or LOADS:
        load = LOADS[name]
        for count in (size for size in SIZES if size <= min(options.most, load.most)):
            with tempfile.TemporaryDirectory(prefix="anabranch-bench-", dir=_place()) as folder:
                found = measured(load, count, Path(folder))
            print("\n".join(lines(name, count, load.cost(count), found)), flush=True)
            kept.append({"load": name, "count": count, **asdict(found)})
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1) + "\n")


def _place() -> str:
    return os.environ.get("ANABRANCH_BENCH_FOLDER") or str(Path.cwd())


if __name__ == "__main__":
    main()

"""`python -m bench [CASE …]`: measure, print the table, keep it in `bench/results/latest.json`."""

from __future__ import annotations

import argparse
import os
import sys
import time

from bench import readme, report, results, runner
from bench.cases import CASES, PEERS
from bench.peers import table
from bench.results import Results

#: Where other programs have more than this of the processors, figures by the clock say little.
BUSY = 0.1
#: A case that takes longer is too long for a table that is made in one sitting.
LONG_SECONDS = 180


def main(words: list[str] | None = None) -> None:
    asked = parser().parse_args(words)
    if asked.write or asked.last:
        found = results.read()
        if found is None or not found.cases:
            sys.exit("nothing was measured yet: python -m bench")
        text = report.markdown(found.rows, found.words)
        print(_written(text) if asked.write else text)
        return
    measured(asked.cases)
    if asked.markdown and (found := results.read()):
        print(report.markdown(found.rows, found.words))


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    found.add_argument("cases", nargs="*", metavar="CASE", help=", ".join((*CASES, "peers")))
    found.add_argument(
        "--markdown", action="store_true", help="print the table as Markdown at the end"
    )
    found.add_argument(
        "--last", action="store_true", help="measure nothing: print the last table as Markdown"
    )
    found.add_argument(
        "--write", action="store_true", help="measure nothing: put the last table into the READMEs"
    )
    return found


def _written(text: str) -> str:
    try:
        return f"written: {readme.write(text)}"
    except readme.Unquotable as problem:
        sys.exit(f"nothing was written: {problem}")


def chosen(asked: list[str]) -> list[str]:
    """The named ones, or all; `PEERS=0` leaves the neighbours out of all."""
    groups = {"peers": PEERS}
    names = [one for name in map(str.lower, asked) for one in groups.get(name, [name])]
    unknown = [name for name in names if name not in CASES]
    if unknown:
        sys.exit(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    _check_peers()
    without = PEERS if os.environ.get("PEERS") == "0" else []
    return names or [name for name in CASES if name not in without]


def _check_peers() -> None:
    try:
        table.chosen(os.environ.get("ANABRANCH_BENCH_PEERS", ""))
    except ValueError as problem:
        sys.exit(f"ANABRANCH_BENCH_PEERS: {problem}")


def measured(asked: list[str]) -> None:
    """Each case as it comes. Where some are named, they replace those of the last table."""
    cases, begin = chosen(asked), time.perf_counter()
    last = results.read() if asked else None
    found = last if last and last.machine == results.machine() else Results(results.machine())
    print(found.machine, flush=True)
    done = []
    try:
        for name in cases:
            done.append(_measured(name, found))
    except KeyboardInterrupt:
        sys.exit(f"{_summary(done, time.perf_counter() - begin)}\ninterrupted: these are kept")
    print(_summary(done, time.perf_counter() - begin))


def _measured(case: str, found: Results) -> runner.Outcome:
    others = results.others()
    if others is not None and others > BUSY:
        print(f"other programs have {others:.0%} of the processors", flush=True)
    outcome = runner.run(case)
    for row in outcome.shown:
        print(report.line(row), flush=True)
    found.put(outcome, others, time.time())
    results.write(found)
    return outcome


def _summary(outcomes: list[runner.Outcome], seconds: float) -> str:
    """The seconds of each case, the longest first, and what could not be measured."""
    lines = ["", f"{seconds / 60:.1f} minutes; seconds of each case:"]
    for one in sorted(outcomes, key=lambda one: one.seconds, reverse=True):
        long = f"  (more than {LONG_SECONDS})" if one.seconds > LONG_SECONDS else ""
        lines.append(f"  {one.case:<14} {one.seconds:7.1f}{long}")
    lines += [f"not measured: {one.case}: {one.reason}" for one in outcomes if not one.rows]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

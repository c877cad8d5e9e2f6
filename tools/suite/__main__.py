"""`python -m tools.suite`: every test, or those of the files and folders that are named.

Parts of the suite run side by side, the pure ones first. What failed runs once more, alone, at the
end: what passes then is unstable, which is told and does not stop the work; see `unstable.py`. A
green run of the whole suite on a clean tree is noted in `build/tested`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from anabranch.surfaces.cli.output.render import duration
from tools.suite import part_process, scratch, tested, times, unstable
from tools.suite.part_process import Options
from tools.suite.parts import Part, cut, find_files
from tools.suite.runner import Failure, Runner, Running

ROOT = Path(__file__).parent.parent.parent
OUTPUTS = ROOT / "build" / "failed"
FAILURE_CHARACTERS = 6_000  # of one, on the screen


def main() -> int:
    given = _arguments()
    os.chdir(ROOT)
    tree = tested.clean_tree()
    files = _chosen(given.places)
    part_process.load()
    options = Options(fast=given.fast, patient=given.patient)
    suite = Suite(options, given.processes)
    try:
        suite.run([part for part in cut(files) if part.kind == "pure" or not given.fast])
        verdict = suite.judge()
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    finally:
        suite.close()
    report = times.report(suite.ended, suite.took)
    if given.times:
        print(times.table(report))
    if not (given.places or given.fast):
        times.write(report)
        if verdict.is_green:
            tested.note(tree, suite.count(verdict), suite.took)
    return 0 if verdict.is_green else 1


class Suite:
    def __init__(self, options: Options, side_by_side: int) -> None:
        self._began = time.monotonic()
        self.ended: list[Running] = []
        self._failures: dict[str, Failure] = {}
        self._count = 0
        self._side_by_side = side_by_side
        folder = scratch.make()
        os.environ["ANABRANCH_TEST_RUN"] = str(folder)
        self._runner = Runner(folder, options, self._note)

    @property
    def took(self) -> float:
        return time.monotonic() - self._began

    def count(self, verdict: unstable.Verdict) -> dict[str, int]:
        """How many tests went how; one that passed alone has passed."""
        outcomes = [outcome for one in self.ended for outcome in one.outcomes.values()]
        return {
            "passed": outcomes.count("passed") + len(verdict.unstable),
            "failed": len(verdict.failed),
            "skipped": outcomes.count("skipped"),
            "unstable": len(verdict.unstable),
        }

    def run(self, parts: Sequence[Part]) -> None:
        self._count = len(parts)
        pure = [part for part in parts if part.kind == "pure"]
        rest = [part for part in parts if part.kind != "pure"]
        cores = os.cpu_count() or 1
        if pure:
            self._runner.run(pure, min(cores, self._side_by_side))
        if rest:
            self._runner.run(rest, self._side_by_side)

    def judge(self) -> unstable.Verdict:
        """Run once more what may have failed by chance, and say how it went."""
        verdict = unstable.judge(list(self._failures.values()), self._again)
        verdict.tell()
        peak = max((one.peak for one in self.ended), default=0)
        used = sum(one.seconds for one in self.ended)
        print(f"took {duration(self.took)}, of the processor {duration(used)}; {peak} MiB at most")
        told = "{passed} passed, {failed} failed, {skipped} skipped"
        print(told.format(**self.count(verdict)), flush=True)
        return verdict

    def _again(self, test: str) -> Running:
        before = len(self.ended)
        self._runner.run([Part(f"{test}, alone", (test,))], 1)
        (one,) = self.ended[before:]
        del self.ended[before:]
        return one

    def close(self) -> None:
        self._runner.stop()
        shutil.rmtree(self._runner.folder, ignore_errors=True)

    def _note(self, one: Running) -> None:
        self.ended.append(one)
        for failure in one.failures:
            self._failures.setdefault(failure.test, failure)
            print(f"\nFAILED {failure.test}\n{_shorten(failure.text)}\n")
        if one.failures:
            OUTPUTS.mkdir(parents=True, exist_ok=True)
            name = f"{one.part.kind} {one.part.name}".replace("/", "-")
            shutil.copy(one.output, OUTPUTS / f"{name[-80:]}.txt")
        outcomes = list(one.outcomes.values())
        said = ", ".join(f"{outcomes.count(name)} {name}" for name in sorted(set(outcomes)))
        place = f"{len(self.ended)}/{self._count}"
        what = f"{one.part.kind:<10} {one.part.name:<34}"
        print(f"{place:>8} {what} {said or 'no test'}, {one.took:.0f} s", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.suite", description=__doc__)
    parser.add_argument("places", nargs="*", help="files or folders; default: all of tests/")
    parser.add_argument(
        "--fast", action="store_true", help="the pure tests that are not marked slow"
    )
    parser.add_argument(
        "--patient", action="store_true", help="let a test take as long as it takes"
    )
    parser.add_argument("--times", action="store_true", help="print what the files took")
    # Half of their time most parts wait: for a timer, a page, a cluster. With four for each core
    # hardly any time of a core is left over.
    parser.add_argument("--processes", type=int, default=4 * (os.cpu_count() or 1), metavar="N",
                        help="how many run side by side (default: four for each core)")  # fmt: skip
    return parser.parse_args()


def _chosen(places: Sequence[str]) -> list[str]:
    files = find_files(ROOT)
    if not places:
        return files
    wanted = [str(Path(place).resolve().relative_to(ROOT)) for place in places]
    under = {w: [file for file in files if file == w or file.startswith(f"{w}/")] for w in wanted}
    if empty := [place for place, w in zip(places, wanted, strict=True) if not under[w]]:
        sys.exit(f"there are no tests in {', '.join(empty)}")
    chosen = {file for some in under.values() for file in some}
    return [file for file in files if file in chosen]


def _shorten(text: str) -> str:
    if len(text) <= FAILURE_CHARACTERS:
        return text
    half = FAILURE_CHARACTERS // 2
    return f"{text[:half]}\n[… all of it is in {OUTPUTS.relative_to(ROOT)} …]\n{text[-half:]}"


if __name__ == "__main__":
    sys.exit(main())

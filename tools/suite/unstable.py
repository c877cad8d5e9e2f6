"""What failed runs once more, alone: a machine that was too busy for a test is no mistake of ours.

A test that passes then is unstable. A few of them leave the run green and are told, and
`tests/UNSTABLE.md` remembers each. Tests that depend on no machine get no second try. What goes
wrong behind the last test of a process counts as a failure of its first file.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.suite.kinds import is_pure
from tools.suite.runner import Failure, Running

ROOT = Path(__file__).parent.parent.parent
KEPT = ROOT / "build" / "unstable"
REMEMBERED = ROOT / "tests" / "UNSTABLE.md"
UNSTABLE_MAX = 3
TRIED_MAX = 20  # with more failures than this it is not the machine


class Verdict(NamedTuple):
    failed: list[str]
    unstable: list[str]

    @property
    def is_green(self) -> bool:
        return not self.failed and len(self.unstable) <= UNSTABLE_MAX

    def tell(self) -> None:
        if self.unstable:
            print(f"\nunstable: they failed, and passed alone; both outputs are in {KEPT.name}/")
        remembered = REMEMBERED.read_text()
        for test in self.unstable:
            known = name_of(test) in remembered
            print(f"  {test}{': the second time! Mend it before anything else' if known else ''}")
        if self.unstable:
            print(f"write them into {REMEMBERED.relative_to(ROOT)}")
        if len(self.unstable) > UNSTABLE_MAX:
            print(f"more than {UNSTABLE_MAX} unstable tests: this run is red")
        if self.failed:
            print("\nfailed:", *self.failed, sep="\n  ")


def judge(failures: Sequence[Failure], again: Callable[[str], Running]) -> Verdict:
    shutil.rmtree(KEPT, ignore_errors=True)
    verdict = Verdict([], [])
    for failure in failures:
        if is_pure(failure.test) or len(failures) > TRIED_MAX:
            verdict.failed.append(failure.test)
            continue
        print(f"once more, alone: {failure.test}", flush=True)
        second = again(failure.test)
        passed = not second.failures and "passed" in second.outcomes.values()
        (verdict.unstable if passed else verdict.failed).append(failure.test)
        if passed:
            _keep(failure, second)
    return verdict


def name_of(test: str) -> str:
    """As the list has it: without its parameters."""
    return test.partition("[")[0]


def _keep(first: Failure, second: Running) -> None:
    folder = KEPT / re.sub(r"\W+", "-", first.test)[-120:]
    folder.mkdir(parents=True)
    shutil.copy(first.output, folder / "first-printed.txt")
    (folder / "first.txt").write_text(first.text)
    shutil.copy(second.output, folder / "second.txt")

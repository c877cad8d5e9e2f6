"""Which signals the tasks of a net wait for, found when it is asked and kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from anabranch.net.net import Net, Step, WaitRule
from anabranch.net.program import Iteration, Program
from anabranch.net.reach import Held

#: In the path of a URL, in messages and on command lines it needs no quotes.
SIGNAL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class Waits:
    """The waits of one net for signals."""

    def __init__(self, net: Net) -> None:
        self._rules: Mapping[tuple[str, str], WaitRule] = {
            (name, label): rule
            for name, step in net.steps.items()
            for label, rule in _of_step(step)
        }
        #: The names of the signals, each once, in document order.
        self.events = tuple(dict.fromkeys(rule.event for rule in self._rules.values()))

    def rule(self, step: str, task: str) -> WaitRule | None:
        return self._rules.get((step, task))


def _of_step(step: Step) -> Iterator[tuple[str, WaitRule]]:
    work = step.work
    if work is None:
        return
    if work.wait is not None:
        yield work.label, work.wait
    program = work.program.program if isinstance(work.program, Iteration) else work.program
    for task in program.tasks if isinstance(program, Program) else ():
        if task.wait is not None:
            yield task.label, task.wait


@lru_cache(maxsize=128)
def _found(held: Held) -> Waits:
    return Waits(held.net)


def waits_of(net: Net) -> Waits:
    """The waits of this net, found at the first call."""
    return _found(Held(net))

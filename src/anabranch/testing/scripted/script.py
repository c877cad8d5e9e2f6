"""A script: which answer is next for which step.

Answers are used up in the order in which jobs are executed, and the last one repeats. The job of a
fan-out slot looks for its own label first (`"step/label"`, then `"label"`), then for its step. A
task of a pipeline, or of the items of a loop, is `"step/task"`; the others of its step run. An
execution that was lost, by a crash or a lost lease, does not count: the next one gets its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from anabranch.errors import InputError
from anabranch.net.net import Net, Step
from anabranch.net.problems import did_you_mean
from anabranch.net.program import Iteration, Program
from anabranch.testing.scripted.answers import Scripted


class _Unscripted:
    """Stands for "the script says nothing about this"."""

    def __repr__(self) -> str:
        return "UNSCRIPTED"


UNSCRIPTED: Final = _Unscripted()


class Script:
    """The answers of one play; each play uses up its own copy."""

    def __init__(self, net: Net, entries: Mapping[str, Any], what: str = "script") -> None:
        self._net = net
        self._what = what
        self._entries = {name: _listed(name, entry, what) for name, entry in entries.items()}
        self._used: dict[str, int] = {}
        self._labels: set[str] = set()
        self._tasks = {name for step in net.steps.values() for name in _tasks(step)}
        if not _fans(net):
            self._refuse(self._not_steps())

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def take(self, step: str, label: str = "") -> Scripted:
        """The next answer for a job of this step, or `UNSCRIPTED`."""
        name = self._name(step, label)
        return UNSCRIPTED if name is None else self.next(name)

    def take_task(self, step: str, label: str) -> Scripted:
        """The next answer for a task inside the job of a step, or `UNSCRIPTED`."""
        name = f"{step}/{label}"
        return self.next(name) if name in self._tasks and name in self._entries else UNSCRIPTED

    def next(self, name: str, *, repeat: bool = True) -> Scripted:
        """The next answer under that name; without `repeat` the last one is given only once."""
        entries = self._entries.get(name, [])
        used = self._used.get(name, 0)
        if not entries or (used >= len(entries) and not repeat):
            return UNSCRIPTED
        self._used[name] = used + 1
        return entries[min(used, len(entries) - 1)]

    def entries(self, name: str) -> Sequence[Scripted]:
        """All that the script says under that name."""
        return self._entries.get(name, ())

    def saw_slots(self, step: str, labels: Iterable[str]) -> None:
        """A fan-out opened: these labels exist."""
        for label in labels:
            self._labels.update((label, f"{step}/{label}"))

    def check_names(self, ran: Iterable[str]) -> None:
        """Refuse names that turned out to be neither a step nor a slot.

        Nothing can be said while a fan-out that might have had such a slot did not run.
        """
        if set(_fans(self._net)) <= set(ran):
            self._refuse([name for name in self._not_steps() if name not in self._labels])

    def _name(self, step: str, label: str) -> str | None:
        names = (f"{step}/{label}", label, step) if label else (step,)
        return next((name for name in names if name in self._entries), None)

    def _not_steps(self) -> list[str]:
        known = self._net.steps.keys() | self._tasks
        return [name for name in self._entries if name not in known]

    def _refuse(self, names: list[str]) -> None:
        if not names:
            return
        known = [*self._net.steps, *sorted(self._labels | self._tasks)]
        hints = "; ".join(filter(None, (_unknown(name, known) for name in names)))
        raise InputError(f"the {self._what} names {hints}", code="unknown_step")


def _unknown(name: str, known: list[str]) -> str:
    hint = did_you_mean(name, known)
    return f"{name!r}, which is not a step" + (f": {hint}" if hint else "")


def _listed(name: str, entry: Any, what: str) -> list[Scripted]:
    if not isinstance(entry, list | tuple):
        return [entry]
    if not entry:
        raise InputError(
            f"the {what} of {name!r} is an empty list: leave the name out, or write ok([]) for a "
            "result that is an empty list",
            code="script",
        )
    return list(entry)


def _tasks(step: Step) -> list[str]:
    """The tasks of a step that is a pipeline or a loop, as a script names them."""
    program = step.work.program if step.work is not None else None
    if isinstance(program, Iteration):
        program = program.program
    if not isinstance(program, Program):
        return []
    return [f"{step.name}/{task.label}" for task in program.every_task()]


def _fans(net: Net) -> list[str]:
    return [step.name for step in net.steps.values() if step.fan is not None]


class Scripts(msgspec.Struct, frozen=True):
    """What the parties of this world say."""

    answers: Script
    decisions: Script

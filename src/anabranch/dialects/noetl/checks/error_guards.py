"""Guards that can never hold, because nothing before them fails with the kind that they ask for.

The guards of a step's arcs are about all of its tasks, those of a task's rules about that task. A
rule that several tasks share is about all of them. What may fail in ways that are not known here is
left alone: a callable, a child, a worker that may have tools of its own, and the arcs of a loop,
whose error sums up those of its items.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from anabranch.dialects.findings import Findings
from anabranch.dialects.noetl.error_kinds import (
    ERROR_KINDS,
    KNOWN_TASKS,
    OF_EVERY_STEP,
    error_kinds_of,
)
from anabranch.dialects.noetl.templates import Condition, keys_of
from anabranch.expressions.port import Expression
from anabranch.net.net import Step
from anabranch.net.problems import Position
from anabranch.net.program import Program, TaskSpec, program_of, tasks_of

#: Where a guard finds the kind of the error that it is about.
_KIND = ("error", "kind")
_PLACES = frozenset(
    (*path, *_KIND) for path in ((), ("outcome",), ("output",), ("event", "payload"))
)
#: Stands for tasks that may fail with anything.
_ANYTHING = frozenset({""})
#: Scripts and secrets are fetched for tasks of many kinds, and that fails as calls do.
_FETCHING = "http"
_FETCHED = frozenset({"script", "auth"})


class AskedKinds(msgspec.Struct):
    """What a guard asks for, and the kinds of the tasks that it is about."""

    kinds: tuple[str, ...]
    at: Position
    tasks: frozenset[str] = frozenset()


class ErrorGuards:
    def __init__(self, callables: Collection[str], own: Collection[str], *, secrets: bool) -> None:
        self._known = KNOWN_TASKS.difference(callables)
        self._own = own  # names that the playbook sets: `error` is an error only where it does not
        self._fetching = frozenset({_FETCHING} if secrets else ())

    def check(
        self, steps: Iterable[Step], conditions: Iterable[Condition], findings: Findings
    ) -> None:
        asking = {id(one.guard): asked for one in conditions if (asked := self._asked_kinds(one))}
        found: dict[Position, AskedKinds] = {}
        for step in steps if asking else ():
            for guard, tasks in _guards_of(step):
                if (asked := asking.get(id(guard))) is not None:
                    asked = found.setdefault(asked.at, asked)
                    asked.tasks |= tasks
        for asked in found.values():
            if asked.tasks <= self._known:
                self._compare(asked, findings)

    def _asked_kinds(self, condition: Condition) -> AskedKinds | None:
        """None where it asks for no kind, or also for one that comes from elsewhere."""
        asked = [(one, at) for one, at in condition.readings if one.path in _PLACES]
        kinds = tuple(dict.fromkeys(text for one, _ in asked for text in one.compared))
        if not kinds or not ERROR_KINDS.issuperset(kinds):
            return None
        if any(not one.compared or one.root in self._own for one, _ in asked):
            return None
        return AskedKinds(kinds, asked[0][1])

    def _compare(self, asked: AskedKinds, findings: Findings) -> None:
        possible = error_kinds_of(asked.tasks | self._fetching)
        if not possible.isdisjoint(asked.kinds):
            return
        kinds = " or ".join(map(repr, asked.kinds))
        tasks = " or ".join(f"`{kind}`" for kind in sorted(asked.tasks))
        what = f"no {tasks} task" if tasks else "nothing that comes before this guard"
        listed = ", ".join(f"`{kind}`" for kind in sorted(possible - OF_EVERY_STEP))
        hint = f"it can end with {listed}, and" if listed else "it can only end"
        hint += " with what any step can: see docs/playbook/errors.md"
        message = f"{what} fails with the kind {kinds}"
        findings.warn(asked.at, "unreachable-error-kind", message, hint)


def _guards_of(step: Step) -> Iterator[tuple[Expression, frozenset[str]]]:
    """Each guard with the kinds of the tasks that it is about."""
    elsewhere = step.work is not None and step.work.pool != ""
    of_arcs = _ANYTHING if elsewhere or step.loop is not None else task_kinds_of(step)
    for branch in step.branches:
        for arc in branch.arcs:
            if arc.guard is not None:
                yield arc.guard, of_arcs
    for task in tasks_of(step):
        inside = Program((task,)).every_task()  # its hooks fail as it does
        of_rules = _ANYTHING if elsewhere else frozenset[str]().union(*map(_kinds_of, inside))
        for rule in task.rules:
            if rule.when is not None:
                yield rule.when, of_rules


def task_kinds_of(step: Step) -> frozenset[str]:
    """The kinds of tasks that an error of the step may come from."""
    work = step.work
    if work is None:
        return frozenset()
    if program_of(step) is None:
        return _kinds_of(TaskSpec(work.label, work.kind, work.inputs))
    return frozenset[str]().union(*map(_kinds_of, tasks_of(step)))


def _kinds_of(task: TaskSpec) -> frozenset[str]:
    fetches = not _FETCHED.isdisjoint(keys_of(task.inputs))
    return frozenset({task.kind, _FETCHING} if fetches else {task.kind})

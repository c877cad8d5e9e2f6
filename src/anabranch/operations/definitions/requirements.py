"""What a definition needs beside itself: kinds of work, participants, rules, a chain, pools.

This is worked out from the net alone. What an engine has of it is for `preflight` to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from anabranch.dialects.xrc729.words import RULE
from anabranch.net.net import Net, Step, Work
from anabranch.net.problems import Position
from anabranch.net.program import Iteration, Program

Sort = Literal["kind", "participants", "rule", "chain", "pool"]

#: Kinds of work that ask whoever the book of participants lists.
ASKING_KINDS = frozenset({"targets", "dispatch", "request", "capability"})


class Requirement(msgspec.Struct, frozen=True):
    """One thing that a step needs, and where the definition says so."""

    sort: Sort
    name: str  # the kind, the rule or the pool
    step: str
    position: Position
    on_chain: bool = False  # of a rule: it has an address, so a chain can be asked for it


def requirements_of(net: Net) -> tuple[Requirement, ...]:
    """Everything that the steps of a net need, in document order."""
    return tuple(need for step in net.steps.values() for need in _needs(step))


def _needs(step: Step) -> Iterator[Requirement]:
    at = step.position or Position(1, 1)
    for work in _works(step):
        if work.pool:
            yield Requirement("pool", work.pool, step.name, at)
        for kind, where in _kinds(work):
            yield Requirement("kind", kind, step.name, where or at)
            if kind in ASKING_KINDS:
                yield Requirement("participants", kind, step.name, where or at)
        if work.kind == RULE and work.program is not None:
            yield from _of_rule(work, step.name, at)


def _of_rule(work: Work, step: str, at: Position) -> Iterator[Requirement]:
    """A rule that is not bundled has to come from somewhere; any rule may use the chain."""
    rule = work.program
    name = rule.address or rule.alias
    if rule.text is None:
        yield Requirement("rule", name, step, at, on_chain=bool(rule.address))
    yield Requirement("chain", name, step, at)


def _works(step: Step) -> Iterator[Work]:
    """The work of a step, and that of the jobs beside it."""
    if step.work is not None:
        yield step.work
    if step.fan is not None and step.fan.targets is not None:
        yield step.fan.targets
    if step.decision is not None and step.decision.source is not None:
        yield step.decision.source


def _kinds(work: Work) -> Iterator[tuple[str, Position | None]]:
    """The kinds of a step's tasks, those inside a pipeline or a loop included."""
    yield work.kind, None
    program = work.program.program if isinstance(work.program, Iteration) else work.program
    if isinstance(program, Program):
        for task in program.every_task():
            if task.loop is None:  # a loop of its own only holds other tasks
                yield task.kind, task.position

"""Programs: ordered tasks that a worker carries out as one job, with rules for what follows each.

A program is opaque to the kernel. It is compiled by a dialect and interpreted by `work.pipeline`.

    task ─▶ outcome ─▶ the first rule that matches ─▶ continue │ retry │ jump │ break │ fail
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from anabranch.expressions.port import Expression
from anabranch.net.net import Reducer
from anabranch.net.problems import Position

Control = Literal["continue", "retry", "jump", "break", "fail"]


@dataclass(frozen=True, slots=True)
class Write:
    """A value that a rule (or the end of a task) puts somewhere."""

    key: str
    value: Expression
    reducer: Reducer = "set"


@dataclass(frozen=True, slots=True)
class Rule:
    """What to do after an outcome; `when` is None for the rule that always matches."""

    when: Expression | None
    do: Control
    attempts: int = 3  # executions in all, the first included
    delay: Expression | None = None  # seconds; None is one second
    backoff: Literal["none", "constant", "linear", "exponential"] = "none"
    to: str = ""  # the label to jump to
    set_ctx: tuple[Write, ...] = ()
    set_iter: tuple[Write, ...] = ()
    set_shared: tuple[Write, ...] = ()  # in a loop: reduced over all items
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One task of a program."""

    label: str
    kind: str
    inputs: Expression | None = None
    rules: tuple[Rule, ...] = ()
    timeout_ms: int | None = None
    on_unmatched_error: Literal["fail", "continue"] = "fail"
    #: Written when the task ends well, whatever the rules say.
    set_ctx: tuple[Write, ...] = ()
    set_iter: tuple[Write, ...] = ()
    #: What becomes of the result before anybody sees it (selection, storing); opaque here.
    output: Mapping[str, Any] | None = None
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Program:
    tasks: tuple[TaskSpec, ...]
    jumps_max: int = 10_000  # a jump beyond that is taken for a loop that never ends

    def index(self, label: str) -> int:
        return next(i for i, task in enumerate(self.tasks) if task.label == label)

    @property
    def plain(self) -> bool:
        """One task and nothing said about what follows it."""
        if len(self.tasks) != 1:
            return False
        task = self.tasks[0]
        return not (task.rules or task.set_ctx or task.set_iter or task.output or task.timeout_ms)


@dataclass(frozen=True, slots=True)
class Iteration:
    """A program to be carried out once per item of a shard."""

    program: Program
    iterator: str  # the item's name in templates
    concurrency: int = 1  # items of one shard at work at once
    key: Expression | None = None  # gives an item's idempotency key
    reducers: Mapping[str, Reducer] = field(default_factory=dict)
    keep_results: bool = True

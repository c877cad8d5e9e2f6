"""Programs: ordered tasks that a worker carries out as one job, with rules for what follows each.

A program is opaque to the kernel. It is compiled by a dialect and interpreted by `work.pipeline`.

    before ─▶ task ─▶ outcome ─▶ after ─▶ the first rule that matches ─▶ finally
                                          continue │ skip │ retry │ jump │ break │ fail

A task may be a loop of its own: then its program runs once per item, inside this very job.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import force_setattr

from anabranch.expressions.port import Expression
from anabranch.literals import Reducer
from anabranch.net.net import Step, WaitRule
from anabranch.net.problems import Position

Control = Literal["continue", "skip", "retry", "jump", "break", "fail"]


class Write(msgspec.Struct, frozen=True):
    """A value that a rule (or the end of a task) puts somewhere."""

    key: str
    value: Expression
    reducer: Reducer = "set"


class Rule(msgspec.Struct, frozen=True):
    """What to do after an outcome; `when` is None for the rule that always matches."""

    when: Expression | None
    do: Control
    attempts: int | Expression = 3  # executions in all, the first included
    delay: Expression | None = None  # seconds; None is one second
    backoff: Literal["none", "constant", "linear", "exponential"] = "none"
    to: str = ""  # the label to jump to
    set_ctx: tuple[Write, ...] = ()
    set_iter: tuple[Write, ...] = ()
    set_shared: tuple[Write, ...] = ()  # in a loop: reduced over all items
    set_prev: Expression | None = None  # what the next task sees as the result before it
    position: Position | None = None
    multiplier: float = 2.0  # of an exponential backoff
    delay_max: Expression | None = None  # seconds; no pause is longer
    asserts: str = ""  # what did not hold, where the rule stands for an `assert`


class TaskHooks(msgspec.Struct, frozen=True):
    """Programs around a task. What they give is not seen; what they write is."""

    before: Program | None = None  # once, when the pipeline comes to the task
    after: Program | None = None  # after every execution, with its outcome
    leaving: Program | None = None  # once, when the pipeline leaves the task, whichever way


class InnerLoop(msgspec.Struct, frozen=True):
    """A task's program once per item of a list, inside its pipeline."""

    program: Program
    over: Expression
    iterator: str
    window: Expression | None = None  # items at work at once; None is one after the other
    best_effort: bool = False  # items that fail leave a null behind instead of ending the loop


class TaskSpec(msgspec.Struct, frozen=True):
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
    set_shared: tuple[Write, ...] = ()
    set_prev: Expression | None = None
    hooks: TaskHooks | None = None
    loop: InnerLoop | None = None  # instead of work of its kind
    waits: bool = False  # for an answer from outside, such as a child run's
    wait: WaitRule | None = None  # of one that waits for a signal
    inclusive: bool = False  # all rules that match write; the first of them that leads away decides
    timeout: Expression | None = None  # in the place of `timeout_ms`: worked out for each attempt
    #: Nothing is said about what follows it; kept, because large loops ask for every item.
    simple: bool = False  # set below, whatever is given

    def __post_init__(self) -> None:
        said = self.rules or self.set_ctx or self.set_iter or self.set_shared or self.hooks
        force_setattr(self, "simple", not said and self.set_prev is None)


class Program(msgspec.Struct, frozen=True):
    tasks: tuple[TaskSpec, ...]
    jumps_max: int = 10_000  # a jump beyond that is taken for a loop that never ends
    #: What `iter` holds at the start, besides the item.
    variables: Expression | None = None
    #: Which of it travels with the answer, for the writes and arcs of the step; None is all of it.
    exports: frozenset[str] | None = None
    #: Tasks whose results stay with that of the whole, under `results`.
    kept: frozenset[str] = frozenset()
    writes: bool = False  # something of it goes into the context of the run; set below

    def __post_init__(self) -> None:
        tasks = list(self.every_task())
        made: list[TaskSpec | Rule] = [*tasks, *(rule for task in tasks for rule in task.rules)]
        force_setattr(self, "writes", any(each.set_ctx or each.set_shared for each in made))

    def index(self, label: str) -> int:
        return next(i for i, task in enumerate(self.tasks) if task.label == label)

    @property
    def waits(self) -> bool:
        """Some task waits for an answer from outside."""
        return any(task.waits for task in self.tasks)

    def every_task(self) -> Iterator[TaskSpec]:
        """The tasks, those of hooks and inner loops included."""
        for task in self.tasks:
            yield task
            hooks = task.hooks or TaskHooks()
            inner = None if task.loop is None else task.loop.program
            for program in (hooks.before, hooks.after, hooks.leaving, inner):
                if program is not None:
                    yield from program.every_task()


class Iteration(msgspec.Struct, frozen=True):
    """A program to be carried out once per item of a shard."""

    program: Program
    iterator: str  # the item's name in templates
    parallel: bool = False  # items of a shard may run at once, as many as the loop allows
    key: Expression | None = None  # gives an item's idempotency key
    reducers: Mapping[str, Reducer] = {}
    keep_results: bool = True
    stops: bool = False  # at the first item that failed for good; those after it are left alone
    retries: int = 0  # how often a failed item may go out once more
    ordered: bool = False  # one after the other: each sees the context as the one before left it
    item: tuple[str, ...] = ()  # where templates find the item; () where that is not told
    result: tuple[str, ...] = ()  # and where rules find the result of a task that ended well

    def ends_at(self, *, for_good: bool) -> bool:
        """Whether no further item of a shard begins behind one that failed. Where they go in order
        it is tried again before the next one; or when the run is redriven, and then it writes what
        it writes before what those behind it do."""
        if for_good and self.stops:
            return True
        return self.ordered and (not for_good or self.program.writes)


def program_of(step: Step) -> Program | None:
    """The tasks of a step, for each item where it is a loop; None where its work is one task."""
    program = None if step.work is None else step.work.program
    found = program.program if isinstance(program, Iteration) else program
    return found if isinstance(found, Program) else None


def tasks_of(step: Step) -> Iterator[TaskSpec]:
    """Every task of its program, those of hooks and inner loops included."""
    program = program_of(step)
    if program is not None:
        yield from program.every_task()

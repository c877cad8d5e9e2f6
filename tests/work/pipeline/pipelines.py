"""What the tests of pipelines share: programs in short, scripted work, recorded sleeps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from anabranch.expressions.jinja.jinja import Jinja
from anabranch.expressions.port import Expression
from anabranch.kernel.tracker import Shard
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.net.program import Iteration, Program, Rule, TaskSpec, Write
from anabranch.work.pipeline.pipeline import Pipeline, Services
from anabranch.work.port import Parked, Performer, Task

from ..support import run

JINJA = Jinja()
Step = Answer | Parked | BaseException | Callable[[Task], Any]


class Scripted:
    """Answers by script, one entry per call; the last entry serves all calls after it."""

    def __init__(self, *script: Step) -> None:
        self._script = list(script)
        self.tasks: list[Task] = []

    async def perform(self, task: Task) -> Answer | Parked:
        step = self._script[min(len(self.tasks), len(self._script) - 1)]
        self.tasks.append(task)
        if isinstance(step, BaseException):
            raise step
        if callable(step):
            made: Any = step(task)
            answer: Answer | Parked = await made if isinstance(made, Awaitable) else made
            return answer
        return step

    @property
    def keys(self) -> list[str]:
        return [task.key for task in self.tasks]


def ok(result: Any = None) -> Answer:
    return succeeded(result)


def error(kind: str = "server_error", message: str = "no", **more: Any) -> Answer:
    return failed(kind, message, **more)


def echo(task: Task) -> Answer:
    """What it was given, under `value` or as a whole."""
    return succeeded(task.inputs.get("value", dict(task.inputs)))


def rule(when: str | None, do: Any, **more: Any) -> Rule:
    for name in ("set_ctx", "set_iter", "set_shared"):
        if name in more:
            more[name] = writes(more[name])
    for name in ("delay", "set_prev"):
        if name in more:
            more[name] = JINJA.tree(more[name])
    return Rule(None if when is None else JINJA.condition(when), do, **more)


def writes(values: Mapping[str, Any]) -> tuple[Write, ...]:
    """`key: template`, or `key: (template, reducer)`."""
    made = []
    for key, value in values.items():
        text, reducer = value if isinstance(value, tuple) else (value, "set")
        made.append(Write(key, JINJA.tree(text), reducer))
    return tuple(made)


def spec(
    label: str, *rules: Rule, kind: str = "", value: Any = None, inputs: Any = None, **more: Any
) -> TaskSpec:
    given: Expression | None = None
    if inputs is not None:
        given = JINJA.tree(inputs)
    elif value is not None:
        given = JINJA.tree({"value": value})
    for name in ("set_ctx", "set_iter", "set_shared"):
        if name in more:
            more[name] = writes(more[name])
    if "set_prev" in more:
        more["set_prev"] = JINJA.tree(more["set_prev"])
    return TaskSpec(label, kind or label, given, rules, **more)


class Sleeps:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def job(program: Program, *, key: str = "k", **names: Any) -> Task:
    return Task(
        run="run-1",
        step="ship",
        job="job-1",
        attempt=1,
        key=key,
        kind="pipeline",
        inputs={},
        names={"ctx": {}, **names},
        program=program,
    )


def carry_out(
    tasks: Sequence[TaskSpec],
    performers: Mapping[str, Performer],
    *,
    sleeps: Sleeps | None = None,
    iteration: Mapping[str, Any] | None = None,
    jumps_max: int = 10_000,
    names: Mapping[str, Any] | None = None,
    **services: Any,
) -> Answer | Parked:
    program = Program(tuple(tasks), jumps_max)
    pipeline = Pipeline(Services(performers=performers, sleep=sleeps or Sleeps(), **services))
    return run(pipeline.perform(job(program, **(names or {})), iteration))


def answer_of(
    tasks: Sequence[TaskSpec], performers: Mapping[str, Performer], **more: Any
) -> Answer:
    answer = carry_out(tasks, performers, **more)
    assert isinstance(answer, Answer)
    return answer


def shard_task(iteration: Iteration, shard: Shard) -> Task:
    """The job of a shard, as the engine would hand it out."""
    return Task(
        run="r",
        step="each",
        job="1.0",
        attempt=1,
        key="k",
        kind="loop.shard",
        inputs={},
        names={"ctx": {}},
        program=iteration,
        loop="r/l1",
        shard=shard,
    )

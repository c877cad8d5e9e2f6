"""Items done the short way come to exactly what the pipeline would have made of them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from anabranch.kernel.values import Answer, ContextPatch, succeeded
from anabranch.net.program import Program, TaskSpec
from anabranch.work.pipeline.fast_path import short_wait, short_way
from anabranch.work.pipeline.pipeline import PipelineRun, Services
from anabranch.work.pipeline.scope import PipelineScope
from anabranch.work.port import Parked, Task

from ..support import run
from .pipelines import error, job, ok, rule, spec

SEEN = "{{ [local.prev, local.task, local.attempt, local.results, local.outcome.status] }}"


class Immediate:
    """Answers in place, one entry of the script per item, and keeps the tasks."""

    def __init__(self, *script: Any) -> None:
        self._script = script
        self.seen: list[tuple[Any, ...]] = []

    def perform_now(self, task: Task) -> Any:
        step = self._script[len(self.seen) % len(self._script)]
        local = {**task.names["local"], "results": dict(task.names["local"]["results"])}
        self.seen.append((task.key, task.kind, task.attempt, task.inputs, local, task.program))
        if isinstance(step, BaseException):
            raise step
        return step

    async def perform(self, task: Task) -> Answer | Parked:
        answer: Answer = self.perform_now(task)
        return answer


class Waiting:
    """The same for work that waits, and always comes back."""

    never_parks = True

    def __init__(self, *script: Any) -> None:
        self._inner = Immediate(*script)
        self.seen = self._inner.seen

    async def perform(self, task: Task) -> Answer | Parked:
        await asyncio.sleep(0)
        return await self._inner.perform(task)


ANSWERS: dict[str, Any] = {
    "ok": ok(7),
    "null": ok(),
    "error": error(),
    "final error": error("auth", "no entry", retryable=False),
    "aborted": Answer(status="aborted"),
    "raises": ValueError("broken"),
    "times out": TimeoutError("slow"),
    "nonsense": "not an answer",
    "writes": Answer(status="ok", result=1, patches=(ContextPatch("seen", 5, "set"),)),
    "cannot write": Answer(status="ok", result=1, patches=(ContextPatch("name", 5, "sum"),)),
    "fails and writes": msgspec.structs.replace(error(), patches=(ContextPatch("seen", 5),)),
    "fails and cannot write": msgspec.structs.replace(
        error(), patches=(ContextPatch("name", 5, "sum"),)
    ),
}
SHARE = {"total": ("{{ local.outcome.result or 0 }}", "sum"), "seen": (SEEN, "append")}
PROGRAMS: dict[str, TaskSpec] = {
    "plain": spec("t", value="{{ local.iter.n }}"),
    "no input": spec("t"),
    "bad input": spec("t", value="{{ 1 // 0 }}"),
    "bad input forgiven": spec("t", rule(None, "continue"), value="{{ 1 // 0 }}"),
    "shares": spec("t", rule(None, "continue", set_shared=SHARE), value="{{ local.iter.n }}"),
    "breaks": spec("t", rule(None, "break", set_shared=SHARE)),
    "fails": spec("t", rule(None, "fail", set_shared=SHARE)),
    "by outcome": spec(
        "t",
        rule("local.outcome.error.kind == 'auth'", "fail"),
        rule("local.outcome.status == 'error'", "continue", set_shared=SHARE),
        rule("ctx.seen == 5", "fail"),
    ),
    "unmatched continues": spec("t", rule("false", "fail"), on_unmatched_error="continue"),
    "unmatched fails": spec("t", rule("false", "continue")),
    "shares by itself": spec("t", set_shared=SHARE),
    "shares the context": spec("t", rule(None, "continue", set_shared={"x": "{{ ctx.seen }}"})),
    "cannot share": spec("t", rule(None, "continue", set_shared={"x": "{{ 1 // 0 }}"})),
}


@pytest.mark.parametrize("given", ANSWERS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", [Immediate, Waiting])
def test_both_ways_lead_to_the_same_answer(
    name: str, given: str, kind: type[Immediate] | type[Waiting]
) -> None:
    program = Program((PROGRAMS[name],))
    task = job(program, key="k", ctx={"name": "text"}, loop="l1")
    iteration = {"n": 3, "index": 3}

    def services() -> tuple[Services, Immediate | Waiting]:
        work = kind(ANSWERS[given])
        return Services(performers={"t": work}), work

    long_means, long_work = services()
    short_means, short_work = services()
    scope = PipelineScope(task.names.get("ctx", {}), iteration)
    try:
        expected: Any = run(PipelineRun(program, task, long_means, scope).run())
    except Exception as refused:  # a write of the answer that does not fit
        expected = str(refused)
    if kind is Immediate:
        way = short_way(program, short_means, task)
        assert way is not None
        answer, shared = run(way.perform("k", dict(iteration)))
    else:
        waits = short_wait(program, short_means, task)
        assert waits is not None
        answer, shared = run(waits.perform_waiting("k", dict(iteration)))
    if isinstance(expected, str):
        assert (PROGRAMS[name].simple, answer.patches) == (True, ANSWERS[given].patches)
        return
    assert (answer.status, answer.result, answer.fault) == (
        expected.status,
        expected.result,
        expected.fault,
    )
    if answer.status == "ok":
        assert list(shared) == scope.shared
        assert answer.patches == expected.patches
    assert short_work.seen == long_work.seen


@pytest.mark.parametrize(
    "program",
    [
        Program((spec("t"), spec("t2", kind="t"))),
        Program((spec("t", rule(None, "retry")),)),
        Program((spec("t", rule(None, "jump", to="t")),)),
        Program((spec("t", rule(None, "skip")),)),
        Program((spec("t", timeout_ms=5),)),
        Program((spec("t", output={"scope": "step"}),)),
        Program((spec("t", set_ctx={"a": "1"}),)),
        Program((spec("t", rule(None, "continue", set_iter={"a": "1"})),)),
        Program((spec("other"),)),
    ],
)
def test_whatever_may_take_longer_takes_the_long_way(program: Program) -> None:
    services = Services(performers={"t": Immediate(succeeded())})
    assert short_way(program, services, job(program)) is None
    services = Services(performers={"t": Waiting(succeeded())})
    assert short_wait(program, services, job(program)) is None


def test_work_that_may_park_takes_the_long_way() -> None:
    class MayPark:
        async def perform(self, _task: Task) -> Answer | Parked:
            return Parked("ticket")

    program = Program((spec("t"),))
    assert short_wait(program, Services(performers={"t": MayPark()}), job(program)) is None

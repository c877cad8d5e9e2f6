"""A pipeline that waits for an answer from outside is remembered, and goes on where it stood."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.kernel.values import Answer, ContextPatch
from anabranch.net.program import InnerLoop, Program, TaskHooks, TaskSpec
from anabranch.work.pipeline.pipeline import Pipeline, Services
from anabranch.work.port import Parked, Performer, Task
from anabranch.work.secrets.redaction import Redactor, giving
from anabranch.work.values.payloads import MemoryPayloads

from ..support import fault_of, run
from .pipelines import JINJA, Scripted, Sleeps, carry_out, echo, error, job, ok, rule, spec

PARKED = Parked("child-7", until=99)
FAILED = "local.outcome.status == 'error'"


class Child:
    """Says that its answers come from outside."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []

    @staticmethod
    def parks(_inputs: Any) -> bool:
        return True

    async def perform(self, task: Task) -> Parked:
        self.tasks.append(task)
        return PARKED


class Legs:
    """Performs a pipeline leg by leg, as an engine does: what is remembered travels as JSON."""

    def __init__(
        self, *tasks: TaskSpec, services: dict[str, Any] | None = None, **kinds: Performer
    ):
        self.child = Child()
        self.sleeps = Sleeps()
        performers: dict[str, Performer] = {"echo": Scripted(echo), "child": self.child, **kinds}
        self._pipeline = Pipeline(
            Services(performers=performers, sleep=self.sleeps, **(services or {}))
        )
        self._task = job(Program(tasks))

    def begin(self, **ctx: Any) -> Parked:
        parked = self._perform(msgspec.structs.replace(self._task, names={"ctx": ctx}))
        assert isinstance(parked, Parked), parked
        return parked

    def hear(self, parked: Parked, heard: Answer, **ctx: Any) -> Answer | Parked:
        memory = msgspec.json.decode(msgspec.json.encode(parked.memory))
        task = msgspec.structs.replace(self._task, memory=memory, heard=heard, names={"ctx": ctx})
        return self._perform(task)

    def through(self, heard: Answer, **ctx: Any) -> Answer:
        answer = self.hear(self.begin(**ctx), heard, **ctx)
        assert isinstance(answer, Answer), answer
        return answer

    def _perform(self, task: Task) -> Answer | Parked:
        answer: Answer | Parked = run(self._pipeline.perform(task))
        return answer


def test_the_answer_from_outside_is_the_result_of_the_task_that_waited() -> None:
    legs = Legs(
        spec("a", kind="echo", value=1),
        spec("b", kind="child"),
        spec("c", kind="echo", value=["{{ local.results.a }}", "{{ local.prev.n }}"]),
    )
    parked = legs.begin()
    assert (parked.ticket, parked.until) == ("child-7", 99)
    answer = legs.hear(parked, ok({"n": 2}))
    assert isinstance(answer, Answer)
    assert answer.result == [1, 2]
    assert len(legs.child.tasks) == 1


def test_tasks_before_it_are_not_done_again() -> None:
    before = Scripted(ok(5))
    legs = Legs(spec("a", kind="w"), spec("b", kind="child"), w=before)
    assert legs.through(ok("done")).result == "done"
    assert len(before.tasks) == 1


def test_an_error_from_outside_goes_through_the_rules() -> None:
    again = rule(FAILED, "retry", attempts=2, delay=3)
    legs = Legs(spec("b", again, kind="child"), spec("c", kind="echo", value="{{ local.prev }}"))
    second = legs.hear(legs.begin(), error("child"))
    assert isinstance(second, Parked)
    assert legs.sleeps.seconds == [3.0]
    answer = legs.hear(second, ok(7))
    assert isinstance(answer, Answer)
    assert answer.result == 7
    assert [(task.key, task.again) for task in legs.child.tasks] == [("k/b", ""), ("k/b", ".a2")]
    failed = legs.hear(second, error("child", "no luck"))
    assert isinstance(failed, Answer)
    assert fault_of(failed).message == "no luck"


def test_writes_made_before_and_after_travel_together() -> None:
    legs = Legs(
        spec("a", kind="echo", value=1, set_ctx={"n": ("{{ 2 }}", "sum")}, set_iter={"i": 5}),
        spec("b", kind="child", set_ctx={"n": ("{{ local.outcome.result }}", "sum")}),
        spec("c", kind="echo", value=["{{ ctx.n }}", "{{ local.iter.i }}"]),
    )
    answer = legs.through(ok(10), n=100)
    assert answer.result == [112, 5]
    assert answer.patches == (ContextPatch("n", 2, "sum"), ContextPatch("n", 10, "sum"))
    assert answer.locals == {"i": 5}


def test_a_context_that_changed_meanwhile_in_kind_is_a_clear_failure() -> None:
    legs = Legs(
        spec("a", kind="echo", value=1, set_ctx={"n": ("{{ 2 }}", "sum")}),
        spec("b", kind="child"),
    )
    answer = legs.hear(legs.begin(n=1), ok(), n="text")
    assert isinstance(answer, Answer)
    assert "sum cannot combine str with int" in fault_of(answer).message


def test_jumps_and_rounds_are_remembered() -> None:
    more = rule("local.outcome.result.more", "jump", to="b")
    legs = Legs(spec("b", more, kind="child"), spec("c", kind="echo", value="{{ local.prev.n }}"))
    second = legs.hear(legs.begin(), ok({"more": True}))
    assert isinstance(second, Parked)
    answer = legs.hear(second, ok({"more": False, "n": 2}))
    assert isinstance(answer, Answer)
    assert answer.result == 2
    assert [task.key for task in legs.child.tasks] == ["k/b", "k/b~2"]


def test_the_time_of_the_task_is_how_long_it_waits() -> None:
    assert Legs(spec("b", kind="child", timeout_ms=5_000)).begin().limit_ms == 5_000
    assert Legs(spec("b", kind="child")).begin().limit_ms == 0


def test_a_large_result_before_it_still_has_its_ref() -> None:
    store = MemoryPayloads()
    big = {"text": "x" * 500, "n": 1}
    legs = Legs(
        spec("a", kind="w", output={"inline_max_bytes": 100}),
        spec("b", kind="child"),
        spec("c", kind="echo", value=["{{ local.results.a._size_bytes > 100 }}"]),
        spec("d", kind="echo", value="{{ local.results.a.text | length }}"),
        services={"payloads": store},
        w=Scripted(ok(big)),
    )
    assert legs.through(ok()).result == 500


def test_what_set_prev_said_is_remembered() -> None:
    legs = Legs(
        spec("a", rule(None, "continue", set_prev="{{ 'mine' }}"), kind="echo", value=1),
        spec("b", rule(FAILED, "continue"), kind="child"),
        spec("c", kind="echo", value="{{ local.prev }}"),
    )
    assert legs.through(error("gone")).result == "mine"


def test_secrets_do_not_stay_in_the_memory() -> None:
    scope = Redactor.of_job()
    scope.learn("hunter2hunter2")
    legs = Legs(
        spec("a", kind="echo", value="token hunter2hunter2"),
        spec("b", kind="child"),
    )
    with giving(scope):
        assert b"hunter2" not in msgspec.json.encode(legs.begin().memory)


def test_secrets_do_not_travel_to_the_arcs() -> None:
    scope = Redactor.of_job()
    scope.learn("hunter2hunter2")
    task = spec("a", kind="echo", value=1, set_iter={"token": "hunter2hunter2"})
    answer = carry_out([task], {"echo": Scripted(echo)})
    assert isinstance(answer, Answer)
    answer = scope.answer(answer)
    assert "token" in answer.locals
    assert "hunter2" not in str(answer.locals)


def test_what_cannot_be_remembered_is_a_clear_failure() -> None:
    tasks = [spec("a", kind="w"), spec("b", kind="child")]
    odd = Scripted(lambda _: ok(object()))
    answer = carry_out(tasks, {"w": odd, "child": Child()})
    assert isinstance(answer, Answer)
    assert "task b: what was done before it is not JSON" in fault_of(answer).message


def inner(*tasks: TaskSpec) -> TaskSpec:
    loop = InnerLoop(Program(tasks), JINJA.tree([1, 2]), "n")
    return TaskSpec("loop", "pipeline", loop=loop)


@pytest.mark.parametrize("says_so", [True, False])
@pytest.mark.parametrize(
    "task",
    [
        inner(spec("b", kind="child")),
        spec(
            "a", kind="echo", value=1, hooks=TaskHooks(before=Program((spec("b", kind="child"),)))
        ),
    ],
    ids=["inner loop", "hook"],
)
def test_inside_a_hook_or_an_inner_loop_nothing_can_wait(task: TaskSpec, says_so: bool) -> None:
    child = Child() if says_so else Scripted(PARKED)
    fault = fault_of_answer([task], {"child": child, "echo": Scripted(echo)})
    assert "task b (child) waits for an answer from outside inside a hook" in fault.message
    assert not (isinstance(child, Child) and child.tasks)


def fault_of_answer(tasks: list[TaskSpec], performers: dict[str, Performer]) -> Any:
    answer = carry_out(tasks, performers)
    assert isinstance(answer, Answer)
    return fault_of(answer)


def test_what_was_executed_before_it_parked_is_still_told() -> None:
    legs = Legs(spec("first", kind="echo"), spec("waits", kind="child"), spec("last", kind="echo"))
    answer = legs.through(ok(1))
    assert [task.label for task in answer.tasks] == ["first", "waits", "last"]

"""Hooks around a task, `skip`, `set_prev`, attempts from a template, and rounds put together."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel.values import Answer, ContextPatch
from anabranch.net.program import Program, TaskHooks, TaskSpec
from anabranch.work.pipeline.pipeline import Pipeline, PipelineRun, Services
from anabranch.work.pipeline.scope import PipelineScope
from anabranch.work.port import Task

from ..support import fault_of, run
from .pipelines import JINJA, Scripted, Sleeps, answer_of, echo, error, job, ok, rule, spec

FAILED = "local.outcome.status == 'error'"


class Diary:
    """Work that notes in which order it was asked, by the last part of its key."""

    def __init__(self, *bad: str) -> None:
        self._bad = bad
        self.entries: list[str] = []

    def perform_now(self, task: Task) -> Answer:
        name = task.key.rpartition("/")[2].partition("~")[0]
        self.entries.append(name)
        return error("down", f"{name} fails") if name in self._bad else ok(name)

    async def perform(self, task: Task) -> Answer:
        return self.perform_now(task)


def hook(label: str, **more: Any) -> Program:
    return Program((spec(label, kind="w", **more),))


def around(**hooks: Program) -> TaskHooks:
    named = {"leaving" if name == "finally_" else name: made for name, made in hooks.items()}
    return TaskHooks(**named)


HOOKS = around(before=hook("open"), after=hook("log"), finally_=hook("close"))


def test_hooks_stand_around_their_task_and_change_no_result() -> None:
    diary = Diary()
    tasks = [
        spec("a", kind="w"),
        spec("b", kind="w", hooks=HOOKS),
        spec("c", kind="echo", value="{{ local.prev }}"),
    ]
    answer = answer_of(tasks, {"w": diary, "echo": Scripted(echo)})
    assert diary.entries == ["a", "open", "b", "log", "close"]
    assert answer.result == "b"


def test_before_and_finally_are_once_per_visit_and_after_is_once_per_execution() -> None:
    diary = Diary("b")
    again = rule(FAILED, "retry", attempts=3, delay=0)
    fault_of(answer_of([spec("b", again, kind="w", hooks=HOOKS)], {"w": diary}))
    assert diary.entries == ["open", "b", "log", "b", "log", "b", "log", "close"]


def test_every_way_out_of_a_task_closes_it() -> None:
    for do in ("continue", "skip", "break", "fail"):
        diary = Diary("b")
        leave = rule(FAILED, do)
        answer_of([spec("b", leave, kind="w", hooks=HOOKS)], {"w": diary})
        assert diary.entries == ["open", "b", "log", "close"], do


def test_a_round_of_a_jump_opens_and_closes_anew() -> None:
    diary = Diary()
    back = rule("local.iter.n < 2", "jump", to="b", set_iter={"n": "{{ local.iter.n + 1 }}"})
    answer_of([spec("b", back, kind="w", hooks=HOOKS)], {"w": diary}, iteration={"n": 0})
    assert diary.entries == ["open", "b", "log", "close"] * 3


def test_a_task_that_could_not_be_opened_is_not_done_and_may_be_tried_again() -> None:
    diary = Diary("open")
    again = rule(FAILED, "retry", attempts=2, delay=0)
    fault = fault_of(answer_of([spec("b", again, kind="w", hooks=HOOKS)], {"w": diary}))
    assert diary.entries == ["open", "log", "open", "log", "close"]
    assert (fault.kind, fault.message) == ("down", "`before` of task b: open fails")


def test_an_after_that_fails_makes_an_error_of_a_success() -> None:
    diary = Diary("log")
    fault = fault_of(answer_of([spec("b", kind="w", hooks=HOOKS)], {"w": diary}))
    assert fault.message == "`after` of task b: log fails"
    assert diary.entries[-1] == "close"


def test_a_finally_that_fails_fails_what_went_well_and_hides_no_other_error() -> None:
    alone = around(finally_=hook("close"))
    fine = fault_of(answer_of([spec("b", kind="w", hooks=alone)], {"w": Diary("close")}))
    assert fine.message == "`finally` of task b: close fails"
    worse = fault_of(answer_of([spec("b", kind="w", hooks=alone)], {"w": Diary("b", "close")}))
    assert worse.message == "b fails"


def test_hooks_see_the_outcome_and_what_they_write_counts() -> None:
    seen = Program(
        (
            spec(
                "note",
                kind="echo",
                value="{{ local.outcome.result }}/{{ local.iter.i }}",
                set_ctx={"noted": "{{ local.results.note }}"},
                set_iter={"i": "{{ local.iter.i + 1 }}"},
            ),
        )
    )
    tasks = [
        spec("b", kind="w", hooks=TaskHooks(after=seen)),
        spec("c", kind="echo", value="{{ local.iter.i }} {{ ctx.noted }}"),
    ]
    performers: dict[str, Any] = {"w": Diary(), "echo": Scripted(echo)}
    answer = answer_of(tasks, performers, iteration={"i": 1})
    assert answer.result == "2 b/1"
    assert answer.patches == (ContextPatch("noted", "b/1"),)


# -- skip and set_prev -----------------------------------------------------------------------


def test_skip_goes_on_as_if_the_task_had_not_been_there() -> None:
    shown = "{{ local.prev }} {{ 'b' in local.results }}"
    tasks = [
        spec("a", kind="echo", value=1),
        spec("b", rule(None, "skip"), kind="echo", value=2),
        spec("c", kind="echo", value=shown),
    ]
    assert answer_of(tasks, {"echo": Scripted(echo)}).result == "1 False"
    assert answer_of(tasks[:2], {"echo": Scripted(echo)}).result == 1


def test_skip_after_an_error_goes_on_too() -> None:
    tasks = [spec("a", kind="echo", value=1), spec("b", rule(FAILED, "skip"), kind="no")]
    answer = answer_of(tasks, {"echo": Scripted(echo), "no": Scripted(error())})
    assert (answer.status, answer.result) == ("ok", 1)


def test_the_next_task_sees_what_set_prev_says() -> None:
    tasks = [
        spec("a", kind="echo", value={"n": 4}, set_prev="{{ local.outcome.result.n * 2 }}"),
        spec("b", kind="echo", value="{{ local.prev }} {{ local.results.a.n }}"),
    ]
    assert answer_of(tasks, {"echo": Scripted(echo)}).result == "8 4"


def test_a_rule_sets_prev_over_its_task_and_for_the_task_it_jumps_to() -> None:
    tasks = [
        spec("a", rule(None, "jump", to="c", set_prev="rule"), kind="echo", set_prev="task"),
        spec("b", kind="no"),
        spec("c", kind="echo", value="{{ local.prev }}"),
    ]
    assert answer_of(tasks, {"echo": Scripted(echo)}).result == "rule"


def test_a_retry_sees_what_set_prev_gave_it() -> None:
    again = rule("local.attempt < 2", "retry", delay=0, set_prev="{{ 'try ' ~ local.attempt }}")
    tasks = [spec("a", again, kind="echo", value="{{ local.prev or 'first' }}")]
    assert answer_of(tasks, {"echo": Scripted(echo)}).result == "try 1"


def test_shared_writes_of_a_task_are_for_its_loop() -> None:
    tasks = (spec("a", kind="echo", value=3, set_shared={"n": ("{{ local.prev }}", "sum")}),)
    scope = PipelineScope({}, {})
    services = Services(performers={"echo": Scripted(echo)})
    run(PipelineRun(Program(tasks), job(Program(tasks)), services, scope).run())
    assert scope.shared == [ContextPatch("n", 3, "sum")]


# -- attempts --------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "calls"), [("{{ ctx.n }}", 4), ("{{ '2' }}", 2)])
def test_attempts_may_come_from_a_template(given: str, calls: int) -> None:
    work, sleeps = Scripted(error()), Sleeps()
    again = rule(FAILED, "retry", attempts=JINJA.tree(given))
    answer_of([spec("a", again, kind="w")], {"w": work}, sleeps=sleeps, names={"ctx": {"n": 4}})
    assert len(work.tasks) == calls
    assert len(sleeps.seconds) == calls - 1


@pytest.mark.parametrize("given", ["{{ 0 }}", "{{ 'many' }}", "{{ none }}", "{{ true }}"])
def test_attempts_that_are_no_number_are_a_clear_failure(given: str) -> None:
    again = rule(FAILED, "retry", attempts=JINJA.tree(given))
    fault = fault_of(answer_of([spec("a", again, kind="w")], {"w": Scripted(error())}))
    assert "task a: attempts must be a whole number from 1 up, not" in fault.message


# -- rounds ----------------------------------------------------------------------------------


def pages(policy: dict[str, Any], *results: Any) -> Any:
    more = rule("local.iter.n < 3", "jump", to="a", set_iter={"n": "{{ local.iter.n + 1 }}"})
    task = spec("a", more, kind="w", output={"accumulate": policy})
    answers = [ok(result) for result in results]
    return answer_of([task], {"w": Scripted(*answers)}, iteration={"n": 1})


@pytest.mark.parametrize(
    ("policy", "result"),
    [
        ({"strategy": "append", "merge_path": "$.n"}, [1, 2, 3]),
        ({"strategy": "concat", "merge_path": "rows"}, [1, 1, 2, 2, 3, 3]),
        ({"strategy": "merge", "merge_path": "by"}, {"k1": 1, "k2": 2, "k3": 3}),
        ({"strategy": "replace", "merge_path": "n"}, 3),
        (
            {"strategy": "append", "merge_path": "n", "manifest_as": "all"},
            {"n": 3, "rows": [3, 3], "by": {"k3": 3}, "all": [1, 2, 3]},
        ),
    ],
)
def test_the_rounds_of_a_task_are_put_together(policy: dict[str, Any], result: Any) -> None:
    rounds = [{"n": n, "rows": [n, n], "by": {f"k{n}": n}} for n in (1, 2, 3)]
    assert pages(policy, *rounds).result == result


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({"strategy": "concat", "merge_path": "n"}, "concat needs a list, not int"),
        ({"strategy": "merge", "merge_path": "n"}, "merge needs a mapping, not int"),
        ({"merge_path": "gone.away"}, "the result has no gone.away"),
        ({"merge_path": "n", "max_items": 2}, "3 items are over max_items (2)"),
    ],
)
def test_rounds_that_do_not_fit_together_are_a_clear_failure(
    policy: dict[str, Any], words: str
) -> None:
    assert words in fault_of(pages(policy, {"n": 1})).message


def test_a_round_that_is_asked_again_counts_once() -> None:
    again = rule("local.attempt < 3", "retry", delay=0)
    task = spec("a", again, kind="w", output={"accumulate": {}})
    assert answer_of([task], {"w": Scripted(ok(1), ok(2), ok(3))}).result == [3]


def test_variables_are_there_from_the_start() -> None:
    program = Program(
        (TaskSpec("a", "echo", JINJA.tree({"value": "{{ local.iter.x }}"})),),
        variables=JINJA.tree({"x": "{{ ctx.y + 1 }}"}),
    )
    services = Services(performers={"echo": Scripted(echo)})
    answer = run(Pipeline(services).perform(job(program, ctx={"y": 4})))
    assert isinstance(answer, Answer)
    assert (answer.result, answer.locals) == (5, {"x": 5})

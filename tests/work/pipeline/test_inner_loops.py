"""Loops inside a pipeline: in order, isolated, with the loop around as `iter.parent`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.kernel.values import Answer, ContextPatch
from anabranch.net.program import InnerLoop, Program, TaskSpec
from anabranch.work.pipeline.inner_loops import ITEMS_MAX
from anabranch.work.port import Task

from ..support import fault_of
from .pipelines import JINJA, Scripted, answer_of, echo, error, ok, rule, spec

FAILED = "local.outcome.status == 'error'"


def loop(over: Any, *tasks: TaskSpec, label: str = "each", **more: Any) -> TaskSpec:
    rules = more.pop("rules", ())
    window = more.pop("window", None)
    made = InnerLoop(
        Program(tasks),
        JINJA.tree(over),
        more.pop("iterator", "n"),
        None if window is None else JINJA.tree(window),
        more.pop("best_effort", False),
    )
    return TaskSpec(label, "pipeline", None, tuple(rules), loop=made, **more)


def double() -> TaskSpec:
    return spec("twice", kind="echo", value="{{ local.iter.n * 2 }}")


def results(answer: Answer) -> Any:
    assert answer.status == "ok", answer
    return answer.result


@pytest.mark.parametrize(
    ("over", "found"),
    [
        ([1, 2, 3], [2, 4, 6]),
        ("{{ ctx.items }}", [10]),
        ({"range": 3}, [0, 2, 4]),
        ({"range": [1, 7, 3]}, [2, 8]),
        ([], []),
    ],
)
def test_what_it_goes_through(over: Any, found: list[Any]) -> None:
    names = {"ctx": {"items": [5]}}
    answer = answer_of([loop(over, double())], {"echo": Scripted(echo)}, names=names)
    stats = {"total": len(found), "success": len(found), "failed": 0}
    assert results(answer) == {"results": found, "stats": stats}


def test_a_mapping_is_gone_through_pair_by_pair() -> None:
    task = loop("{{ ctx.m }}", spec("a", kind="echo", value="{{ local.iter.n.key }}"))
    answer = answer_of([task], {"echo": Scripted(echo)}, names={"ctx": {"m": {"x": 1, "y": 2}}})
    assert results(answer)["results"] == ["x", "y"]


@pytest.mark.parametrize(
    ("over", "kind", "words"),
    [
        ("{{ ctx.nothing }}", "transform", "'nothing' is undefined"),
        ("{{ none }}", "collection", "needs a list, not nothing"),
        ("{{ 'text' }}", "collection", "needs a list, not str"),
        ("{{ 5 }}", "collection", "needs a list, not int"),
        ({"range": "x"}, "collection", "range must be a number"),
        ({"range": [1, 2, 0]}, "collection", "range must be a number"),
        ({"range": ITEMS_MAX + 1}, "collection", "give it a step of its own"),
        ("{{ 1 / 0 }}", "transform", "division by zero"),
    ],
)
def test_what_cannot_be_gone_through_is_named(over: Any, kind: str, words: str) -> None:
    fault = fault_of(answer_of([loop(over, double())], {"echo": Scripted(echo)}))
    assert fault.kind == kind
    assert words in fault.message


def test_items_know_their_place_and_the_loop_around() -> None:
    shown = "{{ local.iter.index }}{{ local.iter.n }} in {{ local.iter.parent.name }}"
    task = loop(["a", "b"], spec("show", kind="echo", value=shown))
    answer = answer_of([task], {"echo": Scripted(echo)}, iteration={"name": "outer"})
    assert results(answer)["results"] == ["0a in outer", "1b in outer"]


def test_loops_nest_and_each_knows_all_around_it() -> None:
    shown = "{{ local.iter.parent.parent.x }}{{ local.iter.parent.m }}{{ local.iter.n }}"
    inmost = loop("{{ local.iter.m }}", spec("show", kind="echo", value=shown), label="inner")
    task = loop([[1, 2], [3]], inmost, iterator="m")
    answer = answer_of([task], {"echo": Scripted(echo)}, iteration={"x": "x"})
    found = [each["results"] for each in results(answer)["results"]]
    assert found == [["x[1, 2]1", "x[1, 2]2"], ["x[3]3"]]


def test_items_are_isolated_and_see_what_was_before_them() -> None:
    tasks = [
        spec("a", kind="echo", value="first"),
        loop(
            [1, 2],
            spec("mark", kind="echo", value=1, set_iter={"seen": "{{ local.iter.n }}"}),
            spec(
                "show",
                kind="echo",
                value="{{ local.results.a }} {{ local.iter.seen | default('-') }}",
            ),
        ),
        spec("c", kind="echo", value="{{ 'seen' in local.iter }} {{ 'mark' in local.results }}"),
    ]
    answer = answer_of(tasks, {"echo": Scripted(echo)})
    assert answer.result == "False False"
    inside = answer_of(tasks[:2], {"echo": Scripted(echo)})
    assert results(inside)["results"] == ["first 1", "first 2"]


def test_several_at_once_keep_the_order_of_the_items() -> None:
    most, now = [0], [0]

    async def slow(task: Task) -> Answer:
        now[0] += 1
        most[0] = max(most[0], now[0])
        for _ in range(6 - task.inputs["value"]):  # later ones are done first
            await asyncio.sleep(0)
        now[0] -= 1
        return ok(task.inputs["value"])

    task = loop([0, 1, 2, 3, 4], spec("a", kind="w", value="{{ local.iter.n }}"), window=3)
    answer = answer_of([task], {"w": Scripted(slow)})
    assert results(answer)["results"] == [0, 1, 2, 3, 4]
    assert most == [3]


@pytest.mark.parametrize("window", ["{{ 0 }}", "{{ 'x' }}", "{{ true }}"])
def test_a_number_at_once_that_is_none_is_named(window: str) -> None:
    task = loop([1], double(), window=window)
    fault = fault_of(answer_of([task], {"echo": Scripted(echo)}))
    assert "max_in_flight must be a whole number above zero" in fault.message


def fails_at_two(task: Task) -> Answer:
    return error("down", "no") if task.inputs["value"] == 2 else ok(task.inputs["value"])


def test_an_item_that_fails_ends_the_loop_and_is_named() -> None:
    work = Scripted(fails_at_two)
    task = loop([1, 2, 3], spec("a", kind="w", value="{{ local.iter.n }}"))
    fault = fault_of(answer_of([task], {"w": work}))
    assert fault.message == "task each: item 1 of 3 failed (down): no"
    assert fault.details == {"index": 1, "total": 3, "succeeded": 1, "failed": 1}
    assert len(work.tasks) == 2


def test_best_effort_goes_on_and_leaves_a_null_behind() -> None:
    task = loop([1, 2, 3], spec("a", kind="w", value="{{ local.iter.n }}"), best_effort=True)
    answer = answer_of([task], {"w": Scripted(fails_at_two)})
    stats = {"total": 3, "success": 2, "failed": 1}
    assert results(answer) == {"results": [1, None, 3], "stats": stats}


def test_the_rules_of_the_task_follow_the_whole_loop_and_keys_stay() -> None:
    work = Scripted(error(), ok(1), ok(2))
    again = rule(FAILED, "retry", attempts=2, delay=0)
    task = loop([1, 2], spec("a", kind="w"), rules=[again])
    assert results(answer_of([task], {"w": work}))["results"] == [1, 2]
    assert work.keys == ["k/each/0/a", "k/each/0/a", "k/each/1/a"]


def test_rules_inside_follow_each_item() -> None:
    work = Scripted(error(), ok(1), ok(2))
    again = rule(FAILED, "retry", attempts=2, delay=0)
    task = loop([1, 2], spec("a", again, kind="w"))
    assert results(answer_of([task], {"w": work}))["results"] == [1, 2]


def test_writes_of_the_items_are_taken_in_their_order() -> None:
    task = loop(
        [3, 4],
        spec("a", kind="echo", value=1, set_ctx={"all": ("{{ local.iter.n }}", "append")}),
        window=2,
    )
    tasks = [task, spec("b", kind="echo", value="{{ ctx.all }}")]
    answer = answer_of(tasks, {"echo": Scripted(echo)})
    assert answer.result == [3, 4]
    assert answer.patches == (ContextPatch("all", 3, "append"), ContextPatch("all", 4, "append"))


def test_the_time_of_the_task_is_that_of_the_whole_loop() -> None:
    async def never(_task: Task) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    task = loop([1, 2], spec("a", kind="w"), timeout_ms=20)
    assert fault_of(answer_of([task], {"w": Scripted(never)})).kind == "timeout"

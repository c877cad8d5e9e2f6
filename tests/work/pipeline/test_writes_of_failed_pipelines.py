"""Of a pipeline that fails, the writes of the rule that ended it count, and no others."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.kernel.tracker import Shard
from anabranch.kernel.values import Answer, ContextPatch
from anabranch.net.program import InnerLoop, Iteration, Program, TaskHooks, TaskSpec
from anabranch.work.loops.shards import Shards
from anabranch.work.pipeline.pipeline import Pipeline, Services
from anabranch.work.port import Task

from ..support import run
from .pipelines import (
    JINJA,
    Scripted,
    Sleeps,
    answer_of,
    echo,
    error,
    job,
    ok,
    rule,
    shard_task,
    spec,
)

FAILED = "local.outcome.status == 'error'"
WHY = {"why": "{{ local.outcome.error.kind }}"}
SAID = (ContextPatch("why", "server_error"),)
BEFORE = spec("a", kind="w", set_ctx={"seen": 1})


def last(*rules: Any, **more: Any) -> list[TaskSpec]:
    """A task that writes and ends well, and one that fails."""
    return [BEFORE, spec("b", *rules, kind="no", **more)]


def performers() -> dict[str, Any]:
    return {"w": Scripted(ok(1)), "no": Scripted(error()), "echo": Scripted(echo)}


def fails(tasks: list[TaskSpec]) -> tuple[ContextPatch, ...]:
    answer = answer_of(tasks, performers())
    assert answer.status == "error"
    return answer.patches


def test_a_rule_that_says_fail_has_the_last_word() -> None:
    assert fails(last(rule(FAILED, "fail", set_ctx=WHY))) == SAID


def test_a_rule_whose_attempts_are_used_up_has_it_too() -> None:
    assert fails(last(rule(FAILED, "retry", attempts=2, delay=0, set_ctx=WHY))) == SAID


def test_a_failure_that_no_rule_spoke_about_writes_nothing() -> None:
    assert fails(last()) == ()
    assert fails(last(rule("false", "fail", set_ctx=WHY))) == ()


def test_what_rules_wrote_on_the_way_goes_with_the_failure() -> None:
    note = spec("n", rule(None, "continue", set_ctx={"noted": 1}), kind="w")
    assert fails([note, *last(rule(FAILED, "fail", set_ctx=WHY))]) == SAID


def test_a_task_that_went_well_and_is_told_to_fail_writes_only_what_the_rule_says() -> None:
    too_much = rule(None, "fail", set_ctx={"why": "{{ local.outcome.result }}"})
    tasks = [spec("a", too_much, kind="w", set_ctx={"seen": 1})]
    assert fails(tasks) == (ContextPatch("why", 1),)


def test_a_finally_that_runs_after_the_failure_adds_nothing() -> None:
    close = TaskHooks(leaving=Program((spec("close", kind="w", set_ctx={"closed": True}),)))
    assert fails(last(rule(FAILED, "fail", set_ctx=WHY), hooks=close)) == SAID


def test_a_finally_counts_when_the_pipeline_ends_well_before_its_last_task() -> None:
    close = TaskHooks(leaving=Program((spec("close", kind="w", set_ctx={"closed": True}),)))
    answer = answer_of([spec("a", rule(None, "break"), kind="w", hooks=close)], performers())
    assert answer.patches == (ContextPatch("closed", True),)


# -- work that writes while it fails ---------------------------------------------------------

OWN = ContextPatch("tries", 1, "sum")


def failing(*rules: Any, answers: int = 1, **more: Any) -> Answer:
    """A pipeline whose last task answers so often with an error that has something to write."""
    wrong = msgspec.structs.replace(error(), patches=(OWN,))
    kinds = {"w": Scripted(ok(1)), "no": Scripted(*[wrong] * answers, ok("mended"))}
    return answer_of([BEFORE, spec("b", *rules, kind="no", **more)], kinds)


def test_an_answer_that_fails_has_the_last_word_as_it_has_without_a_pipeline() -> None:
    assert (failing().status, failing().patches) == ("error", (OWN,))
    assert failing(rule(FAILED, "fail", set_ctx=WHY)).patches == (OWN, *SAID)


def test_it_has_it_when_the_pipeline_goes_on_after_it() -> None:
    answer = failing(rule(FAILED, "continue", set_ctx={"total": "{{ ctx.tries }}"}))
    assert answer.status == "ok"
    assert answer.patches == (ContextPatch("seen", 1), OWN, ContextPatch("total", 1))


def test_an_attempt_that_a_rule_repeats_has_no_say_and_the_last_one_has() -> None:
    again = rule(FAILED, "retry", attempts=3, delay=0)
    mended = failing(again, answers=2)
    assert (mended.status, mended.patches) == ("ok", (ContextPatch("seen", 1),))
    given_up = failing(again, answers=3)
    assert (given_up.status, given_up.patches) == ("error", (OWN,))


# -- items -----------------------------------------------------------------------------------


def items(*rules: Any, best_effort: bool = False) -> list[TaskSpec]:
    """An inner loop over 1 and 2, whose second item fails; every item writes."""
    number = spec("n", kind="echo", value="{{ local.iter.x }}", set_ctx={"seen": 1})
    picky = spec(
        "p",
        rule("local.outcome.result == 2", "fail", set_ctx={"why": "{{ local.iter.x }}"}),
        kind="echo",
        value="{{ local.iter.x }}",
    )
    loop = InnerLoop(
        Program((number, picky)), JINJA.tree("{{ [1, 2] }}"), "x", best_effort=best_effort
    )
    return [spec("each", *rules, kind="loop", loop=loop)]


def test_an_item_of_an_inner_loop_has_its_last_word_when_the_loop_fails_with_it() -> None:
    assert fails(items()) == (ContextPatch("why", 2),)
    both = fails(items(rule(FAILED, "fail", set_ctx={"kind": "{{ local.outcome.error.kind }}"})))
    assert both == (ContextPatch("why", 2), ContextPatch("kind", "loop"))


@pytest.mark.parametrize("best_effort", [True, False])
def test_it_has_it_when_the_pipeline_goes_on(best_effort: bool) -> None:
    seen = spec("c", kind="echo", value="{{ ctx.why }}")
    on = rule(FAILED, "continue")
    answer = answer_of([*items(on, best_effort=best_effort), seen], performers())
    assert (answer.status, answer.result) == ("ok", 2)
    written = (ContextPatch("seen", 1), ContextPatch("why", 2))
    assert answer.patches == (written if best_effort else written[1:])


class Numbers:
    async def items(self, _source: Any, shard: Shard, **_more: Any) -> list[tuple[int, str, Any]]:
        return [(index, "", index) for index in range(shard.first, shard.first + shard.count)]


def test_an_item_of_a_loop_and_a_step_agree() -> None:
    """The same program on a step and once per item writes the same."""
    for tasks in (last(rule(FAILED, "fail", set_ctx=WHY)), last(), last(rule(FAILED, "continue"))):
        program = Program(tuple(tasks))
        services = Services(performers=performers(), sleep=Sleeps())
        whole = run(Pipeline(services).perform(job(program)))
        item = run(Shards(services, Numbers()).perform(shard_of(program)))
        assert isinstance(whole, Answer)
        assert isinstance(item, Answer)
        assert item.patches == whole.patches


@pytest.mark.parametrize(("tries", "patches"), [(0, ()), (1, SAID)])
def test_an_item_that_is_tried_again_has_no_last_word_yet(tries: int, patches: Any) -> None:
    program = Program(tuple(last(rule(FAILED, "fail", set_ctx=WHY))))
    services = Services(performers=performers(), sleep=Sleeps())
    task = shard_of(program, tries=tries, retries=1)
    answer = run(Shards(services, Numbers()).perform(task))
    assert isinstance(answer, Answer)
    assert answer.patches == patches


def shard_of(program: Program, tries: int = 0, retries: int = 0) -> Task:
    return shard_task(Iteration(program, "n", retries=retries), Shard(0, 0, 1, tries=tries))

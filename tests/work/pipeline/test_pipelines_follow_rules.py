"""A pipeline does its tasks in order, and what follows each is what its rules say."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.kernel.values import Answer, ContextPatch
from anabranch.net.program import Program
from anabranch.work.pipeline.outcomes import outcome_of

from ..support import fault_of
from .pipelines import Scripted, Sleeps, answer_of, carry_out, echo, error, ok, rule, spec

FAILED = "local.outcome.status == 'error'"


# -- order and names -------------------------------------------------------------------------


def test_tasks_run_in_order_and_see_what_was_before() -> None:
    tasks = [
        spec("one", kind="echo", value={"n": 1}),
        spec("two", kind="echo", value="{{ local.prev.n + 1 }}"),
        spec(
            "three",
            kind="echo",
            value=["{{ local.results.one.n }}", "{{ local.results.two }}", "{{ local.task }}"],
        ),
    ]
    assert answer_of(tasks, {"echo": Scripted(echo)}).result == [1, 2, "three"]


def test_an_empty_program_is_a_success() -> None:
    assert answer_of([], {}) == ok()
    assert Program(()).tasks == ()


def test_names_of_the_run_stay_visible_beside_the_local_ones() -> None:
    tasks = [
        spec("a", kind="echo", value=["{{ workload.x }}", "{{ ctx.y }}", "{{ local.iter.z }}"])
    ]
    names = {"workload": {"x": 1}, "ctx": {"y": 2}}
    answer = answer_of(tasks, {"echo": Scripted(echo)}, names=names, iteration={"z": 3})
    assert answer.result == [1, 2, 3]


def test_the_attempt_is_visible_to_inputs_and_rules() -> None:
    again = rule("local.attempt < 3", "retry", attempts=9)
    work = Scripted(echo)
    answer = answer_of([spec("a", again, kind="w", value="{{ local.attempt }}")], {"w": work})
    assert answer.result == 3
    assert [task.attempt for task in work.tasks] == [1, 2, 3]


def test_inputs_that_are_no_mapping_arrive_as_value() -> None:
    work = Scripted(echo)
    answer_of([spec("a", kind="w", inputs="{{ [1, 2] }}")], {"w": work})
    assert work.tasks[0].inputs == {"value": [1, 2]}


def test_the_outcome_has_the_shape_rules_expect() -> None:
    details = {"http_status": 429, "retry_after": 7, "body": "x"}
    refused = error("rate_limit", "slow down", code="HTTP_429", details=details)
    seen: list[Any] = []

    def look(task: Any) -> Answer:
        seen.append(task.inputs["value"])
        return ok()

    tasks = [
        spec(
            "a", rule(FAILED, "jump", to="b", set_iter={"seen": "{{ local.outcome }}"}), kind="no"
        ),
        spec("b", kind="look", value="{{ local.iter.seen }}"),
    ]
    answer_of(tasks, {"no": Scripted(refused), "look": Scripted(look)})
    outcome = seen[0]
    assert outcome["status"] == "error"
    assert outcome["error"] == {
        "kind": "rate_limit",
        "message": "slow down",
        "code": "HTTP_429",
        "retryable": True,
        "details": details,
        "status": 429,
        "http_status": 429,
        "retry_after": 7,
    }
    assert outcome["meta"]["attempt"] == 1
    assert outcome["meta"]["duration_ms"] >= 0


@pytest.mark.parametrize(
    ("answer", "name", "shown"),
    [
        (
            ok({"status_code": 201, "headers": {"a": "b"}, "data": 1}),
            "http",
            {"status": 201, "headers": {"a": "b"}},
        ),
        (
            error(details={"http_status": 503, "headers": {}}),
            "http",
            {"status": 503, "headers": {}},
        ),
        (error(details={"pg_code": "40P01"}), "pg", {"code": "40P01", "sqlstate": "40P01"}),
        (
            error(details={"exception_type": "ValueError"}),
            "py",
            {"exception_type": "ValueError", "traceback": None},
        ),
        (ok([1]), "http", None),
    ],
)
def test_the_outcome_has_a_part_for_its_kind(answer: Answer, name: str, shown: Any) -> None:
    assert outcome_of(answer, 1, 5).get(name) == shown


# -- choosing a rule -------------------------------------------------------------------------


def test_the_first_rule_that_matches_decides() -> None:
    tasks = [
        spec("a", rule("false", "fail"), rule("true", "break"), rule(None, "fail"), kind="w"),
        spec("b", kind="never"),
    ]
    assert answer_of(tasks, {"w": Scripted(ok(1))}).result == 1


def test_without_a_match_a_success_goes_on_and_an_error_fails() -> None:
    rules = (rule("false", "break"),)
    work = Scripted(ok(1), ok(2))
    tasks = [spec("a", *rules, kind="w"), spec("b", *rules, kind="w")]
    assert answer_of(tasks, {"w": work}).result == 2
    fault = fault_of(answer_of(tasks, {"w": Scripted(error("python", "broken"))}))
    assert (fault.kind, fault.message) == ("python", "broken")


def test_an_unmatched_error_may_go_on() -> None:
    tasks = [
        spec("a", kind="w"),
        spec("b", rule("false", "break"), kind="no", on_unmatched_error="continue"),
        spec("c", kind="echo", value="{{ local.prev }}"),
    ]
    performers = {"w": Scripted(ok("kept")), "no": Scripted(error()), "echo": Scripted(echo)}
    assert answer_of(tasks, performers).result == "kept"


def test_a_rule_that_cannot_be_evaluated_does_not_match() -> None:
    broken = rule("local.outcome.result.n + 1 > 0", "break")
    tasks = [spec("a", broken, rule(None, "jump", to="b"), kind="no"), spec("b", kind="w")]
    assert answer_of(tasks, {"no": Scripted(error()), "w": Scripted(ok("b"))}).result == "b"


def test_a_rule_sees_the_result_of_its_own_task() -> None:
    enough = rule("local.prev == 1 and local.results.a == 1", "break")
    assert answer_of([spec("a", enough, kind="w"), spec("b", kind="x")], {"w": Scripted(ok(1))})


# -- continue, break, fail, jump -------------------------------------------------------------


def test_continue_after_an_error_keeps_the_last_good_result() -> None:
    tasks = [
        spec("a", kind="w"),
        spec("b", rule(FAILED, "continue"), kind="no"),
        spec("c", kind="echo", value=["{{ local.prev }}", "{{ local.results.b is defined }}"]),
    ]
    performers = {"w": Scripted(ok(1)), "no": Scripted(error()), "echo": Scripted(echo)}
    assert answer_of(tasks, performers).result == [1, False]


def test_an_ignored_error_at_the_end_gives_the_last_good_result() -> None:
    tasks = [spec("a", kind="w"), spec("b", rule(None, "continue"), kind="no")]
    assert answer_of(tasks, {"w": Scripted(ok(1)), "no": Scripted(error())}).result == 1


def test_break_ends_well_with_the_last_good_result() -> None:
    tasks = [spec("a", kind="w"), spec("b", rule(None, "break"), kind="no"), spec("c", kind="x")]
    answer = answer_of(tasks, {"w": Scripted(ok(1)), "no": Scripted(error())})
    assert (answer.status, answer.result) == ("ok", 1)


def test_fail_after_a_success_says_that_a_rule_said_so() -> None:
    bad = rule("local.outcome.result.n > 3", "fail")
    fault = fault_of(answer_of([spec("a", bad, kind="w")], {"w": Scripted(ok({"n": 4}))}))
    assert (fault.kind, fault.retryable) == ("policy", False)
    assert fault.message == "task a: a rule said fail"


def test_jumps_walk_through_pages() -> None:
    """The pattern playbooks paginate with: fetch, keep, jump back while there is more."""
    work = Scripted(
        lambda task: ok({"items": [task.inputs["value"]], "more": task.inputs["value"] < 4})
    )
    more = rule(
        "local.results.fetch.more",
        "jump",
        to="fetch",
        set_iter={"page": "{{ local.iter.page + 1 }}"},
    )
    tasks = [
        spec("fetch", kind="w", value="{{ local.iter.page }}"),
        spec(
            "save",
            more,
            kind="echo",
            set_ctx={"seen": ("{{ local.results.fetch.items[0] }}", "append")},
        ),
    ]
    answer = answer_of(tasks, {"w": work, "echo": Scripted(echo)}, iteration={"page": 1})
    assert [patch.value for patch in answer.patches] == [1, 2, 3, 4]


def test_endless_jumps_are_stopped() -> None:
    tasks = [spec("a", rule(None, "jump", to="a"), kind="w")]
    work = Scripted(ok())
    fault = fault_of(answer_of(tasks, {"w": work}, jumps_max=50))
    assert (fault.kind, fault.retryable) == ("jump_limit", False)
    assert fault.message == "more than 50 jumps, the last to task a: this looks endless"
    assert len(work.tasks) == 51


def test_a_jump_to_nowhere_is_a_clear_failure() -> None:
    fault = fault_of(
        answer_of([spec("a", rule(None, "jump", to="b"), kind="w")], {"w": Scripted(ok())})
    )
    assert (fault.kind, fault.message) == ("config", "task a: there is no task 'b' to jump to")


# -- writes ----------------------------------------------------------------------------------


def test_writes_are_visible_at_once_and_travel_with_the_answer() -> None:
    tasks = [
        spec("a", kind="w", set_ctx={"total": ("{{ local.prev }}", "sum"), "last": "a"}),
        spec("b", rule(None, "continue", set_ctx={"total": ("{{ ctx.total }}", "sum")}), kind="w"),
        spec("c", kind="echo", value=["{{ ctx.total }}", "{{ ctx.last }}", "{{ ctx.other }}"]),
    ]
    performers = {"w": Scripted(ok(2)), "echo": Scripted(echo)}
    names = {"ctx": {"total": 10, "other": "untouched"}}
    answer = answer_of(tasks, performers, names=names)
    assert answer.result == [24, "a", "untouched"]
    assert answer.patches == (
        ContextPatch("total", 2, "sum"),
        ContextPatch("last", "a"),
        ContextPatch("total", 12, "sum"),
    )
    assert names["ctx"] == {"total": 10, "other": "untouched"}  # the engine's own is not touched


def test_every_reducer_is_visible_inside() -> None:
    made = {
        "n": ("{{ 5 }}", "sum"),
        "low": ("{{ 1 }}", "min"),
        "high": ("{{ 9 }}", "max"),
        "all": ("{{ 'x' }}", "append"),
        "map": ({"b": 2}, "merge"),
    }
    names = {"ctx": {"n": 1, "low": 3, "high": 3, "all": ["w"], "map": {"a": 1}}}
    tasks = [spec("a", kind="w", set_ctx=made), spec("b", kind="echo", value="{{ ctx }}")]
    answer = answer_of(tasks, {"w": Scripted(ok()), "echo": Scripted(echo)}, names=names)
    assert answer.result == {
        "n": 6,
        "low": 1,
        "high": 9,
        "all": ["w", "x"],
        "map": {"a": 1, "b": 2},
    }


def test_patches_of_a_task_itself_count_too() -> None:
    given = Answer(status="ok", result=1, outcome="ok", patches=(ContextPatch("n", 5, "sum"),))
    tasks = [spec("a", kind="w"), spec("b", kind="echo", value="{{ ctx.n }}")]
    names = {"ctx": {"n": 1}}
    answer = answer_of(tasks, {"w": Scripted(given), "echo": Scripted(echo)}, names=names)
    assert (answer.result, answer.patches) == (6, (ContextPatch("n", 5, "sum"),))


def test_writes_made_before_a_failure_are_dropped_with_it() -> None:
    tasks = [spec("a", kind="w", set_ctx={"seen": "{{ local.prev }}"}), spec("b", kind="no")]
    answer = answer_of(tasks, {"w": Scripted(ok(1)), "no": Scripted(error())})
    assert (answer.status, answer.patches) == ("error", ())


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (
            {"n": ("{{ 'text' }}", "sum")},
            "task a: context key 'n': sum cannot combine int with str",
        ),
        ({"n": "{{ 1 / 0 }}"}, "division by zero"),
    ],
)
def test_a_write_that_does_not_work_out_fails_the_pipeline(write: Any, words: str) -> None:
    tasks = [spec("a", rule(None, "continue", set_ctx=write), kind="w")]
    fault = fault_of(answer_of(tasks, {"w": Scripted(ok())}, names={"ctx": {"n": 1}}))
    assert words in fault.message
    assert not fault.retryable


def test_rules_of_an_error_write_as_well() -> None:
    note = rule(FAILED, "continue", set_ctx={"why": "{{ local.outcome.error.kind }}"})
    answer = answer_of([spec("a", note, kind="no")], {"no": Scripted(error("timeout"))})
    assert answer.patches == (ContextPatch("why", "timeout"),)


# -- the answer ------------------------------------------------------------------------------


def test_label_and_wait_of_the_last_answer_are_kept() -> None:
    given = Answer(status="ok", result=1, outcome="valid", wait_ms=500)
    answer = answer_of([spec("a", kind="w")], {"w": Scripted(given)})
    assert (answer.outcome, answer.wait_ms, answer.result) == ("valid", 500, 1)


@pytest.mark.parametrize("status", ["aborted", "cancel_run"])
def test_answers_beyond_ok_and_error_end_the_pipeline_as_they_are(status: Any) -> None:
    given = Answer(status=status, fault=fault_of(error()))
    answer = answer_of([spec("a", rule(None, "continue"), kind="w")], {"w": Scripted(given)})
    assert msgspec.structs.replace(answer, tasks=()) == given
    assert [(task.label, bool(task.error)) for task in answer.tasks] == [("a", True)]


def test_a_kind_that_is_not_there_can_be_met_by_a_rule() -> None:
    fault = fault_of(answer_of([spec("a", kind="teleport")], {}))
    assert (fault.kind, fault.message) == ("config", "there is no work of kind 'teleport'")
    tasks = [spec("a", rule("local.outcome.error.kind == 'config'", "continue"), kind="teleport")]
    assert answer_of(tasks, {}).status == "ok"


def test_sleeps_are_only_for_retries() -> None:
    sleeps = Sleeps()
    carry_out([spec("a", rule(None, "continue"), kind="w")], {"w": Scripted(ok())}, sleeps=sleeps)
    assert sleeps.seconds == []

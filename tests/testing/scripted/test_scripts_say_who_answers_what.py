"""Scripts: lists, labels, callables, exceptions, and names that do not exist."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.expressions.port import Constant
from anabranch.net.net import Branch, GatherRule, Retry
from anabranch.testing import aborts, after, error, invalid, never, ok, play, valid
from anabranch.work.port import Task

from ..support import asks, broken, calls, chain, net, to, when

ALL = GatherRule(mode="all")


def test_the_last_answer_repeats() -> None:
    flow = net(calls("start", branches=to("x", "x", "x")), calls("x"))
    played = play(flow, script={"x": [1, 2]})
    results = [event["answer"].get("result") for event in played.events_of("job.reported")]
    assert results == [None, 1, 2, 2]


def test_plain_values_mean_ok() -> None:
    assert play(chain(1), script={"a": {"n": 1}}).result == {"n": 1}
    assert play(chain(1), script={"a": None}).result is None
    assert play(chain(1), script={"a": ok([1, 2])}).result == [1, 2]
    assert play(chain(1), script={"a": False}).result is False


def test_outcomes_of_rules_choose_the_branch() -> None:
    flow = net(
        calls("rule", kind="rule", branches=(*_on("valid", "yes"), *_on("invalid", "no"))),
        calls("yes"),
        calls("no"),
    )
    assert list(play(flow, script={"rule": valid({"a": 1})}).steps) == ["rule", "yes"]
    played = play(flow, script={"rule": invalid()})
    assert list(played.steps) == ["rule", "no"]
    assert played.step("rule").status == "done"


def _on(outcome: str, target: str) -> tuple[Branch, ...]:
    (branch,) = to(target)
    return (Branch(outcome, arcs=branch.arcs),)


def test_errors_may_say_that_a_retry_is_useless() -> None:
    flow = chain(1, Retry(attempts=3))
    assert len(play(flow, script={"a": error("x")}).events_of("job.started")) == 3
    played = play(flow, script={"a": error("x", retryable=False)})
    assert len(played.events_of("job.started")) == 1
    assert played.problem == {"code": "x", "message": "scripted error: x"}


def test_an_abort_ends_the_step_without_a_branch() -> None:
    played = play(chain(2), script={"a": aborts("policy", "not today")})
    assert played.steps.keys() == {"a"}
    assert played.step("a").status == "aborted"


def test_a_callable_sees_the_task() -> None:
    seen: list[Task] = []

    def answer(task: Task) -> Any:
        seen.append(task)
        return after(task.attempt, error("again") if task.attempt < 3 else {"n": task.attempt})

    flow = net(calls("a", retry=Retry(attempts=5), inputs=Constant({"url": "x"})))
    played = play(flow, {"who": "me"}, script={"a": answer})
    assert (played.result, played.seconds) == ({"n": 3}, 6.0)
    assert [task.attempt for task in seen] == [1, 2, 3]
    assert {task.key for task in seen} == {"play/1.0"}
    assert seen[0].inputs == {"url": "x"}
    assert seen[0].names["workload"] == {"who": "me"}


def test_an_exception_answers_as_if_work_had_raised_it() -> None:
    def fails(_task: Task) -> Any:
        raise ValueError("no good")

    for entry in (ValueError("no good"), fails):
        played = play(chain(1), script={"a": entry})
        assert played.problem == {"code": "python", "message": "ValueError: no good"}
    assert play(chain(1), script={"a": TimeoutError()}).problem == {
        "code": "timeout",
        "message": "TimeoutError",
    }


def test_an_assertion_in_a_callable_fails_the_test() -> None:
    def expects(task: Task) -> Any:
        assert task.attempt == 2, "not the second attempt"

    with pytest.raises(AssertionError, match="not the second attempt"):
        play(chain(1), script={"a": expects})


def test_inputs_that_cannot_be_rendered_fail_the_step() -> None:
    flow = net(calls("a", inputs=when("boom", broken)))
    played = play(flow, script={"a": ok("never asked")})
    assert played.problem == {"code": "expression", "message": "made to fail"}


# -- fan-out slots ---------------------------------------------------------------------------


def test_slots_are_scripted_by_label_before_their_step() -> None:
    flow = net(asks("ask", ["x", "y", "z"], ALL))
    played = play(
        flow, script={"y": ok("why"), "ask/z": ok("zed"), "z": "not this", "ask": "other"}
    )
    assert played.result == {"responses": ["other", "why", "zed"]}


def test_a_list_for_a_slot_is_for_its_own_attempts() -> None:
    flow = net(asks("ask", ["x", "y"], ALL))
    assert play(flow, script={"x": [1, 2], "ask": [3, 4]}).result == {"responses": [1, 3]}


# -- names -----------------------------------------------------------------------------------


def test_an_unknown_step_is_refused_with_a_suggestion() -> None:
    flow = net(calls("reserve"))
    with pytest.raises(InputError, match="'reserv', which is not a step: did you mean 'reserve'"):
        play(flow, script={"reserv": ok()})
    with pytest.raises(InputError, match="decisions names 'x'"):
        play(flow, decisions={"x": ok()})


def test_a_name_that_is_neither_step_nor_slot_is_found_at_the_end() -> None:
    flow = net(asks("ask", ["party-x", "party-y"], ALL))
    with pytest.raises(InputError, match="'party-z', which is not a step: did you mean 'party-"):
        play(flow, script={"party-z": ok()})


def test_a_slot_of_a_fan_out_that_never_ran_may_be_scripted() -> None:
    flow = net(calls("start", branches=to("ask")), asks("ask", ["x"], ALL))
    played = play(flow, script={"start": aborts("enough"), "x": ok()})
    assert "ask" not in played.steps


def test_an_empty_list_and_values_that_are_not_json_are_refused() -> None:
    with pytest.raises(InputError, match=r"ok\(\[\]\)"):
        play(chain(1), script={"a": []})
    with pytest.raises(InputError, match="the scripted result is not JSON: value is a set"):
        play(chain(1), script={"a": {1, 2}})
    with pytest.raises(InputError, match="the input is not JSON"):
        play(chain(1), {"when": object()})
    for wrong in (-1, "3", True, float("nan")):
        with pytest.raises(InputError, match="number of seconds"):
            after(wrong, ok())  # type: ignore[arg-type]


def test_never_is_never_even_after_a_while() -> None:
    flow = net(calls("a", timeout_ms=5_000))
    assert play(flow, script={"a": after(1, never())}).seconds == 5.0

"""Proposal 033, table by table: each row has a test that carries its name."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.testing import after, negative, never, ok, unreachable

from .arca_stage import ask, seconds, stage, step, workflow

PRICES = {"p1": {"price": 9}, "p2": {"price": 4}, "p3": {"price": 7}}


def some(*names: str) -> dict[str, Any]:
    return {name: PRICES[name] for name in names}


def timed(script: dict[str, float]) -> dict[str, Any]:
    """Each answers with its own name after that many seconds."""
    return {name: after(wait, ok({"by": name})) for name, wait in script.items()}


# -- what was not expressible --------------------------------------------------------------------


def test_need_send_to_n_targets_at_once() -> None:
    there = stage(workflow(ask("p1", "p2", "p3", policy="all")), timed({"p1": 5, "p2": 1, "p3": 3}))
    assert [seconds(record.dispatched_at) for record in there.records] == [0, 0, 0]
    assert there.played.seconds == 5


def test_need_discover_targets_at_runtime_from_catalog() -> None:
    target = {"resolve": "capability", "capability_id": "offer-catalog"}
    first = step("first")
    late = step("late", depends_on=["first"], target=target, fan_in={"policy": "all"})
    script = {"first": after(60, 1), "offer-catalog": ["p7"], "p7": {"ok": 1}}
    there = stage(workflow(first, late), script)
    assert there.asked("late") == ["p7"]
    (search,) = [e for e in there.played.events_of("job.scheduled") if e["job"].endswith(".cut")][
        -1:
    ]
    assert search.at == 60, "when the step runs, not when the definition is read"


@pytest.mark.parametrize(
    ("fan_in", "closes_at"),
    [
        ({"policy": "any_one"}, 1),
        ({"policy": "all"}, 5),
        ({"policy": "quorum", "min_responses": 2}, 3),
    ],
)
def test_need_wait_for_first_any_all_quorum_responses(fan_in: Any, closes_at: int) -> None:
    one = ask("p1", "p2", "p3") | {"fan_in": fan_in}
    there = stage(workflow(one), timed({"p1": 5, "p2": 1, "p3": 3}))
    assert there.status == "completed"
    assert there.played.seconds == closes_at


@pytest.mark.parametrize("fans_out", [True, False])
def test_need_timeout_a_waiting_step(fans_out: bool) -> None:
    one = ask("p1", timing={"timeout": "PT30S"})
    if not fans_out:
        del one["fan_in"]
    there = stage(workflow(one), {"p1": never()})
    assert (there.status, there.played.seconds) == ("step_timeout", 30)


def test_need_retry_a_failed_step_with_backoff() -> None:
    retry = {"max_attempts": 2, "backoff": "PT5S", "backoff_multiplier": 2.0}
    one = ask("p1", timing={"retry": retry})
    there = stage(workflow(one), {"p1": [negative(), negative(), ok({"n": 1})]})
    assert there.output() == {"n": 1}
    assert [seconds(record.dispatched_at) for record in there.records] == [0, 5, 15]


def test_need_deadline_across_the_whole_workflow_run() -> None:
    steps = [step("a"), step("b", depends_on=["a"]), step("c", depends_on=["b"])]
    there = stage(workflow(*steps, deadline="PT1M"), {name: after(25, 1) for name in "abc"})
    assert (there.status, there.played.seconds) == ("deadline_exceeded", 60)
    assert [there.step(name)["status"] for name in "abc"] == [
        *("completed", "completed", "deadline_exceeded")
    ]


# -- fan-out target fields -----------------------------------------------------------------------


def test_target_field_resolve_static() -> None:
    assert stage(workflow(ask("p1", "p2")), some("p1", "p2")).asked() == ["p1", "p2"]


def test_target_field_resolve_capability_and_capability_id() -> None:
    target = {"resolve": "capability", "capability_id": "offer-catalog"}
    one = step(target=target, fan_in={"policy": "all"})
    there = stage(workflow(one), {"offer-catalog": ["p2", "p3"], **some("p2", "p3")})
    assert there.asked() == ["p2", "p3"]


def test_target_field_filter_is_passed_to_the_search_and_to_those_asked() -> None:
    heard: dict[str, Any] = {}

    def search(task: Any) -> Any:
        heard["search"] = task.inputs["filter"]
        return ok(["p1"])

    def participant(task: Any) -> Any:
        heard["participant"] = task.inputs["filter"]
        return {"ok": True}

    wanted = {"service_type": "text/summarise"}
    target = {"resolve": "capability", "capability_id": "offer-catalog", "filter": wanted}
    stage(workflow(step(target=target, fan_in={})), {"offer-catalog": search, "p1": participant})
    assert heard == {"search": wanted, "participant": wanted}


def test_target_field_limit() -> None:
    names = [f"p{number}" for number in range(9)]
    target = {"resolve": "capability", "capability_id": "offer-catalog", "limit": 3}
    one = step(target=target, fan_in={"policy": "all"})
    there = stage(workflow(one), {"offer-catalog": names, "s": {"n": 1}})
    assert there.asked() == ["p0", "p1", "p2"]


def test_target_field_limit_is_unbounded_by_default() -> None:
    names = [f"p{number}" for number in range(200)]
    one = step(
        target={"resolve": "capability", "capability_id": "offer-catalog"},
        fan_in={"policy": "all"},
    )
    there = stage(workflow(one), {"offer-catalog": names, "s": {"n": 1}})
    assert there.asked() == names


def test_target_field_participants_are_asked_in_their_order_each_once() -> None:
    there = stage(workflow(ask("p3", "p1", "p3", policy="all")), some("p1", "p3"))
    assert there.asked() == ["p3", "p1"]
    assert there.output() == {"responses": [PRICES["p3"], PRICES["p1"]]}


# -- fan-in policies and fields ------------------------------------------------------------------


def test_policy_any_one_is_the_default_and_proceeds_with_the_first_response() -> None:
    there = stage(workflow(ask("p1", "p2", "p3")), timed({"p1": 5, "p2": 1, "p3": 3}))
    assert there.output() == {"by": "p2"}
    assert there.ends() == {"p1": "cancelled", "p2": "responded", "p3": "cancelled"}


def test_policy_all_proceeds_when_every_dispatched_target_has_responded() -> None:
    there = stage(workflow(ask("p1", "p2", policy="all")), timed({"p1": 5, "p2": 1}))
    assert there.output() == {"responses": [{"by": "p1"}, {"by": "p2"}]}
    assert there.played.seconds == 5


def test_policy_quorum_proceeds_when_min_responses_have_arrived() -> None:
    one = ask("p1", "p2", "p3", "p4", policy="quorum", min_responses=2)
    there = stage(workflow(one), timed({"p1": 9, "p2": 3, "p3": 1, "p4": 2}))
    assert there.output() == {"responses": [{"by": "p3"}, {"by": "p4"}]}
    assert there.played.seconds == 2


def test_policy_best_of_collects_until_the_deadline_and_selects_by_score_field() -> None:
    one = ask("p1", "p2", "p3", policy="best_of", score_field="/price", timing={"timeout": "PT10S"})
    late = {"p1": after(1, PRICES["p1"]), "p2": after(2, PRICES["p2"]), "p3": never()}
    there = stage(workflow(one), late)
    assert there.output() == PRICES["p1"]
    assert there.played.seconds == 10
    assert there.ends() == {"p1": "responded", "p2": "responded", "p3": "timeout"}


def test_fan_in_field_min_responses() -> None:
    for needed, closes_at in ((1, 1), (2, 2), (3, 3)):
        one = ask("p1", "p2", "p3", policy="quorum", min_responses=needed)
        there = stage(workflow(one), timed({"p1": 1, "p2": 2, "p3": 3}))
        assert there.played.seconds == closes_at


@pytest.mark.parametrize(("silent", "status"), [("p3", "completed"), ("p2 p3", "step_timeout")])
def test_best_of_with_min_responses_chooses_among_so_many_at_least(
    silent: str, status: str
) -> None:
    enough: Any = {"score_field": "/price", "min_responses": 2, "timing": {"timeout": "PT10S"}}
    one = ask("p1", "p2", "p3", policy="best_of", **enough)
    script = {name: never() if name in silent else said for name, said in PRICES.items()}
    there = stage(workflow(one), script)
    assert there.played.status == status
    assert there.played.seconds == 10


@pytest.mark.parametrize("path", ["/offer/price", "offer.price", "$.offer.price"])
def test_fan_in_field_score_field(path: str) -> None:
    one = ask("p1", "p2", policy="best_of", score_field=path, timing={"timeout": "PT1S"})
    script = {"p1": {"offer": {"price": 1}}, "p2": {"offer": {"price": 2}}}
    assert stage(workflow(one), script).output() == script["p2"]


@pytest.mark.parametrize(("order", "winner"), [(None, "p1"), ("desc", "p1"), ("asc", "p2")])
def test_fan_in_field_score_order(order: str | None, winner: str) -> None:
    more = {"score_order": order} if order is not None else {}
    one = ask(*PRICES, policy="best_of", score_field="/price", timing={"timeout": "PT1S"}, **more)
    assert stage(workflow(one), PRICES).output() == PRICES[winner]


# -- temporal constraints ------------------------------------------------------------------------


def test_timing_field_timeout_is_the_longest_wait_for_the_step() -> None:
    one = ask("p1", "p2", policy="all", timing={"timeout": "PT30S", "on_timeout": "skip"})
    assert stage(workflow(one), timed({"p1": 29, "p2": 2})).step("s")["status"] == "completed"
    late = stage(workflow(one), timed({"p1": 31, "p2": 2}))
    assert (late.step("s")["status"], late.played.seconds) == ("skipped", 30)


def test_timing_field_retry_max_attempts_is_how_often_it_is_tried_again() -> None:
    for extra in (0, 1, 3):
        timing = {"timeout": "PT1S", "retry": {"max_attempts": extra}}
        there = stage(workflow(ask("p1", timing=timing)), {"p1": never()})
        assert len(there.records) == 1 + extra
        assert there.status == "step_timeout"


def test_timing_field_retry_backoff_is_the_first_wait_between_tries() -> None:
    timing = {"timeout": "PT1S", "retry": {"max_attempts": 2, "backoff": "PT5S"}}
    there = stage(workflow(ask("p1", timing=timing)), {"p1": never()})
    assert [seconds(record.dispatched_at) for record in there.records] == [0, 6, 12]


def test_timing_field_retry_backoff_multiplier_makes_the_waits_longer() -> None:
    retry = {"max_attempts": 3, "backoff": "PT5S", "backoff_multiplier": 2.0}
    one = ask("p1", timing={"timeout": "PT1S", "retry": retry})
    there = stage(workflow(one), {"p1": never()})
    assert [seconds(record.dispatched_at) for record in there.records] == [0, 6, 17, 38]


@pytest.mark.parametrize(
    ("word", "status", "others"),
    [
        ("fail", "step_timeout", "completed"),
        ("skip", "completed", "completed"),
        ("abort_workflow", "step_timeout", "cancelled"),
    ],
)
def test_timing_field_on_timeout(word: str, status: str, others: str) -> None:
    slow = ask("p1", step_id="slow", timing={"timeout": "PT10S", "on_timeout": word})
    follows = step("follows", depends_on=["slow"])
    there = stage(
        workflow(slow, step("beside"), follows),
        {"p1": never(), "beside": after(60, 1), "follows": 2},
    )
    assert there.status == status
    assert there.step("beside")["status"] == others
    skipped = word == "skip"
    assert there.step("slow")["status"] == ("skipped" if skipped else "step_timeout")
    assert there.step("follows")["status"] == ("completed" if skipped else "cancelled")


def test_root_field_deadline() -> None:
    there = stage(workflow(ask("p1", "p2", policy="all"), deadline="PT5M"), {"s": never()})
    assert (there.status, there.played.seconds) == ("deadline_exceeded", 300)
    assert there.ends() == {"p1": "cancelled", "p2": "cancelled"}
    assert there.snapshot["deadline_at"] == there.snapshot["finished_at"]


# -- the full step record, as it is printed in section 4 -----------------------------------------

FULL = {
    "step_id": "solicit-providers",
    "service_type": "text/summarise",
    "input": {"text": "{{input.text}}"},
    "target": {
        "resolve": "capability",
        "capability_id": "offer-catalog",
        "filter": {"service_type": "text/summarise"},
        "limit": 5,
    },
    "fan_in": {"policy": "any_one"},
    "timing": {"timeout": "PT30S", "on_timeout": "skip"},
}


def test_the_full_step_record_runs_as_printed() -> None:
    sent = []

    def participant(task: Any) -> Any:
        sent.append((task.inputs["target"], task.inputs["input"]))
        return {"summary": "short"}

    found = [f"participant:did:key:z6Mk{number}" for number in range(7)]
    script = {"offer-catalog": found, "solicit-providers": participant}
    there = stage(workflow(FULL), script, text="a long text")
    assert there.output("solicit-providers") == {"summary": "short"}
    assert sent == [(name, {"text": "a long text"}) for name in found[:5]]


def test_the_full_step_record_is_skipped_when_nobody_answers_in_time() -> None:
    script = {"offer-catalog": ["a", "b"], "a": never(), "b": unreachable()}
    there = stage(workflow(FULL), script, text="t")
    assert (there.status, there.played.seconds) == ("completed", 30)
    assert there.step("solicit-providers")["status"] == "skipped"


def test_without_target_fan_in_and_timing_a_step_is_as_it_was() -> None:
    """One order to one provider, no time limit, no fan-out."""
    there = stage(
        workflow(step()), {"a-provider": {"done": True}, "text/summarise": ["a-provider"]}
    )
    assert there.asked() == ["a-provider"]
    assert there.output() == {"done": True}
    assert "selected_output" not in there.step("s")
    assert "timeout_at" not in there.step("s")


# -- run statuses --------------------------------------------------------------------------------


def test_status_deadline_exceeded_when_the_deadline_came_before_all_steps_completed() -> None:
    plan = workflow(step("a"), step("b", depends_on=["a"]), deadline="PT10S")
    there = stage(plan, {"a": after(9, 1), "b": after(2, 1)})
    assert there.status == "deadline_exceeded"
    assert stage(plan, {"a": after(8, 1), "b": after(1, 1)}).status == "completed"


@pytest.mark.parametrize("word", ["fail", "abort_workflow"])
def test_status_step_timeout_when_a_step_timed_out(word: str) -> None:
    one = ask("p1", timing={"timeout": "PT3S", "on_timeout": word})
    there = stage(workflow(one), {"p1": never()})
    assert there.status == there.step("s")["status"] == "step_timeout"
    assert there.problem["step_id"] == "s"

"""`fan_in.min_score` and `max_score`: an answer whose number lies outside cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.testing import after, ok

from .arca_stage import ask, stage, step, workflow


def offers(**prices: Any) -> dict[str, Any]:
    """Each answers one second after the one before it."""
    return {
        name: after(wait, ok({"price": price}))
        for wait, (name, price) in enumerate(prices.items(), start=1)
    }


def best(**fan_in: Any) -> Any:
    return ask(
        "p1", "p2", "p3", policy="best_of", score_field="/price", score_order="asc", **fan_in
    )


def test_the_best_answer_within_the_bounds_is_chosen() -> None:
    there = stage(workflow(best(min_score=2, max_score=9)), offers(p1=1, p2=12, p3=5))
    assert there.output("s") == {"price": 5}
    reasons = {one["slot"]: one["reason"] for one in there.played.events_of("gather.slot_lost")}
    assert reasons == {0: "score 1 is below min_score 2", 1: "score 12 is above max_score 9"}


def test_a_number_at_the_bound_is_within() -> None:
    there = stage(workflow(best(min_score=5, max_score=5)), offers(p1=5, p2=5.5, p3=4))
    assert there.output("s") == {"price": 5}


def test_a_bound_may_read_the_input_of_the_run() -> None:
    one = best(max_score="{{input.budget}}")
    there = stage(workflow(one, input={"budget": 4}), offers(p1=3, p2=6, p3=2))
    assert there.output("s") == {"price": 2}
    there = stage(workflow(one, input={"budget": 1}), offers(p1=3, p2=6, p3=2))
    assert "no_usable_response" in str(there.problem)


def test_a_bound_may_read_the_output_of_an_earlier_step() -> None:
    first = ask("p1", step_id="first")
    second = best(step_id="s", max_score={"from": "/steps/first/output/most"}, depends_on=["first"])
    script = {"first/p1": {"most": 4}, "s/p1": {"price": 5}, "s/p2": {"price": 3}, "s/p3": 9}
    assert stage(workflow(first, second), script).output("s") == {"price": 3}


@pytest.mark.parametrize("policy", ["any_one", "quorum"])
def test_bounds_hold_for_the_first_and_for_a_quorum_too(policy: str) -> None:
    more: dict[str, Any] = {"min_responses": 1} if policy == "quorum" else {}
    one = ask("p1", "p2", "p3", policy=policy, score_field="/price", max_score=4, **more)
    there = stage(workflow(one), offers(p1=9, p2=4, p3=1))
    assert there.played.seconds == 2
    chosen = there.output("s")
    assert chosen == ({"price": 4} if policy == "any_one" else {"responses": [{"price": 4}]})


def test_an_answer_without_a_number_is_out_of_bounds() -> None:
    one = ask("p1", "p2", score_field="/price", max_score=4)
    there = stage(workflow(one), {"p1": after(1, ok({"price": "3"})), "p2": ok({"price": True})})
    assert "none of the 2 answers can be used (no score)" in str(there.problem)


def test_a_bound_that_comes_to_no_number_says_so() -> None:
    one = ask("p1", score_field="/price", max_score="{{input.budget}}")
    there = stage(workflow(one, input={"budget": "much"}), offers(p1=1))
    assert "`max_score` comes to 'much', which is no number" in str(there.problem)


def test_a_dispatch_says_why_its_answer_was_left_out() -> None:
    there = stage(workflow(best(max_score=9)), offers(p1=1, p2=12, p3=5))
    (left_out,) = [one for one in there.dispatches if one.outcome == "negative"]
    assert (left_out.record.target, left_out.reason) == ("p2", "score 12 is above max_score 9")
    assert left_out.inspection()["reason"] == left_out.reason


def test_without_fan_in_there_are_no_bounds() -> None:
    assert stage(workflow(step()), {"s": ok({"price": 100})}).output("s") == {"price": 100}

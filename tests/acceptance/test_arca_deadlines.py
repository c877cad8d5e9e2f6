"""At the deadline: the best answer there is, and nobody who will not stop is waited for."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import threading
from typing import Any

import pytest

import anabranch
from anabranch import Engine
from anabranch.testing import after, never, ok, stubborn

from .arca_stage import ask, stage, step, workflow

PRICES = {"a": after(1, ok({"price": 5})), "b": after(2, ok({"price": 3})), "c": never()}


def best(**fields: Any) -> Any:
    return ask(*PRICES, policy="best_of", score_field="/price", score_order="asc", **fields)


# -- best_of until the deadline ------------------------------------------------------------------


@pytest.mark.parametrize(
    "timing", [{}, {"timing": {"timeout": "PT10S"}}, {"timing": {"timeout": "PT1H"}}]
)
def test_a_best_of_until_the_deadline_closes_with_its_candidates_before_it(timing: Any) -> None:
    there = stage(workflow(best(**timing), deadline="PT10S"), PRICES)
    assert (there.status, there.output()) == ("completed", {"price": 3})
    assert there.played.seconds == pytest.approx(9.9)
    assert there.ends()["c"] == "timeout"


def test_what_follows_the_best_answer_has_what_is_left_of_the_time() -> None:
    document = workflow(best(), step("order", depends_on=["s"]), deadline="PT100S")
    there = stage(document, {**PRICES, "order": after(0.5, ok("ordered"))})
    assert (there.status, there.output("order")) == ("completed", "ordered")
    there = stage(document, {**PRICES, "order": after(2, ok("ordered"))})
    assert (there.status, there.step("s")["status"]) == ("deadline_exceeded", "completed")


def test_without_a_candidate_the_deadline_is_what_it_always_was() -> None:
    there = stage(workflow(best(), deadline="PT10S"), {"a": never(), "b": never(), "c": never()})
    assert (there.status, there.played.seconds) == ("deadline_exceeded", 10)


def test_the_last_candidate_may_come_after_the_step_began_to_hurry() -> None:
    late = {"a": never(), "b": after(9.95, ok({"price": 3})), "c": never()}
    there = stage(workflow(best(), deadline="PT10S"), late)
    assert (there.status, there.output()) == ("completed", {"price": 3})


def test_a_time_limit_of_its_own_comes_first() -> None:
    there = stage(workflow(best(timing={"timeout": "PT5S"}), deadline="PT10S"), PRICES)
    assert (there.status, there.played.seconds) == ("completed", 5)


# -- nobody outlives the deadline ----------------------------------------------------------------


def test_work_that_cannot_be_stopped_does_not_outlive_the_deadline() -> None:
    one = ask("a", policy="any_one")
    there = stage(workflow(one, deadline="PT10S"), {"a": stubborn(after(60, ok(1)))})
    assert there.status == "deadline_exceeded"
    assert there.played.seconds < 12
    (gone,) = [
        e for e in there.played.events_of("job.discharged") if e.fields["how"] == "abandoned"
    ]
    assert "step s" in gone.fields["reason"]
    assert "a" in gone.fields["reason"]


def test_a_loser_that_cannot_be_stopped_keeps_the_run_no_longer_than_its_deadline() -> None:
    one = ask("a", "b", policy="any_one")
    script = {"a": 7, "b": stubborn(after(60, ok(1)))}
    there = stage(workflow(one, deadline="PT10S"), script)
    assert (there.status, there.output()) == ("completed", 7)
    assert there.played.seconds < 12


def test_a_function_that_swallows_cancellation_is_left_behind_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The program ends as well, although the function never does."""
    ended = threading.Event()
    told: list[str] = []

    async def deaf(_request: Any) -> Any:
        for _ in range(1_000):
            try:
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                told.append("stop")
        ended.set()

    async def main() -> Any:
        async with Engine(":memory:", participants={"participants": {"deaf-one": deaf}}) as engine:
            run = await engine.start(
                json.dumps(workflow(ask("deaf-one", policy="any_one"), deadline="PT0.2S"))
            )
            result = await engine.wait(run)
            why = engine.read.explain(run)
            return result, why

    with caplog.at_level(logging.WARNING, "anabranch"):
        result, why = asyncio.run(main())
    assert result.status == "deadline_exceeded"
    assert told
    assert not ended.is_set()
    assert "deaf-one" in caplog.text
    assert "deaf-one" in str(why)
    gc.collect()  # what was left behind is torn down without a word
    assert anabranch.__version__

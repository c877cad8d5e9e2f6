"""A redriven workflow keeps what its origin knew, and asks again for what was not good enough."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import anabranch

from .arca_stage import ask, workflow

FIRST = ask("p1", "p2", step_id="first", policy="best_of", score_field="/price")


class People:
    """Participants and sources who count how often they are asked; `amiss` go wrong."""

    def __init__(self, *amiss: str) -> None:
        self.amiss = set(amiss)
        self.asked: Counter[str] = Counter()
        self.heard: dict[str, Any] = {}

    def book(self) -> dict[str, Any]:
        names = ("p1", "p2", "last", "verify")
        return {
            "participants": {name: self._says(name) for name in names[:3]},
            "capabilities": {"verify": self._says("verify")},
        }

    def _says(self, name: str) -> Any:
        def answer(request: dict[str, Any]) -> Any:
            self.asked[name] += 1
            self.heard[name] = request["input"]
            if name in self.amiss:
                return {"status": "no_offer_available", "good": False}
            return {"price": self.asked[name], "from": name, "good": True}

        return answer


def redriven(people: People, *steps: Any) -> tuple[Any, Any]:
    """The snapshots of a run that failed and of its redrive, for which everybody is well again."""

    async def both() -> tuple[Any, Any]:
        async with anabranch.Engine(":memory:", participants=people.book()) as engine:
            first = await engine.start(json.dumps(workflow(*steps)))
            await engine.wait(first)
            people.amiss.clear()
            second = await engine.redrive(first)
            await engine.wait(second)
            return engine.read.snapshot(first), engine.read.snapshot(second)

    return asyncio.run(both())


def at(snapshot: Any, name: str) -> Any:
    (found,) = [each for each in snapshot["steps"] if each["step_id"] == name]
    return found


def test_who_gave_an_answer_is_known_in_a_redriven_run_that_takes_it_over() -> None:
    people = People("last")
    reads = {"who": "{{steps.first.participant}}"}
    last = ask("last", step_id="last", depends_on=["first"], input=reads)
    before, after = redriven(people, FIRST, last)
    assert (before["status"], after["status"]) == ("failed", "completed")
    assert people.heard["last"] == {"who": at(before, "first")["output"]["from"]}
    assert people.asked == {"p1": 1, "p2": 1, "last": 2}


def test_who_judged_a_task_is_known_in_a_redriven_run_that_takes_it_over() -> None:
    match = {"path": "/good", "fulfilled_values": [True]}
    source = {"kind": "capability", "capability_id": "verify"}
    rule = {"policy": "external_decision", "decision_source": source, "result_match": match}
    people = People("last")
    last = ask("last", step_id="last", depends_on=["first"])
    before, after = redriven(people, {**FIRST, "fulfillment": rule}, last)
    assert at(after, "first")["task"] == at(before, "first")["task"]
    assert at(after, "first")["task"]["decided_by"] == "capability verify"
    assert people.asked["verify"] == 1


def test_an_output_that_was_rejected_is_asked_for_again_by_a_redrive() -> None:
    match = {"path": "/good", "fulfilled_values": [True], "not_fulfilled_values": [False]}
    source = {"kind": "capability", "capability_id": "verify"}
    rule = {
        "policy": "external_decision",
        "decision_source": source,
        "result_match": match,
        "on_not_fulfilled": "fail",
    }
    people = People("verify")
    everybody = ask("p1", "p2", step_id="first", policy="all", fulfillment=rule)
    before, after = redriven(people, everybody)
    assert (before["status"], after["status"]) == ("failed", "completed")
    assert people.asked == {"p1": 2, "p2": 2, "verify": 2}

"""What is too large to travel with the log is judged, scored and read as if it were not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.surfaces.cli.main import command
from anabranch.testing.virtual.world import World

from .arca_stage import ask, stage, step, workflow

TEXT = "x" * 200_000  # more than a result may have in the log


def offer(price: int, verdict: str = "good") -> dict[str, Any]:
    return {"offer": {"price": price, "text": TEXT}, "said": {"verdict": verdict}}


MATCH = {"path": "/said/verdict", "fulfilled_values": ["good"], "not_fulfilled_values": ["bad"]}
BEST = ask("p1", "p2", policy="best_of", score_field="/offer/price", timing={"timeout": "PT30S"})
PEOPLE = {"p1": offer(1), "p2": offer(2)}


def both(plan: dict[str, Any], script: dict[str, Any], book: dict[str, Any] | None = None) -> Any:
    """The same in a play and in the engine; returns what both come to."""
    played = stage(plan, script)
    people = {
        "participants": {name: _says(script[name]) for name in PEOPLE},
        "capabilities": book or {},
    }
    ran = anabranch.run(json.dumps(plan), participants=people)
    assert (ran.status, ran.result) == (played.status, played.played.result)
    return ran


def _says(value: Any) -> Any:
    return lambda _request: value


def test_large_answers_are_scored_by_a_field_deep_inside() -> None:
    ran = both(workflow(BEST), PEOPLE)
    assert (ran.status, ran.result["offer"]["price"]) == ("completed", 2)


@pytest.mark.parametrize("verdict", ["good", "bad"])
def test_large_outputs_are_matched_by_a_field_deep_inside(verdict: str) -> None:
    rule = {"policy": "output_match", "result_match": MATCH, "on_not_fulfilled": "fail"}
    script = {"p1": offer(1, verdict), "p2": offer(1, verdict)}
    ran = both(workflow(ask("p1", "p2", fulfillment=rule)), script)
    assert ran.status == {"good": "completed", "bad": "failed"}[verdict]


def test_a_decision_source_is_told_about_a_field_of_a_large_output() -> None:
    source = {
        "kind": "capability",
        "capability_id": "verify",
        "input": {"price": {"from": "/steps/s/output/offer/price"}},
    }
    match = {"path": "/deep/ok", "fulfilled_values": [True]}
    rule = {"policy": "external_decision", "decision_source": source, "result_match": match}
    reply = {"deep": {"ok": True}, "log": TEXT}

    def verify(request: dict[str, Any]) -> Any:
        return reply if request["input"] == {"price": 1} else {"deep": {"ok": False}}

    plan = workflow(ask("p1", "p2", fulfillment=rule))
    ran = both(plan, {"p1": offer(1), "p2": offer(1), "verify": reply}, {"verify": verify})
    assert ran.status == "completed"


def test_a_later_step_reads_a_field_of_a_large_output() -> None:
    later = step(
        "later", depends_on=["s"], input={"price": {"from": "/steps/s/output/offer/price"}}
    )
    heard = []

    def keep(task: Any) -> Any:
        heard.append(task.inputs["input"])
        return {}

    there = stage(workflow(BEST, later), {**PEOPLE, "later": keep})
    assert (there.status, heard) == ("completed", [{"price": 2}])


def test_a_directory_of_very_many_is_asked_as_a_whole() -> None:
    names = [f"participant:did:key:z6Mk{number:040}" for number in range(3_000)]
    target = {"resolve": "capability", "capability_id": "find"}
    there = stage(
        workflow(step(target=target, fan_in={"policy": "all"})), {"find": names, "s": {"n": 1}}
    )
    assert (there.status, len(there.records)) == ("completed", 3_000)


def test_who_is_asked_has_its_name_however_little_travels_with_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(World, "inline_bytes_max", 1)
    there = stage(workflow(BEST), PEOPLE)
    assert (there.asked(), there.status) == (["p1", "p2"], "completed")
    later = step("later", depends_on=["s"], input={"who": "{{steps.s.participant}}"})
    heard = []
    stage(workflow(BEST, later), {**PEOPLE, "later": lambda task: heard.append(task.inputs)})
    assert [each["input"] for each in heard] == [{"who": "p2"}]


def test_a_large_no_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sold_out = {"status": "offer", "error": {"code": "sold_out", "text": TEXT}}
    people = {"participants": {"p1": _says(sold_out)}}
    store = tmp_path / "runs.db"
    plan = workflow(ask("p1", policy="any_one"))
    ran = anabranch.run(json.dumps(plan), store=store, participants=people)
    assert command(["dispatches", ran.run, "--store", str(store)]) == 0
    said = next(line for line in capsys.readouterr().out.splitlines() if " p1 " in line)
    assert said.endswith("sold_out")

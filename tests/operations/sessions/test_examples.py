"""The orchestrations in `examples/` check, run and hold under simulation."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import anabranch
from anabranch.operations.definitions.prepare import check
from anabranch.testing import play, simulate, valid
from dialects.xrc729.orchestrations import SECTION_6_1, SECTION_7_4, join, orchestration, step, then

EXAMPLES = Path(__file__).parents[3] / "examples" / "orchestration"
RULES = EXAMPLES / "rules"
FILES = sorted(EXAMPLES.glob("*.json"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_example_is_without_a_warning_and_called_after_its_file(file: Path) -> None:
    compiled = check(file, rules=RULES)
    assert compiled.net is not None
    assert [problem for problem in compiled.problems if problem.severity != "note"] == []
    assert compiled.net.name == file.stem


def test_second_opinion_approves_with_two_of_three() -> None:
    done = anabranch.run(
        EXAMPLES / "second_opinion.json", {"item": "rope", "amount": 7}, rules=RULES
    )
    assert done.steps["APPROVE"]["result"] == {"order": "7 x rope"}
    large = {"item": "rope", "amount": 150}
    done = anabranch.run(EXAMPLES / "second_opinion.json", large, rules=RULES)
    assert done.joins[0]["verdict"] == "impossible"
    assert done.session is not None
    assert done.session["result"] == "finished_with_aborts"
    done = anabranch.run(EXAMPLES / "second_opinion.json", {"item": "x", "amount": 0}, rules=RULES)
    assert "from 1 to 1000" in done.result["refused"]


def test_polling_goes_round_three_times_a_second_apart() -> None:
    played = play(EXAMPLES / "polling.json", rules=RULES)
    assert played.unscripted == []
    assert played.seconds == 3
    assert played.result == {"polled": 3}


def test_rules_that_are_at_hand_are_evaluated_and_scripts_go_before_them() -> None:
    given = {"item": "rope", "amount": 7}
    played = play(EXAMPLES / "second_opinion.json", given, rules=RULES)
    assert played.unscripted == []
    assert played.step("WEIGHT").result == {"kilos": 21}
    script = {"WEIGHT": valid({"kilos": 1})}
    played = play(EXAMPLES / "second_opinion.json", given, rules=RULES, script=script)
    assert played.step("WEIGHT").result == {"kilos": 1}


def test_what_reaches_outside_is_taken_for_valid_and_listed() -> None:
    calls = {
        "payload": {},
        "apiCalls": [
            {"name": "x", "method": "GET", "urlTemplate": "https://x.example",
             "contentType": "json", "extractMap": {"a": {"type": "string", "value": "resp.a"}}}
        ],
    }  # fmt: skip
    document = orchestration(A1=step(then("B1"), rule="A"), B1=step(rule="B"))
    played = play(document, rules={"A": calls})
    assert played.unscripted == ["A1", "B1"]
    assert played.step("B1").status == "done"


def test_the_page_shows_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (EXAMPLES.parents[1] / "docs" / "orchestrations.md").read_text()
    shown, *_ = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    example = json.loads((EXAMPLES / "second_opinion.json").read_text())
    assert json.loads(shown) == example
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(EXAMPLES)
    exec(program, {})


CHAIN = orchestration(
    A1=step(then("B1", join=join("J1", "all", "J2"))),
    B1=step(then("C1", "D1", join=join("J2", "any", "C1:any", "D1", wait="kill"))),
    C1=step(), D1=step(None, then("C1")), J2=step(), J1=step(then("A1")),
)  # fmt: skip


@pytest.mark.parametrize(
    "document",
    [SECTION_6_1, SECTION_7_4, CHAIN, EXAMPLES / "second_opinion.json"],
    ids=("6.1", "7.4", "loop", "file"),
)
def test_orchestrations_hold_under_crashes_and_random_outcomes(document: object) -> None:
    simulation = simulate(document, seeds=60, until=3600)  # type: ignore[arg-type]
    assert simulation.seeds == 60
    assert simulation.faults

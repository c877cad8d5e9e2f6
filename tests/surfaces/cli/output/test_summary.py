"""The last lines of a run on the screen."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.surfaces.cli.output.render import standing, summary


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("cancelled", "  reason: cancelled"),
        ("the wrong list", "  reason: cancelled: the wrong list"),
    ],
)
def test_the_reason_of_a_run_does_not_say_its_code_twice(message: str, line: str) -> None:
    run: dict[str, Any] = {
        "name": "n", "run": "r", "status": "cancelled", "problems": 0, "steps": {}, "joins": [],
        "problem": {"code": "cancelled", "message": message}, "result": None,
        "created_at": 0, "finished_at": 1,
    }  # fmt: skip
    assert line in summary(run, colour=False)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"problems": 0}, "completed"),
        ({"problems": 1}, "completed, 1 problem"),
        ({"problems": 2, "tolerated": 2}, "completed, 2 problems tolerated"),
        ({"problems": 3, "tolerated": 1}, "completed, 3 problems, 1 of them tolerated"),
        ({"problems": 0, "handled": 1}, "completed, 1 failure handled"),
        ({"problems": 1, "handled": 2}, "completed, 1 problem, 2 failures handled"),
    ],
)
def test_a_status_says_how_many_problems_there_are_and_which_are_taken_care_of(
    counts: dict[str, int], words: str
) -> None:
    assert standing({"status": "completed", **counts}) == words


def test_a_run_lasts_from_its_start_to_its_end_and_one_that_goes_on_only_began() -> None:
    run: dict[str, Any] = {
        "name": "n", "run": "r", "status": "completed", "problems": 0, "steps": {}, "joins": [],
        "problem": None, "result": None, "created_at": 1_000, "finished_at": 62_000,
    }  # fmt: skip
    assert summary(run, colour=False) == ["n (r): completed in 1 min 1 s"]
    going = summary({**run, "status": "waiting", "finished_at": None}, colour=False)[0]
    assert going.startswith("n (r): waiting, begun ")
    assert going.endswith(" ago")

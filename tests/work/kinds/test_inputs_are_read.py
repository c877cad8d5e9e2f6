"""Inputs are taken in every reasonable spelling, and refused with their name."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.work.kinds import inputs
from anabranch.work.kinds.noop import Noop

from ..support import run, task


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *[(30, 30), (0.5, 0.5), ("30", 30), ("30s", 30), ("500ms", 0.5), ("2m", 120)],
        *[("1.5h", 5400), ("1h30m", 5400), ("5d", 432_000), ("PT1M", 60)],
    ],
)
def test_times_have_units(value: Any, expected: float) -> None:
    assert inputs.seconds(value, "timeout") == pytest.approx(expected)


@pytest.mark.parametrize("value", [0, -1, True, None, "soon", "", "5w", float("nan"), [1]])
def test_a_time_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match="timeout must be a time above zero"):
        inputs.seconds(value, "timeout")


def test_either_name_of_the_timeout_is_read() -> None:
    assert inputs.timeout({"timeout": "3s"}) == 3
    assert inputs.timeout({"timeout_seconds": 4}) == 4
    assert inputs.timeout({}) is None


def test_wrong_types_are_named() -> None:
    with pytest.raises(InputError, match="code must be text, not a list"):
        inputs.text([], "code")
    with pytest.raises(InputError, match="args must be a mapping, not 'x'"):
        inputs.mapping("x", "args")
    with pytest.raises(InputError, match="verify must be true or false"):
        inputs.flag("perhaps", "verify")
    with pytest.raises(InputError, match=r"env\.A must be text or a number, not a mapping"):
        inputs.scalar({}, "env.A")


def test_scalars_are_written_as_json_does() -> None:
    assert [inputs.scalar(value, "x") for value in (True, 3, 2.5, "t")] == ["true", "3", "2.5", "t"]


def test_noop_says_that_it_did_nothing() -> None:
    assert Noop().perform_now(task()).result == {"status": "noop", "step": "ship"}


def test_noop_gives_the_result_it_was_given() -> None:
    assert run(Noop().perform(task(result={"a": 1}))).result == {"a": 1}
    assert Noop().perform_now(task(result=0)).result == 0

"""The soak command: sums at the end, the seed and exit code 1 when something is found."""

from __future__ import annotations

import json

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import evolve
from anabranch.testing.soak import main


def test_it_tells_seeds_and_hours(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "5", "--start", "40"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("5 seeds, ")
    assert "simulated hours" in out


def test_it_prints_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["seeds"]) == (True, 3)
    assert told["events"] > 0


def test_it_stops_after_a_while() -> None:
    assert main(["--seconds", "0.05"]) == 0


def test_a_finding_is_told_with_its_seed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(evolve._TABLE, e.TokenFinished, lambda _state, _event, _at: None)
    assert main(["--seeds", "20", "--start", "8"]) == 1
    told = capsys.readouterr().err
    seed = told.removeprefix("seed ").partition(":")[0]
    assert f"python -m anabranch.testing.soak --start {seed} --seeds 1" in told
    assert main(["--seeds", "1", "--start", seed, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["seed"] == int(seed)

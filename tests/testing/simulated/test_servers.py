"""Servers that share a store: whatever happens between them, every transition happens once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from anabranch.errors import LawBroken
from anabranch.testing.simulated.servers import (
    Disturbances,
    ServerSimulation,
    without_faults,
)
from seeds import part

SEEDS, PARTS = 20_000, 8  # `tests/seeds.py` says how many of them are tried: 2,000, if not told


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_servers_that_die_stop_join_and_leave_lose_and_repeat_nothing(number: int) -> None:
    for seed in part(number, PARTS, SEEDS):
        simulated(seed)


def simulated(seed: int, *, webhooks: bool | None = None) -> ServerSimulation:
    simulation = ServerSimulation(seed, webhooks=webhooks)
    try:
        simulation.run()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return simulation


def test_everything_that_can_go_wrong_does() -> None:
    tally: Counter[str] = Counter()
    for seed in range(20):
        tally += simulated(seed, webhooks=seed == 0 or None).tally
    assert tally.keys() >= {*Disturbances.__struct_fields__, "effects", "notices"}


def test_the_same_seed_gives_the_same_simulation() -> None:
    """Also in another process, where sets of texts have another order."""
    script = (
        "from anabranch.testing.simulated.servers import ServerSimulation\n"
        "made = ServerSimulation(5)\n"
        "made.run()\n"
        "print(made.shared.written, made.tally, made.now())"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": number},
            capture_output=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    }
    assert len(printed) == 1


def test_without_faults_a_run_comes_to_what_its_definition_says() -> None:
    seen, reports = without_faults("parent")
    steps = {"work", "flaky", "nap", "dream", "poke"}
    assert reports == len(steps)
    assert {key[1] for key in seen if key[0] == "reports"} == {*steps, "kid", "start", "meet"}
    assert seen["reports", "flaky", "error", "None"] == 1
    assert seen["finishes", "completed"] == 1


def test_a_transition_too_much_is_noticed() -> None:
    simulation = simulated(3)
    (run, *_) = simulation.audits
    with pytest.raises(LawBroken, match="missing"):
        simulation.laws._as_without_faults(run, [])

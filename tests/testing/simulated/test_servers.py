"""Servers that share a store: whatever happens between them, every transition happens once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from anabranch.errors import LawBroken
from anabranch.testing.simulated.servers import (
    Disturbances,
    ServerSimulation,
    without_faults,
)
from seeds import SHARE, part, seeds

pytestmark = pytest.mark.slow

#: Of which a test run takes a part. Most guards are found missing within 10 seeds, those of rare
#: events with disturbances of their own: see `test_servers_guards.py`.
SEEDS = 800 if SHARE < 1 else 20_000
HARSH_SEEDS = 120 if SHARE < 1 else 2_000
PARTS = 8


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_servers_that_die_stop_join_and_leave_lose_and_repeat_nothing(number: int) -> None:
    for seed in part(number, PARTS, SEEDS):
        tally_of(seed)


#: Every server that joins lacks what parents need: they are set aside while their children go on.
#: What else goes wrong would bring most of them back in time.
LACKING = Disturbances(
    **{**dict.fromkeys(Disturbances.__struct_fields__, 0.0), "lacks": 1.0, "join": 0.01}
)
#: Connections are lost and processes stopped much more often than usual.
HARSH = (
    Disturbances(stop_midway=0.15, connection_lost=0.3, join=0.01, post_lost=0.0),
    Disturbances(stop_midway=0.3, connection_lost=0.5, join=0.01, post_lost=0.0),
    Disturbances(stop_midway=0.3, connection_lost=0.5),
    Disturbances(stop_midway=0.1, connection_lost=0.4, answer_lost=0.4, kill=0.01, join=0.03),
    Disturbances(lacks=0.8, join=0.01),
    LACKING,
)


@pytest.mark.parametrize(("harsh", "seed"), [(0, 82), (1, 106)])
def test_a_server_that_was_removed_takes_no_partition_with_what_it_remembers(
    harsh: int, seed: int
) -> None:
    """It was stopped between a look at its lease and a claim: others had its partitions meanwhile,
    and a batch whose end it did not see would have been written again."""
    simulated(seed, disturbances=HARSH[harsh])


@pytest.mark.slow
@pytest.mark.parametrize("harsh", range(len(HARSH)))
def test_trouble_of_one_kind_that_comes_most_of_the_time_loses_and_repeats_nothing(
    harsh: int,
) -> None:
    for seed in seeds(HARSH_SEEDS):
        simulated(seed, disturbances=HARSH[harsh])


def simulated(
    seed: int, *, webhooks: bool | None = None, disturbances: Disturbances | None = None
) -> ServerSimulation:
    simulation = ServerSimulation(seed, webhooks=webhooks, disturbances=disturbances)
    try:
        simulation.run()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return simulation


@cache
def tally_of(seed: int) -> Counter[str]:
    """What happened in the usual simulation, which is run once for all tests."""
    return simulated(seed).tally


def test_everything_that_can_go_wrong_does() -> None:
    tally = simulated(0, webhooks=True).tally + simulated(0, disturbances=LACKING).tally
    for seed in range(1, 20):
        tally += tally_of(seed)
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
    others = {"kid", "start", "meet", "rest", "hear"}
    assert {key[1] for key in seen if key[0] == "reports"} == {*steps, *others}
    assert seen["reports", "hear", "ok", "{'n': 1}"] == 1
    assert seen["reports", "flaky", "error", "None"] == 1
    assert seen["finishes", "completed"] == 1


def test_a_transition_too_much_is_noticed() -> None:
    simulation = simulated(3)
    (run, *_) = simulation.audits
    with pytest.raises(LawBroken, match="missing"):
        simulation.laws._as_without_faults(run, [])

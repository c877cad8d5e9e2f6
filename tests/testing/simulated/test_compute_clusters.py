"""Pools on a compute cluster that goes wrong in every way, with servers that do too: each run comes
to what it comes to without a cluster, nothing counts twice, and nothing is left there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest

from anabranch.testing.simulated.compute_cluster import ClusterFaults
from anabranch.testing.simulated.compute_world import CALM, ComputeSimulation, Trouble
from seeds import SHARE, part

pytestmark = pytest.mark.slow

SEEDS, PARTS = 240 if SHARE < 1 else 4_000, 4  # of which a test run takes a part
NO_TROUBLE = Trouble(**dict.fromkeys(Trouble.__struct_fields__, 0.0))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_whatever_happens_to_cluster_and_servers_each_item_counts_once(number: int) -> None:
    for seed in part(number, PARTS, SEEDS):
        tally_of(seed)


@cache
def tally_of(seed: int) -> Counter[str]:
    """What happened in the simulation, which is run once for all tests."""
    world = ComputeSimulation(seed)
    try:
        world.run()
        compare(world, seed)
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return world.tally + world.cluster.tally


def compare(world: ComputeSimulation, seed: int) -> None:
    """The same runs done by one engine alone are the oracle."""
    plain = ComputeSimulation(seed, trouble=NO_TROUBLE, faults=CALM, inline=True, servers=1)
    plain.run()
    for run, story in world.stories.items():
        if story.traits.certain and run not in world.touched:
            assert world.laws.outcome(run) == plain.laws.outcome(run), run


def test_everything_that_can_go_wrong_does() -> None:
    rare = {"gone_for_an_hour"}
    wanted = {*Trouble.__struct_fields__, *ClusterFaults.__struct_fields__, "late", "submitted"}
    missing = wanted - rare
    for seed in range(40):
        missing -= tally_of(seed).keys()
        if not missing:
            return
    assert missing == set()


def test_a_cluster_that_is_gone_for_an_hour_costs_an_hour_and_nothing_else() -> None:
    world = ComputeSimulation(1, trouble=NO_TROUBLE, faults=CALM)
    world.later(2_000, world._gone_for_an_hour)
    world.run()
    compare(world, 1)


def test_the_same_seed_gives_the_same_simulation() -> None:
    """Also in another process, where sets of texts have another order."""
    script = (
        "from anabranch.testing.simulated.compute_world import ComputeSimulation\n"
        "made = ComputeSimulation(5)\n"
        "made.run()\n"
        "print(made.tally, made.cluster.tally, made.now())"
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

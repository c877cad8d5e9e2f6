"""Thousands of random nets under faults, every law checked after every event: nothing is found."""

from __future__ import annotations

import sys

import pytest

from anabranch.testing import Simulation, simulate
from anabranch.testing.random.nets import RANDOM_PATCHES, random_net
from seeds import seeds

SEEDS = seeds(1_000)


@pytest.mark.slow
def test_thousands_of_seeds_find_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sums = simulate(random_net, SEEDS, patches=RANDOM_PATCHES)
    _tell(capsys, sums)
    assert sums.seeds == len(SEEDS)
    assert sums.hours > 0
    assert sums.crashes > len(SEEDS) / 4


def _tell(capsys: pytest.CaptureFixture[str], sums: Simulation) -> None:
    """On standard error, which is seen whatever captures the output and whoever runs the test."""
    with capsys.disabled():
        print(f"\nsimulation: {sums}", file=sys.stderr, flush=True)

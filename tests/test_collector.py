"""The collector looks less often while an engine is open, and is a program's own otherwise."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from anabranch import Engine, collector
from anabranch.collector import COLLECTED_AFTER, spare

USUAL = (700, 10, 10)


@pytest.fixture(autouse=True)
def usual_threshold(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a program that has no other engine: one that a test has left open is not counted."""
    monkeypatch.setattr(collector, "_collector", collector._Collector())
    before = gc.get_threshold()
    gc.set_threshold(*USUAL)
    yield
    gc.set_threshold(*before)


def first() -> int:
    return gc.get_threshold()[0]


def test_an_open_engine_has_garbage_looked_for_less_often() -> None:
    async def seen() -> int:
        async with Engine(":memory:"):
            return first()

    assert asyncio.run(seen()) == COLLECTED_AFTER
    assert gc.get_threshold() == USUAL


def test_the_threshold_comes_back_with_the_last_engine() -> None:
    one, other = spare(), spare()
    one()
    assert first() == COLLECTED_AFTER
    other()
    assert gc.get_threshold() == USUAL


@pytest.mark.parametrize("chosen", [0, 100, 50_000])
def test_what_a_program_has_chosen_stays(chosen: int) -> None:
    gc.set_threshold(chosen)
    unspare = spare()
    assert first() == chosen
    unspare()
    assert first() == chosen


def test_what_a_program_chooses_meanwhile_stays() -> None:
    unspare = spare()
    gc.set_threshold(5_000)
    unspare()
    assert first() == 5_000

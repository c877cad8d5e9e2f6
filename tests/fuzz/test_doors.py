"""No message from outside is more than refused: kept ones, and others made of them."""

from __future__ import annotations

from random import Random

import pytest

from seeds import seeds

from .bend import bend
from .doors import DOORS
from .kept import kept
from .watched import read_watched


@pytest.mark.parametrize("name", DOORS)
def test_what_is_right_is_taken(name: str) -> None:
    for message in DOORS[name].right:
        DOORS[name].read(message)


@pytest.mark.parametrize("name", DOORS)
def test_what_was_found_once_is_read_or_refused(name: str) -> None:
    for message in kept(name):
        assert read_watched(DOORS[name], message).bug is None


@pytest.mark.parametrize("name", DOORS)
def test_whatever_else_comes_is_read_or_refused(name: str) -> None:
    door, known = DOORS[name], [*DOORS[name].right, *kept(name)]
    for seed in seeds(1000):
        random = Random(f"{name} {seed}")
        message = bend(random, random.choice(known))
        assert read_watched(door, message).bug is None, (seed, message)

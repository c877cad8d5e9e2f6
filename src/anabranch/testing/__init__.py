"""The testing kit: play a workflow in virtual time, simulate it under faults, examine a store.

    from anabranch.testing import after, error, never, ok, play, simulate

It drives the core of an engine with a world of its own; nothing that is shipped to run a workflow
imports it. See docs/testing-kit.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.testing.play import play
from anabranch.testing.scripted.answers import (
    aborts,
    after,
    error,
    hard_error,
    invalid,
    negative,
    never,
    ok,
    stubborn,
    unreachable,
    valid,
)
from anabranch.testing.scripted.played import Played, PlayedEvent, PlayedStep
from anabranch.testing.simulate import simulate
from anabranch.testing.simulated.faults import Faults
from anabranch.testing.simulation import Simulation, SimulationFailed

if TYPE_CHECKING:
    from anabranch.testing.stores import DurableStoreSuite, StoreSuite

__all__ = [
    "DurableStoreSuite",
    "Faults",
    "Played",
    "PlayedEvent",
    "PlayedStep",
    "Simulation",
    "SimulationFailed",
    "StoreSuite",
    "aborts",
    "after",
    "error",
    "hard_error",
    "invalid",
    "negative",
    "never",
    "ok",
    "play",
    "simulate",
    "stubborn",
    "unreachable",
    "valid",
]

_SUITES = ("DurableStoreSuite", "StoreSuite")


def __getattr__(name: str) -> Any:
    """The store suites are loaded when they are asked for: few users write a store."""
    if name in _SUITES:
        from anabranch.testing import stores

        return getattr(stores, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

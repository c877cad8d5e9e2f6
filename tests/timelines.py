"""Timelines made from a few events, for the tests of the model and of the pages."""

from __future__ import annotations

from anabranch.kernel import events as e
from anabranch.operations.read.timeline import Timeline


def told(*events: tuple[int, e.Event]) -> Timeline:
    timeline = Timeline()
    for at, event in events:
        timeline.see(at, event)
    return timeline


def token(number: int, step: str, scope: int = 0) -> e.TokenCreated:
    return e.TokenCreated(number, step, 0, scope, "arc")

"""Runs over time as bars: a stack for each part of the time, a colour for each kind of status."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import msgspec

from anabranch.operations.overview.overview import Slot
from anabranch.surfaces.ui.views.formatting import STATUSES, instant, look, span

HEIGHT = 48  # of the tallest bar; every slot is SLOT wide
SLOT, GAP = 10, 2
#: From the bottom: what went well carries what did not.
ORDER = ("done", "quiet", "partial", "active", "waiting", "failed", "plain")


class Part(msgspec.Struct, frozen=True):
    look: str
    y: float
    height: float


class Bar(msgspec.Struct, frozen=True):
    """`words` is what it says to who points at it or cannot see it; `way` leads to its runs."""

    x: int
    parts: list[Part]
    words: str
    way: str


class Histogram(msgspec.Struct, frozen=True):
    bars: list[Bar]  # only where runs began
    width: int
    total: int
    most: int  # runs of one slot
    begin: int
    end: int
    slot: str  # how long a slot is
    looks: list[tuple[str, str]]  # (the statuses that occur and share a look, that look)


def histogram_of(slots: Sequence[Slot], slot_ms: int, way: Callable[[int, int], str]) -> Histogram:
    """`way` is asked for the address of the runs that began between two instants."""
    most = max((sum(slot.statuses.values()) for slot in slots), default=0)
    bars = [_bar(at, slot, slot_ms, most, way) for at, slot in enumerate(slots) if slot.statuses]
    found = {status for slot in slots for status in slot.statuses}
    return Histogram(
        bars=bars,
        width=len(slots) * SLOT,
        total=sum(sum(slot.statuses.values()) for slot in slots),
        most=most,
        begin=slots[0].at if slots else 0,
        end=slots[-1].at + slot_ms if slots else 0,
        slot=span(slot_ms),
        looks=_looks(found),
    )


def _looks(found: Collection[str]) -> list[tuple[str, str]]:
    """Statuses of one colour are one entry: bars do not tell them apart."""
    named: dict[str, list[str]] = {}
    for status in STATUSES:
        if status in found:
            named.setdefault(look(status), []).append(status.replace("_", " "))
    return [(", ".join(words), kind) for kind, words in named.items()]


def _bar(at: int, slot: Slot, slot_ms: int, most: int, way: Callable[[int, int], str]) -> Bar:
    by_look: dict[str, int] = {}
    for status, count in slot.statuses.items():
        by_look[look(status)] = by_look.get(look(status), 0) + count
    parts, bottom = [], float(HEIGHT)
    for one in ORDER:
        if count := by_look.get(one, 0):
            height = max(1.0, count * HEIGHT / most)
            bottom -= height
            parts.append(Part(one, round(max(0.0, bottom), 2), round(height, 2)))
    counted = ", ".join(
        f"{slot.statuses[status]:,} {status.replace('_', ' ')}"
        for status in STATUSES
        if status in slot.statuses
    )
    words = f"{instant(slot.at)[:16]} UTC: {counted}"
    return Bar(at * SLOT, parts, words, way(slot.at, slot.at + slot_ms))

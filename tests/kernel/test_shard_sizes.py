"""Shards of automatic size: by the time of their items, and wider where those wait together."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel.tracker import SIDE_BY_SIDE, SIDE_BY_SIDE_MS, Tracker, size_after


def tracker(**more: Any) -> Tracker:
    return Tracker(
        id="l1",
        token=1,
        mode="local",
        source=[],
        size=1000,
        shard_size=1,
        opened_at=0,
        **{"automatic": True, "side_by_side": True, "window": 100, **more},
    )


@pytest.mark.parametrize(
    ("items", "milliseconds", "size"),
    [
        (1, 20, 8),  # as its time allows, eight times what is known
        (1, 200, SIDE_BY_SIDE),
        (SIDE_BY_SIDE, SIDE_BY_SIDE_MS, SIDE_BY_SIDE),
        (1, SIDE_BY_SIDE_MS + 1, 1),
        (SIDE_BY_SIDE, SIDE_BY_SIDE_MS + 1, 1),
    ],
)
def test_items_that_wait_together_share_shards_while_those_are_short(
    items: int, milliseconds: int, size: int
) -> None:
    assert size_after(tracker(), items, milliseconds) == size


def test_a_narrow_window_and_items_in_turn_go_by_time_alone() -> None:
    assert size_after(tracker(window=8), 1, 200) == 1
    assert size_after(tracker(side_by_side=False), 1, 200) == 1
    assert size_after(tracker(automatic=False), 1, 1) == 1

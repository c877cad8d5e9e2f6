"""A copy puts every row into the partition of its run."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest

from anabranch.store.relational import transfer
from anabranch.store.relational.transfer import Transfer

AT = 7  # where the target has all of its runs, whatever their ids say
CHILDREN = [f"child-{number}" for number in range(9)]


class Source:
    partitions = 1

    def stamp(self) -> dict[str, Any]:
        return {"rows": {}}


class Target:
    partitions = 4096

    def places(self, runs: Collection[str]) -> dict[str, int]:
        return dict.fromkeys(runs, AT)


def test_rows_of_a_child_come_to_its_partition_when_more_places_are_met_than_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfer, "_PLACES_KEPT", 4)
    copy = Transfer(cast(Any, Source()), cast(Any, Target()), lambda *_: None)
    for count in range(1, len(CHILDREN) + 1):
        page = [(child,) for child in CHILDREN[:count]]
        assert copy._places_of_log(page, 0) == [AT] * count

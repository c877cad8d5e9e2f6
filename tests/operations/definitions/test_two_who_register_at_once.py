"""Two callers register at one path, the second at every moment of the first: what each is told is
what the catalog has.

A call of the store is one moment: between any two of them another server may do all it wants.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.errors import Conflict
from anabranch.operations.definitions.catalog import Catalog, Draft, Registered
from anabranch.operations.schedules.schedule import FAMILY, SCHEDULES
from anabranch.store.memory.store import MemoryStore

from ..interrupted import Interrupted

MOMENTS = 40  # more than a registration has
PATH = "etl/load"


def text(result: int) -> str:
    """Each with a schedule of its own."""
    metadata = {"name": "load", "path": PATH, "schedule": {"every": f"{result}h"}}
    step = {"step": "a", "tool": {"kind": "noop", "result": result}}
    head = {"apiVersion": "noetl.io/v10", "kind": "Playbook"}
    return json.dumps({**head, "metadata": metadata, "workflow": [step]})


def registered(store: Any, given: str) -> list[Registered]:
    try:
        return Catalog(store).register([Draft(given, "load.json")], 1)
    except Conflict:
        return []


@pytest.mark.parametrize("before", [(), (text(1),)], ids=["new", "versions"])
@pytest.mark.parametrize("second", [text(2), text(3)], ids=["same", "another"])
def test_each_is_told_what_the_catalog_has(second: str, before: tuple[str, ...]) -> None:
    first, moments = text(2), 0
    for moment in range(1, MOMENTS):
        store = MemoryStore()
        for earlier in before:
            registered(store, earlier)
        if (told := _both(store, moment, first, second)) is None:
            break
        moments += 1
        _require_what_is_there(store, told, same=first == second)
    assert moments > 3


def _both(store: MemoryStore, moment: int, first: str, second: str) -> list[Registered] | None:
    """What both are told; nothing where the first has no such moment."""
    told: list[Registered] = []
    shared = Interrupted(store, moment, lambda: told.extend(registered(store, second)))
    told += registered(shared, first)
    return told if shared.was_interrupted else None


def _require_what_is_there(store: MemoryStore, told: list[Registered], *, same: bool) -> None:
    catalog = Catalog(store)
    kept = {one.version: one for one in catalog.versions(PATH)}
    for one in told:
        there = kept[one.version]
        assert (one.fingerprint, one.catalog_id) == (there.fingerprint, there.catalog_id)
    assert sum(one.new for one in told) == len({one.version for one in told})
    if same:
        assert len(told) == 2, "the same text again is the same version"
    schedule = store.record(FAMILY, "etl.load")
    assert schedule is not None
    newest = json.loads(catalog.show(PATH)[1].source)["metadata"]["schedule"]["every"]
    assert SCHEDULES.document(schedule).spec.every_ms == int(newest[:-1]) * 3_600_000

"""Recovery: what an engine does with the unfinished runs it finds in its store.

Runs that only stand at gates stay in the store and cost nothing but their alarm. The others come
into memory; jobs that were out with the last engine are lost and go out again. Jobs of workers
elsewhere stay with them, under their leases.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from anabranch.runtime.core import Core
from anabranch.store.ports import Head, Record, Snapshot

PAGE = 1000


def recover(core: Core, now: int, only: Collection[str] | None = None) -> int:
    """Bring back every unfinished run, or `only` these; returns how many came into memory."""
    heads = _unfinished(core) if only is None else _named(core, only)
    moving = [head for head in heads if head.status != "waiting"]
    for start in range(0, len(moving), PAGE):
        page = moving[start : start + PAGE]
        found = core.store.read_many([head.run for head in page])
        for head in page:
            _bring_back(core, now, head, *found[head.run])
    for head in heads:
        if head.status == "waiting" and head.next_wake is not None:
            core.set_wake(head.run, max(head.next_wake, now))
    return len(moving)


def _bring_back(
    core: Core, now: int, head: Head, snapshot: Snapshot | None, tail: Sequence[Record]
) -> None:
    """One run that cannot be read must not keep the others from going on."""
    try:
        core.recover(core.adopt(head, snapshot, tail), now)
    except Exception as error:
        core.live.pop(head.run, None)
        core.broken[head.run] = error
        core.on_defect(head.run, error)


def _named(core: Core, names: Collection[str]) -> list[Head]:
    found = (core.store.head(name) for name in names)
    return [head for head in found if head is not None and not head.finished]


def _unfinished(core: Core) -> list[Head]:
    heads: list[Head] = []
    while True:
        page = core.store.unfinished(heads[-1].run if heads else "", PAGE)
        heads += page
        if len(page) < PAGE:
            return heads

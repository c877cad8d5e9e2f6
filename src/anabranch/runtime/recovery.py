"""Recovery: what an engine does with the unfinished runs it finds in its store.

Runs that only stand at gates stay in the store and cost nothing but their alarm. The others come
into memory; jobs that were out with the last engine are lost and go out again.
"""

from __future__ import annotations

from anabranch.runtime.core import Core
from anabranch.store.ports import Head

PAGE = 1000


def recover(core: Core, now: int) -> int:
    """Bring back every unfinished run; returns how many came into memory."""
    heads = _unfinished(core)
    moving = [head for head in heads if head.status != "waiting"]
    for start in range(0, len(moving), PAGE):
        page = moving[start : start + PAGE]
        found = core.store.read_many([head.run for head in page])
        for head in page:
            core.recover(core.adopt(head, *found[head.run]))
    for head in heads:
        if head.status == "waiting" and head.next_wake is not None:
            core.set_wake(head.run, max(head.next_wake, now))
    return len(moving)


def _unfinished(core: Core) -> list[Head]:
    heads: list[Head] = []
    while True:
        page = core.store.unfinished(heads[-1].run if heads else "", PAGE)
        heads += page
        if len(page) < PAGE:
            return heads

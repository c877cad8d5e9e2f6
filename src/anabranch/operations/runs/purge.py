"""Deleting runs that ended long ago, with whatever nobody else needs of what they kept.

A run stays while an unfinished one depends on it: its parent, or a run that redrives it. It also
stays until every webhook that is enabled has looked at its last event.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from anabranch.errors import InputError
from anabranch.store.ports import Forgotten, Head, HeadFilter, Retention, Space, Store

DAY_MS = 86_400_000
PAGE = 1000  # runs that are looked at in one go
AT_ONCE = 100  # runs in one transaction: an engine on the same store waits no longer than for these
STEP_BYTES = 1024 * 1024  # given back in one transaction: some milliseconds of a writer's time
STEPS_AT_ONCE = 256  # for those who must answer soon
PAUSE_SECONDS = 0.002  # between two of them, for whoever waits to write
_AGE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*([smhdw])")
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}


def age_ms(text: str) -> int:
    """`30d`, `12h`, `90m`, `4w` or `45s` in milliseconds."""
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise InputError(f"an age is written 30d, 12h or 90m, not {text!r:.40}", code="usage")
    return int(float(found[1]) * _UNITS_MS[found[2]])


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """What is gone, or would be; `next` is where the next page begins: (created_at, run)."""

    runs: int = 0
    payloads: int = 0
    bytes: int = 0
    next: tuple[int, str] | None = None
    space: Space = Space()


def give_back(store: Retention, steps: int | None = None) -> Space:
    """Give unused room back to the file system, in steps between which others get their turn."""
    given = 0
    while True:
        space = store.give_back(STEP_BYTES)
        given += space.given_back
        steps = None if steps is None else steps - 1
        if not (space.given_back and space.unused) or steps == 0:
            return replace(space, given_back=given)
        time.sleep(PAUSE_SECONDS)


def purge(
    store: Store,
    older_than_ms: int,
    now: int,
    *,
    dry_run: bool = False,
    wanted: HeadFilter | None = None,
) -> Purged:
    """Delete the runs that ended longer ago than that, and what is over; with `dry_run` only
    count them."""
    total = Forgotten()
    narrowed = replace(wanted or HeadFilter(), ended_before=now - older_than_ms, limit=PAGE)
    while True:
        page = purge_page(store, narrowed, dry_run=dry_run)
        total = added(total, Forgotten(page.runs, page.payloads, page.bytes))
        if page.next is None:
            break
        narrowed = replace(narrowed, before=page.next)
    space = Space()
    if not dry_run:
        store.expire(now)
        space = give_back(store)
    return Purged(runs=total.runs, payloads=total.payloads, bytes=total.bytes, space=space)


def purge_page(store: Store, wanted: HeadFilter, *, dry_run: bool = False) -> Purged:
    """One page of it: of the next `wanted.limit` runs those that nobody needs any more."""
    found = store.heads(replace(wanted, limit=wanted.limit + 1))
    heads, kept = found[: wanted.limit], kept_back(store)
    runs = [head.run for head in heads if head.finished and not kept(head)]
    total = Forgotten()
    for start in range(0, len(runs), AT_ONCE):
        total = added(total, store.forget(runs[start : start + AT_ONCE], dry_run=dry_run))
    more = len(found) > len(heads)
    return Purged(
        runs=total.runs,
        payloads=total.payloads,
        bytes=total.bytes,
        next=(heads[-1].created_at, heads[-1].run) if more else None,
    )


def kept_back(store: Store) -> Callable[[Head], str]:
    """For each ended run: why it must stay, or nothing."""
    needed, untold = _needed(store), _untold(store)

    def why(head: Head) -> str:
        if head.run in needed or _parent(head) in needed:
            return "an unfinished run depends on it"
        return "a webhook has yet to look at its last events" if head.run in untold else ""

    return why


def _needed(store: Store) -> set[str]:
    """Unfinished runs, and those that one of them redrives."""
    needed: set[str] = set()
    after = ""
    while page := store.unfinished(after):
        after = page[-1].run
        for head in page:
            needed |= {head.run, head.origin or head.run}
    return needed


def _untold(store: Store) -> set[str]:
    """Runs with events that some webhook has yet to look at."""
    cursors = [store.cursors(hook.id) for hook in store.hooks() if hook.enabled]
    untold: set[str] = set()
    for partition in store.positions() if cursors else ():
        seen = min(each.get(partition, 0) for each in cursors)
        untold |= store.runs_after(seen, partition)
    return untold


def _parent(head: Head) -> str | None:
    return head.parent.partition("/")[0] if head.parent else None


def added(one: Forgotten, other: Forgotten) -> Forgotten:
    return Forgotten(one.runs + other.runs, one.payloads + other.payloads, one.bytes + other.bytes)

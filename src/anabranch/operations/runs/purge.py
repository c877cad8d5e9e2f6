"""Deleting runs that ended long ago, with whatever nobody else needs of what they kept.

A run stays while an unfinished one depends on it: its parent, or a run that redrives it, also where
runs that ended stand between the two. It also stays until every webhook that is enabled has looked
at its last event, and while a trigger, also one that is paused, has yet to act on it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache

import msgspec
from msgspec.structs import replace

from anabranch.operations.webhooks.matcher import concerns
from anabranch.store.hook_ports import Backlog, DeliveryFilter, Hook
from anabranch.store.ports import Forgotten, Head, HeadFilter, Retention, Space, Store

PAGE = 1000  # runs that are looked at in one go
AT_ONCE = 100  # runs in the first transaction; the others have as many as `Pace` says
FEWEST_AT_ONCE, MOST_AT_ONCE = 10, 400
HELD_SECONDS = 0.012  # of the processor in one transaction, for which an engine waits
STEP_BYTES = 1024 * 1024  # given back in one transaction: some milliseconds of a writer's time
STEPS_AT_ONCE = 256  # for those who must answer soon
PAUSE_SECONDS = 0.002  # between two transactions, for whoever waits to write


class Purged(msgspec.Struct, frozen=True, kw_only=True):
    """What is gone, or would be; `next` is where the next page begins: (created_at, run)."""

    runs: int = 0
    payloads: int = 0
    bytes: int = 0
    next: tuple[int, str] | None = None
    space: Space = Space()


class Pace:
    """How many runs are deleted in one transaction. Each waits for the disk and for the engine on
    the same store, so there should be few; and each keeps the engine waiting, so none should take
    long. The processor's time says how long, however busy machine and store are."""

    def __init__(self) -> None:
        self.runs = AT_ONCE

    def took(self, runs: int, seconds: float) -> None:
        fitting = int(runs * HELD_SECONDS / seconds) if seconds > 0 else MOST_AT_ONCE
        self.runs = min(max(fitting, FEWEST_AT_ONCE), MOST_AT_ONCE)


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
    total, pace = Forgotten(), Pace()
    narrowed = replace(wanted or HeadFilter(), ended_before=now - older_than_ms, limit=PAGE)
    while True:
        page = purge_page(store, narrowed, dry_run=dry_run, pace=pace)
        total = added(total, Forgotten(page.runs, page.payloads, page.bytes))
        if page.next is None:
            break
        narrowed = replace(narrowed, before=page.next)
    space = Space()
    if not dry_run:
        store.expire(now)
        space = give_back(store)
    return Purged(runs=total.runs, payloads=total.payloads, bytes=total.bytes, space=space)


def purge_page(
    store: Store, wanted: HeadFilter, *, dry_run: bool = False, pace: Pace | None = None
) -> Purged:
    """One page of it: of the next `wanted.limit` runs those that nobody needs any more."""
    found = store.heads(replace(wanted, limit=wanted.limit + 1))
    heads = found[: wanted.limit]
    kept = kept_back(store, heads)
    runs = [head.run for head in heads if head.finished and not kept(head)]
    total = _forgotten(store, runs, pace or Pace(), dry_run=dry_run)
    more = len(found) > len(heads)
    return Purged(
        runs=total.runs,
        payloads=total.payloads,
        bytes=total.bytes,
        next=(heads[-1].created_at, heads[-1].run) if more else None,
    )


def _forgotten(store: Store, runs: Sequence[str], pace: Pace, *, dry_run: bool) -> Forgotten:
    total, start = Forgotten(), 0
    while some := runs[start : start + pace.runs]:
        before = time.thread_time()
        total = added(total, store.forget(some, dry_run=dry_run))
        pace.took(len(some), time.thread_time() - before)
        start += len(some)
        time.sleep(PAUSE_SECONDS)
    return total


def kept_back(store: Store, heads: Sequence[Head]) -> Callable[[Head], str]:
    """For each of these ended runs: why it must stay, or nothing."""
    needed, untold = _needed(store, heads), _untold(store)

    def why(head: Head) -> str:
        if head.run in needed:
            return "an unfinished run depends on it"
        return untold(head)

    return why


def _needed(store: Store, heads: Sequence[Head]) -> set[str]:
    """Of these runs those that are unfinished, or that an unfinished one depends on: one that
    started them or redrives them, or that depends in this way on one that did."""
    known = _with_dependents(store, heads)
    keeps: defaultdict[str, list[str]] = defaultdict(list)
    for head in known.values():
        if parent := _parent(head):
            keeps[parent].append(head.run)
        if head.origin:
            keeps[head.run].append(head.origin)
    needed: set[str] = set()
    left = [head.run for head in known.values() if not head.finished]
    while left:
        run = left.pop()
        if run not in needed:
            needed.add(run)
            left += keeps[run]
    return needed


def _with_dependents(store: Store, heads: Sequence[Head]) -> dict[str, Head]:
    """These runs, and all that may depend on them. Whoever an unfinished one depends on stays, so
    behind those nothing is looked for."""
    known = {head.run: head for head in heads}
    fresh = list(known.values())
    while fresh:  # no run is looked at twice
        ended = [head for head in fresh if head.finished]
        parents = {parent for head in ended if (parent := _parent(head))} - known.keys()
        found = store.redrives([head.run for head in ended])
        found += [head for parent in sorted(parents) if (head := store.head(parent))]
        fresh = [head for head in found if head.run not in known]
        known |= {head.run: head for head in fresh}
    return known


def _untold(store: Store) -> Callable[[Head], str]:
    """For a run: whether some webhook has yet to look at its events, or a trigger to act on it."""
    hooks = store.hooks()
    untold = _ahead(store, [hook for hook in hooks if hook.enabled])
    waits = [_awaited_by(store, hook) for hook in hooks if hook.internal]

    def why(head: Head) -> str:
        if head.run in untold:
            return "a webhook has yet to look at its last events"
        return "a trigger has yet to act on it" if any(each(head) for each in waits) else ""

    return why


def _awaited_by(store: Store, hook: Hook) -> Callable[[Head], bool]:
    """Whether this hook of a trigger is to fire for a run. One that is paused may stay so for long:
    it keeps no other runs, and the store is asked only where some of its own are looked at."""
    ahead = cache(lambda: set() if hook.enabled else _ahead(store, [hook]))
    busy = cache(lambda: store.backlog().get(hook.id, Backlog()).pending > 0)

    def waits(head: Head) -> bool:
        if not concerns(hook, head):
            return False
        asked = DeliveryFilter(hook=hook.id, state="pending", run=head.run, limit=1)
        return head.run in ahead() or (busy() and bool(store.deliveries(asked)))

    return waits


def _ahead(store: Store, hooks: Sequence[Hook]) -> set[str]:
    """Runs with events that one of these hooks has yet to look at."""
    cursors = [store.cursors(hook.id) for hook in hooks]
    found: set[str] = set()
    for partition in store.positions() if cursors else ():
        seen = min(each.get(partition, 0) for each in cursors)
        found |= store.runs_after(seen, partition)
    return found


def _parent(head: Head) -> str | None:
    return head.parent.partition("/")[0] if head.parent else None


def added(one: Forgotten, other: Forgotten) -> Forgotten:
    return Forgotten(one.runs + other.runs, one.payloads + other.payloads, one.bytes + other.bytes)

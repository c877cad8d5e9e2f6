"""Limits across runs, as people and programs are told of them: the keys, and who holds or waits."""

from __future__ import annotations

from typing import Literal

import msgspec

from anabranch.errors import NotFound
from anabranch.store.admission_ports import Admission, LimitedKey
from anabranch.store.ports import Store

RUNS_SHOWN = 100


class LimitCard(msgspec.Struct, frozen=True, kw_only=True):
    """A key under which unfinished runs count."""

    key: str
    limit: int  # the highest that one of them was started with
    holding: int
    waiting: int
    waiting_since: int | None = None  # of the one that has waited longest


class LimitedRun(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    state: Literal["holding", "waiting"]
    limit: int  # that it was started with
    when_full: str
    priority: int
    asked_at: int
    admitted_at: int | None = None
    place: int = 0  # of one that waits: 1 is the next


class LimitDetail(LimitCard, frozen=True, kw_only=True):
    runs: list[LimitedRun]  # the first of them: those with a place, then those that wait


def limit_page(store: Store, after: str = "", limit: int = 100) -> list[LimitCard]:
    """The keys behind this one, in order."""
    return [_card(one) for one in store.limited_keys(after, limit)]


def every_limit(store: Store) -> list[LimitCard]:
    found: list[LimitCard] = []
    while page := limit_page(store, found[-1].key if found else "", 1000):
        found += page
    return found


def limit_detail(store: Store, key: str) -> LimitDetail:
    there = store.admissions(key, RUNS_SHOWN)
    if not there:
        message = f"no unfinished run has a limit {key!r:.200}"
        raise NotFound(message, hint=_meant(store, key))
    waiting = [one for one in there if one.admitted_at is None]
    first = len(there) - len(waiting)
    card = LimitCard(
        key=key,
        limit=max(one.limit for one in there),
        holding=first,
        waiting=len(waiting),
        waiting_since=min((one.asked_at for one in waiting), default=None),
    )
    if len(there) == RUNS_SHOWN:  # there may be more: the list of keys has counted them
        card = next((one for one in every_limit(store) if one.key == key), card)
    runs = [_run(one, max(0, number - first)) for number, one in enumerate(there, 1)]
    return LimitDetail(**msgspec.structs.asdict(card), runs=runs)


def _meant(store: Store, key: str) -> str:
    """The name of a limit has the key of its `concurrency` in brackets."""
    ending = key if key.endswith("]") else f"[{key}]"
    for one in limit_page(store, limit=1000):
        if key and one.key.endswith(ending):
            return f"did you mean {one.key!r:.300}? `anabranch limits` lists all of them"
    return "`anabranch limits` lists them"


def _card(one: LimitedKey) -> LimitCard:
    return LimitCard(
        key=one.key,
        limit=one.limit,
        holding=one.holding,
        waiting=one.waiting,
        waiting_since=one.waiting_since,
    )


def _run(one: Admission, place: int) -> LimitedRun:
    return LimitedRun(
        run=one.run,
        state="waiting" if one.admitted_at is None else "holding",
        limit=one.limit,
        when_full=one.when_full,
        priority=one.priority,
        asked_at=one.asked_at,
        admitted_at=one.admitted_at,
        place=0 if one.admitted_at is not None else place,
    )

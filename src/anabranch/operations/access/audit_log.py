"""The audit trail as it is written while a server runs: durable before the answer, many at a time.

A caller waits until its entry is written; the write batcher writes many of them together.

What workers say all day is told in short: the first time that somebody does something to something
is written like everything else, and how often it happened since then, once an hour. A worker names
whatever run and pool it likes: beyond so many an hour they are counted together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec.structs import replace

from anabranch.errors import AnabranchError
from anabranch.operations.access.write_batcher import WriteBatcher
from anabranch.store.access_ports import Access, AuditEntry

log = logging.getLogger("anabranch.access")

SWEEP_SECONDS = 600.0
DAY_MS = 86_400_000
TALLY_MS = 3_600_000
TALLIES_MAX = 10_000
OF_ONE_MAX = 2_000  # of one token
OTHERS = "(others)"  # in the place of a subject

Kind = tuple[str, str, str, str, str]  # actor, action, subject, outcome, detail


class _Tally(msgspec.Struct):
    """How often the same was done since it was written down."""

    last: AuditEntry
    since: int
    count: int = 0


class AuditLog:
    def __init__(
        self,
        store: Access,
        now: Callable[[], int],
        *,
        days: float = 400.0,
        batcher: WriteBatcher | None = None,
    ) -> None:
        self._store = store
        self._now = now
        self._days = days
        self._batcher = batcher or WriteBatcher(store)
        self._used: dict[str, int] = {}
        self._tallies: dict[Kind, _Tally] = {}
        self._of_one: Counter[tuple[str, str]] = Counter()  # tallies by actor and token
        self._noting: asyncio.Task[None] | None = None

    async def write(self, entry: AuditEntry) -> None:
        """Returns when the entry is durable. What was done is done: a failure is only logged."""
        try:
            await self._batcher.write(lambda: self._store.add_audit([entry]))
        except AnabranchError as error:
            log.error("the audit trail cannot be written: %s", error.message)
            log.error("not in the audit trail: %r", entry)

    async def tally(self, entry: AuditEntry) -> None:
        """Written at once the first time; after that it is counted, for an hour."""
        kind, who = _kind_of(entry), (entry.actor, entry.detail)
        if kind not in self._tallies and self._of_one[who] >= OF_ONE_MAX:
            entry = replace(entry, subject=OTHERS)
            kind = _kind_of(entry)
        known = self._tallies.get(kind)
        if known is not None:
            known.last, known.count = entry, known.count + 1
            return
        self._tallies[kind] = _Tally(entry, entry.at)
        self._of_one[who] += 1
        if len(self._tallies) > TALLIES_MAX:
            await self.write_tallies(all_of_them=True)
        await self.write(entry)

    async def write_tallies(self, *, all_of_them: bool = False) -> None:
        """Write down what was counted and has come to its hour, and forget it."""
        before = self._now() - TALLY_MS
        over = [kind for kind, one in self._tallies.items() if all_of_them or one.since <= before]
        counted = [self._tallies.pop(kind) for kind in over]
        self._of_one.subtract((one.last.actor, one.last.detail) for one in counted)
        self._of_one += Counter()  # without those of which none is left
        await asyncio.gather(*(self.write(_summed(one)) for one in counted if one.count))

    def used(self, token_id: str, at: int) -> None:
        """Note the use of a token, some time soon."""
        self._used[token_id] = at
        if self._noting is None or self._noting.done():
            self._noting = asyncio.get_running_loop().create_task(self._note())

    async def _note(self) -> None:
        while self._used:
            used, self._used = list(self._used.items()), {}
            try:
                await self._batcher.write(partial(self._store.use_tokens, used))
            except AnabranchError as error:
                log.warning("the use of tokens cannot be noted: %s", error.message)

    async def sweep_forever(self) -> None:
        """Drop what is too old, and write down what was counted, now and every ten minutes."""
        while True:
            with contextlib.suppress(AnabranchError):
                before = self._now() - int(self._days * DAY_MS)
                while await asyncio.to_thread(self._store.forget_access, self._now(), before):
                    await asyncio.sleep(0)
            await self.write_tallies()
            await asyncio.sleep(SWEEP_SECONDS)

    async def close(self) -> None:
        await self.write_tallies(all_of_them=True)
        if self._noting is not None:
            await self._noting
        await self._batcher.close()


def _kind_of(entry: AuditEntry) -> Kind:
    return entry.actor, entry.action, entry.subject, entry.outcome, entry.detail


def _summed(one: _Tally) -> AuditEntry:
    times = f"{one.count:,} more time{'s' if one.count > 1 else ''}"
    detail = f"{one.last.detail}; {times}" if one.last.detail else times
    return replace(one.last, detail=detail)

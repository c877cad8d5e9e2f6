"""The audit trail as it is written while a server runs: durable before the answer, many at a time.

Whoever did something waits until its entry is written. Entries that come while one batch is being
written go together into the next, so a busy server pays for a few writes, not for one each. The
writing is done in a thread: the event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from anabranch.errors import AnabranchError
from anabranch.store.access_ports import Access, AuditEntry

log = logging.getLogger("anabranch.access")

SWEEP_SECONDS = 600.0
DAY_MS = 86_400_000


class Trail:
    def __init__(self, store: Access, now: Callable[[], int], *, days: float = 400.0) -> None:
        self._store = store
        self._now = now
        self._days = days
        self._entries: list[tuple[AuditEntry, asyncio.Future[None]]] = []
        self._used: dict[str, int] = {}
        self._writing: asyncio.Task[None] | None = None

    async def write(self, entry: AuditEntry) -> None:
        """Returns when the entry is durable. What was done is done: a failure is only logged."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entries.append((entry, written))
        self._begin()
        await written

    def used(self, token_id: str, at: int) -> None:
        """Note the use of a token, some time soon."""
        self._used[token_id] = at
        self._begin()

    def _begin(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        while self._entries or self._used:
            batch, self._entries = self._entries, []
            used, self._used = self._used, {}
            try:
                if batch:
                    await asyncio.to_thread(self._store.add_audit, [entry for entry, _ in batch])
                if used:
                    await asyncio.to_thread(self._store.use_tokens, list(used.items()))
            except AnabranchError as error:
                log.error("the audit trail cannot be written: %s", error.message)
                for entry, _ in batch:
                    log.error("not in the audit trail: %r", entry)
            finally:
                for _, written in batch:
                    if not written.done():
                        written.set_result(None)

    async def sweep_forever(self) -> None:
        """Drop what is too old, now and every ten minutes."""
        while True:
            with contextlib.suppress(AnabranchError):
                before = self._now() - int(self._days * DAY_MS)
                while await asyncio.to_thread(self._store.forget_access, self._now(), before):
                    await asyncio.sleep(0)
            await asyncio.sleep(SWEEP_SECONDS)

    async def close(self) -> None:
        if self._writing is not None:
            await self._writing

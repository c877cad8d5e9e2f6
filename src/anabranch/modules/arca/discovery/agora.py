"""The replay of Agora, from a file or a folder that the operator names.

A module opens no connection, so the records are files on this machine: whatever follows Agora
writes them there as JSON lines.
"""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.market.catalog.facts import Counts
from anabranch.market.catalog.replay import Replay
from anabranch.modules.arca.discovery.admitter import Admitter
from anabranch.work.participants.performers import rfc3339

BATCHES_MAX = 10_000  # of one replay


class AgoraReplay:
    def __init__(self, source: str, admitter: Admitter, catalog: OfferCatalog) -> None:
        self._replay = Replay(catalog, source) if source else None
        self._source = source
        self._admitter = admitter
        self._catalog = catalog
        self._turn = asyncio.Lock()
        self._last_at = 0
        self._problem = ""

    async def run(self) -> dict[str, Any]:
        """Replay what is new; what came of it. Raises `AnabranchError`, after which the cursor
        stands where the last batch ended."""
        async with self._turn:
            try:
                counts = await self._run()
            except AnabranchError as error:
                self._problem = f"{error.code}: {error.message}"
                raise
            self._problem = ""
            self._last_at = self._catalog.clock.now()
        return {"status": "ok", "counts": {**counts.shown(), "ignored": counts.ignored}}

    async def _run(self) -> Counts:
        total, loop = Counts(), asyncio.get_running_loop()
        if self._replay is None:
            return total
        for _ in range(BATCHES_MAX):
            batch = await loop.run_in_executor(None, self._replay.read)
            if batch is None:
                break
            parties = self._catalog.parties(self._replay.contents(batch), "")
            trusted = await self._admitter.trusted(*parties)
            counts = await loop.run_in_executor(
                None, self._replay.admit, batch, trusted.nodes, trusted.participants
            )
            total += counts or Counts()
        return total

    def reset(self) -> None:
        """The next replay begins anew."""
        self._catalog.facts.reset_cursors()

    def status(self) -> dict[str, Any]:
        files: list[dict[str, Any]] = []
        problem = self._problem
        if self._replay is not None:
            try:
                files = self._replay.state()
            except AnabranchError as error:
                problem = f"{error.code}: {error.message}"
        return {
            "enabled": self._replay is not None,
            "source": self._source or None,
            "files": files,
            "behind_bytes": sum(max(0, one["size"] - one["position"]) for one in files),
            "last_replay_at": rfc3339(self._last_at) if self._last_at else None,
            "problem": problem or None,
        }

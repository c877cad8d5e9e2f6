"""The limits across the runs of a store."""

from __future__ import annotations

import msgspec

from anabranch.operations.runs.limits import every_limit, limit_detail
from anabranch.surfaces.cli.backend.local.store import LocalTopic
from anabranch.surfaces.cli.backend.port import Row


class LocalLimitBackend(LocalTopic):
    async def all(self) -> list[Row]:
        with self._store.reading() as store:
            return [msgspec.to_builtins(card) for card in every_limit(store)]

    async def show(self, key: str) -> Row:
        with self._store.reading() as store:
            shown: Row = msgspec.to_builtins(limit_detail(store, key))
            return shown

"""The aliases of a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.clock import SystemClock
from anabranch.operations.definitions.aliases import Aliases
from anabranch.operations.definitions.catalog import Catalog
from anabranch.store.ports import Store
from anabranch.surfaces.cli.backend.local.schedules import row_of
from anabranch.surfaces.cli.backend.local.store import LocalTopic
from anabranch.surfaces.cli.backend.port import Row


class LocalAliasBackend(LocalTopic):
    def _aliases(self, store: Store) -> Aliases:
        return Aliases(store, SystemClock(), Catalog(store, self._store.settings.catalog))

    @contextmanager
    def _reading(self) -> Iterator[Aliases]:
        with self._store.reading() as store:
            yield self._aliases(store)

    @contextmanager
    def _change(self, action: str, name: str) -> Iterator[Aliases]:
        with self._store.change(f"aliases.{action}", name) as store:
            yield self._aliases(store)

    async def set(self, name: str, target: str) -> Row:
        with self._change("put", name) as aliases:
            return row_of(aliases.set(name, target, self._store.actor))

    async def all(self) -> list[Row]:
        with self._reading() as aliases:
            return [row_of(card) for card in aliases.all()]

    async def show(self, name: str) -> Row:
        with self._reading() as aliases:
            return row_of(aliases.show(name))

    async def rollback(self, name: str) -> Row:
        with self._change("rollback", name) as aliases:
            return row_of(aliases.rollback(name, self._store.actor))

    async def remove(self, name: str) -> Row:
        with self._change("delete", name) as aliases:
            return row_of(aliases.remove(name))

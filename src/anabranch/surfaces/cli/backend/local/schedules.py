"""The schedules of a store; an engine that runs on it sees a change within a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from anabranch.clock import SystemClock
from anabranch.operations.definitions.catalog import Catalog
from anabranch.operations.definitions.prepare import Prepared, compiler, prepare
from anabranch.operations.schedules.schedules import (
    BackfillRequest,
    ScheduleDraft,
    Schedules,
)
from anabranch.operations.schedules.targets import definition_of
from anabranch.runtime.nets import Nets
from anabranch.store.ports import Store
from anabranch.surfaces.cli.backend.local.store import LocalTopic
from anabranch.surfaces.cli.backend.port import Row
from anabranch.work.kinds.callables import default_toolbox


class LocalScheduleBackend(LocalTopic):
    def _schedules(self, store: Store) -> Schedules:
        tools = default_toolbox.signatures
        catalog = Catalog(store, self._store.settings.catalog, tools)
        nets = Nets(store, compiler(tools()))
        return Schedules(
            store, SystemClock(), lambda target: definition_of(store, nets, catalog, target).net
        )

    @contextmanager
    def _reading(self) -> Iterator[Schedules]:
        with self._store.reading() as store:
            yield self._schedules(store)

    @contextmanager
    def _change(self, action: str, name: str, *, new: bool = False) -> Iterator[Schedules]:
        with self._store.change(f"schedules.{action}", name, new=new) as store:
            yield self._schedules(store)

    async def add(self, draft: Row) -> Row:
        asked = msgspec.convert(draft, ScheduleDraft)
        prepared: Prepared | None = None
        if asked.definition is not None:
            text = asked.definition if "\n" in asked.definition else f"{asked.definition}\n"
            prepared = prepare(text, default_toolbox.signatures(), file=asked.file)
        with self._change("create", asked.name, new=True) as schedules:
            return row_of(schedules.add(asked, prepared, self._store.actor))

    async def all(self) -> list[Row]:
        with self._reading() as schedules:
            return [row_of(card) for card in schedules.all()]

    async def show(self, name: str) -> Row:
        with self._reading() as schedules:
            return row_of(schedules.show(name))

    async def next(self, name: str, count: int) -> Row:
        with self._reading() as schedules:
            return row_of(schedules.next(name, count))

    async def pause(self, name: str) -> Row:
        with self._change("pause", name) as schedules:
            return row_of(schedules.pause(name, self._store.actor))

    async def resume(self, name: str) -> Row:
        with self._change("resume", name) as schedules:
            return row_of(schedules.resume(name))

    async def remove(self, name: str) -> Row:
        with self._change("delete", name) as schedules:
            return row_of(schedules.remove(name))

    async def run_now(self, name: str) -> Row:
        with self._change("run_now", name) as schedules:
            return row_of(schedules.run_now(name))

    async def backfill(self, name: str, asked: Row) -> Row:
        request = msgspec.convert(asked, BackfillRequest)
        if request.dry_run:
            with self._reading() as schedules:
                return row_of(schedules.backfill(name, request))
        with self._change("backfill", name) as schedules:
            return row_of(schedules.backfill(name, request))


def row_of(card: msgspec.Struct) -> Row:
    """As a server tells it."""
    fields: Row = msgspec.json.decode(msgspec.json.encode(card))
    return fields

"""The triggers of a store; an engine that runs on it sees a change within a moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from anabranch.clock import SystemClock
from anabranch.operations.definitions.catalog import Catalog
from anabranch.operations.definitions.prepare import Prepared, compiler, prepare
from anabranch.operations.read.reader import Reader
from anabranch.operations.schedules.targets import definition_of
from anabranch.operations.triggers.triggers import TriggerDraft, TriggerRequest, Triggers
from anabranch.runtime.nets import Nets
from anabranch.store.ports import Store
from anabranch.surfaces.cli.backend.local.schedules import row_of
from anabranch.surfaces.cli.backend.local.store import LocalTopic
from anabranch.surfaces.cli.backend.port import Row
from anabranch.work.kinds.callables import default_toolbox


class LocalTriggerBackend(LocalTopic):
    def _triggers(self, store: Store) -> Triggers:
        tools = default_toolbox.signatures
        catalog = Catalog(store, self._store.settings.catalog, tools)
        nets = Nets(store, compiler(tools()))
        return Triggers(
            store,
            SystemClock(),
            lambda target: definition_of(store, nets, catalog, target).net,
            Reader(store, nets),
        )

    @contextmanager
    def _reading(self) -> Iterator[Triggers]:
        with self._store.reading() as store:
            yield self._triggers(store)

    @contextmanager
    def _change(self, action: str, name: str, *, new: bool = False) -> Iterator[Triggers]:
        with self._store.change(f"triggers.{action}", name, new=new) as store:
            yield self._triggers(store)

    async def add(self, draft: Row) -> Row:
        asked = msgspec.convert(draft, TriggerDraft)
        prepared: Prepared | None = None
        if asked.definition is not None:
            text = asked.definition if "\n" in asked.definition else f"{asked.definition}\n"
            prepared = prepare(text, default_toolbox.signatures(), file=asked.file)
        with self._change("create", asked.name, new=True) as triggers:
            return row_of(triggers.add(asked, prepared, self._store.actor))

    async def all(self) -> list[Row]:
        with self._reading() as triggers:
            return [row_of(card) for card in triggers.all()]

    async def show(self, name: str) -> Row:
        with self._reading() as triggers:
            return row_of(triggers.show(name))

    async def test(self, name: str, call: Row) -> Row:
        asked = msgspec.convert(call, TriggerRequest)
        with self._reading() as triggers:
            return row_of(triggers.test(name, asked))

    async def pause(self, name: str) -> Row:
        with self._change("pause", name) as triggers:
            return row_of(triggers.pause(name, self._store.actor))

    async def resume(self, name: str) -> Row:
        with self._change("resume", name) as triggers:
            return row_of(triggers.resume(name))

    async def retry(self, name: str) -> Row:
        with self._change("retry", name) as triggers:
            return row_of(triggers.retry(name))

    async def remove(self, name: str) -> Row:
        with self._change("delete", name) as triggers:
            return row_of(triggers.remove(name))

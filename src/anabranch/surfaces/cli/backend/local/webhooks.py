"""The webhooks of a store; a server that runs on it sees a change within a moment."""

from __future__ import annotations

import msgspec

from anabranch.clock import SystemClock
from anabranch.operations.access.secret_key import key_of
from anabranch.operations.webhooks.webhooks import HookChange, HookDraft, Webhooks
from anabranch.store.hook_ports import DeliveryFilter
from anabranch.store.ports import Store
from anabranch.surfaces.cli.backend.local.store import LocalTopic
from anabranch.surfaces.cli.backend.port import Row

REDELIVERED = 1000  # dead ones that go out again at once


class LocalWebhookBackend(LocalTopic):
    def _hooks(self, store: Store) -> Webhooks:
        settings = self._store.settings
        key = key_of(store, settings)
        return Webhooks(store, SystemClock(), settings.webhook_addresses, key)

    async def create(self, draft: Row) -> Row:
        with self._store.writing(new=True) as store:
            line = self._store.audit_line(store, "webhooks.create")
            with line.commit():
                card = self._hooks(store).create(msgspec.convert(draft, HookDraft))
                line.subject = card.id
        return _fields(card)

    async def all(self) -> list[Row]:
        with self._store.reading() as store:
            return [_fields(card) for card in self._hooks(store).all()]

    async def show(self, hook: str) -> Row:
        with self._store.reading() as store:
            return _fields(self._hooks(store).show(hook))

    async def change(self, hook: str, given: Row) -> Row:
        with self._store.change("webhooks.change", hook) as store:
            return _fields(self._hooks(store).change(hook, msgspec.convert(given, HookChange)))

    async def rotate(self, hook: str) -> Row:
        with self._store.change("webhooks.rotate", hook) as store:
            return _fields(self._hooks(store).rotate(hook))

    async def remove(self, hook: str) -> None:
        with self._store.change("webhooks.delete", hook) as store:
            self._hooks(store).remove(hook)

    async def deliveries(
        self, hook: str, *, state: str | None, run: str | None, limit: int
    ) -> list[Row]:
        asked = {"hook": hook, "state": state, "run": run, "limit": limit}
        with self._store.reading() as store:
            found = self._hooks(store).deliveries(msgspec.convert(asked, DeliveryFilter))
        return [_fields(card) for card in found]

    async def delivery(self, hook: str, name: str) -> Row:
        with self._store.reading() as store:
            return _fields(self._hooks(store).delivery(hook, name))

    async def redeliver(self, hook: str, name: str) -> Row:
        with self._store.change("webhooks.deliveries.redeliver", hook) as store:
            return _fields(self._hooks(store).redeliver(hook, name))

    async def redeliver_dead(self, hook: str) -> int:
        with self._store.change("webhooks.redeliver", hook) as store:
            return self._hooks(store).redeliver_dead(hook, REDELIVERED)


def _fields(card: msgspec.Struct) -> Row:
    """As a server tells it: through JSON, so that a body that is JSON comes as what it says."""
    fields: Row = msgspec.json.decode(msgspec.json.encode(card))
    return fields

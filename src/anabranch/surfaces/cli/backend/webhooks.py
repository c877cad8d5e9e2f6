"""Where `anabranch webhook` is asked: at a store of this machine, or at a server.

At a store the change is written there, with a line in its audit trail; a server that runs on it
looks again within a moment.
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from anabranch.clock import SystemClock
from anabranch.errors import AnabranchError
from anabranch.operations.access.secret_key import key_of
from anabranch.operations.webhooks.webhooks import HookChange, HookDraft, Webhooks
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.hook_ports import DeliveryFilter
from anabranch.store.ports import Store
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.audit import note, noted
from anabranch.surfaces.cli.backend.local.backend import Row, who

if TYPE_CHECKING:
    from anabranch.surfaces.client import Client

PAGE = 500  # the most that one page of a list has
REDELIVERED = 1000  # dead ones that go out again at once


class WebhookBackend(Protocol):
    async def create(self, draft: Row) -> Row: ...

    async def all(self) -> list[Row]: ...

    async def show(self, hook: str) -> Row: ...

    async def change(self, hook: str, given: Row) -> Row: ...

    async def rotate(self, hook: str) -> Row: ...

    async def remove(self, hook: str) -> None: ...

    async def deliveries(
        self, hook: str, *, state: str | None, run: str | None, limit: int
    ) -> list[Row]: ...

    async def delivery(self, hook: str, name: str) -> Row: ...

    async def redeliver(self, hook: str, name: str) -> Row: ...

    async def redeliver_dead(self, hook: str) -> int: ...


@asynccontextmanager
async def hook_desk(
    options: argparse.Namespace, settings: Settings
) -> AsyncIterator[WebhookBackend]:
    if not settings.server:
        yield LocalWebhookBackend(settings, who(options))
        return
    from anabranch.surfaces.cli.backend.http.backend import http_backend  # few talk to a server

    async with http_backend(options, settings) as at:
        yield HttpWebhookBackend(at.client)


class LocalWebhookBackend:
    def __init__(self, settings: Settings, actor: str) -> None:
        self._settings = settings
        self._actor = actor
        self._clock = SystemClock()

    @contextmanager
    def _looking(self) -> Iterator[Webhooks]:
        values.require_store(self._settings)
        with self._store(read_only=True) as store:
            yield self._hooks(store)

    @contextmanager
    def _doing(self, action: str, subject: str) -> Iterator[Webhooks]:
        """What was asked for is written down, with who did and what became of it."""
        values.require_store(self._settings)
        with self._store() as store, noted(store, self._actor, f"webhooks.{action}", subject):
            yield self._hooks(store)

    @contextmanager
    def _store(self, *, read_only: bool = False) -> Iterator[Store]:
        store = open_store(self._settings, read_only=read_only)
        try:
            yield store
        finally:
            store.close()

    def _hooks(self, store: Store) -> Webhooks:
        key = key_of(store, self._settings)
        return Webhooks(store, self._clock, self._settings.webhook_addresses, key)

    async def create(self, draft: Row) -> Row:
        with self._store() as store:
            try:
                made = self._hooks(store).create(msgspec.convert(draft, HookDraft))
            except AnabranchError as error:
                note(store, self._actor, "webhooks.create", outcome=f"refused: {error.code}")
                raise
            note(store, self._actor, "webhooks.create", made.id)
        return _fields(made)

    async def all(self) -> list[Row]:
        with self._looking() as hooks:
            return [_fields(card) for card in hooks.all()]

    async def show(self, hook: str) -> Row:
        with self._looking() as hooks:
            return _fields(hooks.show(hook))

    async def change(self, hook: str, given: Row) -> Row:
        with self._doing("change", hook) as hooks:
            return _fields(hooks.change(hook, msgspec.convert(given, HookChange)))

    async def rotate(self, hook: str) -> Row:
        with self._doing("rotate", hook) as hooks:
            return _fields(hooks.rotate(hook))

    async def remove(self, hook: str) -> None:
        with self._doing("delete", hook) as hooks:
            hooks.remove(hook)

    async def deliveries(
        self, hook: str, *, state: str | None, run: str | None, limit: int
    ) -> list[Row]:
        asked = {"hook": hook, "state": state, "run": run, "limit": limit}
        with self._looking() as hooks:
            found = hooks.deliveries(msgspec.convert(asked, DeliveryFilter))
        return [_fields(card) for card in found]

    async def delivery(self, hook: str, name: str) -> Row:
        with self._looking() as hooks:
            return _fields(hooks.delivery(hook, name))

    async def redeliver(self, hook: str, name: str) -> Row:
        with self._doing("deliveries.redeliver", hook) as hooks:
            return _fields(hooks.redeliver(hook, name))

    async def redeliver_dead(self, hook: str) -> int:
        with self._doing("redeliver", hook) as hooks:
            return hooks.redeliver_dead(hook, REDELIVERED)


class HttpWebhookBackend:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def create(self, draft: Row) -> Row:
        return _row(await self._client.post("webhooks", body=draft))

    async def all(self) -> list[Row]:
        return list((await self._client.get("webhooks"))["items"])

    async def show(self, hook: str) -> Row:
        return _row(await self._client.get("webhooks", hook))

    async def change(self, hook: str, given: Row) -> Row:
        return _row(await self._client.patch("webhooks", hook, body=given))

    async def rotate(self, hook: str) -> Row:
        return _row(await self._client.post("webhooks", hook, "rotate"))

    async def remove(self, hook: str) -> None:
        await self._client.delete("webhooks", hook)

    async def deliveries(
        self, hook: str, *, state: str | None, run: str | None, limit: int
    ) -> list[Row]:
        found: list[Row] = []
        cursor: str | None = None
        while True:
            some = max(1, min(PAGE, limit - len(found)))
            page = await self._client.get(
                "webhooks", hook, "deliveries", state=state, run=run, limit=some, cursor=cursor
            )
            found += page["items"]
            cursor = page["next"]
            if cursor is None or len(found) >= limit:
                return found[:limit]

    async def delivery(self, hook: str, name: str) -> Row:
        return _row(await self._client.get("webhooks", hook, "deliveries", name))

    async def redeliver(self, hook: str, name: str) -> Row:
        return _row(await self._client.post("webhooks", hook, "deliveries", name, "redeliver"))

    async def redeliver_dead(self, hook: str) -> int:
        return int((await self._client.post("webhooks", hook, "redeliver"))["count"])


def _row(told: Any) -> Row:
    found: Row = told
    return found


def _fields(card: msgspec.Struct) -> Row:
    """As a server tells it: through JSON, so that a body that is JSON comes as what it says."""
    return _row(msgspec.json.decode(msgspec.json.encode(card)))

"""The credentials and the tokens of a store; a server on it sees a change with the next job or
request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from anabranch.clock import SystemClock
from anabranch.operations.access.credentials import CredentialChange, CredentialDraft, Credentials
from anabranch.operations.access.secret_key import key_of
from anabranch.operations.access.security import report, would_listen
from anabranch.operations.access.tokens import AccessControl
from anabranch.store.access_ports import AccessToken
from anabranch.store.ports import Store
from anabranch.surfaces.cli.backend.local.store import LocalTopic
from anabranch.surfaces.cli.backend.port import Row


class LocalCredentialBackend(LocalTopic):
    def _credentials(self, store: Store) -> Credentials:
        return Credentials(store, SystemClock().now, key_of(store, self._store.settings))

    async def add(self, draft: Row) -> Row:
        with self._store.change("credentials.create", draft["name"], new=True) as store:
            return _fields(
                self._credentials(store).add(
                    msgspec.convert(draft, CredentialDraft), self._store.actor
                )
            )

    async def all(self) -> list[Row]:
        with self._store.reading() as store:
            return [_fields(one) for one in self._credentials(store).all()]

    async def show(self, name: str) -> Row:
        with self._store.reading() as store:
            return _fields(self._credentials(store).show(name))

    async def rotate(self, name: str, data: Any) -> Row:
        with self._store.change("credentials.rotate", name) as store:
            return _fields(
                self._credentials(store).rotate(
                    name, CredentialChange(data=data), self._store.actor
                )
            )

    async def remove(self, name: str) -> Row:
        with self._store.change("credentials.delete", name) as store:
            return _fields(self._credentials(store).remove(name))


class LocalTokenBackend(LocalTopic):
    async def create(
        self, name: str, scopes: Sequence[str], days: float | None, pools: Sequence[str]
    ) -> Row:
        with self._store.writing(new=True) as store:
            access = AccessControl(store, SystemClock().now)
            line = self._store.audit_line(store, "tokens.create")
            with line.commit():
                one, text = access.create(name, scopes, days, pools)
                line.subject = one.id
            return {**_token(access, one), "token": text}

    async def all(self) -> list[Row]:
        with self._store.reading() as store:
            access = AccessControl(store, SystemClock().now)
            return [_token(access, one) for one in access.tokens()]

    async def revoke(self, token_id: str) -> Row:
        with self._store.change("tokens.delete", token_id) as store:
            access = AccessControl(store, SystemClock().now)
            return _token(access, access.revoke(token_id))

    async def security(self) -> Row:
        """Of a server that began here now with these settings."""
        settings = self._store.settings
        with self._store.reading() as store:
            now, address = SystemClock().now(), would_listen(settings)
            return _fields(report(settings, store, now, address))


def _fields(card: msgspec.Struct) -> Row:
    fields: Row = msgspec.to_builtins(card)
    return fields


def _token(access: AccessControl, one: AccessToken) -> Row:
    fields = _fields(one)
    del fields["digest"]
    return {**fields, "state": access.state_of(one)}

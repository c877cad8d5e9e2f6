"""The part of a relational store that is about credentials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from anabranch.errors import StoreError
from anabranch.store.checks import credential_exists
from anabranch.store.credential_ports import StoredCredential
from anabranch.store.relational.connection import RelationalPart
from anabranch.store.relational.errors import CONSTRAINT


class RelationalCredentials(RelationalPart):
    def add_credential(self, credential: StoredCredential) -> None:
        try:
            with self._transaction() as db:
                db.execute(self.sql["add_credential"], _fields(credential))
        except StoreError as error:
            if error.code == CONSTRAINT and self.credential(credential.name) is not None:
                raise credential_exists(credential.name) from None
            raise

    def credential(self, name: str) -> StoredCredential | None:
        rows = self._rows(self.sql["credential"], {"name": name})
        return credential_of(rows[0]) if rows else None

    def credentials(self) -> list[StoredCredential]:
        return [credential_of(row) for row in self._rows(self.sql["credentials"], {})]

    def change_credential(self, credential: StoredCredential, seen: int) -> bool:
        fields = {**_fields(credential), "seen": seen}
        with self._transaction(wipe=True) as db:
            return db.execute(self.sql["change_credential"], fields).rowcount == 1

    def drop_credential(self, name: str) -> bool:
        with self._transaction(wipe=True) as db:
            return db.execute(self.sql["drop_credential"], {"name": name}).rowcount == 1


def _fields(credential: StoredCredential) -> dict[str, Any]:
    names = msgspec.json.encode(credential.fields).decode()
    return {**msgspec.structs.asdict(credential), "fields": names}


def credential_of(row: Sequence[Any]) -> StoredCredential:
    name, kind, fields, sealed, key_id, version, description, *stamps = row
    created_at, created_by, updated_at, updated_by = stamps
    return StoredCredential(
        name=name,
        type=kind,
        fields=msgspec.json.decode(fields, type=tuple[str, ...]),
        sealed=sealed,
        key_id=key_id,
        version=version,
        description=description,
        created_at=created_at,
        created_by=created_by,
        updated_at=updated_at,
        updated_by=updated_by,
    )

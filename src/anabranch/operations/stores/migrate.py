"""The schema of a store brought up to date, where a server is not to do it when it starts."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import msgspec

from anabranch.operations.stores.opening import require_driver, require_kept
from anabranch.settings import Settings
from anabranch.store.access_ports import AuditEntry
from anabranch.store.location import on_postgres
from anabranch.store.sqlite.file import MIGRATIONS, schema_of, upgrade
from anabranch.store.sqlite.store import SqliteStore


class Migrated(msgspec.Struct, frozen=True, kw_only=True):
    store: str
    version_before: int  # of its schema; 0: there was none
    version: int

    @property
    def changed(self) -> bool:
        return self.version != self.version_before


def migrate(settings: Settings, audit: AuditEntry) -> Migrated:
    """A file must be there; a schema of PostgreSQL is made, as servers may lack the right to. What
    changes the schema is one commit with the line in its audit trail."""
    require_kept(settings.store)
    if on_postgres(settings.store):
        return _migrate_postgres(settings, audit)
    path = Path(os.path.realpath(settings.store))
    before = schema_of(path)
    upgrade(path, audit)
    SqliteStore(path, synchronous=settings.synchronous).close()
    return Migrated(store=str(path), version_before=before, version=len(MIGRATIONS))


def _migrate_postgres(settings: Settings, audit: AuditEntry) -> Migrated:
    require_driver()
    from anabranch.store.postgres import schema
    from anabranch.store.postgres.address import read_address
    from anabranch.store.postgres.connections import connect

    address = read_address(settings.store)
    with closing(connect(address)) as db:
        before = schema.version_of(db, address)
        partitions = settings.store_partitions or None
        schema.prepare(db, address, create=True, partitions=partitions, audit=audit)
    return Migrated(store=address.shown, version_before=before, version=len(schema.MIGRATIONS))

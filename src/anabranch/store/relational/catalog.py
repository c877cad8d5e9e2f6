"""The part of a relational store that is about the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from anabranch.errors import StoreError
from anabranch.store.catalog_ports import CatalogEntry
from anabranch.store.checks import version_exists
from anabranch.store.relational.connection import RelationalPart
from anabranch.store.relational.errors import CONSTRAINT


class RelationalCatalog(RelationalPart):
    def add_catalog(self, entries: Sequence[CatalogEntry]) -> list[int]:
        at = entries[0] if entries else None
        try:
            with self._transaction() as db:
                ids = []
                for at in entries:
                    fields = msgspec.structs.asdict(at)
                    ids.append(int(db.execute(self.sql["add_catalog"], fields).fetchone()[0]))
                return ids
        except StoreError as error:
            if error.code == CONSTRAINT and at is not None:
                raise version_exists(at.path, at.version) from None
            raise

    def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None:
        rows = self._rows(self.sql["catalog_entry"], {"path": path, "version": version})
        return _entry(rows[0]) if rows else None

    def catalog_by_id(self, entry_id: int) -> CatalogEntry | None:
        if not 0 < entry_id < 2**63:
            return None
        rows = self._rows(self.sql["catalog_by_id"], {"id": entry_id})
        return _entry(rows[0]) if rows else None

    def catalog_paths(
        self, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[CatalogEntry]:
        fields = {"prefix": prefix, "after": after, "limit": max(limit, 0)}
        return [_entry(row) for row in self._rows(self.sql["catalog_paths"], fields)]

    def catalog_versions(self, path: str, limit: int = 1000) -> list[CatalogEntry]:
        fields = {"path": path, "limit": max(limit, 0)}
        return [_entry(row) for row in self._rows(self.sql["catalog_versions"], fields)]


def _entry(row: Sequence[Any]) -> CatalogEntry:
    entry_id, path, version, fingerprint, name, dialect, created_at, created_by = row
    return CatalogEntry(
        id=entry_id,
        path=path,
        version=version,
        fingerprint=fingerprint,
        name=name,
        dialect=dialect,
        created_at=created_at,
        created_by=created_by,
    )

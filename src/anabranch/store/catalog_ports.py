"""What a catalog needs from a store: which definition stands under which path, in which version.

The text of a definition is kept by its fingerprint, as for runs; an entry only points there.
Versions of a path count from 1. An entry never changes and is never deleted: a run can always say
what it was begun from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class CatalogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one path. `id` is given by the store, and is the same for nobody else."""

    path: str
    version: int
    fingerprint: str
    name: str
    dialect: str
    created_at: int = 0
    created_by: str = ""
    id: int = 0


class CatalogStore(Protocol):
    def add_catalog(self, entries: Sequence[CatalogEntry]) -> list[int]:
        """Write these, all or none, and give their ids. Raises `Conflict` when a version of a path
        is there already."""

    def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None:
        """This version, or the newest."""

    def catalog_by_id(self, entry_id: int) -> CatalogEntry | None: ...

    def catalog_paths(
        self, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[CatalogEntry]:
        """The newest version of each path that begins so, in the order of the paths."""

    def catalog_versions(self, path: str, limit: int = 1000) -> list[CatalogEntry]:
        """The versions of a path, newest first."""

"""The part of the reference store that is about the catalog."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from anabranch.store.catalog_ports import CatalogEntry
from anabranch.store.checks import version_exists
from anabranch.store.memory.part import MemoryPart


class MemoryCatalog(MemoryPart):
    """A part of `MemoryStore`."""

    def __init__(self) -> None:
        super().__init__()
        self._catalog: dict[tuple[str, int], CatalogEntry] = {}

    def add_catalog(self, entries: Sequence[CatalogEntry]) -> list[int]:
        with self._open():
            keys = [(entry.path, entry.version) for entry in entries]
            for key in keys:
                if key in self._catalog or keys.count(key) > 1:
                    raise version_exists(*key)
            first = len(self._catalog) + 1
            for number, entry in enumerate(entries, first):
                self._catalog[entry.path, entry.version] = replace(entry, id=number)
            return list(range(first, first + len(entries)))

    def catalog_entry(self, path: str, version: int | None = None) -> CatalogEntry | None:
        found = self.catalog_versions(path)
        return next((one for one in found if version in (None, one.version)), None)

    def catalog_by_id(self, entry_id: int) -> CatalogEntry | None:
        with self._open():
            return next((one for one in self._catalog.values() if one.id == entry_id), None)

    def catalog_paths(
        self, prefix: str = "", after: str = "", limit: int = 1000
    ) -> list[CatalogEntry]:
        with self._open():
            paths = sorted({path for path, _ in self._catalog if path.startswith(prefix)})
            found = [self.catalog_entry(path) for path in paths if path > after]
        return [one for one in found if one is not None][: max(limit, 0)]

    def catalog_versions(self, path: str, limit: int = 1000) -> list[CatalogEntry]:
        with self._open():
            found = [one for one in self._catalog.values() if one.path == path]
        return sorted(found, key=lambda one: -one.version)[: max(limit, 0)]

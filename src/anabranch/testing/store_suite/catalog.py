"""The part of the store suite that is about the catalog."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.errors import Conflict
from anabranch.store.catalog_ports import CatalogEntry
from anabranch.store.ports import Store
from anabranch.testing.store_suite.samples import NOW, refused

ENTRY = CatalogEntry(
    path="etl/load",
    version=1,
    fingerprint="f1",
    name="load ☃",
    dialect="noetl",
    created_at=NOW,
    created_by="ann",
)


class CatalogSuite:
    """A part of `StoreSuite`."""

    store: Store

    def test_every_version_of_a_path_is_found_by_number_and_by_id(self) -> None:
        first, second = ENTRY, replace(ENTRY, version=2, fingerprint="f2", created_by="ben")
        ids = self.store.add_catalog([first]) + self.store.add_catalog([second])
        assert len(set(ids)) == 2
        one, two = replace(first, id=ids[0]), replace(second, id=ids[1])
        assert self.store.catalog_entry("etl/load") == two
        assert self.store.catalog_entry("etl/load", 1) == one
        assert self.store.catalog_entry("etl/load", 3) is None
        assert self.store.catalog_entry("etl") is None
        assert self.store.catalog_by_id(ids[0]) == one
        assert self.store.catalog_by_id(2**70) is None
        assert self.store.catalog_versions("etl/load") == [two, one]
        assert self.store.catalog_versions("etl/load", limit=1) == [two]

    def test_paths_are_listed_in_order_each_in_its_newest_version(self) -> None:
        for path, version in (("b", 1), ("a/x", 1), ("a/y", 1), ("b", 2)):
            self.store.add_catalog([replace(ENTRY, path=path, version=version)])

        def paths(**asked: object) -> list[tuple[str, int]]:
            found = self.store.catalog_paths(**asked)  # type: ignore[arg-type]
            return [(one.path, one.version) for one in found]

        assert paths() == [("a/x", 1), ("a/y", 1), ("b", 2)]
        assert paths(prefix="a/") == [("a/x", 1), ("a/y", 1)]
        assert paths(after="a/x", limit=1) == [("a/y", 1)]

    def test_of_several_entries_all_are_written_or_none(self) -> None:
        self.store.add_catalog([ENTRY])
        with refused(Conflict, "etl/load"):
            self.store.add_catalog([replace(ENTRY, path="new"), ENTRY])
        assert [one.path for one in self.store.catalog_paths()] == ["etl/load"]

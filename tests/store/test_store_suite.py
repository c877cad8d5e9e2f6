"""Every store of ours passes the suite we ship."""

from pathlib import Path

import pytest

from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Store
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.stores import DurableStoreSuite, StoreSuite


class TestMemoryStore(StoreSuite):
    def make_store(self, place: Path) -> Store:  # noqa: ARG002 - it keeps no files
        return MemoryStore()


class TestSqliteStore(DurableStoreSuite):
    def make_store(self, place: Path) -> Store:
        return SqliteStore(place / "store.db")


@pytest.mark.soak  # `test_stores_agree` always opens it like this
class TestSqliteStoreWithoutWaitingForTheDisk(DurableStoreSuite):
    def make_store(self, place: Path) -> Store:
        return SqliteStore(place / "store.db", synchronous="NORMAL")

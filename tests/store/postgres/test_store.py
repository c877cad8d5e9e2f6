"""The PostgreSQL store passes the suite of every store, on a real server."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.stores import DurableStoreSuite


class TestPostgresStore(DurableStoreSuite):
    """One partition: the order of its rows is the order over all runs."""

    partitions = 1

    @pytest.fixture(autouse=True)
    def _address(self, postgres: str) -> None:
        self.address = postgres

    def setup_method(self) -> None:
        """Later, when the fixtures are there."""

    @pytest.fixture(autouse=True)
    def _opened(self, _address: None) -> None:
        super().setup_method()

    def make_store(self, place: Path) -> PostgresStore:
        name = "s" + hashlib.sha256(str(place).encode()).hexdigest()[:20]
        joint = "&" if "?" in self.address else "?"
        return PostgresStore(f"{self.address}{joint}schema={name}", partitions=self.partitions)

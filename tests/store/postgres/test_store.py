"""The PostgreSQL store passes the suite of every store, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.stores import DurableStoreSuite
from seeds import seeds
from shared_store import EmptiedStore


@pytest.fixture(scope="module")
def emptied(postgres: str) -> Iterator[EmptiedStore]:
    """One partition: the order of its rows is the order over all runs."""
    with closing(EmptiedStore(postgres, partitions=1)) as made:
        yield made


class TestPostgresStore(DurableStoreSuite):
    many_runs = len(seeds(5000, least=500))

    def setup_method(self) -> None:
        """Later, when the fixtures are there."""

    @pytest.fixture(autouse=True)
    def _opened(self, emptied: EmptiedStore) -> None:
        emptied.empty()
        self._emptied = emptied
        super().setup_method()

    def make_store(self, place: Path) -> PostgresStore:  # noqa: ARG002 - one store
        return self._emptied.open()

"""A PostgreSQL server for the tests here that give it users, or end its connections."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as made:
        yield made

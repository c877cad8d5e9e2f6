"""A PostgreSQL server for the tests here that stop it and kill it: each leaves it running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postgres_proxy import CommitProxy
from postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as made:
        yield made


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[CommitProxy]:
    made = CommitProxy(server.socket)
    yield made
    made.close()

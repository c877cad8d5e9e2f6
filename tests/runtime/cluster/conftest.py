"""A PostgreSQL server for each module here: its tests stop it, kill it and fill it up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postgres_proxy import CommitProxy
from postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as made:
        yield made


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[CommitProxy]:
    made = CommitProxy(server.socket)
    yield made
    made.close()

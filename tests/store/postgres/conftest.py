"""A PostgreSQL server of its own for each module that gives it users, or takes it away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postgres_server import PostgresServer, running_postgres


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as made:
        yield made

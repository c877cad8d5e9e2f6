"""Stores on PostgreSQL for tests of several servers: each in a schema of its own."""

from __future__ import annotations

import secrets
from typing import LiteralString

import psycopg

from anabranch.store.postgres.store import PostgresStore

PARTITIONS = 8  # few, so that a look at all of them is short


def fresh_schema(postgres: str) -> str:
    """The address of a store that is not there yet, in the database of the test run; without the
    empty password that the address of the database has, which commands would warn of."""
    joint = "&" if "?" in postgres else "?"
    return f"{postgres.replace(':@', '@')}{joint}schema=t{secrets.token_hex(8)}"


class EmptiedStore:
    """A store that is made once, and emptied before each test that has closed it: to make a new
    one takes the server a tenth of a second, for its many tables and indexes."""

    def __init__(self, postgres: str, partitions: int) -> None:
        self.address = fresh_schema(postgres)
        self.partitions = partitions
        self.open().close()
        self._db = psycopg.connect(postgres, autocommit=True)
        schema = self.address.rpartition("schema=")[2]
        self._db.execute(f"SET search_path TO {schema}")
        self._db.execute("SET session_replication_role TO replica")  # in whatever order
        tables = self._names("SELECT tablename FROM pg_tables WHERE schemaname = %s", schema)
        sequences = "SELECT sequencename FROM pg_sequences WHERE schemaname = %s"
        self._statements = [
            *(f"DELETE FROM {table}" for table in tables if table != "cluster"),
            *(f"ALTER SEQUENCE {counter} RESTART" for counter in self._names(sequences, schema)),
            f"INSERT INTO partitions (partition) SELECT generate_series(0, {partitions - 1})",
        ]

    def open(self) -> PostgresStore:
        return PostgresStore(self.address, partitions=self.partitions)

    def empty(self) -> None:
        self._db.execute("; ".join(self._statements))

    def close(self) -> None:
        self._db.close()

    def _names(self, query: LiteralString, schema: str) -> list[str]:
        return [name for (name,) in self._db.execute(query, (schema,))]

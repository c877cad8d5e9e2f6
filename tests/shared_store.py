"""Stores on PostgreSQL for tests of several servers: each in a schema of its own."""

from __future__ import annotations

import secrets

PARTITIONS = 8  # few, so that a look at all of them is short


def fresh_schema(postgres: str) -> str:
    """The address of a store that is not there yet, in the database of the test run; without the
    empty password that the address of the database has, which commands would warn of."""
    joint = "&" if "?" in postgres else "?"
    return f"{postgres.replace(':@', '@')}{joint}schema=t{secrets.token_hex(8)}"

"""Columns reach the server as they are, in its own binary form."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.adapt import Transformer

from anabranch.store.postgres.arrays import TYPES, binary_array, binary_value

BIG = 2**63 - 1


def from_server(db: psycopg.Connection[Any], kind: str, content: bytes) -> list[Any]:
    """What the server makes of it, one row for each value."""
    text = f"SELECT x FROM unnest($1::{kind}[]) WITH ORDINALITY AS given (x, n) ORDER BY n"
    found = db.pgconn.exec_params(text.encode(), [content], [TYPES[kind][1]], [1], 1)
    transformer = Transformer(db)
    transformer.set_pgresult(found)
    return [row[0] for row in transformer.load_rows(0, found.ntuples, tuple)]


def one_from_server(db: psycopg.Connection[Any], kind: str, value: Any) -> Any:
    given = [binary_value(kind, value)]
    found = db.pgconn.exec_params(b"SELECT $1", given, [TYPES[kind][0]], [1], 1)
    transformer = Transformer(db)
    transformer.set_pgresult(found)
    return transformer.load_rows(0, 1, tuple)[0][0]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", ["", "a", "a", "Grüße, 世界", None, "{\"x\": 'y'}", "x" * 70_000]),
        ("bytea", [b"", b"\x00\xff", None, b"x" * 70_000]),
        ("boolean", [True, False]),
        ("integer", [0, -1, 2**31 - 1, -(2**31), None]),
        ("bigint", [0, -1, BIG, -BIG - 1, None]),
        ("bigint", [1, 2, 3]),
        ("text", []),
    ],
)
def test_a_column_arrives_as_it_was_given(postgres: str, kind: str, values: list[Any]) -> None:
    with psycopg.connect(postgres) as db:
        assert from_server(db, kind, binary_array(kind, values)) == values
        assert [one_from_server(db, kind, value) for value in values] == values


@pytest.mark.parametrize(("kind", "value"), [("integer", 2**31), ("bigint", -BIG - 2)])
def test_a_number_that_does_not_fit_is_refused_here(kind: str, value: int) -> None:
    with pytest.raises(OverflowError, match=kind):
        binary_array(kind, [1, value])
    with pytest.raises(OverflowError, match=kind):
        binary_value(kind, value)

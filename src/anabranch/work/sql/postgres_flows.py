"""Rows out of and into PostgreSQL, for transfers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from anabranch.work.faults import Unavailable, fault
from anabranch.work.libraries import load_aside
from anabranch.work.sql.flows import Insertion, Row, portable_rows
from anabranch.work.sql.postgres import (
    MISSING,
    NOT_JSON,
    Postgres,
    PostgresAddress,
    adapted,
    address_of,
    fault_for,
)
from anabranch.work.sql.rows import CHUNK_BYTES, ResultTooLarge, length_of
from anabranch.work.sql.task import Params
from anabranch.work.values.served_json import JsonRefused
from anabranch.work.values.served_values import convert_rows

_CURSOR = "anabranch_transfer"
_FIRST_ROWS = 16  # are asked for at once; more follow as long as they are small


class PostgresFlows:
    def __init__(self, postgres: Postgres) -> None:
        self._postgres = postgres

    @asynccontextmanager
    async def reading(
        self, given: Mapping[str, Any], query: str, params: Params
    ) -> AsyncIterator[_Reading]:
        async with self._connected(given) as connection:
            # A cursor of the server: rows come when they are asked for, and not before.
            async with connection.cursor(name=_CURSOR) as cursor:
                await cursor.execute(query, adapted(params))
                yield _Reading(cursor)
            await connection.rollback()

    @asynccontextmanager
    async def writing(self, given: Mapping[str, Any], into: Insertion) -> AsyncIterator[_Writing]:
        async with self._connected(given) as connection:
            if into.empties:
                await connection.execute(into.empties)
            yield _Writing(connection, _statement(into))

    @asynccontextmanager
    async def _connected(self, given: Mapping[str, Any]) -> AsyncIterator[Any]:
        try:
            psycopg = await load_aside("psycopg")
        except ImportError:
            raise Unavailable(MISSING, fault("config", MISSING)) from None
        address = await address_of(psycopg, given, self._postgres.options)
        try:
            async with self._postgres.pool(psycopg, address).connection() as connection:
                await connection.set_autocommit(False)
                yield connection
        except ResultTooLarge as error:
            answer = fault("result", str(error), code="TOO_MANY_ROWS")
            raise Unavailable(str(error), answer) from None
        except JsonRefused as error:
            message = f"{PostgresAddress(psycopg, address)}: {NOT_JSON}: {error}"
            raise Unavailable(message, fault("parse", message)) from None
        except psycopg.Error as error:
            answer = fault_for(error, PostgresAddress(psycopg, address), None)
            raise Unavailable(str(answer.fault.message if answer.fault else ""), answer) from None


def _statement(into: Insertion) -> str:
    if into.statement:
        return into.statement
    percents = [name.replace("%", "%%") for name in into.columns]
    keys = [name.replace("%", "%%") for name in into.key]
    whole = Insertion(table=into.table, columns=(*percents,), mode=into.mode, key=(*keys,))
    return whole.text("%s")


class _Reading:
    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self._at_once = _FIRST_ROWS

    @property
    def columns(self) -> list[str]:
        return [column.name for column in self._cursor.description or ()]

    async def chunk(self, size: int) -> list[Row]:
        """Asked for in parts: nothing counts rows before they are here."""
        rows, length = list[Any](), 0
        while len(rows) < size and length < CHUNK_BYTES:
            part = await self._cursor.fetchmany(min(self._at_once, size - len(rows)))
            if not part:
                break
            rows += part
            part_length = length_of(part)
            length += part_length
            if part_length > CHUNK_BYTES:
                self._at_once = max(self._at_once // 2, 1)
            elif part_length < CHUNK_BYTES // 4:
                self._at_once = min(2 * self._at_once, size)
        return await convert_rows(portable_rows, rows)


class _Writing:
    def __init__(self, connection: Any, statement: str) -> None:
        self._connection = connection
        self._statement = statement

    async def write(self, rows: list[Row]) -> None:
        async with self._connection.cursor() as cursor:
            await cursor.executemany(self._statement, [adapted(row) for row in rows])

    async def commit(self) -> None:
        await self._connection.commit()

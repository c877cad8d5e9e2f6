"""`{sql: {kind: postgres, query: …, key: id, …}}`: the rows of a query, in order of a key column.

Cutting asks only for the keys, and a shard is the range between two of them, so that reading it is
one query with an index behind it. The key must be unique and never null. A range that has another
number of rows when it is read (again) changed meanwhile, and is refused.

`auth` is the name of a keychain entry: the descriptor is recorded and must not hold a password.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from anabranch.errors import InputError
from anabranch.work.kinds import inputs
from anabranch.work.loops.collections.databases import (
    NAMED,
    ask,
    described,
    kind_of,
    one_statement,
)
from anabranch.work.loops.collections.port import (
    KIND,
    CollectionError,
    Cursor,
    Cuts,
    Descriptor,
    Keyring,
    ShardRange,
    Walked,
    changed,
)
from anabranch.work.port import Performer
from anabranch.work.sql.flows import column_name
from anabranch.work.sql.text import take_apart

_OWN = frozenset({"kind", "query", "key", "params", "auth", "timeout"})
_KEYS_AT_ONCE = 50_000


class Queries(Walked):
    def __init__(self, performers: Mapping[str, Performer]) -> None:
        self._performers = performers

    async def describe(self, value: Any) -> Descriptor:
        given = inputs.mapping(value["sql"], "sql")
        return {
            KIND: "sql",
            **described(given, "sql", _OWN, ("params", "auth", "timeout")),
            "query": await take_apart(given.get("query"), _query, given),
            "key": inputs.text(given.get("key"), "sql.key"),
        }

    async def cut(
        self, descriptor: Descriptor, cursor: Cursor | None, count: int, shards: int, ring: Keyring
    ) -> Cuts:
        if cursor is None:
            await self._check_keys(descriptor, ring)
        index = 0 if cursor is None else int(cursor["index"])
        wanted = min(shards * count, max(count, _KEYS_AT_ONCE // count * count))
        keys = await self._keys(descriptor, cursor, wanted + 1, ring)
        self._check_unique(descriptor, keys)
        end = len(keys) <= wanted
        after = {} if cursor is None else {"after": cursor["after"]}
        made: list[ShardRange] = []
        for at in range(0, min(len(keys), wanted), count):
            part = keys[at : min(at + count, wanted)]
            made.append(ShardRange({**after, "last": part[-1]}, index + at, len(part)))
            after = {"after": part[-1]}
        following = {**after, "index": index + wanted}
        return Cuts(made, None if end else following, end)

    async def items(
        self, descriptor: Descriptor, shard: ShardRange, ring: Keyring
    ) -> list[tuple[str, Any]]:
        cursor = shard.cursor or {}
        if "last" not in cursor:
            raise CollectionError("items of a query are read by their cursor")
        key = descriptor["key"]
        tests = [_test(descriptor, ">", "after")] if "after" in cursor else []
        tests.append(_test(descriptor, "<=", "last"))
        tail = f"WHERE {' AND '.join(tests)} ORDER BY q.{column_name(key)}"
        rows = await self._ask(descriptor, f"q.* FROM {_inner(descriptor)} {tail}", cursor, ring)
        if len(rows) != shard.count:
            what = f"the query ({key} up to {cursor['last']})"
            raise changed(what, f"{len(rows):,} rows instead of {shard.count:,}")
        return [(str(row[key]), row) for row in rows]

    # -- asking ------------------------------------------------------------------------------

    async def _keys(
        self, descriptor: Descriptor, cursor: Cursor | None, limit: int, ring: Keyring
    ) -> list[Any]:
        column = f"q.{column_name(descriptor['key'])}"
        where = f"WHERE {_test(descriptor, '>', 'after')}" if cursor is not None else ""
        text = f"{column} AS k FROM {_inner(descriptor)} {where} ORDER BY {column} LIMIT {limit}"
        return [row["k"] for row in await self._ask(descriptor, text, cursor or {}, ring)]

    async def _check_keys(self, descriptor: Descriptor, ring: Keyring) -> None:
        """A null is neither before nor after anything: its row would be left out in silence."""
        text = (
            f"1 FROM {_inner(descriptor)} WHERE q.{column_name(descriptor['key'])} IS NULL LIMIT 1"
        )
        if await self._ask(descriptor, text, {}, ring):
            raise CollectionError(f"the query has rows whose {descriptor['key']} is null")

    @staticmethod
    def _check_unique(descriptor: Descriptor, keys: list[Any]) -> None:
        for one, other in pairwise(keys):
            if one == other:
                what = f"{descriptor['key']} is not unique: {one!r:.80} comes twice"
                raise CollectionError(f"the query cannot be a collection: {what}")

    async def _ask(
        self, descriptor: Descriptor, text: str, cursor: Cursor, ring: Keyring
    ) -> list[dict[str, Any]]:
        kind = descriptor["database"]
        bounds = {f"anabranch_{name}": cursor[name] for name in ("after", "last") if name in cursor}
        used = {name: value for name, value in bounds.items() if name in text}
        params = {**descriptor.get("params", {}), **used}
        # psycopg reads doubled percent signs as one only when it is given parameters, even none.
        needed = params or (None if kind != "postgres" else {})
        given = {"query": f"SELECT {text}", "params": needed}
        return await ask(self._performers, descriptor, given, ring, "the query")


def _inner(descriptor: Descriptor) -> str:
    return f"(\n{descriptor['query']}\n) AS q"


def _test(descriptor: Descriptor, operator: str, bound: str) -> str:
    mark = NAMED[descriptor["database"]].format(f"anabranch_{bound}")
    return f"q.{column_name(descriptor['key'])} {operator} {mark}"


def _query(given: Mapping[str, Any]) -> str:
    statement = one_statement(given.get("query"), "sql.query", kind := kind_of(given, "sql"))
    if statement is None or not statement.reads:
        raise InputError("sql.query must be one statement that reads")
    # With parameters of ours in it, a percent sign of the author's must be doubled.
    doubled = kind == "postgres" and not given.get("params")
    return statement.text.replace("%", "%%") if doubled else statement.text

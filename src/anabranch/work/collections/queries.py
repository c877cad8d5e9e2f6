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
from anabranch.kernel.values import Answer
from anabranch.work import inputs
from anabranch.work.collections.port import (
    KIND,
    CollectionError,
    Cursor,
    Cuts,
    Descriptor,
    Keyring,
    Shard,
    changed,
)
from anabranch.work.port import Performer, Task
from anabranch.work.sql.text import DUCKDB, POSTGRES, SQLITE, split

FLAVOURS = {"sqlite": SQLITE, "postgres": POSTGRES, "duckdb": DUCKDB}
NAMED = {"sqlite": ":{}", "postgres": "%({})s", "duckdb": "${}"}
_OWN = frozenset({"kind", "query", "key", "params", "auth", "timeout"})
PLACES = frozenset(
    {"database", "path", "dsn", "connection", "host", "port", "user", "username", "dbname"}
    | {"sslmode", "read_only"}
)
_KEYS_AT_ONCE = 50_000
_SECRETS = ("password", "passfile", "sslkey")


class Queries:
    def __init__(self, performers: Mapping[str, Performer]) -> None:
        self._performers = performers

    async def describe(self, value: Any) -> Descriptor:
        given = inputs.mapping(value["sql"], "sql")
        kind = given.get("kind", "sqlite")
        if kind not in FLAVOURS:
            raise InputError(f"sql.kind must be one of {', '.join(FLAVOURS)}, not {kind!r:.40}")
        plain: dict[str, Any] = {
            KIND: "sql",
            "database": kind,
            "place": place_of_query(given, _OWN | PLACES, "sql"),
            "query": _query(given.get("query"), str(kind), given.get("params")),
            "key": inputs.text(given.get("key"), "sql.key"),
        }
        for name in ("params", "auth", "timeout"):
            if given.get(name) is not None:
                plain[name] = given[name]
        return plain

    def size(self, _descriptor: Descriptor) -> None:
        return None

    async def cut(
        self,
        descriptor: Descriptor,
        cursor: Cursor | None,
        count: int,
        shards: int,
        ring: Keyring,
    ) -> Cuts:
        if cursor is None:
            await self._check_keys(descriptor, ring)
        index = 0 if cursor is None else int(cursor["index"])
        wanted = min(shards * count, max(count, _KEYS_AT_ONCE // count * count))
        keys = await self._keys(descriptor, cursor, wanted + 1, ring)
        self._check_unique(descriptor, keys)
        end = len(keys) <= wanted
        after = {} if cursor is None else {"after": cursor["after"]}
        made: list[Shard] = []
        for at in range(0, min(len(keys), wanted), count):
            part = keys[at : min(at + count, wanted)]
            made.append(Shard({**after, "last": part[-1]}, index + at, len(part)))
            after = {"after": part[-1]}
        following = {**after, "index": index + wanted}
        return Cuts(made, None if end else following, end)

    async def items(
        self, descriptor: Descriptor, shard: Shard, ring: Keyring
    ) -> list[tuple[str, Any]]:
        cursor = shard.cursor or {}
        if "last" not in cursor:
            raise CollectionError("items of a query are read by their cursor")
        key = descriptor["key"]
        tests = [_test(descriptor, ">", "after")] if "after" in cursor else []
        tests.append(_test(descriptor, "<=", "last"))
        tail = f"WHERE {' AND '.join(tests)} ORDER BY q.{_quoted(key)}"
        rows = await self._ask(descriptor, f"q.* FROM {_inner(descriptor)} {tail}", cursor, ring)
        if len(rows) != shard.count:
            what = f"the query ({key} up to {cursor['last']})"
            raise changed(what, f"{len(rows):,} rows instead of {shard.count:,}")
        return [(str(row[key]), row) for row in rows]

    # -- asking ------------------------------------------------------------------------------

    async def _keys(
        self, descriptor: Descriptor, cursor: Cursor | None, limit: int, ring: Keyring
    ) -> list[Any]:
        column = f"q.{_quoted(descriptor['key'])}"
        where = f"WHERE {_test(descriptor, '>', 'after')}" if cursor is not None else ""
        text = f"{column} AS k FROM {_inner(descriptor)} {where} ORDER BY {column} LIMIT {limit}"
        return [row["k"] for row in await self._ask(descriptor, text, cursor or {}, ring)]

    async def _check_keys(self, descriptor: Descriptor, ring: Keyring) -> None:
        """A null is neither before nor after anything: its row would be left out in silence."""
        text = f"1 FROM {_inner(descriptor)} WHERE q.{_quoted(descriptor['key'])} IS NULL LIMIT 1"
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


async def ask(
    performers: Mapping[str, Performer],
    descriptor: Descriptor,
    given: Mapping[str, Any],
    ring: Keyring,
    what: str,
) -> list[dict[str, Any]]:
    """The rows that a statement returns, from the database of the descriptor."""
    kind = descriptor["database"]
    performer = performers.get(kind)
    if performer is None:
        raise CollectionError(f"there is no work of kind '{kind}' here to read {what} with")
    whole = {**descriptor["place"], **given}
    whole |= {"auth": _entry(descriptor, ring), "timeout": descriptor.get("timeout")}
    whole = {name: value for name, value in whole.items() if value is not None}
    answer = await performer.perform(_task(kind, whole))
    if not isinstance(answer, Answer) or answer.fault is not None:
        fault = answer.fault if isinstance(answer, Answer) else None
        why, heals = ("it parked", False) if fault is None else (fault.message, fault.retryable)
        raise CollectionError(f"{what} failed: {why}", retryable=heals)
    rows: list[dict[str, Any]] = answer.result["rows"]
    return rows


def _task(kind: str, given: Mapping[str, Any]) -> Task:
    return Task(run="", step="", job="", attempt=1, key="", kind=kind, inputs=given)


def _inner(descriptor: Descriptor) -> str:
    return f"(\n{descriptor['query']}\n) AS q"


def _test(descriptor: Descriptor, operator: str, bound: str) -> str:
    mark = NAMED[descriptor["database"]].format(f"anabranch_{bound}")
    return f"q.{_quoted(descriptor['key'])} {operator} {mark}"


def _quoted(name: str) -> str:
    escaped = name.replace('"', '""')
    return f'"{escaped}"'


def _query(value: Any, kind: str, params: Any) -> str:
    statements = split(inputs.text(value, "sql.query"), FLAVOURS[kind])
    if len(statements) != 1 or not statements[0].reads:
        raise InputError("sql.query must be one statement that reads")
    if params is not None and not isinstance(params, Mapping):
        raise InputError("sql.params must be a mapping: here parameters need names")
    text = statements[0].text
    # With parameters of ours in it, a percent sign of the author's must be doubled.
    return text.replace("%", "%%") if kind == "postgres" and not params else text


def place_of_query(given: Mapping[str, Any], known: frozenset[str], what: str) -> dict[str, Any]:
    """Where the database is, without anything that must not be recorded."""
    for name in given:
        if name in _SECRETS:
            raise InputError(
                f"{what}.{name} would be recorded; name an entry of the keychain instead "
                f"({what}.auth: NAME)"
            )
        if name not in known:
            words = ", ".join(sorted(known))
            raise InputError(f"{what}: '{name}' is not known; there are {words}")
    if not isinstance(given.get("auth", ""), str):
        raise InputError(f"{what}.auth must be the name of a keychain entry")
    place = {name: given[name] for name in PLACES & given.keys()}
    for name in ("dsn", "connection"):
        text = str(place.get(name, ""))
        user = text.partition("://")[2].partition("/")[0].rpartition("@")[0]
        if "password" in text.lower() or user.partition(":")[2]:
            raise InputError(
                f"{what}.{name} has a password in it, which would be recorded; name an entry of "
                f"the keychain instead ({what}.auth: NAME)"
            )
    return place


def _entry(descriptor: Descriptor, ring: Keyring) -> Any:
    name = descriptor.get("auth")
    if name is None:
        return None
    if name not in ring:
        raise CollectionError(f"the keychain has no entry '{name}'")
    return ring[name]

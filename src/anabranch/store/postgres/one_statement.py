"""Several writes as one statement: one round trip, one transaction, all of it or nothing.

Each part is a statement over arrays (`commit.sql`), here a `WITH` of its own. Where every part has
one row, as in a turn of one run, its values stand in the place of the arrays: to unnest those and
to join with them takes the server as long as the writes. The last line looks at the rows that the
conditional ones have hit and raises where they are not those that were wanted: then nothing is
written. Parts of one statement see the rows as they were before it, so no two of them may write
the same row.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import count
from weakref import WeakKeyDictionary

import msgspec
import psycopg
from psycopg import errors, generators, pq

from anabranch.store.postgres.arrays import TYPES, RowWriter, binary_array
from anabranch.store.postgres.connections import Plain
from anabranch.store.relational.connection import Row
from anabranch.store.statements import load_statements

_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
UNEXPECTED = "AB001"  # what the function `require` raises
#: Writes that must hit exactly as many rows as they are given.
_EXACT = frozenset(
    {"move_partitions", "create_heads", "move_heads", "finish_heads", "answer_messages"}
)
#: Every part finds its rows by a key, and is planned once, not at every execution. Just-in-time
#: compilation would take longer than most executions.
_PLANNER = """
    SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_bitmapscan = off;
    SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_material = off; SET jit = off
"""
FEW_ROWS, GROWTH = 64, 4  # a plan is made anew when a part has written so many times as many rows
PLANNED_SECONDS = 60.0  # or after so long: other servers write, too
_PARAMETER = re.compile(r"%s::(\w+(?:\[\])?)")
_ROWS = re.compile(r"\bunnest\(((?:%s::\w+\[\],?\s*)+)\)(\s+AS\s)?")


class Part(msgspec.Struct, frozen=True):
    """Rows for a statement of `commit.sql`."""

    name: str
    rows: Sequence[Row]


class Plan(msgspec.Struct, frozen=True, eq=False):
    """The text for some parts; its parameters are the columns of each, one part after the other.
    There is one for each combination (`planned`), compared by identity: to hash it takes long."""

    text: bytes
    types: tuple[int, ...]  # the numbers of the types of all parameters
    columns: tuple[tuple[str, ...], ...]  # of each part: the types of its columns
    rows: tuple[RowWriter, ...]  # of each part, where all of them have one row
    binary: tuple[int, ...]  # says of every parameter that it is sent in binary form


class _Session:
    """What is prepared on one connection. A plan is made once, and fits tables of about the size
    that they had then: of a small one the planner would rather read everything."""

    def __init__(self, db: Plain) -> None:
        db.execute(_PLANNER)
        self.names: dict[Plan, bytes] = {}
        self._numbers = count()
        self._rows: dict[str, int] = {}
        self._limits: dict[str, int] = {}
        self._until = 0.0

    def fit(self, db: Plain, parts: Sequence[Part]) -> None:
        """Have everything planned anew that is no longer up to date."""
        now = time.monotonic()
        fits = now < self._until
        for part in parts:
            rows = self._rows[part.name] = self._rows.get(part.name, 0) + len(part.rows)
            fits = fits and rows <= self._limits.get(part.name, FEW_ROWS)
        if fits:
            return
        for name in self.names.values():
            db.execute(b"DEALLOCATE " + name)
        self.names.clear()
        self._limits = {name: max(FEW_ROWS, GROWTH * rows) for name, rows in self._rows.items()}
        self._until = now + PLANNED_SECONDS

    def prepare(self, db: Plain, plan: Plan) -> bytes:
        name = self.names.get(plan)
        if name is None:
            name = b"anabranch_%d" % next(self._numbers)
            db.pgconn.send_prepare(name, plan.text, plan.types)
            _fits(db)
            self.names[plan] = name
        return name


class OneStatement:
    """Writes parts on a connection, with a prepared statement for each combination of them."""

    def __init__(self) -> None:
        self._sessions: WeakKeyDictionary[Plain, _Session] = WeakKeyDictionary()

    def prepare(self, db: Plain) -> _Session:
        """Call it before a transaction begins: the rollback of one would undo the settings of the
        session, which are made once."""
        session = self._sessions.get(db)
        if session is None:
            session = self._sessions[db] = _Session(db)
        return session

    def write(self, db: Plain, parts: Sequence[Part]) -> bool:
        """False when a part has not hit its rows, and nothing was written."""
        wanted = [part for part in parts if part.rows]
        if not wanted:
            return True
        session = self.prepare(db)
        one_row = all(len(part.rows) == 1 for part in wanted)
        plan = planned(tuple([part.name for part in wanted]), one_row)
        values: list[bytes | None] = []
        for number, part in enumerate(wanted):
            if one_row:
                values += plan.rows[number].write(part.rows[0])
            else:
                values += map(binary_array, plan.columns[number], zip(*part.rows, strict=True))
        if not one_row:
            exactly = [len(part.rows) for part in wanted if part.name in _EXACT]
            values.append(binary_array("bigint", exactly))
        session.fit(db, wanted)
        db.pgconn.send_query_prepared(session.prepare(db, plan), values, plan.binary)
        return _fits(db)


def _fits(db: Plain) -> bool:
    """A server that goes may say so behind the result of the statement: then it is not known
    whether that counts, as where it says nothing."""
    results = db.wait(generators.execute(db.pgconn))
    if not results:
        raise psycopg.OperationalError("the server has hung up")
    result = next((one for one in results if one.status not in _GOOD), results[-1])
    if result.status in _GOOD:
        return True
    if db.closed or len(results) > 1:
        raise psycopg.OperationalError(result.get_error_message())
    error = errors.error_from_result(result)
    if error.sqlstate == UNEXPECTED:
        return False
    raise error


def _with_values(text: str) -> str:
    """The same statement for one row."""

    def values(found: re.Match[str]) -> str:
        return f"(VALUES ({found[1].replace('[]', '')})){found[2] or ' AS one '}"

    return _ROWS.sub(values, text)


def _number_of(kind: str) -> int:
    return TYPES[kind[:-2]][1] if kind.endswith("[]") else TYPES[kind][0]


@lru_cache(maxsize=256)
def planned(names: tuple[str, ...], one_row: bool) -> Plan:
    statements = _statements()
    types: list[int] = []
    kinds: list[list[str]] = []
    withs: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        types.append(_number_of(found[1]))
        return f"${len(types)}"

    for name in names:
        text = _with_values(statements[name]) if one_row else statements[name]
        kinds.append(_PARAMETER.findall(text))
        withs.append(f"{name} AS ({_PARAMETER.sub(numbered, text)}\nRETURNING 1)")
    exact = [name for name in names if name in _EXACT]
    if one_row:
        hit = " AND ".join([f"EXISTS (SELECT FROM {name})" for name in exact]) or "true"
    else:
        types.append(TYPES["bigint"][1])
        counts = ", ".join([f"(SELECT count(*) FROM {name})" for name in exact])
        hit = f"ARRAY[{counts}]::bigint[] = ${len(types)}"
    # A function is called only where there is something to raise.
    last = f"SELECT CASE WHEN {hit} THEN true ELSE require(false) END"
    text = f"WITH {', '.join(withs)}\n{last}"
    return Plan(
        text.encode(),
        tuple(types),
        tuple(tuple(kind.removesuffix("[]") for kind in each) for each in kinds),
        tuple(map(RowWriter, kinds)),
        (1,) * len(types),
    )


@lru_cache(maxsize=1)
def _statements() -> Mapping[str, str]:
    return load_statements("postgres")

"""Two stores compared row by row: every table of both, in the order of its key."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from anabranch.store.relational.connection import Row
from anabranch.store.relational.tables import Table, TableReader

LISTED = 20  # differences of one table; more are counted

How = Literal["missing", "extra", "differs"]
#: Called with every row that was compared; may raise to give up.
Tick = Callable[[], None]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    table: str
    key: str
    how: How  # `missing` in the copy, only there (`extra`), or with other values
    columns: tuple[str, ...] = ()  # which of them differ

    def __str__(self) -> str:
        said = {
            "missing": "is not in the copy",
            "extra": "is in the copy alone",
            "differs": f"differs in {', '.join(self.columns)}",
        }
        return f"{self.table} {self.key} {said[self.how]}"


class Compared(msgspec.Struct, kw_only=True):
    """One table of both. Its hash is that of all its rows, in their order."""

    table: str
    rows: int = 0
    sha256: str = ""
    copied_rows: int = 0
    copied_sha256: str = ""
    differences: list[Difference] = []
    not_listed: int = 0

    @property
    def same(self) -> bool:
        return (self.rows, self.sha256) == (self.copied_rows, self.copied_sha256)


class _Side:
    """The rows of one store, counted and hashed as they go by."""

    def __init__(self, store: TableReader, table: Table) -> None:
        self._rows = self._read(store, table)
        self._hash = hashlib.sha256()
        self.count = 0
        self.row = next(self._rows, None)

    def _read(self, store: TableReader, table: Table) -> Iterator[Row]:
        yield from store.rows(table)

    def step(self) -> None:
        self.count += 1
        self._hash.update(msgspec.msgpack.encode(self.row))
        self.row = next(self._rows, None)

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()


def compare(source: TableReader, copy: TableReader, table: Table, tick: Tick) -> Compared:
    found = Compared(table=table.name)
    here, there = _Side(source, table), _Side(copy, table)
    while here.row is not None or there.row is not None:
        tick()
        order = _order(table, here.row, there.row)
        if order == 0 and here.row != there.row:
            assert here.row is not None
            assert there.row is not None
            pairs = zip(table.columns, here.row, there.row, strict=True)
            columns = tuple(name for name, left, right in pairs if left != right)
            _add(found, table, here.row, "differs", columns)
        elif order < 0:
            _add(found, table, here.row, "missing")
        elif order > 0:
            _add(found, table, there.row, "extra")
        if order <= 0:
            here.step()
        if order >= 0:
            there.step()
    found.rows, found.sha256 = here.count, here.sha256
    found.copied_rows, found.copied_sha256 = there.count, there.sha256
    return found


def _order(table: Table, here: Row | None, there: Row | None) -> int:
    """Which of both comes first; texts by their bytes, as the databases have it."""
    if here is None or there is None:
        return (here is None) - (there is None)
    left, right = _sortable(table.key_of(here)), _sortable(table.key_of(there))
    return (left > right) - (left < right)


def _sortable(key: Row) -> Row:
    return tuple(part.encode() if isinstance(part, str) else part for part in key)


def _add(
    found: Compared, table: Table, row: Row | None, how: How, columns: tuple[str, ...] = ()
) -> None:
    if len(found.differences) >= LISTED:
        found.not_listed += 1
        return
    assert row is not None
    key = " ".join(str(part) for part in table.key_of(row))
    one = Difference(table=table.name, key=f"{key:.120}", how=how, columns=columns)
    found.differences.append(one)

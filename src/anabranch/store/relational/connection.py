"""What the shared parts need: of a connection inside a transaction, and of the whole store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

Row = tuple[Any, ...]


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """Parameters are named in statements (`:run`); the store translates them for its driver."""

    def execute(self, statement: str, parameters: Mapping[str, Any] = ..., /) -> Cursor: ...

    def executemany(self, statement: str, rows: Iterable[Mapping[str, Any]], /) -> Cursor: ...


class RelationalPart:
    """A part of `RelationalStore`, which has these."""

    if TYPE_CHECKING:
        sql: Mapping[str, str]

        def _rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Any]: ...

        def _alone(self, db: Connection, *what: str) -> None: ...

        def _transaction(self, *, wipe: bool = False) -> AbstractContextManager[Connection]: ...

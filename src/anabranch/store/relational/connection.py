"""What the shared parts need of a connection inside a transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

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

"""What the parts of the SQLite store use of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from anabranch.store.sqlite.held_file import HeldFile


class SqlitePart:
    """A part of `SqliteStore`, which has these."""

    if TYPE_CHECKING:
        _held: HeldFile

        def _rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Any]: ...

        def _transaction(
            self, *, wipe: bool = False
        ) -> AbstractContextManager[sqlite3.Connection]: ...

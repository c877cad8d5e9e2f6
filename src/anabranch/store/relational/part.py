"""What the parts of a relational store use of the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager
    from typing import Any

    from anabranch.store.relational.connection import Connection


class RelationalPart:
    """A part of `RelationalStore`, which has these."""

    if TYPE_CHECKING:
        sql: Mapping[str, str]

        def _rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Any]: ...

        def _alone(self, db: Connection, *what: str) -> None: ...

        def _transaction(self, *, wipe: bool = False) -> AbstractContextManager[Connection]: ...

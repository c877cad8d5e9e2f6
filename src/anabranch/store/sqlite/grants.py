"""The part of the SQLite store that is about grants."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.store.grant_ports import Grant
from anabranch.store.sqlite.file import STATEMENTS


class SqliteGrants:
    """A part of `SqliteStore`."""

    if TYPE_CHECKING:

        def _rows(self, statement: str, parameters: Mapping[str, Any]) -> list[Any]: ...

        def _transaction(
            self, *, wipe: bool = False
        ) -> AbstractContextManager[sqlite3.Connection]: ...

    def put_grants(self, grants: Sequence[Grant]) -> None:
        with self._transaction() as db:
            for grant in grants:
                fields = msgspec.structs.asdict(grant)
                db.execute(STATEMENTS["put_grant"], {**fields, "is_owner": int(grant.is_owner)})

    def grants_of(self, rid: str, scope: int) -> list[Grant]:
        rows = self._rows(STATEMENTS["grants_of"], {"rid": rid, "scope": scope})
        return [_grant(row) for row in rows]

    def grants_for(self, who: str, after: int = 0, limit: int = 100) -> list[Grant]:
        asked = {"who": who, "after": after, "limit": max(limit, 0)}
        return [_grant(row) for row in self._rows(STATEMENTS["grants_for"], asked)]


def _grant(row: Sequence[Any]) -> Grant:
    fields = dict(zip(Grant.__struct_fields__, row, strict=True))
    return Grant(**{**fields, "is_owner": bool(fields["is_owner"])})

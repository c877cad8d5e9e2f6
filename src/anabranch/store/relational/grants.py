"""The part of a relational store that is about grants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from anabranch.store.grant_ports import Grant
from anabranch.store.relational.connection import RelationalPart


class RelationalGrants(RelationalPart):
    def put_grants(self, grants: Sequence[Grant]) -> None:
        with self._transaction() as db:
            for grant in grants:
                fields = msgspec.structs.asdict(grant)
                db.execute(self.sql["put_grant"], {**fields, "is_owner": int(grant.is_owner)})

    def forget_grants(self, owner: str, before: int) -> None:
        with self._transaction() as db:
            db.execute(self.sql["forget_grants"], {"owner": owner, "before": before})

    def count_grants(self, owner: str) -> int:
        return int(self._rows(self.sql["count_grants"], {"owner": owner})[0][0])

    def grants_of(self, rid: str, scope: int) -> list[Grant]:
        rows = self._rows(self.sql["grants_of"], {"rid": rid, "scope": scope})
        return [_grant(row) for row in rows]

    def grants_for(self, who: str, after: int = 0, limit: int = 100) -> list[Grant]:
        asked = {"who": who, "after": after, "limit": max(limit, 0)}
        return [_grant(row) for row in self._rows(self.sql["grants_for"], asked)]


def _grant(row: Sequence[Any]) -> Grant:
    fields = dict(zip(Grant.__struct_fields__, row, strict=True))
    return Grant(**{**fields, "is_owner": bool(fields["is_owner"])})

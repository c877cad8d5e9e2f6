"""The part of the store in memory that is about grants."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import msgspec

from anabranch.store.grant_ports import Grant


class MemoryGrants:
    """A part of `MemoryStore`."""

    _grants: dict[tuple[str, int, str], Grant]

    if TYPE_CHECKING:

        def _open(self) -> AbstractContextManager[object]: ...

    def put_grants(self, grants: Sequence[Grant]) -> None:
        with self._open():
            for grant in grants:
                key = (grant.rid, grant.scope, grant.grantee)
                known = self._grants.get(key)
                number = known.id if known is not None else len(self._grants) + 1
                owner = known.owner if known is not None else grant.owner
                first = known.is_owner if known is not None else grant.is_owner
                self._grants[key] = msgspec.structs.replace(
                    grant, id=number, owner=owner, is_owner=first
                )

    def grants_of(self, rid: str, scope: int) -> list[Grant]:
        with self._open():
            found = [one for one in self._grants.values() if (one.rid, one.scope) == (rid, scope)]
        return sorted(found, key=lambda one: one.id)

    def grants_for(self, who: str, after: int = 0, limit: int = 100) -> list[Grant]:
        with self._open():
            found = [
                one
                for one in self._grants.values()
                if who in (one.grantee, one.owner) and one.id > after
            ]
        return sorted(found, key=lambda one: one.id)[: max(limit, 0)]

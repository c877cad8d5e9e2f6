"""Grants: who may read what is encrypted, as its owner says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

READ, WRITE, MANAGE = 1, 2, 4
RULES, LOGS = 1, 2  # scopes


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    rid: str  # of the encrypted text
    scope: int
    grantee: str  # addresses in lower case
    owner: str
    rights: int
    enc_dek: str = ""  # the key of the text, wrapped for the grantee; nobody here can open it
    expires_at: int  # seconds since the epoch
    is_owner: bool = False
    ref_addr: str = ""
    session: str = ""
    id: int = 0  # given by the store


class Grants(Protocol):
    def put_grants(self, grants: Sequence[Grant]) -> None:
        """All of them or none; one that is there for the same rid, scope and grantee is changed,
        but for its owner."""

    def forget_grants(self, owner: str, before: int) -> None:
        """Those of this owner that expired before this second; the owner's own stay, which say
        whose an id is."""

    def count_grants(self, owner: str) -> int: ...

    def grants_of(self, rid: str, scope: int) -> list[Grant]: ...

    def grants_for(self, who: str, after: int = 0, limit: int = 100) -> list[Grant]:
        """Those that somebody has or has given, in order of their ids."""

"""Which passports are revoked. A revocation that its author may write counts at once and for good,
also for a passport that is seen later, and whatever any list of this node allows.

By the issuer it is about its own passports of that id, by the node about those that it holds; an id
alone says nothing, since anyone can write any id into a passport.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.market.node.directory.artifacts import CheckedPassport

#: What is named (an id, of a passport, delegation or revocation), by whom, and about which node.
_Key = tuple[str, str, str]


class Revocations:
    """`add` what has been checked: its shape, and that its author may write it."""

    def __init__(self) -> None:
        self._keys: set[_Key] = set()

    def add(self, revocation: Mapping[str, Any]) -> None:
        node = revocation["node_id"]
        signer = revocation.get("issuer/participant_id") or node
        named = revocation.get("passport_id") or revocation["target_id"]
        self._keys.add((named, signer, node))
        self._keys.add((revocation["revocation_id"], signer, node))

    def covers(self, one: CheckedPassport) -> bool:
        passport = one.passport
        names = (passport.passport_id, one.delegation, one.revocation_ref)
        return any(
            (name, signer, passport.node_id) in self._keys
            for name in names
            if name
            for signer in (passport.issuer, passport.node_id)
        )

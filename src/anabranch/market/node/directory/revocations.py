"""Which passports are revoked. A revocation that its author may write counts at once and for good,
also for a passport that is seen later, and whatever any list of this node allows.

By the issuer it is about its own passports of that id, by the node about those that it holds; an id
alone says nothing, since anyone can write any id into a passport.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from anabranch.market.node.directory.artifacts import CheckedPassport
from anabranch.market.node.directory.records import Revocation
from anabranch.market.passports import instant

#: What is named (an id, of a passport, delegation or revocation), by whom, and about which node.
_Key = tuple[str, str, str]


class Revocations:
    """`add` what has been checked: its shape, and that its author may write it."""

    def __init__(self) -> None:
        self._keys: set[_Key] = set()

    def add(self, revocation: Mapping[str, Any]) -> None:
        self._keys.update(keys_of(revocation))

    def replace(self, revocations: Iterable[Mapping[str, Any]]) -> None:
        """These alone count from now on."""
        self._keys = {key for each in revocations for key in keys_of(each)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Revocations) and self._keys == other._keys

    __hash__ = None  # type: ignore[assignment]

    def covers(self, one: CheckedPassport) -> bool:
        return not self._keys.isdisjoint(keys_about(one))


class RevocationList:
    """Revocations in the order of their numbers. Anyone may ask what is new, so no question reads
    those that came before."""

    def __init__(self) -> None:
        self._rows: list[Revocation] = []
        self._instants: list[int] = []

    def add(self, one: Revocation) -> None:
        self._rows.append(one)
        self._instants.append(instant(one.revocation["revoked_at"], "revoked_at"))

    def replace(self, rows: Iterable[Revocation]) -> None:
        """These alone are there from now on."""
        self._rows, self._instants = [], []
        for one in rows:
            self.add(one)

    def after(self, number: int) -> Iterator[Revocation]:
        begin = bisect_right(self._rows, number, key=lambda one: one.number)
        return islice(self._rows, begin, None)

    def since(self, at: int) -> Iterator[Revocation]:
        """Those that were made at this instant or later."""
        return (one for one, made in zip(self._rows, self._instants, strict=True) if made >= at)


def signer_of(revocation: Mapping[str, Any]) -> str:
    """Its author: the issuer, or else the node that it is about."""
    return str(revocation.get("issuer/participant_id") or revocation["node_id"])


def keys_of(revocation: Mapping[str, Any]) -> Iterator[_Key]:
    node, signer = revocation["node_id"], signer_of(revocation)
    yield revocation.get("passport_id") or revocation["target_id"], signer, node
    yield revocation["revocation_id"], signer, node


def keys_about(one: CheckedPassport) -> Iterator[_Key]:
    """Any of these revokes the passport."""
    passport = one.passport
    for name in filter(None, (passport.passport_id, one.delegation, one.revocation_ref)):
        yield name, passport.issuer, passport.node_id
        yield name, passport.node_id, passport.node_id

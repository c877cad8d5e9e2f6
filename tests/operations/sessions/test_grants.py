"""Who may give rights to what somebody has encrypted, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import Refused
from anabranch.operations.sessions.grants import put_grants
from anabranch.store.grant_ports import MANAGE, READ, RULES, WRITE
from anabranch.store.memory.store import MemoryStore

RID = "0x" + "ab" * 32
OWNER, MANAGER, OTHER = ("0x" + digit * 40 for digit in "123")
FIRST, END, LATER = 500, 1000, 5000  # when the manager is named, until when, and long after


def entry(grantee: str, rights: int, until: int, key: str = "0x") -> dict[str, Any]:
    return {"grantee": grantee, "rights": rights, "expireAt": until, "encDEK": key}


def managed() -> MemoryStore:
    store = MemoryStore()
    given = entry(OWNER, 7, LATER * 2, "0x01"), entry(MANAGER, MANAGE, END, "0x02")
    put(store, OWNER, FIRST, *given)
    return store


def put(store: MemoryStore, signer: str, now: int, *entries: dict[str, Any]) -> int:
    given = {"rid": RID, "scope": RULES, "entries": list(entries)}
    return put_grants(store, given, signer, now)


@pytest.mark.parametrize(
    "wish",
    [
        entry(MANAGER, 7, 1 << 50),
        entry(OTHER, READ, LATER * 2),
        entry(OWNER, 0, 1, "0x"),  # with which the owner would lose the key
    ],
    ids=["longer", "others", "the owner"],
)
def test_a_right_to_manage_that_has_ended_manages_nothing(wish: dict[str, Any]) -> None:
    store = managed()
    before = store.grants_of(RID, RULES)
    for now in (END + 1, LATER):
        with pytest.raises(Refused, match="has ended at 1000"):
            put(store, MANAGER, now, wish)
    assert store.grants_of(RID, RULES) == before
    assert put(store, OWNER, LATER, entry(MANAGER, MANAGE, LATER)) == 1, "the owner names them anew"
    assert put(store, MANAGER, LATER, entry(OTHER, READ, LATER)) == 1


def test_until_it_ends_it_gives_what_it_may() -> None:
    store = managed()
    assert put(store, MANAGER, END, entry(OTHER, READ | WRITE, LATER)) == 1
    assert put(store, MANAGER, END, entry(OTHER, MANAGE, END)) == 1


@pytest.mark.parametrize("grantee", [MANAGER, OTHER])
def test_no_manager_makes_a_right_to_manage_last_longer_than_their_own(grantee: str) -> None:
    """Or it would never end: not for who renews it, nor for who goes on under a second key."""
    store = managed()
    before = store.grants_of(RID, RULES)
    with pytest.raises(Refused, match="until 1000"):
        put(store, MANAGER, END, entry(OTHER, READ, END), entry(grantee, MANAGE, END + 1))
    assert store.grants_of(RID, RULES) == before, "all of them or none"


def test_the_owner_manages_whatever_they_wrote_of_themselves() -> None:
    store = managed()
    put(store, OWNER, FIRST, entry(OWNER, 0, FIRST))
    assert put(store, OWNER, LATER, entry(OTHER, MANAGE, LATER * 3)) == 1

"""A change of a record is made of what it says at that moment, however often others were faster."""

from __future__ import annotations

import pytest

from anabranch.errors import Conflict, NotFound
from anabranch.operations.definitions.alias import ALIASES, Alias, AliasTarget, record_of
from anabranch.operations.record_families import TRIES
from anabranch.store.memory.store import MemoryStore
from anabranch.store.record_ports import NamedRecord


class Contended(MemoryStore):
    """Before the first few writes another process writes the same record."""

    faster = 0

    def put_record(self, record: NamedRecord, seen: int = 0) -> bool:
        self._interfere(record.name)
        return super().put_record(record, seen)

    def drop_record(self, family: str, name: str, seen: int) -> bool:
        self._interfere(name)
        return super().drop_record(family, name, seen)

    def _interfere(self, name: str) -> None:
        if self.faster:
            self.faster -= 1
            known = self.record(ALIASES.noun, name)
            other = alias(f"theirs{self.faster}")
            super().put_record(record_of(other, 1), 0 if known is None else known.version)


def alias(path: str) -> Alias:
    return Alias(name="prod", target=AliasTarget(path=path))


def record(one: Alias) -> NamedRecord:
    return record_of(one, 2)


def renamed(before: Alias) -> Alias:
    return alias(f"{before.target.path}/mine")


def test_a_change_is_made_again_of_what_others_wrote_meanwhile() -> None:
    store = Contended()
    ALIASES.put(store, "prod", lambda _known: alias("first"), record)
    store.faster = 2
    changed = ALIASES.change(store, "prod", renamed, record)
    assert changed is not None
    assert changed.target.path == "theirs0/mine"
    assert ALIASES.document(ALIASES.record(store, "prod")) == changed


def test_a_new_record_sees_one_that_came_first() -> None:
    store = Contended()
    store.faster = 1
    seen: list[str | None] = []

    def make(known: Alias | None) -> Alias:
        seen.append(None if known is None else known.target.path)
        return alias("mine")

    ALIASES.put(store, "prod", make, record)
    assert seen == [None, "theirs0"]


def test_what_changes_nothing_is_not_written() -> None:
    store = Contended()
    ALIASES.put(store, "prod", lambda _known: alias("first"), record)
    before = ALIASES.record(store, "prod")
    assert ALIASES.change(store, "prod", lambda one: one, record) is None
    assert ALIASES.put(store, "prod", lambda _known: None, record) is None
    assert ALIASES.record(store, "prod") == before


def test_a_removal_shows_what_was_removed_and_not_what_was_there_before() -> None:
    store = Contended()
    ALIASES.put(store, "prod", lambda _known: alias("first"), record)
    store.faster = 1
    gone = ALIASES.drop(store, "prod", lambda one: ALIASES.document(one).target.path)
    assert gone == "theirs0"
    with pytest.raises(NotFound):
        ALIASES.record(store, "prod")


def test_one_that_changes_all_the_time_is_left_alone_and_says_so() -> None:
    store = Contended()
    ALIASES.put(store, "prod", lambda _known: alias("first"), record)
    store.faster = TRIES
    with pytest.raises(Conflict, match="changes all the time") as refused:
        ALIASES.change(store, "prod", renamed, record)
    assert refused.value.code == "alias_busy"
    assert ALIASES.document(ALIASES.record(store, "prod")).target.path == "theirs0"


def test_one_that_is_not_there_cannot_be_changed() -> None:
    with pytest.raises(NotFound):
        ALIASES.change(Contended(), "prod", renamed, record)

"""The verbs of aliases: set, listed, rolled back, removed. Each changes one record in the version
that was read, so it does not matter which process it comes from."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from anabranch.clock import Clock
from anabranch.errors import Conflict, InputError, Refused
from anabranch.operations.definitions.alias import (
    ALIASES,
    FAMILY,
    HISTORY_KEPT,
    Alias,
    AliasTarget,
    find_alias,
    record_of,
)
from anabranch.operations.definitions.catalog import SCHEME, Catalog, wanted
from anabranch.store.ports import Store
from anabranch.store.record_ports import NamedRecord

PAGE_MOST = 500


class AliasCard(msgspec.Struct, frozen=True, kw_only=True):
    """An alias as people and programs see it."""

    name: str
    target: str  # as an author writes it: quotes@3
    path: str
    version: int | None  # None: the newest at each time
    newest: int | None  # the newest version of the path; None where only the folder has it
    set_at: int
    set_by: str
    history: list[AliasTarget]  # what it led to before, newest first


class Aliases:
    def __init__(self, store: Store, clock: Clock, catalog: Catalog) -> None:
        self._store = store
        self._clock = clock
        self._catalog = catalog

    # -- looking -----------------------------------------------------------------------------

    def page(self, after: str = "", limit: int = 50) -> list[AliasCard]:
        """In the order of their names."""
        return [self._card(record) for record in self._store.records(FAMILY, after, limit)]

    def all(self) -> Iterable[AliasCard]:
        after = ""
        while found := self.page(after, PAGE_MOST):
            yield from found
            after = found[-1].name

    def show(self, name: str) -> AliasCard:
        return self._card(ALIASES.record(self._store, name))

    def _card(self, record: NamedRecord) -> AliasCard:
        alias = ALIASES.document(record)
        entry = self._store.catalog_entry(alias.target.path)
        return AliasCard(
            name=alias.name,
            target=alias.target.text(),
            path=alias.target.path,
            version=alias.target.version,
            newest=None if entry is None else entry.version,
            set_at=alias.target.at,
            set_by=alias.target.by,
            history=list(alias.history),
        )

    # -- changing ----------------------------------------------------------------------------

    def set(self, name: str, target: str, actor: str = "") -> AliasCard:
        """Lead a name to a definition. Everything is checked before anything is written."""
        self._require_free(ALIASES.checked_name(name))
        asked = self._target(name, target)
        fresh = replace(asked, at=self._clock.now(), by=actor)

        def make(before: Alias | None) -> Alias | None:
            if before is None:
                return Alias(name=name, target=fresh)
            if before.target.text() == fresh.text():
                return None
            history = (before.target, *before.history)[:HISTORY_KEPT]
            return Alias(name=name, target=fresh, history=history)

        ALIASES.put(self._store, name, make, self._record)
        return self.show(name)

    def rollback(self, name: str, actor: str = "") -> AliasCard:
        """Back to what it led to before it was set last; once more goes further back."""

        def back_from(before: Alias) -> Alias:
            if not before.history:
                raise Refused(
                    f"the alias {name} has led to nothing but {before.target.text()}: there is "
                    "nothing to go back to",
                    code="alias_history",
                )
            back, *older = before.history
            self._require_there(back)
            target = replace(back, at=self._clock.now(), by=actor)
            return Alias(name=name, target=target, history=tuple(older))

        ALIASES.change(self._store, name, back_from, self._record)
        return self.show(name)

    def remove(self, name: str) -> AliasCard:
        """What it led to stays."""
        return ALIASES.drop(self._store, name, self._card)

    def _record(self, alias: Alias) -> NamedRecord:
        return record_of(alias, self._clock.now())

    def _require_free(self, name: str) -> None:
        if self._store.catalog_entry(name) is not None:
            raise Conflict(
                f"{name!r} is a path of the catalog: an alias of that name would never be used; "
                "nothing was changed. Give another name",
                code="alias_taken",
            )

    def _target(self, name: str, target: str) -> AliasTarget:
        asked = wanted(target)
        if not asked.path:
            raise InputError("an alias names a path of the catalog, not its number", code="usage")
        if asked.path == name:
            raise InputError(f"the alias {name} would lead to itself", code="alias_loop")
        if self._store.catalog_entry(asked.path) is None and find_alias(self._store, asked.path):
            raise InputError(
                f"{asked.path!r} is an alias itself: an alias leads to a path of the catalog, so "
                "that none leads back to itself",
                code="alias_loop",
            )
        found = AliasTarget(path=asked.path, version=asked.version)
        self._require_there(found)
        return found

    def _require_there(self, target: AliasTarget) -> None:
        self._catalog.find(f"{SCHEME}{target.text()}")  # or it says what is missing

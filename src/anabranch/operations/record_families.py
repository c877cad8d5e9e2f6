"""Documents of one kind among the records of a store: how they are named, read and looked for.

A schedule, a trigger and an alias differ in what they say. Which names they may have, what is told
of one that is not there, is damaged or changes all the time is the same for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

import msgspec

from anabranch.errors import Conflict, InputError, NotFound, StoreError
from anabranch.net.problems import did_you_mean
from anabranch.store.record_ports import NamedRecord, Records

NAME_LETTERS = 80
_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_.-]{{0,{NAME_LETTERS - 1}}}")

TRIES = 100  # of a change, while others change the same record

T = TypeVar("T")
R = TypeVar("R")


class RecordFamily(Generic[T]):
    def __init__(
        self, noun: str, document: type[T], named: str, reserved: Collection[str] = ()
    ) -> None:
        """`noun` is also the family of the records; `named` is what a name is the name of."""
        self.noun = noun
        self._named = named
        self._reserved = reserved
        self._decoder = msgspec.json.Decoder(document)

    def can_be_named(self, name: str) -> bool:
        return _NAME.fullmatch(name) is not None

    def checked_name(self, name: str) -> str:
        if not self.can_be_named(name) or name in self._reserved:
            raise InputError(
                f"{name[:60]!r} cannot be {self._named}: use up to {NAME_LETTERS} letters, "
                "digits, - _ . with a letter or a digit first",
                code=f"{self.noun}_name",
            )
        return name

    def document(self, record: NamedRecord) -> T:
        try:
            return self._decoder.decode(record.body)
        except msgspec.MsgspecError as error:
            raise StoreError(
                f"the {self.noun} {record.name} cannot be read: {error}",
                code=f"damaged_{self.noun}",
            ) from None

    def record(self, store: Records, name: str) -> NamedRecord:
        found = store.record(self.noun, name)
        if found is None:
            known = [one.name for one in store.records(self.noun, limit=1000)]
            hint = did_you_mean(name, known) if known else "there is none yet"
            raise NotFound(f"there is no {self.noun} {name[:80]!r}; {hint}", code=f"no_{self.noun}")
        return found

    # -- changing ----------------------------------------------------------------------------

    def put(
        self,
        store: Records,
        name: str,
        make: Callable[[T | None], T | None],
        record_of: Callable[[T], NamedRecord],
    ) -> T | None:
        """Write what `make` makes of the document as it stands (None where there is none), again as
        often as another process was faster. None, then and in the end, where nothing is to be
        written."""

        def once() -> tuple[T | None] | None:
            known = store.record(self.noun, name)
            after = make(None if known is None else self.document(known))
            if after is None:
                return (None,)
            version = 0 if known is None else known.version
            return (after,) if store.put_record(record_of(after), version) else None

        return self._until_written(name, once)[0]

    def change(
        self,
        store: Records,
        name: str,
        change: Callable[[T], T],
        record_of: Callable[[T], NamedRecord],
    ) -> T | None:
        """The same for one that must be there; None where the change changes nothing."""

        def make(before: T | None) -> T | None:
            known = self.document(self.record(store, name)) if before is None else before
            after = change(known)
            return None if after == known else after

        return self.put(store, name, make, record_of)

    def drop(self, store: Records, name: str, look: Callable[[NamedRecord], R]) -> R:
        """Remove one; what `look` saw of it just before."""

        def once() -> tuple[R] | None:
            record = self.record(store, name)
            seen = look(record)
            return (seen,) if store.drop_record(self.noun, name, record.version) else None

        return self._until_written(name, once)[0]

    def _until_written(self, name: str, once: Callable[[], R | None]) -> R:
        for _ in range(TRIES):
            if (done := once()) is not None:
                return done
        raise Conflict(
            f"the {self.noun} {name} changes all the time; ask again", code=f"{self.noun}_busy"
        )

"""What small features of an engine need from a store: JSON documents by family and name.

A schedule, a trigger, an alias or a saved view is one record. A record changes as a whole, and only
in the version that its writer has seen, so that two writers never undo each other unseen. A record
may have an instant at which something is due: the earliest ones of a family are found by an index.

On a store that several servers share every server sees every record, and any of them may write it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from anabranch.errors import StoreError

BODY_BYTES_MAX = 256 * 1024  # a record is small: lists of them are read at once
#: Later than anything can be due: `due_records(family, NEVER, 1)` is what comes next.
NEVER = 2**63 - 1


class NamedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One document. The store gives the version: 1 when it is created, then one more each time."""

    family: str  # the feature it belongs to: schedule, trigger, alias …
    name: str
    body: bytes  # JSON
    version: int = 0
    due: int | None = None  # when something has to be done with it
    updated_at: int = 0


class RecordChange(msgspec.Struct, frozen=True):
    """A record to write in the place of the version `seen`; 0 creates it."""

    record: NamedRecord
    seen: int = 0


class Records(Protocol):
    def record(self, family: str, name: str) -> NamedRecord | None: ...

    def records(self, family: str, after: str = "", limit: int = 1000) -> list[NamedRecord]:
        """Those with a name behind `after`, in the order of their names."""

    def put_record(self, record: NamedRecord, seen: int = 0) -> bool:
        """Write it as version `seen + 1`; False, and nothing is written, when the store has another
        version than `seen` (0: when there is one already)."""

    def put_records(self, changes: Sequence[RecordChange]) -> list[bool]:
        """The same for many in one transaction, each for itself: the others are written also when
        some are not. No record may be in it twice."""

    def due_records(self, family: str, now: int, limit: int = 1000) -> list[NamedRecord]:
        """Those with `due <= now`, earliest first, then by name."""

    def drop_record(self, family: str, name: str, seen: int) -> bool:
        """False when there is none, or the store has another version than `seen`."""


def check_records(changes: Sequence[RecordChange]) -> None:
    """Raises for what no store may take."""
    keys = {(change.record.family, change.record.name) for change in changes}
    if len(keys) < len(changes):
        raise StoreError("a record is twice in one write; nothing was written", code="malformed")
    for change in changes:
        record = change.record
        if not (record.family and record.name and change.seen >= 0):
            raise StoreError(
                f"malformed record {record.family!r} {record.name!r}: it needs a family, a name "
                "and a version from 0 on",
                code="malformed",
            )
        if len(record.body) > BODY_BYTES_MAX:
            raise StoreError(
                f"the record of {record.family} {record.name} takes {len(record.body):,} bytes; "
                f"the store keeps up to {BODY_BYTES_MAX:,} for each. Nothing was written",
                code="record_too_large",
            )

"""The part of a relational store that is about records of features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from anabranch.store.record_ports import NamedRecord, RecordChange, check_records
from anabranch.store.relational.connection import RelationalPart

_AT_ONCE = 2000  # in one statement; a transaction may have several


class RelationalRecords(RelationalPart):
    def record(self, family: str, name: str) -> NamedRecord | None:
        rows = self._rows(self.sql["record"], {"family": family, "name": name})
        return record_of(rows[0]) if rows else None

    def records(self, family: str, after: str = "", limit: int = 1000) -> list[NamedRecord]:
        fields = {"family": family, "after": after, "limit": max(limit, 0)}
        return [record_of(row) for row in self._rows(self.sql["records"], fields)]

    def put_record(self, record: NamedRecord, seen: int = 0) -> bool:
        return self.put_records([RecordChange(record, seen)])[0]

    def put_records(self, changes: Sequence[RecordChange]) -> list[bool]:
        check_records(changes)
        written: set[tuple[str, str]] = set()
        with self._transaction() as db:
            if len(changes) > 1:  # or two writers of the same rows could wait for each other
                self._alone(db, "named_records")
            for start in range(0, len(changes), _AT_ONCE):
                some = changes[start : start + _AT_ONCE]
                for statement, given in (
                    ("add_records", [change for change in some if not change.seen]),
                    ("change_records", [change for change in some if change.seen]),
                ):
                    if given:
                        rows = db.execute(self.sql[statement], {"changes": _changes(given)})
                        written.update((family, name) for family, name in rows.fetchall())
        self._records_written()
        return [(change.record.family, change.record.name) in written for change in changes]

    def _records_written(self) -> None:
        """Where other servers share the store, they are told."""

    def due_records(self, family: str, now: int, limit: int = 1000) -> list[NamedRecord]:
        fields = {"family": family, "now": now, "limit": max(limit, 0)}
        return [record_of(row) for row in self._rows(self.sql["due_records"], fields)]

    def drop_record(self, family: str, name: str, seen: int) -> bool:
        fields = {"family": family, "name": name, "seen": seen}
        with self._transaction() as db:
            return db.execute(self.sql["drop_record"], fields).rowcount == 1


def _changes(changes: Iterable[RecordChange]) -> str:
    """One text for one statement, however many there are."""
    rows = [
        {
            "family": change.record.family,
            "name": change.record.name,
            "seen": change.seen,
            "due": change.record.due,
            "updated_at": change.record.updated_at,
            "body": change.record.body.decode(),
        }
        for change in changes
    ]
    return msgspec.json.encode(rows).decode()


def record_of(row: Sequence[Any]) -> NamedRecord:
    family, name, version, body, due, updated_at = row
    return NamedRecord(
        family=family,
        name=name,
        version=version,
        body=body.encode(),
        due=due,
        updated_at=updated_at,
    )

"""The part of the reference store that is about records of features."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from anabranch.store.memory.part import MemoryPart
from anabranch.store.record_ports import NamedRecord, RecordChange, check_records


class MemoryRecords(MemoryPart):
    """A part of `MemoryStore`."""

    def __init__(self) -> None:
        super().__init__()
        self._records: dict[tuple[str, str], NamedRecord] = {}

    def record(self, family: str, name: str) -> NamedRecord | None:
        with self._open():
            return self._records.get((family, name))

    def records(self, family: str, after: str = "", limit: int = 1000) -> list[NamedRecord]:
        with self._open():
            found = [one for one in self._records.values() if one.family == family]
        found = [one for one in found if one.name > after]
        return sorted(found, key=lambda one: one.name)[: max(limit, 0)]

    def put_record(self, record: NamedRecord, seen: int = 0) -> bool:
        return self.put_records([RecordChange(record, seen)])[0]

    def put_records(self, changes: Sequence[RecordChange]) -> list[bool]:
        check_records(changes)
        with self._open():
            return [self._put(change.record, change.seen) for change in changes]

    def _put(self, record: NamedRecord, seen: int) -> bool:
        key = (record.family, record.name)
        known = self._records.get(key)
        if (known.version if known else 0) != seen:
            return False
        self._records[key] = replace(record, version=seen + 1)
        return True

    def due_records(self, family: str, now: int, limit: int = 1000) -> list[NamedRecord]:
        with self._open():
            found = [one for one in self._records.values() if one.family == family]
        due = [(one.due, one.name, one) for one in found if one.due is not None and one.due <= now]
        return [one for _, _, one in sorted(due, key=lambda at: at[:2])][: max(limit, 0)]

    def drop_record(self, family: str, name: str, seen: int) -> bool:
        with self._open():
            known = self._records.get((family, name))
            if known is None or known.version != seen:
                return False
            del self._records[family, name]
            return True

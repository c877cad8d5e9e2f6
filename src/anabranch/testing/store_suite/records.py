"""The part of the store suite that is about records of features."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.errors import StoreError
from anabranch.store.ports import Store
from anabranch.store.record_ports import BODY_BYTES_MAX, NEVER, NamedRecord, RecordChange
from anabranch.testing.store_suite.samples import NOW, refused

RECORD = NamedRecord(
    family="schedule",
    name="nightly ☃ it's",
    body=b'{"cron":"0 3 * * *","text":"\\u0000\\"\xe2\x98\x83"}',
    due=NOW,
    updated_at=NOW - 5,
)


class RecordsSuite:
    """A part of `StoreSuite`."""

    store: Store

    def test_every_field_of_a_record_survives_and_its_version_is_the_stores(self) -> None:
        assert self.store.put_record(replace(RECORD, version=77))
        assert self.store.record("schedule", RECORD.name) == replace(RECORD, version=1)
        bare = NamedRecord(family="alias", name=RECORD.name, body=b"{}")
        assert self.store.put_record(bare), "another family has names of its own"
        assert self.store.record("alias", RECORD.name) == replace(bare, version=1)
        assert self.store.record("schedule", "nightly") is None
        assert self.store.records("trigger") == []

    def test_a_record_is_written_in_the_version_that_was_seen_and_no_other(self) -> None:
        assert not self.store.put_record(RECORD, seen=1), "it is not there"
        assert self.store.put_record(RECORD)
        assert not self.store.put_record(replace(RECORD, body=b"[]")), "it is there"
        later = replace(RECORD, body=b"[2]", due=None, updated_at=NOW)
        assert self.store.put_record(later, seen=1)
        assert not self.store.put_record(replace(later, body=b"[3]"), seen=1)
        assert not self.store.put_record(replace(later, body=b"[3]"), seen=3)
        assert self.store.record("schedule", RECORD.name) == replace(later, version=2)

    def test_many_records_are_written_at_once_each_for_itself(self) -> None:
        names = [f"s{n:05}" for n in range(5000)]
        new = [RecordChange(replace(RECORD, name=name)) for name in names]
        assert self.store.put_records(new) == [True] * 5000
        assert self.store.put_record(replace(RECORD, name="s01234", body=b"1"), seen=1)
        moved = [
            RecordChange(replace(RECORD, name=name, due=NOW + 1, body=b"2"), 1) for name in names
        ]
        extra = RecordChange(replace(RECORD, name="extra"))
        assert self.store.put_records([*moved, extra]) == [
            *(name != "s01234" for name in names),
            True,
        ]
        kept = self.store.record("schedule", "s01234")
        assert kept is not None
        assert (kept.body, kept.version, kept.due) == (b"1", 2, NOW)
        assert len(self.store.due_records("schedule", NOW, limit=9999)) == 2
        assert self.store.put_records([]) == []

    def test_a_write_that_makes_no_sense_is_refused_as_a_whole(self) -> None:
        good = RecordChange(replace(RECORD, name="good"))
        for wrong in (
            good,
            RecordChange(replace(RECORD, name="")),
            RecordChange(replace(RECORD, family="")),
            RecordChange(RECORD, -1),
            RecordChange(replace(RECORD, body=b" " * (BODY_BYTES_MAX + 1))),
        ):
            with refused(StoreError, "record" if wrong is not good else "twice"):
                self.store.put_records([good, wrong])
        assert self.store.records("schedule") == []

    def test_records_are_listed_by_name_a_page_at_a_time(self) -> None:
        for name in ("b", "a", "ä", "c"):
            self.store.put_record(replace(RECORD, name=name))
        self.store.put_record(replace(RECORD, family="alias", name="aa"))
        first = self.store.records("schedule", limit=2)
        assert [one.name for one in first] == ["a", "b"]
        assert [one.name for one in self.store.records("schedule", "b")] == ["c", "ä"]
        assert self.store.records("schedule", limit=0) == []

    def test_due_records_come_earliest_first_and_those_without_an_instant_never(self) -> None:
        for name, due in (("late", NOW + 2), ("b", NOW), ("a", NOW), ("none", None), ("old", 1)):
            self.store.put_record(replace(RECORD, name=name, due=due))
        self.store.put_record(replace(RECORD, family="trigger", name="other", due=1))
        assert [one.name for one in self.store.due_records("schedule", NOW)] == ["old", "a", "b"]
        assert [one.name for one in self.store.due_records("schedule", NEVER, 1)] == ["old"]
        assert [one.due for one in self.store.due_records("schedule", NEVER)][-1] == NOW + 2

    def test_a_record_is_dropped_in_the_version_that_was_seen(self) -> None:
        self.store.put_record(RECORD)
        assert not self.store.drop_record("schedule", RECORD.name, 2)
        assert not self.store.drop_record("alias", RECORD.name, 1)
        assert self.store.drop_record("schedule", RECORD.name, 1)
        assert not self.store.drop_record("schedule", RECORD.name, 1)
        assert self.store.records("schedule") == []
        assert self.store.put_record(RECORD), "the name is free again"

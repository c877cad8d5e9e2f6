"""The behaviour every store must show: a store is supported when this suite passes on it.

    from anabranch.testing.stores import DurableStoreSuite

    class TestMyStore(DurableStoreSuite):
        def make_store(self, place):
            return MyStore(place / "store")

Each test gets a fresh, empty directory as `place`. `StoreSuite` asks only for one store in one
process; `DurableStoreSuite` also closes, reopens and shares it, and there a second `make_store`
with the same place must open the same store. Plain asserts and no plug-ins: any runner that knows
`setup_method` can run it.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from anabranch.errors import Conflict, StoreError, StoreInUse
from anabranch.store.ports import (
    Batch,
    Commit,
    Definition,
    HeadFilter,
    Record,
    StateSnapshot,
    Store,
    total_events,
)
from anabranch.testing.store_suite.access import AccessSuite
from anabranch.testing.store_suite.admissions import AdmissionsSuite
from anabranch.testing.store_suite.catalog import CatalogSuite
from anabranch.testing.store_suite.credentials import CredentialsSuite
from anabranch.testing.store_suite.hooks import HooksSuite
from anabranch.testing.store_suite.lists import ListsSuite
from anabranch.testing.store_suite.records import RecordsSuite
from anabranch.testing.store_suite.retention import RetentionSuite
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit, a_head, refused, sha256
from anabranch.testing.store_suite.session_numbers import SessionNumbersSuite
from anabranch.testing.store_suite.streams import StreamsSuite, a_stream
from anabranch.testing.store_suite.together import TogetherSuite
from anabranch.testing.store_suite.work_logs import WorkLogsSuite


class StoreSuite(
    ListsSuite,
    RetentionSuite,
    AccessSuite,
    HooksSuite,
    CredentialsSuite,
    CatalogSuite,
    SessionNumbersSuite,
    StreamsSuite,
    WorkLogsSuite,
    RecordsSuite,
    AdmissionsSuite,
    TogetherSuite,
):
    """What one store in one process owes its engine."""

    store: Store
    place: Path
    many_runs = 5000
    """In one batch, and recovered at once."""

    def make_store(self, place: Path) -> Store:
        """The store to examine, with its files in `place`; say here how to open yours."""
        raise NotImplementedError("say how to open a store that keeps its files in `place`")

    def setup_method(self) -> None:
        """Open a new store for each test."""
        self._stack = ExitStack()
        self.place = Path(self._stack.enter_context(TemporaryDirectory()))
        self.store = self._stack.enter_context(closing(self.make_store(self.place)))

    def teardown_method(self) -> None:
        """Close it, and remove its files."""
        self._stack.close()

    # The log

    def test_a_new_store_is_empty(self) -> None:
        assert self.store.read("r1") == []
        assert self.store.head("r1") is None
        assert self.store.heads(HeadFilter()) == []
        assert self.store.unfinished() == []
        assert self.store.due(NOW) == []
        assert self.store.unanswered() == []
        assert self.store.read_many([]) == {}

    def test_a_commit_is_read_back_as_it_was_written(self) -> None:
        first, second = a_commit("r1", 2, 2), a_commit("r1", 3)
        self.store.commit(a_batch(first))
        self.store.commit(a_batch(second))
        records = self.store.read("r1")
        assert records == [
            Record(1, 2, first.at, first.events),
            Record(3, 1, second.at, second.events),
        ]
        assert total_events(records) == 3
        assert self.store.head("r1") == second.head

    def test_every_field_of_a_head_survives(self) -> None:
        head = a_head(
            "r1",
            1,
            status="wärten",
            next_wake=NOW + 5,
            labels={"tenant": "a'b\"c\\", "größe": "☃", "": ""},
            parent="p1",
            origin="o1",
            finished=True,
        )
        self.store.commit(a_batch(Commit(head=head, at=NOW, events=b"[0]", count=1)))
        assert self.store.head("r1") == head
        assert self.store.heads(HeadFilter(labels=head.labels)) == [head]

    def test_reading_after_a_number_gives_the_rows_with_later_events(self) -> None:
        self.store.commit(a_batch(a_commit("r1", 3, 3), a_commit("r1", 5, 2), a_commit("r2", 9, 9)))
        firsts = {after: [r.first_seq for r in self.store.read("r1", after)] for after in range(7)}
        assert firsts == {0: [1, 4], 1: [1, 4], 2: [1, 4], 3: [4], 4: [4], 5: [], 6: []}
        for after, limit in ((0, 10), (2, 10), (3, 10), (5, 10), (0, 1), (0, 0)):
            sizes = [len(record.events) for record in self.store.read("r1", after, limit)]
            assert self.store.weight("r1", after, limit) == (len(sizes), sum(sizes))

    def test_one_batch_may_move_one_run_several_times(self) -> None:
        last = a_commit("r1", 4, 2, status="done", finished=True)
        self.store.commit(a_batch(a_commit("r1", 1), a_commit("r2", 1), a_commit("r1", 2), last))
        assert [record.first_seq for record in self.store.read("r1")] == [1, 2, 3]
        assert self.store.head("r1") == last.head

    def test_a_stale_commit_is_refused_and_changes_nothing(self) -> None:
        self.store.commit(a_batch(a_commit("r1", 2, 2)))
        before = self.store.head("r1"), self.store.read("r1")
        for stale in (a_commit("r1", 1), a_commit("r1", 2), a_commit("r1", 4)):
            with refused(Conflict, "r1"):
                self.store.commit(a_batch(stale))
        assert (self.store.head("r1"), self.store.read("r1")) == before

    def test_a_run_starts_with_its_first_event(self) -> None:
        with refused(Conflict, "r1"):
            self.store.commit(a_batch(a_commit("r1", 2)))
        assert self.store.head("r1") is None

    def test_commits_of_one_batch_are_taken_in_their_order(self) -> None:
        with refused(Conflict, "r1"):
            self.store.commit(a_batch(a_commit("r1", 2), a_commit("r1", 1)))
        with refused(Conflict, "r1"):
            self.store.commit(a_batch(a_commit("r1", 1), a_commit("r1", 1)))
        assert self.store.read("r1") == []

    def test_a_batch_is_written_as_a_whole_or_not_at_all(self) -> None:
        self.store.commit(a_batch(a_commit("old", 1)))
        message_id = self.store.post("old", b"{}", NOW)
        batch = a_batch(
            a_commit("new", 1, snapshot=b"s"),
            a_commit("old", 2, status="done"),
            a_commit("gap", 7),
            payloads={sha256(b"p"): b"p"},
            answers={message_id: b"1"},
        )
        with refused(Conflict, "gap"):
            self.store.commit(batch)
        assert self.store.head("new") is None
        assert self.store.head("old") == a_head("old", 1)
        assert self.store.read_many(["new"]) == {"new": (None, [])}
        assert self.store.payload(sha256(b"p")) is None
        assert [message.id for message in self.store.unanswered()] == [message_id]

    def test_a_finished_run_takes_no_more_events(self) -> None:
        self.store.commit(a_batch(a_commit("r1", 1, status="done", finished=True)))
        for late in (a_commit("r1", 2), a_commit("r1", 1), a_commit("r1", 1, 0)):
            with refused(Conflict, "r1", "finished"):
                self.store.commit(a_batch(late))
        with refused(Conflict, "r2", "finished"):
            self.store.commit(a_batch(a_commit("r2", 1, finished=True), a_commit("r2", 2)))
        assert self.store.head("r1") == a_head("r1", 1, status="done", finished=True)
        assert self.store.head("r2") is None

    def test_a_run_keeps_what_it_was_created_with(self) -> None:
        birth: dict[str, Any] = {"parent": "p1", "labels": {"a": "b", "c": "d"}}
        self.store.commit(a_batch(a_commit("r1", 1, **birth)))
        for change in (
            {"created_at": NOW + 1},
            {"parent": None},
            {"origin": "o"},
            {"name": "renamed"},
            {"labels": {"a": "b"}},
            {"labels": {"a": "b", "c": "e"}, "finished": True},
        ):
            with refused(StoreError, "r1", "nothing was written"):
                self.store.commit(a_batch(a_commit("r1", 2, **(birth | change))))
        with refused(StoreError, "r1"):
            renamed = a_commit("r1", 3, **(birth | {"name": "renamed"}))
            self.store.commit(a_batch(a_commit("r1", 2, **birth), renamed))
        self.store.commit(a_batch(a_commit("r1", 2, definition="d2", **birth)))
        assert self.store.head("r1") == a_head("r1", 2, definition="d2", **birth)

    def test_a_commit_that_makes_no_sense_is_refused(self) -> None:
        for wrong in (a_commit("r1", 0, 0), a_commit("r1", 1, 2), a_commit("", 1)):
            with refused(StoreError, "malformed"):
                self.store.commit(a_batch(wrong))
        with refused(StoreError, "malformed"):
            self.store.commit(a_batch(msgspec.structs.replace(a_commit("r1", 1), count=-1)))
        assert self.store.heads(HeadFilter()) == []

    def test_a_commit_without_events_renews_the_card_and_the_snapshot(self) -> None:
        self.store.commit(a_batch(a_commit("r1", 2, 2)))
        idle = a_commit("r1", 2, 0, next_wake=NOW + 9, snapshot=b"state")
        self.store.commit(a_batch(idle))
        assert self.store.head("r1") == idle.head
        assert self.store.read_many(["r1"]) == {"r1": (StateSnapshot(2, b"state"), [])}
        assert len(self.store.read("r1")) == 1
        with refused(Conflict, "r1"):
            self.store.commit(a_batch(a_commit("r1", 3, 0)))

    def test_a_run_that_waits_is_running_again_where_another_has_news_for_it(self) -> None:
        for run, status in (("r1", "waiting"), ("r2", "waiting"), ("r3", "paused")):
            self.store.commit(a_batch(a_commit(run, 1, status=status)))
        named = ["r1", "r3", "gone"]
        self.store.commit(a_batch(a_commit("r4", 1), a_commit("r5", 1), to_recover=named))
        found = {head.run: (head.status, head.seq) for head in self.store.unfinished()}
        assert found.items() >= {"r1": ("running", 1), "r2": ("waiting", 1)}.items()
        assert found["r3"] == ("paused", 1)
        self.store.commit(a_batch(a_commit("r1", 2, status="waiting")))
        assert [head.status for head in self.store.unfinished(limit=1)] == ["waiting"]

    def test_an_empty_batch_changes_nothing(self) -> None:
        self.store.commit(Batch())
        assert self.store.heads(HeadFilter()) == []

    def test_recovery_reads_the_newest_snapshot_and_the_rows_after_it(self) -> None:
        self.store.commit(a_batch(a_commit("r1", 1, snapshot=b"one"), a_commit("r2", 1)))
        tail = a_commit("r1", 4, 2)
        self.store.commit(a_batch(a_commit("r1", 2, snapshot=b"two"), tail))
        rows = [Record(3, 2, tail.at, tail.events)]
        assert self.store.read_many(["r1", "r2", "r3", "r1"]) == {
            "r1": (StateSnapshot(2, b"two"), rows),
            "r2": (None, self.store.read("r2")),
            "r3": (None, []),
        }
        assert len(self.store.read("r1")) == 3  # a snapshot removes nothing

    def test_many_runs_are_written_and_recovered_at_once(self) -> None:
        runs = [f"r{n:05}" for n in range(self.many_runs)]
        for last in (2, 4):
            self.store.commit(a_batch(*(a_commit(run, last, 2) for run in runs)))
        found = self.store.read_many(runs)
        assert list(found) == runs
        assert all([r.first_seq for r in rows] == [1, 3] for _, rows in found.values())
        with refused(Conflict, "r00321"):
            wrong = [a_commit(run, 5 + (run == "r00321")) for run in runs]
            self.store.commit(a_batch(*wrong))
        assert len(self.store.unfinished(limit=9999)) == self.many_runs

    # Payloads

    def test_a_payload_must_match_its_hash(self) -> None:
        content = bytes(range(256)) * 300
        self.store.put_payload(sha256(content), content)
        self.store.put_payload(sha256(content), content)
        self.store.put_payload(sha256(b""), b"")
        assert self.store.payload(sha256(content)) == content
        assert self.store.payload(sha256(b"")) == b""
        assert self.store.payload(sha256(b"other")) is None
        with refused(StoreError, "hash"):
            self.store.put_payload(sha256(b"right"), b"wrong")
        with refused(StoreError, "hash"):
            self.store.commit(a_batch(a_commit("r1", 1), payloads={sha256(b"right"): b"wrong"}))
        assert self.store.payload(sha256(b"right")) is None
        assert self.store.head("r1") is None

    def test_payloads_of_a_batch_are_kept_with_it(self) -> None:
        payloads = {sha256(content): content for content in (b"a", b"b")}
        self.store.commit(a_batch(a_commit("r1", 1), payloads=payloads))
        self.store.commit(a_batch(a_commit("r1", 2), payloads=payloads))
        assert {key: self.store.payload(key) for key in payloads} == payloads

    # Sealed values

    def test_what_is_sealed_is_kept_until_it_is_unsealed(self) -> None:
        assert self.store.sealed("r1") == {}
        sealed = {"r1": {"__secret": b"one", "__secret2": b"two"}, "r2": {"__secret": b"three"}}
        self.store.commit(a_batch(a_commit("r1", 1), a_commit("r2", 1), sealed=sealed))
        assert self.store.sealed("r1") == sealed["r1"]
        self.store.commit(a_batch(a_commit("r1", 2, finished=True), unsealed=["r1"]))
        assert self.store.sealed("r1") == {}
        assert self.store.sealed("r2") == sealed["r2"], "others keep theirs"

    def test_nothing_is_sealed_by_a_batch_that_is_refused(self) -> None:
        self.store.commit(a_batch(a_commit("r1", 1), sealed={"r1": {"k": b"v"}}))
        with refused(Conflict, "r1"):
            self.store.commit(a_batch(a_commit("r1", 9), sealed={"r1": {"k": b"w"}}))
        with refused(Conflict, "r1"):
            self.store.commit(a_batch(a_commit("r1", 9), unsealed=["r1"]))
        assert self.store.sealed("r1") == {"k": b"v"}

    # The mailbox

    def test_a_message_waits_until_a_batch_answers_it(self) -> None:
        first, second = (self.store.post("r1", body, NOW) for body in (b'"a"', b'"b"'))
        assert [m.body for m in self.store.unanswered()] == [b'"a"', b'"b"']
        assert [m.id for m in self.store.unanswered(limit=1)] == [first]
        self.store.commit(a_batch(a_commit("r1", 1), answers={first: b'"yes"'}))
        assert [m.id for m in self.store.unanswered()] == [second]
        message = self.store.message(first)
        assert message is not None
        assert (message.run, message.body, message.posted_at) == ("r1", b'"a"', NOW)
        assert message.answer == b'"yes"'
        assert self.store.message(second + 1) is None

    def test_a_message_is_answered_once(self) -> None:
        message_id = self.store.post("r1", b"{}", NOW)
        self.store.commit(Batch(answers={message_id: b"1"}))
        for wrong in (message_id, message_id + 1):
            with refused(Conflict, str(wrong)):
                self.store.commit(a_batch(a_commit("r1", 1), answers={wrong: b"2"}))
        message = self.store.message(message_id)
        assert message is not None
        assert message.answer == b"1"
        assert self.store.head("r1") is None

    def test_a_post_is_news_once(self) -> None:
        self.store.changed()
        assert not self.store.changed()
        self.store.post("r1", b"{}", NOW)
        assert self.store.changed()
        assert not self.store.changed()

    def test_the_engines_own_commits_are_no_news(self) -> None:
        self.store.changed()
        self.store.commit(a_batch(a_commit("r1", 1)))
        assert not self.store.changed()

    # The whole

    def test_a_store_has_one_engine_at_a_time(self) -> None:
        assert self.store.owner() is None
        self.store.acquire("engine one")
        assert "engine one" in (self.store.owner() or "")
        with refused(StoreInUse, "engine one"):
            self.store.acquire("engine two")
        self.store.release()
        self.store.release()
        assert self.store.owner() is None
        self.store.acquire("engine two")

    def test_the_statistics_count_what_was_written(self) -> None:
        self.store.put_payload(sha256(b"p"), b"p")
        self.store.post("r1", b"{}", NOW)
        self.store.commit(a_batch(a_commit("r1", 2, 2, snapshot=b"s"), a_commit("r2", 1)))
        self.store.commit(a_batch(a_commit("r1", 3, status="done", finished=True)))
        found = dict(self.store.statistics())
        assert found.pop("bytes") > 0
        assert found == {
            "runs": {"done": 1, "running": 1},
            "unfinished": 1,
            "events": 4,
            "records": 3,
            "snapshots": 1,
            "definitions": 0,
            "payloads": 1,
            "holds": 0,
            "messages": 1,
            "unanswered": 1,
        }

    def test_a_closed_store_says_so(self) -> None:
        self.store.close()
        self.store.close()
        for use in (
            lambda: self.store.read("r1"),
            lambda: self.store.commit(a_batch(a_commit("r1", 1))),
            lambda: self.store.changed(),
            lambda: self.store.acquire("engine"),
        ):
            with refused(StoreError, "closed"):
                use()


class DurableStoreSuite(StoreSuite):
    """What a store that outlives its process, and is shared with others, owes in addition."""

    def another(self) -> Store:
        """The same store as another process would see it."""
        return self._stack.enter_context(closing(self.make_store(self.place)))

    def test_everything_is_there_after_reopening(self) -> None:
        commit = a_commit("r1", 3, 3, snapshot=b"s", labels={"a": "b"}, next_wake=5)
        self.store.put_definition(
            Definition(fingerprint="f", dialect="noetl", name="n", source="x")
        )
        message_id = self.store.post("r1", b"{}", NOW)
        self.store.commit(a_batch(commit, payloads={sha256(b"p"): b"p"}))
        self.store.close()
        again = self.another()
        assert again.head("r1") == commit.head
        assert again.read("r1") == [Record(1, 3, commit.at, commit.events)]
        assert again.read_many(["r1"])["r1"] == (StateSnapshot(3, b"s"), [])
        assert again.payload(sha256(b"p")) == b"p"
        assert again.definition("f") is not None
        assert again.message(message_id) is not None
        assert again.post("r1", b"{}", NOW) == message_id + 1

    def test_streams_are_there_after_reopening_and_of_two_writers_the_first_moves_one(self) -> None:
        if self.store.node_streams is None:
            return
        first, second = a_stream("s/a", open=True, wake=5, group="g"), a_stream("s/a", 2)
        self.store.commit(Batch(streams=[first]))
        self.store.close()
        again, other = self.another(), self.another()
        assert again.node_streams is not None
        assert again.node_streams.open_streams() == [first.card]
        other.commit(Batch(streams=[second]))
        with refused(Conflict, "s/a"):
            again.commit(Batch(streams=[a_stream("s/a", 2, group="ours")]))
        assert again.node_streams.stream("s/a") == second.card

    def test_a_commit_is_visible_to_others_at_once(self) -> None:
        other = self.another()
        self.store.commit(a_batch(a_commit("r1", 1)))
        assert other.head("r1") == a_head("r1", 1)

    def test_of_two_writers_only_the_first_moves_a_run(self) -> None:
        other = self.another()
        self.store.commit(a_batch(a_commit("r1", 1)))
        other.commit(a_batch(a_commit("r1", 2, status="theirs")))
        with refused(Conflict, "r1"):
            self.store.commit(a_batch(a_commit("r1", 2, status="ours")))
        assert self.store.head("r1") == a_head("r1", 2, status="theirs")

    def test_what_others_post_and_write_is_news_once(self) -> None:
        other = self.another()
        self.store.changed()
        message_id = other.post("r1", b"{}", NOW)
        assert self.store.changed()
        assert not self.store.changed()
        self.store.commit(Batch(answers={message_id: b"1"}))
        answered = other.message(message_id)
        assert answered is not None
        assert answered.answer == b"1"
        other.post("r1", b"{}", NOW)
        self.store.commit(a_batch(a_commit("r1", 1)))
        assert self.store.changed(), "a post before our own commit must not be missed"

    def test_ownership_is_seen_and_respected_by_others(self) -> None:
        other = self.another()
        self.store.acquire("engine one")
        assert "engine one" in (other.owner() or "")
        with refused(StoreInUse, "engine one"):
            other.acquire("engine two")
        self.store.close()
        assert other.owner() is None
        other.acquire("engine two")
        assert "engine two" in (other.owner() or "")

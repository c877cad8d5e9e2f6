"""The part of the store suite that is about the streams of a node."""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.errors import Conflict, StoreError
from anabranch.store.ports import Batch, Store
from anabranch.store.stream_ports import (
    StreamCard,
    StreamCommit,
    StreamEvents,
    StreamFilter,
    Streams,
)
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit, refused


def a_card(stream: str, seq: int = 1, **changes: Any) -> StreamCard:
    """A plausible card; `changes` are fields of `StreamCard`."""
    plain = StreamCard(
        stream=stream,
        family="order",
        seq=seq,
        state=b'{"n":%d}' % seq,
        created_at=NOW,
        updated_at=NOW + seq,
    )
    return msgspec.structs.replace(plain, **changes)


def a_stream(stream: str, last: int = 1, count: int = 1, **changes: Any) -> StreamCommit:
    """The events `last - count + 1 … last` of a stream."""
    events = msgspec.json.encode([{"n": n} for n in range(last - count + 1, last + 1)])
    card = a_card(stream, last, **changes)
    return StreamCommit(card=card, events=events, count=count, at=NOW + last)


class StreamsSuite:
    """A part of `StoreSuite`: a store that several servers share refuses streams, and any other
    keeps them."""

    store: Store

    def test_streams_are_kept_or_refused_as_a_whole(self) -> None:
        batch = a_batch(a_commit("r1", 1), streams=[a_stream("s/a")])
        if self.store.node_streams is None:
            with refused(StoreError, "several servers"):
                self.store.commit(batch)
            assert self.store.head("r1") is None
        else:
            self.store.commit(batch)
            assert self.store.head("r1") is not None
            assert self.store.node_streams.stream("s/a") == a_card("s/a")

    def test_a_stream_is_read_back_as_it_was_written(self) -> None:
        if (streams := self._kept()) is None:
            return
        first = a_stream("s/a", 2, 2, open=True, wake=NOW + 9, group="g'ü☃")
        second = a_stream("s/a", 5, 3, group="h")
        self._write(first)
        assert streams.stream("s/a") == first.card
        self._write(second, a_stream("s/b"))
        assert streams.stream("s/a") == second.card
        rows = [
            StreamEvents(1, 2, first.at, first.events),
            StreamEvents(3, 3, second.at, second.events),
        ]
        assert streams.stream_events("s/a") == rows
        assert [streams.stream_events("s/a", after) for after in (0, 1, 2, 4, 5)] == [
            rows, rows, rows[1:], rows[1:], [],
        ]  # fmt: skip
        assert [streams.stream_events("s/a", limit=most) for most in (0, 1, 9)] == [
            [], rows[:1], rows,
        ]  # fmt: skip
        assert streams.stream("s/c") is None
        assert streams.stream_events("s/c") == []

    def test_a_stale_stream_is_refused_and_the_whole_batch_with_it(self) -> None:
        if (streams := self._kept()) is None:
            return
        self._write(a_stream("s/a", 2, 2, open=True))
        before = streams.stream("s/a"), streams.stream_events("s/a")
        for stale in (a_stream("s/a"), a_stream("s/a", 2), a_stream("s/a", 4), a_stream("s/b", 2)):
            batch = a_batch(a_commit("r1", 1), streams=[a_stream("s/c"), stale])
            with refused(Conflict, stale.card.stream):
                self.store.commit(batch)
        assert (streams.stream("s/a"), streams.stream_events("s/a")) == before
        assert streams.stream_names() == ["s/a"]
        assert self.store.head("r1") is None

    def test_a_batch_whose_runs_are_refused_writes_no_stream(self) -> None:
        if (streams := self._kept()) is None:
            return
        with refused(Conflict, "r1"):
            self.store.commit(a_batch(a_commit("r1", 2), streams=[a_stream("s/a")]))
        assert streams.stream_names() == []

    def test_a_commit_of_a_stream_that_makes_no_sense_is_refused(self) -> None:
        if (streams := self._kept()) is None:
            return
        self._write(a_stream("s/a"))
        wrong = [
            [a_stream("")],
            [a_stream("s/b", family="")],
            [a_stream("s/b", 1, 0)],
            [a_stream("s/b", 1, 2)],
            [a_stream("s/b", 0, 0)],
            [msgspec.structs.replace(a_stream("s/b"), count=-1)],
            [a_stream("s/a", 2), a_stream("s/a", 3)],
        ]
        for commits in wrong:
            with refused(StoreError, "malformed"):
                self._write(*commits)
        for change in ({"family": "other"}, {"created_at": NOW + 1}):
            with refused(StoreError, "s/a"):
                self._write(a_stream("s/a", 2, **change))
        assert streams.stream_names() == ["s/a"]
        assert streams.stream("s/a") == a_card("s/a")

    def test_streams_are_listed_newest_first_by_family_group_and_whether_they_are_open(
        self,
    ) -> None:
        if (streams := self._kept()) is None:
            return
        for name, at, group, is_open in (
            ("s/a", 1, "g", True), ("s/b", 3, "", False), ("s/c", 2, "g", False),
            ("s/d", 3, "h", True), ("s/e", 2, "", True),
        ):  # fmt: skip
            self._write(a_stream(name, created_at=at, group=group, open=is_open))
        self._write(a_stream("t/a", family="hold", created_at=9, group="g"))

        def names(**wanted: Any) -> str:
            found = streams.streams(StreamFilter(**({"family": "order"} | wanted)))
            return "".join(card.stream[-1] for card in found)

        assert names() == "dbeca"
        assert names(limit=2) == "db"
        assert names(limit=0) == ""
        assert names(before=(3, "s/b")) == "eca"
        assert names(open=True) == "dea"
        assert names(open=False) == "bc"
        assert names(group="g") == "ca"
        assert names(group="") == "be"
        assert names(group="g", open=True) == "a"
        assert names(group="g", before=(2, "s/c")) == "a"
        assert names(family="hold") == "a"
        assert names(family="nothing") == ""

    def test_open_streams_and_all_names_come_in_pages_by_name(self) -> None:
        if (streams := self._kept()) is None:
            return
        for number in range(7):
            self._write(a_stream(f"s/{number}", open=number % 2 == 0, wake=number))
        assert [card.stream for card in streams.open_streams()] == ["s/0", "s/2", "s/4", "s/6"]
        assert [card.stream for card in streams.open_streams("s/2", 1)] == ["s/4"]
        assert streams.open_streams("s/6") == []
        assert streams.stream_names("s/4") == ["s/5", "s/6"]
        assert streams.stream_names(limit=2) == ["s/0", "s/1"]
        self._write(a_stream("s/2", 2), a_stream("s/3", 2, open=True))
        assert [card.stream for card in streams.open_streams()] == ["s/0", "s/3", "s/4", "s/6"]

    def test_cards_are_renewed_together_and_only_where_their_streams_end(self) -> None:
        if (streams := self._kept()) is None:
            return
        self._write(a_stream("s/a", 2, 2), a_stream("s/b", open=True))
        renewed = [a_card("s/a", 2, open=True, state=b"[]", group="g"), a_card("s/b", wake=3)]
        for wrong in (
            a_card("s/b", 2),
            a_card("s/c"),
            a_card("s/b", family="other"),
            a_card("s/b", created_at=NOW - 1),
        ):
            with refused(Conflict, wrong.stream):
                streams.renew_cards([renewed[0], wrong])
        assert streams.stream("s/a") == a_card("s/a", 2)
        streams.renew_cards(renewed)
        assert [streams.stream(card.stream) for card in renewed] == renewed
        assert [card.stream for card in streams.open_streams()] == ["s/a"]
        assert len(streams.stream_events("s/a")) == 1

    def test_closed_streams_that_are_old_are_forgotten_with_their_events(self) -> None:
        if (streams := self._kept()) is None:
            return
        for name, at in (("s/a", 1), ("s/b", 2), ("s/c", 3), ("s/d", 1)):
            self._write(a_stream(name, updated_at=at, open=name == "s/d"))
        self._write(a_stream("t/a", family="hold", updated_at=1))
        assert streams.forget_streams("order", 1) == 0
        assert streams.forget_streams("order", 3, limit=1) == 1
        assert streams.stream("s/a") is None
        assert streams.stream_events("s/a") == []
        assert streams.forget_streams("order", 3) == 1
        assert streams.stream_names() == ["s/c", "s/d", "t/a"]
        self._write(a_stream("s/a"))
        assert len(streams.stream_events("s/a")) == 1, "it begins anew"
        self._write(a_stream("u/a", family="u", updated_at=1, group="x"))
        self._write(a_stream("u/b", family="u", updated_at=1))
        assert streams.forget_streams("u", 2, group="x") == 1
        assert streams.forget_streams("u", 2, group="") == 1

    def test_a_stream_that_begins_anew_forgets_the_events_before(self) -> None:
        if (streams := self._kept()) is None:
            return
        self._write(a_stream("s/a", 3, 3), a_stream("s/b", 2, 2))
        anew = msgspec.structs.replace(a_stream("s/a", 2, 2), forgets=3)
        stale = msgspec.structs.replace(anew, forgets=2)
        with refused(Conflict, "s/a"):
            self._write(stale)
        with refused(StoreError, "malformed"):
            self._write(msgspec.structs.replace(a_stream("s/a", 3, 2), forgets=3))
        assert len(streams.stream_events("s/a")) == 1
        self._write(anew)
        assert streams.stream("s/a") == anew.card
        assert streams.stream_events("s/a") == [StreamEvents(1, 2, anew.at, anew.events)]
        self._write(a_stream("s/a", 3))
        assert [row.first_seq for row in streams.stream_events("s/a")] == [1, 3]
        assert len(streams.stream_events("s/b")) == 1

    def _kept(self) -> Streams | None:
        return self.store.node_streams

    def _write(self, *commits: StreamCommit) -> None:
        self.store.commit(Batch(streams=list(commits)))

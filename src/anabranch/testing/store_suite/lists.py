"""The part of the store suite that is about lists: of runs, of what is due, of definitions."""

from __future__ import annotations

import msgspec

from anabranch.store.ports import Definition, DefinitionFilter, HeadFilter, Store
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit, a_head


class ListsSuite:
    """A part of `StoreSuite`."""

    store: Store

    # Heads

    def test_runs_are_listed_newest_first_in_pages(self) -> None:
        ages = {"a": 3, "b": 1, "c": 3, "d": 2, "e": 1}
        for run, age in ages.items():
            self.store.commit(a_batch(a_commit(run, 1, created_at=NOW - age)))
        seen: list[str] = []
        before = None
        while page := self.store.heads(HeadFilter(limit=2, before=before)):
            seen += [head.run for head in page]
            before = (page[-1].created_at, page[-1].run)
        assert seen == ["e", "b", "d", "c", "a"]
        assert self.store.heads(HeadFilter(limit=0)) == []

    def test_a_listing_holds_what_every_condition_of_the_filter_allows(self) -> None:
        labels = {"tenant": "x", "tier": "1"}
        self.store.commit(
            a_batch(
                a_commit("aa1", 1, labels=labels),
                a_commit("aa2", 1, labels={"tenant": "x"}, status="done", parent="aa1"),
                a_commit("ab1", 1, dialect="arca", status="failed"),
                a_commit("b%1", 1, name="refund", parent="aa1"),
            )
        )
        for expected, wanted in (
            ("ab1 aa2", HeadFilter(statuses=["done", "failed"])),
            ("ab1", HeadFilter(dialect="arca")),
            ("b%1", HeadFilter(name="refund")),
            ("aa2 aa1", HeadFilter(labels={"tenant": "x"})),
            ("aa1", HeadFilter(labels=labels)),
            ("", HeadFilter(labels={"tenant": "y"})),
            ("aa2 aa1", HeadFilter(run_prefix="aa")),
            ("b%1", HeadFilter(run_prefix="b%")),
            ("", HeadFilter(run_prefix="b_")),
            ("b%1 aa2", HeadFilter(parent="aa1")),
            ("aa2", HeadFilter(parent="aa1", run_prefix="a", statuses=["done"], name="order")),
            ("b%1 ab1 aa2", HeadFilter(limit=3)),
            ("", HeadFilter(created_after=a_head("x", 1).created_at + 1)),
            ("b%1 ab1 aa2 aa1", HeadFilter(created_after=a_head("x", 1).created_at)),
            ("b%1 ab1 aa2 aa1", HeadFilter(created_before=a_head("x", 1).created_at + 1)),
            ("", HeadFilter(created_before=a_head("x", 1).created_at)),
        ):
            found = " ".join(head.run for head in self.store.heads(wanted))
            assert found == expected, (wanted, found)

    def test_unfinished_runs_come_in_pages_in_order_of_their_ids(self) -> None:
        for run in "dbac":
            self.store.commit(a_batch(a_commit(run, 1, finished=run == "b")))
        assert [head.run for head in self.store.unfinished(limit=2)] == ["a", "c"]
        assert [head.run for head in self.store.unfinished("c", limit=2)] == ["d"]

    def test_due_runs_come_earliest_first_and_finished_ones_never(self) -> None:
        wakes = {"late": 9, "soon": 2, "also": 2, "none": None, "over": 1}
        for run, wake in wakes.items():
            commit = a_commit(run, 1, next_wake=wake, finished=run == "over")
            self.store.commit(a_batch(commit))
        assert [head.run for head in self.store.due(1)] == []
        assert [head.run for head in self.store.due(2)] == ["also", "soon"]
        assert [head.run for head in self.store.due(9)] == ["also", "soon", "late"]
        assert [head.run for head in self.store.due(9, limit=1)] == ["also"]

    def test_a_later_head_decides_when_a_run_is_due(self) -> None:
        self.store.commit(a_batch(a_commit("r1", 1, next_wake=5)))
        self.store.commit(a_batch(a_commit("r1", 2, next_wake=None)))
        assert self.store.due(9) == []
        self.store.commit(a_batch(a_commit("r1", 3, next_wake=7)))
        assert [head.run for head in self.store.due(9)] == ["r1"]
        self.store.commit(a_batch(a_commit("r1", 4, next_wake=7, finished=True)))
        assert self.store.due(9) == []
        assert self.store.unfinished() == []

    # Definitions

    def test_a_definition_is_kept_by_its_fingerprint_and_never_changes(self) -> None:
        first = Definition(
            fingerprint="f1", dialect="arca", name="n", source="{}", origin="a.json", created_at=NOW
        )
        self.store.put_definition(first)
        self.store.put_definition(msgspec.structs.replace(first, source="other"))
        assert self.store.definition("f1") == first
        assert self.store.definition("f2") is None

    def test_definitions_are_listed_newest_first_in_pages(self) -> None:
        for at, (fingerprint, name) in enumerate((("f3", "a"), ("f1", "b"), ("f2", "a"))):
            one = Definition(
                fingerprint=fingerprint, dialect="noetl", name=name, source="x", created_at=NOW + at
            )
            self.store.put_definition(one)
        for expected, wanted in (
            ("f2 f1 f3", DefinitionFilter()),
            ("f2 f3", DefinitionFilter(name="a")),
            ("", DefinitionFilter(dialect="arca")),
            ("f2 f1", DefinitionFilter(limit=2)),
            ("f3", DefinitionFilter(before=(NOW + 1, "f1"))),
            ("f3", DefinitionFilter(name="a", dialect="noetl", before=(NOW + 2, "f2"))),
        ):
            found = self.store.definitions(wanted)
            assert " ".join(card.fingerprint for card in found) == expected, wanted

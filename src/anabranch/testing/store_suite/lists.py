"""The part of the store suite that is about lists: of runs, of what is due, of definitions."""

from __future__ import annotations

from typing import Any

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
            ("", HeadFilter(labels={"tenant": "x", "tier": "2"})),
            ("aa2", HeadFilter(labels={"tenant": "x"}, name="order", statuses=["done"])),
            ("aa2", HeadFilter(labels={"tenant": "x"}, parent="aa1")),
            ("", HeadFilter(labels={"tenant": "x"}, name="refund")),
            ("aa2", HeadFilter(labels={"tenant": "x"}, limit=1)),
            ("aa1", HeadFilter(labels={"tenant": "x"}, before=(a_head("x", 1).created_at, "aa2"))),
            ("ab1 aa2", HeadFilter(name="order", limit=2)),
            ("aa1", HeadFilter(name="order", before=(a_head("x", 1).created_at, "aa2"))),
            ("", HeadFilter(labels=labels, created_before=a_head("x", 1).created_at)),
            ("", HeadFilter(labels=labels, created_after=a_head("x", 1).created_at + 1)),
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

    def test_a_listing_by_label_finds_any_text(self) -> None:
        odd = {"": "empty", "☃": 'ü"\\\n', "long": "x" * 5000, "n": "'%_{}"}
        self.store.commit(a_batch(a_commit("r1", 1, labels=odd), a_commit("r2", 1)))
        for key, value in odd.items():
            found = self.store.heads(HeadFilter(labels={key: value}))
            assert [head.run for head in found] == ["r1"], key
            assert self.store.heads(HeadFilter(labels={key: value + "?"})) == []

    def test_a_search_finds_parts_of_ids_names_labels_and_reasons(self) -> None:
        self.store.commit(
            a_batch(
                a_commit("r-one", 1, labels={"tenant": "North", "tier": "1"}),
                a_commit("r-two", 1, name="refund_100%", reason="pay: HTTP 500 from the bank"),
                a_commit("r-three", 1, name="Größe", labels={"say": 'a "b" \\ c'}),
            )
        )
        for expected, search in (
            ("r-two r-three r-one", ""),
            ("r-two r-three r-one", "  "),
            ("r-one", "r-One"),
            ("r-one", "tenant=north"),
            ("r-one", "NORTH tier"),
            ("", "north bank"),
            ("r-two", "http BANK 500"),
            ("r-two", "100%"),
            ("r-two", "refund_"),
            ("", "10_%"),
            ("", "r_one"),
            ("r-three", "größe"),
            ("r-three", "GRÖßE"),
            ("r-three", "gRöß SAY=A"),
            ("", "GRÖSSE"),
            ("", "größe*"),
            ("", "gr.ß[e]"),
            ("", "{}"),
            ("", "'"),
            ("r-three", "\\"),
        ):
            found = " ".join(head.run for head in self.store.heads(HeadFilter(search=search)))
            assert found == expected, (search, found)
        pages, before = [], None
        while page := self.store.heads(HeadFilter(search="order r-", limit=1, before=before)):
            pages += [head.run for head in page]
            before = (page[-1].created_at, page[-1].run)
        assert pages == ["r-one"]
        both = HeadFilter(search="r-", name="order", labels={"tier": "1"})
        assert [head.run for head in self.store.heads(both)] == ["r-one"]

    def test_a_search_finds_every_form_of_a_letter(self) -> None:
        """Some letters have more than two: a sigma at the end of a word, a letter of titles."""
        alike = [
            "ΣΊΣΥΦΟΣ σίσυφος",
            "Straße STRAẞE",
            "Ǆep ǅep ǆep",
            "Ёлка ёлка",
            "\u03a9m \u2126m \u03c9M",
        ]
        names = [name for words in alike for name in words.split()]
        for number, name in enumerate(names):
            self.store.commit(a_batch(a_commit(f"r{number}", 1, name=name)))
        for words in alike:
            for word in words.split():
                for search in (word, word.lower(), word.upper() if word != "Straße" else word):
                    found = self.store.heads(HeadFilter(search=search))
                    assert {head.name for head in found} == set(words.split()), search

    def test_the_reason_of_a_run_is_that_of_its_last_commit(self) -> None:
        self.store.commit(a_batch(a_commit("r1", 1, reason="ask waits for a decision")))
        self.store.commit(a_batch(a_commit("r1", 2)))
        assert [head.reason for head in self.store.heads(HeadFilter())] == [""]
        self.store.commit(a_batch(a_commit("r1", 3, reason="it broke", finished=True)))
        assert [head.reason for head in self.store.heads(HeadFilter())] == ["it broke"]

    def test_runs_are_counted_over_time_by_status_and_definition(self) -> None:
        spans = (5, 1, 9, 3, 7)  # of runs of `a` that have ended, in no order
        for number, span in enumerate(spans):
            begun, status = NOW + 10 * number, "failed" if number == 4 else "completed"
            times: dict[str, Any] = {"created_at": begun, "updated_at": begun + span}
            self.store.commit(
                a_batch(a_commit(f"a{number}", 1, name="a", status=status, finished=True, **times))
            )
        odd = 'b "☃"\n/\\'
        self.store.commit(a_batch(a_commit("b0", 1, name=odd, created_at=NOW + 25)))
        self.store.commit(a_batch(a_commit("old", 1, name="c", created_at=NOW - 1)))
        found = self.store.run_history(NOW, 20)
        first = NOW // 20
        counted = {
            (first, "completed"): 2,
            (first + 1, "completed"): 2,
            (first + 1, "running"): 1,
            (first + 2, "failed"): 1,
        }
        assert dict(found.slots) == counted
        assert [(one.name, dict(one.statuses)) for one in found.definitions] == [
            ("a", {"completed": 4, "failed": 1}),
            (odd, {"running": 1}),
        ]
        assert [(one.p50_ms, one.p95_ms) for one in found.definitions] == [(5, 9), (None, None)]
        narrow = HeadFilter(created_after=NOW, name="a", limit=1, before=(NOW, "a0"))
        of_a = {key: count for key, count in counted.items() if key[1] != "running"}
        assert dict(self.store.run_slots(narrow, 20)) == of_a
        assert dict(self.store.run_slots(HeadFilter(search="A4"), 20)) == {(first + 2, "failed"): 1}
        assert self.store.run_history(NOW + 1000, 20).definitions == []

    def test_runs_that_wait_come_by_how_long_they_have_not_moved(self) -> None:
        for run, moved, more in (
            ("late", 9, {"status": "waiting"}),
            ("soon", 1, {"status": "paused"}),
            ("over", 0, {"status": "failed", "reason": "it broke", "finished": True}),
            ("busy", 0, {}),
            ("queued", 5, {"reason": "a waits for a worker of pool gpu"}),
            ("last", 11, {"status": "queued"}),
        ):
            self.store.commit(a_batch(a_commit(run, 1, updated_at=NOW + moved, **more)))
        found = [head.run for head in self.store.waiting_longest(9)]
        assert found == ["soon", "queued", "late", "last"]
        assert [head.run for head in self.store.waiting_longest(1)] == ["soon"]
        counts = {"waiting": 1, "paused": 1, "running": 2, "queued": 1}
        assert dict(self.store.unfinished_counts()) == counts

    def test_unfinished_runs_come_in_pages_in_order_of_their_ids(self) -> None:
        for run in "dbac":
            self.store.commit(a_batch(a_commit(run, 1, finished=run == "b")))
        assert [head.run for head in self.store.unfinished(limit=2)] == ["a", "c"]
        assert [head.run for head in self.store.unfinished("c", limit=2)] == ["d"]

    def test_which_runs_redrive_a_run_can_be_asked(self) -> None:
        origins = {"first": None, "second": None, "moving": "first", "over": "second"}
        ages = {"again": 1, "moving": 2, "over": 3}
        for run, origin in {**origins, "again": "first"}.items():
            created_at = NOW - ages.get(run, 9)
            finished = run != "moving"
            commit = a_commit(run, 1, origin=origin, finished=finished, created_at=created_at)
            self.store.commit(a_batch(commit))

        def asked(*runs: str) -> list[str]:
            return [head.run for head in self.store.redrives(runs)]

        assert asked("first", "second", "moving", "gone") == ["again", "moving", "over"]
        assert asked("second", "second") == ["over"]
        assert asked("moving") == asked() == []
        for is_redriven, runs in (
            (True, {"first", "second"}),
            (False, {"again", "moving", "over"}),
        ):
            wanted = HeadFilter(redriven=is_redriven)
            assert {head.run for head in self.store.heads(wanted)} == runs
            assert sum(self.store.run_slots(wanted, 10).values()) == len(runs)

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

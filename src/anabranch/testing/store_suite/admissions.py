"""The part of the store suite that is about limits across runs."""

from __future__ import annotations

import random

from msgspec.structs import replace

from anabranch.store.admission_ports import Admission, AdmissionTurn, LimitedKey, SurplusRun
from anabranch.store.ports import Batch, Store
from anabranch.testing.store_suite.samples import NOW, a_commit


def asks(run: str, key: str = "k", limit: int = 2, **given: object) -> Admission:
    return Admission(run=run, key=key, limit=limit, **{"asked_at": NOW, **given})  # type: ignore[arg-type]


class AdmissionsSuite:
    """A part of `StoreSuite`."""

    store: Store

    def begin(self, *runs: str) -> None:
        self.store.commit(Batch(commits=[a_commit(run, 1, status="queued") for run in runs]))

    def end(self, *runs: str) -> None:
        ends = [a_commit(run, 2, finished=True, status="completed") for run in runs]
        self.store.commit(Batch(commits=ends))

    def test_no_more_runs_are_admitted_than_there_are_places(self) -> None:
        self.begin("a", "b", "c", "d")
        turn = self.store.admit((), NOW, asked=[asks("a"), asks("b"), asks("c")])
        assert (turn.admitted, turn.surplus) == (["a", "b"], [])
        again = [asks("d"), asks("a", limit=99), asks("c", limit=99)]
        assert self.store.admit(["k"], NOW, asked=again).admitted == [], "asking again is nothing"
        assert [one.run for one in self.store.admissions("k")] == ["a", "b", "c", "d"]
        assert [one.admitted_at for one in self.store.admissions("k")] == [NOW, NOW, None, None]
        assert self.store.admissions("k", 3) == self.store.admissions("k")[:3]

    def test_a_place_is_free_as_soon_as_the_end_of_its_run_is_durable(self) -> None:
        self.begin("a", "b", "c")
        self.store.admit((), NOW, asked=[asks("a", limit=1), asks("b", limit=1)])
        self.end("a")
        assert [one.run for one in self.store.admissions("k")] == ["b"], "the end is known"
        assert self.store.admit(["k"], NOW).admitted == ["b"], "no one had to tell of the end"
        self.store.admit((), NOW, asked=[asks("c", limit=1)])
        self.end("b")
        self.end("c")
        assert self.store.admit(["k"], NOW, ended=["b"]).admitted == [], "it ended while it waited"
        assert self.store.limited_keys() == []

    def test_a_run_that_was_never_recorded_or_is_deleted_takes_no_place(self) -> None:
        self.begin("b")
        asked = [asks("a", limit=1), asks("b", limit=1, asked_at=NOW + 1)]
        assert self.store.admit((), NOW, asked=asked).admitted == ["b"]
        self.end("b")
        self.store.forget(["b"])
        self.begin("c")
        assert self.store.admit((), NOW, asked=[asks("c", limit=1)]).admitted == ["c"]

    def test_a_run_with_the_id_of_a_purged_one_asks_anew(self) -> None:
        """Its engine ended between the end of the first and the word that its place is free."""
        self.begin("a", "b")
        self.store.admit((), NOW, asked=[asks("a", limit=1)])
        self.end("a")
        self.store.forget(["a"])
        assert self.store.admissions_known(["a"]) == set()
        self.store.admit((), NOW, asked=[asks("b", limit=1)])
        self.begin("a")
        turn = self.store.admit((), NOW, asked=[asks("a", limit=1, asked_at=NOW + 1)])
        assert turn.admitted == []
        assert [one.admitted_at for one in self.store.admissions("k")] == [NOW, None]
        assert self.store.admitted_and_queued() == ["b"]

    def test_the_highest_priority_goes_first_then_whoever_asked_first(self) -> None:
        order = [("e", 0, 9), ("d", 0, 5), ("c", 7, 9), ("b", -1, 1), ("a", 7, 9), ("first", 0, 0)]
        self.begin(*(run for run, _, _ in order))
        for run, priority, at in reversed(order):
            one = asks(run, limit=1, priority=priority, asked_at=NOW + at)
            self.store.admit((), NOW, asked=[one])
        waiting = ["a", "c", "d", "e", "b"]
        assert [one.run for one in self.store.admissions("k")] == ["first", *waiting]
        places = {run: self.store.places(run)[0] for run, _, _ in order}
        assert {run: one.place for run, one in places.items()} == {
            "first": 0, **{run: number for number, run in enumerate(waiting, 1)},
        }  # fmt: skip
        assert {one.holding for one in places.values()} == {1}
        before = "first"
        for run in waiting:
            self.end(before)
            assert self.store.admit(["k"], NOW).admitted == [run]
            before = run

    def test_a_run_with_several_keys_gets_all_its_places_at_once_or_none(self) -> None:
        self.begin("a", "b", "c", "d")
        self.store.admit((), NOW, asked=[asks("a", "x", 1)])
        both = [asks("b", "x", 1, asked_at=NOW + 1), asks("b", "y", 1, asked_at=NOW + 1)]
        assert self.store.admit((), NOW, asked=both).admitted == []
        assert [one.admitted_at for one in self.store.admissions("y")] == [None]
        later = asks("c", "y", 1, asked_at=NOW + 2)
        assert self.store.admit((), NOW, asked=[later]).admitted == ["c"], "y has room: c takes it"
        self.end("a")
        assert self.store.admit(["x"], NOW).admitted == []
        self.end("c")
        assert self.store.admit(["y"], NOW).admitted == ["b"]
        assert [one.admission.key for one in self.store.places("b")] == ["x", "y"]
        assert self.store.limited_keys() == [LimitedKey("x", 1, 1, 0), LimitedKey("y", 1, 1, 0)]

    def test_keys_are_listed_with_those_that_hold_and_wait(self) -> None:
        self.begin("a", "b", "c")
        asked = [asks("a", "☃", 1), asks("b", "☃", 3, asked_at=NOW + 4, priority=-1)]
        self.store.admit((), NOW, asked=[*asked, asks("c", "'; --", 1)])
        keys = [LimitedKey("'; --", 1, 1, 0, None), LimitedKey("☃", 3, 2, 0, None)]
        assert self.store.limited_keys() == keys
        assert self.store.limited_keys(after="'; --") == keys[1:]
        assert self.store.limited_keys(limit=1) == keys[:1]
        assert self.store.places("unknown") == []

    def test_reject_and_cancel_oldest_name_the_runs_for_which_there_is_no_place(self) -> None:
        self.begin("a", "b", "c", "d")
        first = asks("a", limit=1, asked_at=NOW)
        refused = asks("b", limit=1, when_full="reject", asked_at=NOW + 1)
        turn = self.store.admit((), NOW, asked=[first, refused])
        assert (turn.admitted, turn.surplus) == (["a"], [SurplusRun("b", "k", 1)])
        self.end("b")
        newer = [
            asks(run, limit=1, when_full="cancel_oldest", asked_at=NOW + at)
            for run, at in (("c", 2), ("d", 3))
        ]
        turn = self.store.admit((), NOW, asked=newer)
        assert turn.admitted == []
        assert turn.surplus == [SurplusRun("a", "k", 1, "d"), SurplusRun("c", "k", 1, "d")]
        assert self.store.admit(["k"], NOW).surplus == turn.surplus, "named until they have ended"
        self.end("a", "c")
        turn = self.store.admit(["k"], NOW)
        assert (turn.admitted, turn.surplus) == (["d"], [])

    def test_a_run_that_waits_elsewhere_is_refused_only_where_there_is_no_place(self) -> None:
        self.begin("a", "b", "c")
        self.store.admit((), NOW, asked=[asks("a", "x", 1)])
        both = [asks("b", "x", 1), asks("b", "y", 1, when_full="reject")]
        turn = self.store.admit((), NOW, asked=both)
        assert (turn.admitted, turn.surplus) == ([], []), "under y there is room"
        turn = self.store.admit((), NOW, asked=[asks("c", "y", 1, asked_at=NOW + 1)])
        assert (turn.admitted, turn.surplus) == (["c"], [SurplusRun("b", "y", 1)])
        self.end("c")
        assert self.store.admit(["y"], NOW).surplus == []
        self.end("a")
        assert self.store.admit(["x"], NOW).admitted == ["b"]

    def test_an_engine_that_keeps_to_some_runs_admits_no_others(self) -> None:
        self.begin("a", "b")
        asked = [asks("a", limit=1), asks("b", limit=1, asked_at=NOW + 1)]
        assert self.store.admit((), NOW, asked=asked, only=["b"]).admitted == ["b"]
        assert self.store.admit(["k"], NOW, only=[]).admitted == []

    def test_runs_that_were_admitted_and_not_told_are_found(self) -> None:
        self.begin("a", "b")
        self.store.admit((), NOW, asked=[asks("a", limit=1), asks("b", limit=1, asked_at=NOW + 1)])
        assert self.store.admitted_and_queued() == ["a"]
        assert self.store.admissions_known(["a", "b", "c"]) == {"a", "b"}
        self.store.commit(Batch(commits=[a_commit("a", 2, status="running")]))
        assert self.store.admitted_and_queued() == []

    def test_random_runs_never_exceed_a_limit_and_leave_no_place_unused(self) -> None:
        chance = random.Random(8)
        keys = {"x": 1, "y": 2, "z": 3}
        alive: dict[str, list[str]] = {}
        for number in range(150):
            run = f"r{number:03}"
            mine = chance.sample(sorted(keys), chance.choice((1, 1, 2)))
            self.begin(run)
            alive[run] = mine
            asked = [
                asks(
                    run,
                    key,
                    keys[key],
                    priority=chance.choice((0, 0, 1)),
                    when_full=chance.choice(("queue", "queue", "reject")),
                    asked_at=NOW + number,
                )
                for key in mine
            ]
            self._refuse(self.store.admit((), NOW, asked=asked), alive)
            if chance.random() < 0.6 and alive:
                gone = chance.choice(sorted(alive))
                self.end(gone)
                self._refuse(self.store.admit(alive.pop(gone), NOW), alive)
            self._require_law(keys, alive)

    def _refuse(self, turn: AdmissionTurn, alive: dict[str, list[str]]) -> None:
        for one in turn.surplus:
            held = [a for a in self.store.admissions(one.key) if a.admitted_at is not None]
            assert len(held) >= one.limit, f"{one.run} is refused under {one.key}, which has room"
        refused = {one.run for one in turn.surplus}
        if refused:
            self.end(*refused)
        for run in refused:
            del alive[run]

    def _require_law(self, keys: dict[str, int], alive: dict[str, list[str]]) -> None:
        listed = {key: self.store.admissions(key) for key in keys}
        held = {key: [a for a in listed[key] if a.admitted_at is not None] for key in keys}
        for key, limit in keys.items():
            assert len(held[key]) <= limit
        waits = {a.run for each in listed.values() for a in each if a.admitted_at is None}
        for run in waits:
            assert any(len(held[key]) >= keys[key] for key in alive[run]), f"{run} could begin"
        for each in listed.values():
            assert [a.run for a in each if a.run not in alive] == []

    def test_admissions_survive_every_field(self) -> None:
        self.begin("a")
        one = asks("a", "k ☃", 7, when_full="cancel_oldest", priority=-3, asked_at=NOW - 9)
        self.store.admit((), NOW + 1, asked=[one])
        assert self.store.admissions("k ☃") == [replace(one, admitted_at=NOW + 1)]

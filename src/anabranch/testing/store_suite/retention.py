"""The part of the store suite that is about deleting: holds on payloads, and what a purge takes."""

from __future__ import annotations

from anabranch.errors import Conflict
from anabranch.store.ports import Forgotten, HeadFilter, Hold, Space, Store
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit, refused, sha256

ONE, TWO = b"one", b"two"


class RetentionSuite:
    """A part of `StoreSuite`."""

    store: Store

    def _put(self, content: bytes, run: str, scope: str = "execution", until: int = 0) -> str:
        key = sha256(content)
        self.store.put_payload(key, content, Hold(key, run, scope, until))
        return key

    def _finish(self, *runs: str) -> None:
        commits = [a_commit(run, 1, snapshot=b"state", finished=True) for run in runs]
        self.store.commit(a_batch(*commits))

    def test_a_payload_goes_when_its_last_hold_is_over(self) -> None:
        key = self._put(ONE, "r1", until=NOW + 5)
        self._put(ONE, "r2", until=NOW + 9)
        assert self.store.expire(NOW + 5) == 0
        assert self.store.payload(key) == ONE
        assert self.store.expire(NOW + 9) == 1
        assert self.store.payload(key) is None
        assert self.store.expire(NOW + 9) == 0

    def test_a_payload_that_nobody_ever_held_stays(self) -> None:
        self.store.put_payload(sha256(ONE), ONE)
        assert self.store.expire(NOW) == 0
        assert self.store.payload(sha256(ONE)) == ONE

    def test_which_runs_hold_a_payload_can_be_asked(self) -> None:
        key = self._put(ONE, "r1")
        self._put(TWO, "", "permanent")
        assert self.store.holds_payload(key, ["r0", "r1"])
        assert not self.store.holds_payload(key, ["r0", ""])
        assert not self.store.holds_payload(key, [])
        assert self.store.holds_payload(sha256(TWO), [""])

    def test_the_holds_of_a_run_come_in_pages_of_whole_hashes(self) -> None:
        scopes = ("job", "step", "execution", "workflow")
        put = [
            Hold(self._put(b"%d" % number, "r1", scope, NOW), "r1", scope, NOW)
            for number in range(4)
            for scope in scopes
        ]
        self._put(b"0", "r2")
        found: list[Hold] = []
        pages = 0
        while page := self.store.held("r1", found[-1].sha256 if found else "", 6):
            found += page
            pages += 1
            assert len(page) <= 6
        assert sorted(found, key=repr) == sorted(put, key=repr)
        assert [hold.sha256 for hold in found] == sorted(hold.sha256 for hold in put)
        assert pages == 4
        assert self.store.held("r3") == []

    def test_of_two_holds_on_the_same_the_longer_counts(self) -> None:
        bounded = self._put(ONE, "r1", until=NOW + 9)
        self._put(ONE, "r1", until=NOW + 5)
        endless = self._put(TWO, "r1", until=0)
        self._put(TWO, "r1", until=NOW + 5)
        assert self.store.expire(NOW + 8) == 0
        assert self.store.expire(NOW + 9) == 1
        assert (self.store.payload(bounded), self.store.payload(endless)) == (None, TWO)

    def test_the_end_of_a_run_ends_its_holds_by_their_scope(self) -> None:
        scopes = ("job", "step", "execution", "workflow", "permanent")
        keys = {scope: self._put(scope.encode(), "r1", scope) for scope in scopes}
        other = self._put(b"other", "r2", "step")
        commit = a_commit("r1", 1, finished=True)
        self.store.commit(a_batch(commit, ended={"r1": (NOW, NOW + 100)}))

        def kept() -> set[str]:
            return {scope for scope, key in keys.items() if self.store.payload(key) is not None}

        assert self.store.expire(NOW) == 2
        assert kept() == {"execution", "workflow", "permanent"}
        assert self.store.expire(NOW + 100) == 1
        assert kept() == {"workflow", "permanent"}
        assert self.store.payload(other) is not None

    def test_a_hold_that_ends_sooner_than_its_run_asks_for_keeps_its_end(self) -> None:
        key = self._put(ONE, "r1", until=NOW + 5)
        commit = a_commit("r1", 1, finished=True)
        self.store.commit(a_batch(commit, ended={"r1": (NOW, NOW + 100)}))
        assert self.store.expire(NOW + 5) == 1
        assert self.store.payload(key) is None

    def test_holds_are_written_with_their_batch_or_not_at_all(self) -> None:
        key = self._put(ONE, "r1", until=NOW)
        with refused(Conflict, "gap"):
            self.store.commit(a_batch(a_commit("gap", 7), holds=[Hold(key, "r2")]))
        assert self.store.expire(NOW) == 1
        self._put(ONE, "r1", until=NOW)
        self.store.commit(a_batch(a_commit("r2", 1), holds=[Hold(key, "r2")]))
        assert self.store.expire(NOW) == 0
        assert self.store.payload(key) == ONE

    def test_holds_of_one_batch_are_one_where_they_are_on_the_same(self) -> None:
        key, other = sha256(ONE), sha256(TWO)
        holds = [Hold(key, "r1", "execution", NOW + 9), Hold(key, "r1", "execution", NOW + 5)]
        holds += [Hold(other, "r1", "execution", 0), Hold(other, "r1", "execution", NOW + 5)]
        payloads = {key: ONE, other: TWO}
        self.store.commit(a_batch(a_commit("r1", 1), payloads=payloads, holds=holds))
        assert self.store.expire(NOW + 8) == 0
        assert self.store.expire(NOW + 9) == 1
        assert self.store.payload(other) == TWO

    def test_holds_that_begin_in_the_batch_that_ends_their_run_end_with_it(self) -> None:
        key = sha256(ONE)
        commit, ended = a_commit("r1", 1, finished=True), {"r1": (NOW, NOW + 100)}
        batch = a_batch(commit, payloads={key: ONE}, holds=[Hold(key, "r1", "step")], ended=ended)
        self.store.commit(batch)
        assert self.store.expire(NOW) == 1
        assert self.store.payload(key) is None

    def test_what_is_sealed_by_the_batch_that_ends_its_run_is_gone(self) -> None:
        commit = a_commit("r1", 1, finished=True)
        self.store.commit(a_batch(commit, sealed={"r1": {"key": b"secret"}}, unsealed=["r1"]))
        assert self.store.sealed("r1") == {}

    def test_expiring_takes_no_more_than_it_is_told_to(self) -> None:
        for number in range(5):
            self._put(b"%d" % number, "r1", until=NOW + number)
        assert [self.store.expire(NOW + 9, limit=2) for _ in range(4)] == [2, 2, 1, 0]

    def test_forgetting_a_run_takes_all_that_belongs_to_it_and_nothing_else(self) -> None:
        self._finish("old", "kept")
        alone, shared = self._put(ONE, "old"), self._put(TWO, "old")
        self._put(TWO, "kept")
        said = self.store.post("old", b"{}", NOW)
        self.store.commit(a_batch(answers={said: b"{}"}))
        self.store.post("old", b"{}", NOW)
        other = self.store.post("kept", b"{}", NOW)
        gone = self.store.forget(["old", "unknown"])
        assert (gone.runs, gone.payloads) == (1, 1)
        assert gone.bytes >= len(ONE) + len(b"state")
        assert self.store.head("old") is None
        assert self.store.read("old") == []
        assert self.store.read_many(["old"])["old"] == (None, [])
        assert self.store.message(said) is None
        if self.store.cluster is None:  # else another server may be about to answer it
            assert [message.id for message in self.store.unanswered()] == [other]
        assert (self.store.payload(alone), self.store.payload(shared)) == (None, TWO)
        assert self.store.head("kept") is not None
        assert self.store.forget(["kept"]).payloads == 1
        assert self.store.payload(shared) is None

    def test_forgetting_never_touches_a_run_that_has_not_ended(self) -> None:
        self.store.commit(a_batch(a_commit("going", 1)))
        key = self._put(ONE, "going")
        assert self.store.forget(["going"]) == Forgotten()
        assert self.store.head("going") is not None
        assert self.store.payload(key) == ONE

    def test_a_dry_run_counts_and_deletes_nothing(self) -> None:
        self._finish("old")
        key = self._put(ONE, "old")
        before = self.store.statistics()
        would = self.store.forget(["old"], dry_run=True)
        assert self.store.statistics() == before
        assert self.store.payload(key) == ONE
        assert self.store.forget(["old"]) == would

    def test_a_number_of_a_message_is_not_given_out_again(self) -> None:
        self._finish("old")
        first = self.store.post("old", b"{}", NOW)
        self.store.forget(["old"])
        assert self.store.post("new", b"{}", NOW) > first

    def test_ended_runs_are_found_by_when_they_ended(self) -> None:
        self.store.commit(
            a_batch(
                a_commit("early", 1, finished=True, updated_at=NOW),
                a_commit("late", 1, finished=True, updated_at=NOW + 10),
                a_commit("going", 1, updated_at=NOW),
            )
        )
        found = self.store.heads(HeadFilter(ended_before=NOW + 10))
        assert [head.run for head in found] == ["early"]

    def test_a_long_log_is_read_in_pages(self) -> None:
        self.store.commit(a_batch(*(a_commit("r1", n) for n in range(1, 8))))
        firsts = [record.first_seq for record in self.store.read("r1", 2, limit=3)]
        assert firsts == [3, 4, 5]
        assert len(self.store.read("r1", limit=100)) == 7
        assert self.store.read("r1", limit=0) == []

    def test_what_is_forgotten_leaves_no_unused_room(self) -> None:
        self._finish("old")
        self._put(bytes(300_000), "old")
        self.store.forget(["old"])
        for _ in range(5):  # not page by page
            space = self.store.give_back(100_000)
            assert space.in_steps
            assert space.given_back <= 110_000
            if not space.unused:
                break
        assert self.store.give_back(100_000) == Space()

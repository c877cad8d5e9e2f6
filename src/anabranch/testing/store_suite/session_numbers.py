"""The part of the store suite that is about the numbers of sessions, and about grants."""

from __future__ import annotations

import msgspec

from anabranch.store.grant_ports import Grant
from anabranch.store.ports import Store
from anabranch.testing.store_suite.samples import a_batch, a_commit

ANN, BOB = "0x" + "a" * 40, "0x" + "b" * 40


class SessionNumbersSuite:
    """A part of `StoreSuite`."""

    store: Store

    def test_every_owner_counts_from_one(self) -> None:
        taken = [
            self.store.take_session_number(owner, run)
            for owner, run in ((ANN, "r1"), (BOB, "r2"), (ANN, "r3"))
        ]
        assert taken == [1, 1, 2]
        assert self.store.next_session_number(ANN) == 3
        assert self.store.next_session_number("0x" + "c" * 40) == 1
        assert self.store.session_run(ANN, 1) == "r1"
        assert self.store.session_run(BOB, 1) == "r2"
        assert self.store.session_run(BOB, 2) is None
        assert self.store.session_run(BOB, 1 << 80) is None

    def test_only_the_next_number_can_be_wanted(self) -> None:
        assert self.store.take_session_number(ANN, "r1", 2) is None
        assert self.store.take_session_number(ANN, "r1", 1) == 1
        assert self.store.take_session_number(ANN, "r2", 1) is None

    def test_a_number_is_given_back_by_a_run_that_did_not_begin(self) -> None:
        self.store.take_session_number(ANN, "r1")
        self.store.give_back_session_number(ANN, 1, "another run")
        assert self.store.next_session_number(ANN) == 2
        self.store.give_back_session_number(ANN, 1, "r1")
        assert self.store.next_session_number(ANN) == 1

    def test_a_number_outlives_its_run(self) -> None:
        self.store.take_session_number(ANN, "r1")
        self.store.commit(a_batch(a_commit("r1", 1, finished=True)))
        self.store.give_back_session_number(ANN, 1, "r1")
        assert self.store.next_session_number(ANN) == 2, "it has begun"
        self.store.forget(["r1"])
        assert self.store.head("r1") is None
        assert self.store.next_session_number(ANN) == 2

    # Grants

    def test_a_grant_is_kept_once_for_each_grantee_and_changed_in_place(self) -> None:
        own = Grant(
            rid="r", scope=1, grantee=ANN, owner=ANN, rights=7, expires_at=50, is_owner=True
        )
        bob = Grant(rid="r", scope=1, grantee=BOB, owner=ANN, rights=1, expires_at=50)
        log = Grant(rid="r", scope=2, grantee=BOB, owner=BOB, rights=7, expires_at=50)
        self.store.put_grants([own, bob])
        self.store.put_grants([log])
        more = msgspec.structs.replace(bob, rights=3, enc_dek="0x12", expires_at=60, owner=BOB)
        self.store.put_grants([more])
        kept, changed = self.store.grants_of("r", 1)
        assert kept == msgspec.structs.replace(own, id=kept.id)
        assert (changed.rights, changed.enc_dek, changed.expires_at) == (3, "0x12", 60)
        assert changed.owner == ANN, "the first owner stays"
        assert [one.scope for one in self.store.grants_for(BOB)] == [1, 2]
        assert self.store.grants_for(BOB, after=changed.id)[0].scope == 2
        assert len(self.store.grants_for(ANN)) == 2
        assert self.store.grants_for(ANN, limit=1) == [kept]

    def test_expired_grants_of_an_owner_are_forgotten_but_for_the_owners_own(self) -> None:
        own = Grant(
            rid="r", scope=1, grantee=ANN, owner=ANN, rights=7, expires_at=50, is_owner=True
        )
        bob = Grant(rid="r", scope=1, grantee=BOB, owner=ANN, rights=1, expires_at=50)
        log = Grant(rid="r", scope=2, grantee=BOB, owner=ANN, rights=1, expires_at=51)
        other = Grant(rid="q", scope=1, grantee=ANN, owner=BOB, rights=1, expires_at=50)
        self.store.put_grants([own, bob, log, other])
        self.store.forget_grants(ANN, 51)
        found = [(one.rid, one.scope, one.grantee) for one in self.store.grants_for(ANN)]
        assert found == [("r", 1, ANN), ("r", 2, BOB), ("q", 1, ANN)]
        assert (self.store.count_grants(ANN), self.store.count_grants(BOB)) == (2, 1)
        self.store.put_grants([bob])
        assert self.store.grants_for(BOB)[-1].rid == "r", "no id is given twice"

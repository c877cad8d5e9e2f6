"""The part of the store suite that is about access: tokens, the audit trail, kept answers."""

from __future__ import annotations

from msgspec.structs import replace

from anabranch.errors import Conflict
from anabranch.store.access_ports import (
    AccessToken,
    AuditEntry,
    AuditFilter,
    KeptAnswer,
    RequestRecord,
)
from anabranch.store.ports import Store
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit, refused, sha256

TOKEN = AccessToken(
    id="t1",
    digest=sha256(b"secret"),
    name="the ☃ deploy'r",
    scopes=("operate", "read"),
    created_at=NOW,
    expires_at=NOW + 1000,
)
CLAIM = KeptAnswer(actor="ann", key="k1", body=sha256(b"body"), holder="one", expires_at=NOW + 100)
DONE = replace(CLAIM, status=201, answer=b'{"run":"r1"}')


def an_entry(action: str, actor: str = "ann", subject: str = "", at: int = NOW) -> AuditEntry:
    return AuditEntry(at=at, actor=actor, action=action, subject=subject, address="::1")


def give_up() -> None:
    raise Conflict("enough")


class AccessSuite:
    """A part of `StoreSuite`."""

    store: Store

    # Tokens

    def test_every_field_of_a_token_survives(self) -> None:
        plain = replace(TOKEN, id="t0", expires_at=None, scopes=("admin",))
        self.store.add_token(TOKEN)
        self.store.add_token(plain)
        assert self.store.token("t1") == TOKEN
        assert self.store.tokens() == [plain, TOKEN]
        assert self.store.token("t2") is None

    def test_a_second_token_of_the_same_id_is_refused(self) -> None:
        self.store.add_token(TOKEN)
        with refused(Conflict, "t1"):
            self.store.add_token(replace(TOKEN, name="another"))
        assert self.store.tokens() == [TOKEN]

    def test_a_token_is_revoked_once_and_stays_for_the_record(self) -> None:
        self.store.add_token(TOKEN)
        assert self.store.revoke_token("t1", NOW + 5)
        assert not self.store.revoke_token("t1", NOW + 9)
        assert not self.store.revoke_token("t2", NOW + 9)
        assert self.store.token("t1") == replace(TOKEN, revoked_at=NOW + 5)

    def test_the_last_use_of_a_token_never_goes_back(self) -> None:
        self.store.add_token(TOKEN)
        self.store.use_tokens([("t1", NOW + 7), ("t1", NOW + 3), ("unknown", NOW)])
        assert self.store.tokens() == [replace(TOKEN, last_used_at=NOW + 7)]

    # The audit trail

    def test_audit_entries_are_numbered_and_listed_newest_first(self) -> None:
        self.store.add_audit([an_entry("start", subject="r1"), an_entry("pause", subject="r1")])
        self.store.add_audit([an_entry("decide", actor="bo", subject="r2")])
        assert [entry.action for entry in self.store.audit(AuditFilter())] == [
            "decide",
            "pause",
            "start",
        ]
        numbers = [entry.number for entry in self.store.audit(AuditFilter())]
        assert numbers == sorted(numbers, reverse=True)
        (newest,) = self.store.audit(AuditFilter(limit=1))
        assert newest == replace(an_entry("decide", actor="bo", subject="r2"), number=numbers[0])
        page = self.store.audit(AuditFilter(before=numbers[0], limit=1))
        assert [entry.action for entry in page] == ["pause"]

    def test_audit_entries_are_found_by_actor_action_and_subject(self) -> None:
        self.store.add_audit(
            [
                an_entry("start", subject="r1"),
                an_entry("start", actor="bo", subject="r1"),
                an_entry("login"),
            ]
        )
        found = {
            "actor": self.store.audit(AuditFilter(actor="ann")),
            "action": self.store.audit(AuditFilter(action="start")),
            "subject": self.store.audit(AuditFilter(subject="r1", actor="bo")),
            "nothing": self.store.audit(AuditFilter(subject="r9")),
        }
        assert {key: len(entries) for key, entries in found.items()} == {
            "actor": 2,
            "action": 2,
            "subject": 1,
            "nothing": 0,
        }

    # Kept answers

    def test_a_key_is_taken_once_and_its_answer_is_kept(self) -> None:
        assert self.store.claim_key(CLAIM, NOW) is None
        assert self.store.claim_key(replace(CLAIM, holder="two"), NOW) == CLAIM
        assert not self.store.keep_answer(replace(DONE, holder="two"))
        assert self.store.keep_answer(DONE)
        assert not self.store.keep_answer(replace(DONE, status=500))
        assert not self.store.release_key(CLAIM)
        assert self.store.claim_key(replace(CLAIM, body="other"), NOW + 99) == DONE

    def test_a_key_belongs_to_its_actor(self) -> None:
        assert self.store.claim_key(CLAIM, NOW) is None
        assert self.store.claim_key(replace(CLAIM, actor="bo"), NOW) is None

    def test_a_key_that_is_over_or_was_given_back_can_be_taken_again(self) -> None:
        self.store.claim_key(CLAIM, NOW)
        self.store.keep_answer(replace(CLAIM, status=200, answer=b"1"))
        later = replace(CLAIM, holder="two", expires_at=NOW + 900)
        assert self.store.claim_key(later, NOW + 100) is None
        assert not self.store.release_key(CLAIM)
        assert self.store.release_key(later)
        assert self.store.claim_key(CLAIM, NOW) is None

    def test_what_stands_under_a_key_can_be_looked_at_until_it_is_over(self) -> None:
        assert self.store.kept_answer("ann", "k1", NOW) is None
        self.store.claim_key(CLAIM, NOW)
        assert self.store.kept_answer("ann", "k1", NOW) == CLAIM
        self.store.keep_answer(DONE)
        assert self.store.kept_answer("ann", "k1", NOW + 99) == DONE
        assert self.store.kept_answer("ann", "k1", NOW + 100) is None
        assert self.store.kept_answer("bo", "k1", NOW) is None

    # What requests leave beside the runs they begin

    def test_a_request_that_begins_a_run_is_written_with_it(self) -> None:
        line = an_entry("runs.create", subject="r1")
        first = RequestRecord(audit=line, kept=DONE)
        others = [
            RequestRecord(audit=an_entry("runs.create", subject="r2")),
            RequestRecord(kept=replace(DONE, key="k3")),
        ]
        self.store.commit(a_batch(a_commit("r1", 1), requests=[first]))
        self.store.commit(a_batch(a_commit("r2", 1), a_commit("r3", 1), requests=others))
        assert self.store.kept_answer("ann", "k1", NOW) == DONE
        assert self.store.kept_answer("ann", "k3", NOW) == replace(DONE, key="k3")
        assert self.store.claim_key(replace(CLAIM, holder="two"), NOW) == DONE
        newer, older = self.store.audit(AuditFilter())
        assert older == replace(line, number=older.number)
        assert (newer.subject, older.subject) == ("r2", "r1")

    def test_a_request_whose_run_does_not_begin_leaves_nothing(self) -> None:
        self.store.commit(a_batch(a_commit("r1", 1)))
        request = RequestRecord(audit=an_entry("runs.create", subject="r1"), kept=DONE)
        with refused(Conflict):
            self.store.commit(a_batch(a_commit("r1", 1), requests=[request]))
        assert self.store.kept_answer("ann", "k1", NOW) is None
        assert self.store.audit(AuditFilter()) == []

    def test_an_answer_written_with_a_run_replaces_what_stands_under_its_key(self) -> None:
        """A claim without an answer, and an answer whose time is over."""
        self.store.claim_key(CLAIM, NOW)
        self.store.commit(a_batch(a_commit("r1", 1), requests=[RequestRecord(kept=DONE)]))
        assert self.store.kept_answer("ann", "k1", NOW) == DONE
        later = replace(DONE, holder="two", expires_at=NOW + 900, answer=b'{"run":"r2"}')
        self.store.commit(a_batch(a_commit("r2", 1), requests=[RequestRecord(kept=later)]))
        assert self.store.kept_answer("ann", "k1", NOW + 100) == later

    # Writes that are one

    def test_writes_made_together_are_all_there(self) -> None:
        with self.store.together():
            assert self.store.claim_key(CLAIM, NOW) is None
            assert self.store.claim_key(replace(CLAIM, holder="two"), NOW) == CLAIM
            assert self.store.keep_answer(replace(CLAIM, status=200, answer=b"1"))
            self.store.add_audit([an_entry("start")])
            self.store.add_audit([an_entry("pause")])
        assert [line.action for line in self.store.audit(AuditFilter())] == ["pause", "start"]
        known = self.store.claim_key(replace(CLAIM, holder="two"), NOW)
        assert known is not None
        assert known.answer == b"1"

    def test_of_writes_made_together_none_is_there_when_one_fails(self) -> None:
        self.store.add_audit([an_entry("before")])
        with refused(Conflict), self.store.together():
            self.store.claim_key(CLAIM, NOW)
            self.store.add_audit([an_entry("start")])
            give_up()
        assert [line.action for line in self.store.audit(AuditFilter())] == ["before"]
        assert self.store.claim_key(replace(CLAIM, holder="two"), NOW) is None
        self.store.add_audit([an_entry("after")])
        newer, older = self.store.audit(AuditFilter())
        assert (newer.action, older.action) == ("after", "before")
        assert newer.number > older.number, "a number may be left out, and none comes twice"

    # What is over

    def test_old_entries_and_keys_are_dropped_a_few_at_a_time(self) -> None:
        self.store.add_audit([an_entry("start", at=NOW + n) for n in range(4)])
        for n in range(3):
            self.store.claim_key(replace(CLAIM, key=f"k{n}", expires_at=NOW + n), NOW - 1)
        assert self.store.forget_access(NOW - 1, NOW) == 0
        assert self.store.forget_access(NOW + 1, NOW + 3, limit=2) == 4
        assert self.store.forget_access(NOW + 1, NOW + 3) == 1
        (left,) = self.store.audit(AuditFilter())
        assert left.at == NOW + 3
        assert self.store.claim_key(replace(CLAIM, key="k2"), NOW + 1) is not None

"""Tokens, guesses and the audit trail, without a network."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

from anabranch.errors import Denied, InputError, NotFound, StoreError
from anabranch.operations.access import audit_log as trails
from anabranch.operations.access.audit_log import TALLY_MS, AuditLog
from anabranch.operations.access.tokens import AccessControl, Caller, Guesses, entry, everything
from anabranch.store.access_ports import AuditEntry, AuditFilter
from anabranch.store.memory.store import MemoryStore
from hangs import HANG_SECONDS

NOW = 1_700_000_000_000
DAY = 86_400_000


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def access(store: MemoryStore) -> AccessControl:
    return AccessControl(store, lambda: NOW)


def denied(access: AccessControl, text: str) -> str:
    with pytest.raises(Denied) as caught:
        access.check(text)
    return caught.value.code


def test_only_the_hash_of_a_secret_is_kept(store: MemoryStore, access: AccessControl) -> None:
    token, text = access.create("ann", ["read"])
    head, token_id, secret = text.split("_")
    assert (head, token_id, len(secret)) == ("anb", token.id, 52)
    (kept,) = store.tokens()
    assert kept.digest == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in repr(kept)


def test_every_token_has_a_secret_of_its_own(access: AccessControl) -> None:
    assert len({access.create("ann", ["read"])[1] for _ in range(50)}) == 50


def test_secrets_are_compared_in_constant_time_also_for_an_unknown_id(
    access: AccessControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def counted(a: str, b: str) -> bool:
        compared.append((len(a), len(b)))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", counted)
    _, text = access.create("ann", ["read"])
    access.check(text)
    for wrong in (
        "",
        "x",
        text[:-1] + ("1" if text[-1] == "0" else "0"),
        f"anb_{'0' * 12}_{'0' * 52}",
        text + "x",
    ):
        denied(access, wrong)
    assert compared == [(64, 64)] * 6


def test_scopes_imply_what_they_should_and_nothing_else(access: AccessControl) -> None:
    def held(*scopes: str) -> set[str]:
        return set(access.check(access.create("ann", scopes)[1]).scopes)

    assert held("read") == {"read"}
    assert held("operate") == {"operate", "read"}
    assert held("decide") == {"decide", "read"}
    assert held("work") == {"work"}
    assert held("work", "decide") == {"work", "decide", "read"}
    assert held("admin") == {"read", "operate", "decide", "work", "hook", "admin"}
    assert Caller("ann", frozenset()).may("open")
    with pytest.raises(Denied, match="'operate'"):
        Caller("ann", frozenset({"read"})).require("operate")
    everything("ann").require("admin")


def test_a_token_opens_until_it_expires_or_is_revoked(store: MemoryStore) -> None:
    now = NOW
    access = AccessControl(store, lambda: now)
    token, text = access.create("ann", ["admin"], lifetime_days=1)
    assert access.has_admin()
    now = NOW + DAY - 1
    assert access.check(text).actor == "ann"
    now = NOW + DAY
    assert denied(access, text) == "token_expired"
    assert not access.has_admin()
    assert access.state_of(token) == "expired"
    second, text = access.create("bo", ["admin"])
    assert access.revoke(second.id).revoked_at == now
    assert access.revoke(second.id).revoked_at == now
    assert denied(access, text) == "token_revoked"
    with pytest.raises(Denied, match="revoked"):
        access.caller_of(second.id)
    with pytest.raises(NotFound, match="anabranch token list"):
        access.revoke("nobody")
    with pytest.raises(InputError, match="0 and at most"):
        access.create("ann", ["read"], lifetime_days=float("nan"))


def test_the_use_of_a_token_is_worth_a_note_once_a_minute(store: MemoryStore) -> None:
    now = NOW
    access = AccessControl(store, lambda: now)
    assert access.to_note("t1") == NOW
    now += 59_999
    assert access.to_note("t1") is None
    now += 1
    assert access.to_note("t1") == now


# -- guesses ---------------------------------------------------------------------------------


def test_guesses_count_by_address_and_are_forgotten_in_time() -> None:
    guesses = Guesses(limit=3, window_ms=1000)
    for n in range(3):
        assert guesses.wait_ms("a", NOW + n) == 0
        guesses.failed("a", NOW + n)
    assert guesses.wait_ms("a", NOW + 10) == 990
    assert guesses.wait_ms("b", NOW + 10) == 0
    assert guesses.wait_ms("a", NOW + 1000) == 0
    guesses.failed("a", NOW + 1000)
    assert guesses.wait_ms("a", NOW + 1000) == 1
    assert guesses.wait_ms("a", NOW + 5000) == 0
    assert len(guesses) == 0


def test_a_flood_of_addresses_takes_bounded_memory() -> None:
    guesses = Guesses(limit=2, most=100)
    for n in range(10_000):
        guesses.failed(f"10.0.{n // 256}.{n % 256}", NOW)
        guesses.failed("evil", NOW)
    assert len(guesses) == 100
    assert guesses.wait_ms("evil", NOW) > 0


# -- the trail -------------------------------------------------------------------------------


class Slow(MemoryStore):
    """Counts what is written in one go, and holds up the first until it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.go = Event()

    @contextmanager
    def together(self, *, wipe: bool = False) -> Iterator[None]:
        self.batches.append(0)
        self.go.wait(HANG_SECONDS)
        with super().together(wipe=wipe):
            yield

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        self.batches[-1] += len(entries)
        super().add_audit(entries)


def a_line(action: str) -> AuditEntry:
    return entry(Caller("ann", frozenset(), "t1"), action, NOW, subject="r1", address="::1")


def test_entries_that_come_while_one_is_written_are_written_together() -> None:
    store = Slow()

    async def go() -> None:
        trail = AuditLog(store, lambda: NOW)
        first = asyncio.ensure_future(trail.write(a_line("first")))
        while not store.batches:
            await asyncio.sleep(0)
        rest = [asyncio.ensure_future(trail.write(a_line(f"a{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        assert not first.done()
        store.go.set()
        await asyncio.gather(first, *rest)
        await trail.close()

    asyncio.run(go())
    assert store.batches == [1, 20]
    assert len(store.audit(AuditFilter())) == 21
    assert store.audit(AuditFilter())[0].detail == "token t1"


def test_a_trail_that_cannot_be_written_is_logged_and_holds_nobody_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()

    def full(*_entries: Any) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(store, "add_audit", full)
    asyncio.run(AuditLog(store, lambda: NOW).write(a_line("start")))
    assert "the disk is full" in caplog.text
    assert "action='start'" in caplog.text


def test_what_is_said_all_day_is_written_at_once_and_then_counted() -> None:
    store, now = MemoryStore(), [NOW]

    async def go() -> None:
        trail = AuditLog(store, lambda: now[0])
        await trail.tally(a_line("jobs.report"))
        assert [line.action for line in store.audit(AuditFilter())] == ["jobs.report"]
        for _ in range(1500):
            await trail.tally(a_line("jobs.report"))
        await trail.tally(a_line("jobs.fail"))  # something else is a line of its own
        await trail.write_tallies()  # the hour is not over
        assert len(store.audit(AuditFilter())) == 2
        now[0] += TALLY_MS
        await trail.write_tallies()
        await trail.write_tallies()
        assert [(line.action, line.detail) for line in store.audit(AuditFilter())] == [
            ("jobs.report", "token t1; 1,500 more times"),
            ("jobs.fail", "token t1"),
            ("jobs.report", "token t1"),
        ]
        await trail.tally(a_line("jobs.report"))
        await trail.tally(a_line("jobs.report"))
        await trail.close()  # a server that stops leaves nothing uncounted

    asyncio.run(go())
    assert store.audit(AuditFilter())[0].detail == "token t1; 1 more time"


def test_what_is_counted_takes_no_more_memory_than_it_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trails, "TALLIES_MAX", 50)
    store = MemoryStore()

    async def go() -> None:
        trail = AuditLog(store, lambda: NOW)
        for n in range(120):
            await trail.tally(a_line(f"a{n}"))
            assert len(trail._tallies) <= 50
        await trail.close()

    asyncio.run(go())


def test_a_line_of_the_trail_is_one_line_and_holds_no_secret() -> None:
    token = f"anb_{'0' * 12}_{'1' * 52}"
    line = entry(
        Caller(token, frozenset()), f"a\nb{token}", NOW, subject=f"x\r\n{token}" + "y" * 999
    )
    for text in (line.actor, line.action, line.subject):
        assert text.isprintable()
        assert "1" * 52 not in text
        assert len(text) <= 200
    assert "anb_000000000000_***" in line.subject


def test_old_entries_are_swept() -> None:
    store = MemoryStore()
    old = AuditEntry(at=NOW - 11 * DAY, actor="ann", action="old")
    store.add_audit([old, a_line("new")])

    async def go() -> None:
        sweeping = asyncio.ensure_future(AuditLog(store, lambda: NOW, days=10).sweep_forever())
        while len(store.audit(AuditFilter())) > 1:
            await asyncio.sleep(0)
        sweeping.cancel()

    asyncio.run(go())
    assert [line.action for line in store.audit(AuditFilter())] == ["new"]


def test_a_worker_that_names_ever_new_runs_leaves_so_many_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each name was a line that is kept for a year, as fast as a worker can ask."""
    store, now = MemoryStore(), [1_000]
    monkeypatch.setattr(trails, "OF_ONE_MAX", 10)

    async def scenario() -> None:
        trail = AuditLog(store, lambda: now[0])
        for who, count in (("w1", 30), ("w2", 1)):
            for number in range(count):
                caller = Caller(who, frozenset({"work"}), f"token-{who}")
                asked = entry(caller, "jobs.report", now[0], subject=f"run-{number}")
                await trail.tally(asked)
        now[0] += trails.TALLY_MS
        await trail.write_tallies()
        assert not trail._of_one
        await trail.close()

    store = MemoryStore()
    asyncio.run(scenario())
    lines = [(one.actor, one.subject, one.detail) for one in store.audit(AuditFilter(limit=1000))]
    ours = [line for line in lines if line[0] == "w1"]
    assert len(ours) == 10 + 2
    assert ours[0] == ("w1", trails.OTHERS, "token token-w1; 19 more times")
    assert ("w2", "run-0", "token token-w2") in lines

"""What one receiver, one hook or a sick store does costs the others nothing, and loses nothing."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.errors import StoreError
from anabranch.kernel import events as e
from anabranch.operations.webhooks.matcher import WebhookMatcher
from anabranch.operations.webhooks.secrets import secrets_of
from anabranch.operations.webhooks.sender import SendResult
from anabranch.operations.webhooks.signature import SIGNATURE, verify
from anabranch.operations.webhooks.webhooks import HookChange
from anabranch.store.hook_ports import DeliveryFilter, Entry, Hook, WebhookDelivery
from anabranch.store.sqlite.store import SqliteStore
from seeds import SHARE

from ..support import run
from .deliveries import Receiver, Scene, ids

WAITING = 100_000 if SHARE >= 1 else 20_000


def hooks_of(receiver: Receiver) -> list[str]:
    return [notice["hook"] for notice in receiver.came]


def test_a_hook_that_we_cannot_look_for_holds_no_other_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        scene = Scene()
        bad, good = scene.hook("run.*"), scene.hook("run.*")
        plain = WebhookMatcher.find

        def find(finder: WebhookMatcher, hook: Hook, entries: Iterable[Entry], now: int) -> Any:
            if hook.id == bad.id:
                raise RuntimeError("a row that nobody can read")
            return plain(finder, hook, entries, now)

        monkeypatch.setattr(WebhookMatcher, "find", find)
        scene.whole_run("r1")
        await scene.rounds(4)
        assert hooks_of(scene.receiver) == [good.id] * 3
        assert caplog.text.count("a round failed") == 1  # it rests, and fills no log
        monkeypatch.undo()
        scene.pass_time(1)
        await scene.rounds(3)
        assert hooks_of(scene.receiver)[3:] == [bad.id] * 3

    run(work())


def test_a_store_that_takes_no_answers_does_not_flood_the_receiver() -> None:
    """What was taken goes out again, because nobody could write that down; but at a slow pace."""

    async def work() -> None:
        scene = Scene()
        scene.hook("run.started")
        scene.record("r1", e.RunStarted("r1", "d", "order", {}))
        plain = scene.store.settle_delivery

        def full(_after: WebhookDelivery, _now: int) -> bool:
            raise StoreError("the disk is full", code="store_full")

        scene.store.settle_delivery = full  # type: ignore[method-assign, assignment]
        for _ in range(50):
            await scene.rounds()
        assert len(scene.receiver.came) == 1
        for _ in range(30):  # after 1 s, 2 more, 4 more, 8 more
            scene.pass_time(0.5)
            await scene.rounds()
        assert len(scene.receiver.came) == 5
        scene.store.settle_delivery = plain  # type: ignore[method-assign]
        scene.pass_time(60)
        await scene.rounds(2)
        assert len(scene.receiver.came) == 6
        assert [one.pending for one in scene.hooks.all()] == [0]

    run(work())


def test_a_receiver_that_is_gone_turns_its_hook_off_and_loses_nothing() -> None:
    async def work() -> None:
        scene = Scene()
        hook = scene.hook("run.*")
        scene.receiver.answer = lambda _notice: 410
        scene.whole_run("r1")
        await scene.rounds(3)
        assert ids(scene.receiver.came) == [("r1", 1)]
        stands = scene.hooks.show(hook.id)
        assert (stands.enabled, stands.pending) == (False, 3)
        (first,) = [
            one for one in scene.hooks.deliveries(DeliveryFilter(hook=hook.id)) if one.seq == 1
        ]
        assert (first.state, first.last_status) == ("pending", 410)
        scene.whole_run("r2")
        scene.receiver.answer = lambda _notice: 200
        scene.hooks.change(hook.id, HookChange(enabled=True))
        scene.pass_time(1)
        await scene.rounds(6)
        assert ids(scene.receiver.came)[1:] == [
            *(("r1", 1), ("r2", 1), ("r1", 2), ("r2", 2), ("r1", 3), ("r2", 3)),
        ]

    run(work())


def test_a_receiver_that_asks_for_patience_gets_it() -> None:
    async def work() -> None:
        scene = Scene()
        scene.hook("run.started")
        plain = scene.receiver.post

        async def busy(url: str, body: bytes, headers: dict[str, str]) -> SendResult:
            await plain(url, body, headers)
            return SendResult(429, "answered 429", 120.0)

        scene.receiver.post = busy  # type: ignore[method-assign, assignment]
        scene.record("r1", e.RunStarted("r1", "d", "order", {}))
        for _ in range(13):
            await scene.rounds()
            scene.pass_time(10)
        assert len(scene.receiver.came) == 2

    run(work())


def test_for_a_day_after_a_rotation_both_secrets_hold_and_then_only_the_new_one() -> None:
    async def work() -> None:
        scene = Scene()
        hook = scene.hook("run.started")
        old, new = hook.secret or "", scene.hooks.rotate(hook.id).secret or ""
        assert len({old, new, ""}) == 3
        for number, passed in enumerate((0, 86_399, 2)):
            scene.pass_time(passed)
            scene.record(f"r{number}", e.RunStarted(f"r{number}", "d", "order", {}))
            await scene.rounds()
            headers, body = scene.receiver.headers[-1], scene.receiver.bodies[-1]
            now = scene.clock.now() / 1000
            assert verify(new, headers[SIGNATURE], body, now)
            assert verify(old, headers[SIGNATURE], body, now) is (number < 2)
        newest = scene.hooks.rotate(hook.id).secret or ""
        scene.record("r9", e.RunStarted("r9", "d", "order", {}))
        await scene.rounds()
        header = scene.receiver.headers[-1][SIGNATURE]
        assert header.count("v1=") == 2  # never more than the last two
        for secret, holds in ((newest, True), (new, True), (old, False)):
            body, now = scene.receiver.bodies[-1], scene.clock.now() / 1000
            assert verify(secret, header, body, now) is holds

    run(work())


def test_what_is_changed_while_we_look_is_heeded_before_anything_leaves() -> None:
    """Whoever turns a hook off, and is answered, gets nothing that has not left before."""

    async def work() -> None:
        scene = Scene()
        hook = scene.hook("run.*")
        scene.whole_run("r1")
        plain = scene.store.due_deliveries

        def meanwhile(hook_id: str, now: int, limit: int) -> list[WebhookDelivery]:
            found = plain(hook_id, now, limit)
            scene.hooks.change(hook.id, HookChange(enabled=False))
            scene.dispatcher.changed()
            return found

        scene.store.due_deliveries = meanwhile  # type: ignore[method-assign]
        await scene.rounds(3)
        assert scene.receiver.came == []
        scene.store.due_deliveries = plain  # type: ignore[method-assign]
        scene.hooks.change(hook.id, HookChange(enabled=True))
        await scene.rounds(3)
        assert ids(scene.receiver.came) == [("r1", 1), ("r1", 2), ("r1", 3)]

    run(work())


def test_a_hook_removed_while_a_delivery_is_out_leaves_nothing_behind() -> None:
    async def work() -> None:
        scene = Scene()
        hook = scene.hook("run.*")
        scene.receiver.hold = asyncio.Event()
        scene.whole_run("r1")
        await scene.dispatcher.round()
        while not scene.receiver.came:
            await asyncio.sleep(0)
        scene.hooks.remove(hook.id)
        scene.receiver.hold.set()
        await scene.rounds(2)
        assert len(scene.receiver.came) == 1
        assert scene.store.deliveries(DeliveryFilter(hook=hook.id)) == []
        assert (scene.dispatcher._looked, scene.dispatcher.attempts.value(("taken",))) == ({}, 0)

    run(work())


def test_what_waits_and_what_was_given_up_can_be_sent_at_once_and_in_order() -> None:
    """The receiver is mended after a day: nobody wants to wait for the next attempt."""

    async def work() -> None:
        scene = Scene(webhook_age_hours=1.0)
        hook = scene.hook("run.*")
        scene.receiver.answer = lambda _notice: 503
        scene.whole_run("old")
        for _ in range(40):
            scene.pass_time(360)
            await scene.rounds()
        scene.whole_run("new")
        await scene.rounds()
        scene.receiver.answer = lambda _notice: 200
        assert (scene.hooks.show(hook.id).dead, scene.hooks.show(hook.id).pending) == (3, 3)
        await scene.rounds(3)
        assert scene.receiver.taken == []
        assert scene.hooks.redeliver_dead(hook.id) == 3
        await scene.rounds(4)
        taken = [name.split(":")[1:] for name in scene.receiver.taken]
        for name in ("old", "new"):
            assert [seq for run_id, seq in taken if run_id == name] == ["1", "2", "3"]

    run(work())


def test_one_that_waits_for_its_next_attempt_can_be_hurried_but_not_moved_ahead() -> None:
    async def work() -> None:
        scene = Scene()
        hook = scene.hook("run.*")
        scene.receiver.answer = lambda _notice: 500
        scene.whole_run("r1")
        await scene.rounds()
        scene.receiver.answer = lambda _notice: 200
        with pytest.raises(Exception, match="waits for another one of its run"):
            scene.hooks.redeliver(hook.id, f"{hook.id}:r1:2")
        assert scene.hooks.redeliver(hook.id, f"{hook.id}:r1:1").state == "pending"
        await scene.rounds(3)
        assert ids(scene.receiver.came) == [("r1", 1), ("r1", 1), ("r1", 2), ("r1", 3)]

    run(work())


def test_much_to_tell_is_looked_at_in_pieces() -> None:
    async def work() -> None:
        scene = Scene()
        hook = scene.hook("run.paused")
        for number in range(40):
            scene.record(f"r{number}", e.RunPaused("ann", "x" * 200_000))
        stored = scene.store.hook(hook.id)
        assert stored is not None
        finder = scene.dispatcher._finder
        rows = scene.store.feed(0, 500)
        found, to = finder.find(stored, rows, 0, 1_000_000)
        assert (len(found), to) == (5, rows[4].position)
        assert finder.find(stored, rows[5:], 0, 10**9)[1] == rows[-1].position
        await scene.rounds(6)
        assert len(scene.receiver.taken) == 40

    run(work())


@pytest.mark.soak
@pytest.mark.slow
def test_very_many_that_wait_take_no_more_memory_than_a_few(tmp_path: Path) -> None:
    async def work() -> None:
        store = SqliteStore(tmp_path / "store.db", synchronous="NORMAL")
        scene = Scene(store, webhook_backlog_max=200_000)
        hook = scene.hook("run.*")
        body = b'{"id":"%s"}'
        found = [
            WebhookDelivery(
                hook=hook.id,
                run=f"r{number // 100}",
                seq=number % 100 + 1,
                kind="run.paused",
                body=body.replace(b"%s", f"{hook.id}:r{number // 100}:{number % 100 + 1}".encode()),
                found_at=scene.clock.now(),
            )
            for number in range(WAITING)
        ]
        stored = store.hook(hook.id)
        assert stored is not None
        assert store.advance_hook(hook.id, stored.cursor, stored.cursor, found)
        del found
        scene.receiver.answer = lambda _notice: None
        tracemalloc.start()
        await scene.rounds(5)  # none gets through: everything waits
        scene.receiver.answer = lambda _notice: 200
        scene.pass_time(10)
        await scene.rounds(100)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(scene.receiver.taken) >= 800
        assert scene.hooks.show(hook.id).pending == WAITING - len(scene.receiver.taken)
        assert peak < 8_000_000
        for name in ("r0", "r3"):
            seqs = [int(each.split(":")[2]) for each in scene.receiver.taken if f":{name}:" in each]
            assert seqs == list(range(1, len(seqs) + 1))
        store.close()

    run(work())


def test_an_old_secret_reads_as_before() -> None:
    """A hook made before there were rotations with an overlap."""
    scene = Scene()
    hook = scene.hook("run.*")
    stored = scene.store.hook(hook.id)
    assert stored is not None
    scene.store.change_hook(replace(stored, secret="text:whs_plain"))
    kept = scene.store.hook(hook.id)
    assert kept is not None
    assert secrets_of(kept, 0) == ("whs_plain",)

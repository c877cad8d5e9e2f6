"""The mailbox: a message takes effect exactly once, and its answer says what became of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import cast

import msgspec
import pytest

from anabranch.clock import SystemClock
from anabranch.errors import AnabranchError, Refused, StoreError, StoreInUse
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import ContextPatch
from anabranch.operations.definitions.prepare import compiler, prepare
from anabranch.operations.runs import verbs
from anabranch.operations.runs.verbs import say
from anabranch.runtime.core import Core
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.messages.codec import (
    MailAnswer,
    Sayable,
    StartRun,
    read_answer,
    write_message,
)
from anabranch.runtime.messages.mailbox import Mailbox
from anabranch.runtime.nets import Nets
from anabranch.settings import Settings
from anabranch.store.access_ports import AuditEntry, AuditFilter, RequestRecord
from anabranch.store.memory.cluster import MemoryServer, SharedMemory
from anabranch.store.memory.store import MemoryStore
from anabranch.store.outages import AWAY
from anabranch.store.ports import Batch, Head, Store
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.virtual.one_lane import OneLane
from anabranch.testing.virtual.world import UNLIMITED

from ..support import Fragile, asking, engine, file_of, gated, log_of, run, start, until

ONE_MORE = s.PatchContext((ContextPatch("n", 1, "sum"),), "ann")


def post(store: MemoryStore | SqliteStore, name: str, said: Sayable) -> int:
    return store.post(name, write_message(said), 1)


async def answer(store: MemoryStore | SqliteStore, number: int) -> MailAnswer:
    def answered() -> bytes | None:
        message = store.message(number)
        return message.answer if message is not None else None

    await until(answered)
    found = answered()
    assert found is not None
    return read_answer(found)


def test_a_message_takes_effect_and_is_acknowledged() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store) as made:
            name = await start(made, gated())
            assert (await answer(store, post(store, name, ONE_MORE))).ok
            assert made.state(name).ctx == {"n": 1}

    run(scenario())


@pytest.mark.parametrize("by_mail", [True, False])
def test_a_line_for_the_audit_trail_is_in_the_commit_of_what_it_tells_of(by_mail: bool) -> None:
    """Of a command beside this engine, or of a caller of it. A refusal leaves none."""
    store, batches = MemoryStore(), list[Batch]()
    commit = store.commit

    def keep_batch(batch: Batch) -> None:
        batches.append(batch)
        commit(batch)

    store.commit = keep_batch  # type: ignore[method-assign]

    async def tell(made: EngineLoop, name: str, said: Sayable) -> None:
        audit = AuditEntry(at=1, actor="ann", action="runs.patch", subject=name)
        if by_mail:
            await answer(store, store.post(name, write_message(said, audit), 1))
        else:
            with suppress(Refused):
                await made.send(name, said, RequestRecord(audit=audit))

    async def scenario() -> None:
        async with engine(store) as made:
            name = await start(made, gated())
            await tell(made, name, s.Resume())
            assert store.audit(AuditFilter()) == []
            await tell(made, name, ONE_MORE)
            (batch,) = [one for one in batches if one.requests]
            assert [commit.head.run for commit in batch.commits] == [name]
            assert bool(batch.answers) == by_mail
            await tell(made, name, s.Pause("ann"))
            await tell(made, name, s.Cancel("ann"))
        assert len(store.audit(AuditFilter())) == 3

    run(scenario())


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (s.Decide("nowhere", "fulfil"), "gate_not_open"),
        (s.Resume(), "not_paused"),
        (s.Wake(step="held"), "not_sleeping"),
        (s.PatchContext((ContextPatch("go", "x", "sum"),)), ""),
    ],
)
def test_a_message_that_does_not_fit_is_refused_and_changes_nothing(
    said: Sayable, code: str
) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store) as made:
            name = await start(made, gated())
            before = log_of(store, name)
            told = await answer(store, post(store, name, said))
            assert not told.ok
            assert told.message
            assert told.code == code or not code
            assert log_of(store, name) == before

    run(scenario())


def test_a_message_to_nobody_and_one_that_cannot_be_read_are_answered() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store) as made:
            name = await start(made, gated())
            nobody = post(store, "nobody", s.Pause())
            garbled = store.post(name, b'{"type": "start", "run": "x"}', 1)
            odd = store.post(name, b"\xff\x00", 1)
            fine = post(store, name, ONE_MORE)
            assert (await answer(store, nobody)).code == "not_found"
            assert (await answer(store, garbled)).code == "input"
            assert "cannot be read" in (await answer(store, odd)).message
            assert (await answer(store, fine)).ok

    run(scenario())


def test_a_job_cannot_be_reported_by_mail() -> None:
    """Jobs report to the engine that gave them out; anybody could write into the mailbox."""

    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store) as made:
            name = await start(made, gated())
            report = b'{"type":"job.report","job":"1.0","attempt":1,"answer":{"status":"ok"}}'
            assert (await answer(store, store.post(name, report, 1))).code == "input"

    run(scenario())


@pytest.mark.parametrize("count", [250])
def test_a_heap_of_mail_is_worked_off_without_a_further_message(count: int) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store) as made:
            name = await start(made, gated())
            await asyncio.sleep(0.05)
            for _ in range(count):
                post(store, name, ONE_MORE)
            await until(lambda: store.unanswered() == [])
            assert made.state(name).ctx == {"n": count}

    run(scenario())


def test_mail_that_waited_for_an_engine_is_taken_when_one_opens() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store) as made:
            name = await start(made, gated())
        number = post(store, name, ONE_MORE)
        async with engine(store) as made:
            assert (await answer(store, number)).ok
            assert made.state(name).ctx == {"n": 1}

    run(scenario())


@pytest.mark.parametrize("lost", range(4))
def test_an_engine_that_dies_around_its_answer_applies_the_message_once(lost: int) -> None:
    """The effect and the answer are one batch: whichever commit is the last, never twice."""

    async def scenario() -> None:
        store = Fragile()
        async with engine(store) as made:
            name = await start(made, gated())
            await asyncio.sleep(0.05)
            allowed = len(store.batches) + lost

            def before(_batch: Batch) -> None:
                if len(store.batches) >= allowed:
                    raise StoreError("the power is gone")

            store.before = before
            number = post(store, name, ONE_MORE)
            await asyncio.sleep(0.1)
        store.before = lambda _batch: None
        async with engine(store) as made:
            assert (await answer(store, number)).ok
            await asyncio.sleep(0.05)
            assert made.state(name).ctx == {"n": 1}
        patched = [one for one in log_of(store, name) if isinstance(one, e.ContextPatched)]
        assert len(patched) == 1

    run(scenario())


# -- saying it from a process without an engine ----------------------------------------------


def unopened(store: SqliteStore) -> EngineLoop:
    return EngineLoop(store, Nets(store, compiler()), {}, clock=SystemClock(), settings=Settings())


def test_beside_an_engine_it_is_posted_and_without_one_recorded(tmp_path: Path) -> None:
    async def scenario() -> None:
        mine, other = SqliteStore(file_of(tmp_path)), SqliteStore(file_of(tmp_path))
        async with engine(mine) as made:
            name = await start(made, gated())
            assert await say(other, lambda: unopened(other), name, ONE_MORE) == "engine"
            with pytest.raises(Refused, match="no gate"):
                await say(other, lambda: unopened(other), name, s.Decide("x", "fulfil"))
        assert await say(other, lambda: unopened(other), name, ONE_MORE) == "recorded"
        with pytest.raises(Refused, match="no gate"):
            await say(other, lambda: unopened(other), name, s.Decide("x", "fulfil"))
        async with engine(mine) as made:
            assert made.state(name).ctx == {"n": 2}
        mine.close()
        other.close()

    run(scenario())


def test_an_owner_that_leaves_before_it_answers_leaves_the_message_to_us(tmp_path: Path) -> None:
    """Two second terminals at once: one becomes the engine for a moment, the other is not lost."""

    async def scenario() -> None:
        mine, other = SqliteStore(file_of(tmp_path)), SqliteStore(file_of(tmp_path))
        async with engine(mine) as made:
            name = await start(made, asking())
        mine.acquire("somebody who does not read mail")
        saying = asyncio.ensure_future(
            say(other, lambda: unopened(other), name, s.Decide("ask", "fulfil"))
        )
        await until(lambda: mine.unanswered() != [])
        await asyncio.sleep(0.1)
        assert not saying.done()
        mine.release()
        assert await saying == "recorded"
        assert other.owner() is None
        mine.close()
        other.close()

    run(scenario())


def test_an_owner_that_never_answers_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verbs, "ANSWER_SECONDS", 0.2)

    async def scenario() -> None:
        mine, other = SqliteStore(file_of(tmp_path)), SqliteStore(file_of(tmp_path))
        async with engine(mine) as made:
            name = await start(made, asking())
        mine.acquire("a stubborn engine")
        with pytest.raises(AnabranchError, match=r"a stubborn engine.* has not answered") as told:
            await say(other, lambda: unopened(other), name, s.Decide("ask", "fulfil"))
        assert told.value.code == "no_answer"
        with pytest.raises(StoreInUse, match="a stubborn engine"):
            other.acquire("another")
        mine.close()
        other.close()

    run(scenario())


def test_a_message_to_a_run_that_is_about_to_come_waits_for_it() -> None:
    """Its partition is this engine's already; the runs of it are not in memory yet."""
    shared = MemoryServer(SharedMemory(1, lambda: 0), "s1")
    shared.cluster.join("s1", "", 60.0)
    shared.cluster.claim(1)
    store = cast(Store, shared)
    core = Core(store, Nets(store, compiler(())), OneLane(UNLIMITED, Random(1)))
    core.here = lambda _run: False
    store.post("r1", write_message(ONE_MORE), 1)
    mailbox = Mailbox(core)
    mailbox.read()
    assert not core.busy
    core.here = lambda _run: True
    mailbox.read()
    assert core.busy


# -- what is sealed for a start that was posted ----------------------------------------------------

SEALED = "r1~1"


class AwayNow(MemoryStore):
    """A store that cannot be read for a while."""

    away = False

    def head(self, run: str) -> Head | None:
        if self.away:
            raise StoreError("the connection is lost", code=AWAY)
        return super().head(run)


def posted_start() -> tuple[AwayNow, Core, Mailbox]:
    store = AwayNow()
    nets = Nets(store, compiler(()))
    core = Core(store, nets, OneLane(UNLIMITED, Random(1)))
    made = prepare(asking())
    nets.put(made.definition, made.net)
    store.commit(Batch(sealed={SEALED: {"__key": b'"canary"'}}))
    asked = StartRun(made.definition.fingerprint, s.Start(run="r1", input={}), SEALED)
    store.post("r1", write_message(asked), 1)
    return store, core, Mailbox(core)


def test_what_is_sealed_for_a_start_stays_until_the_message_is_answered() -> None:
    store, core, mailbox = posted_start()
    store.away = True
    with pytest.raises(StoreError):
        mailbox.read()
    assert core.turn(1).batch.unsealed == []
    store.away = False
    mailbox.read()
    batch = core.turn(2).batch
    assert (batch.unsealed, list(batch.answers)) == ([SEALED], [1])
    assert batch.sealed == {"r1": {"__key": b'"canary"'}}


def test_what_is_sealed_for_a_start_stays_when_its_turn_was_thrown_away() -> None:
    _, core, mailbox = posted_start()
    mailbox.read()
    core.put_down(core.known)
    core.forget_turn()
    mailbox.forget()
    assert core.turn(1).batch.unsealed == []
    mailbox.read()
    assert core.turn(2).batch.unsealed == [SEALED]


def test_what_is_sealed_for_a_start_that_is_refused_goes_with_the_refusal() -> None:
    store, core, mailbox = posted_start()
    mailbox.read()
    store.commit(core.turn(1).batch)
    again = Batch(sealed={"r1~2": {"__key": b'"canary"'}})
    store.commit(again)
    start_again = msgspec.json.decode(store.message(1).body)  # type: ignore[union-attr]
    start_again["sealed_as"] = "r1~2"
    store.post("r1", msgspec.json.encode(start_again), 2)
    mailbox.read()
    batch = core.turn(2).batch
    assert (batch.unsealed, list(batch.answers)) == (["r1~2"], [2])

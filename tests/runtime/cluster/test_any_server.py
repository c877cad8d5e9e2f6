"""Two engines on one PostgreSQL store: what is asked of the one that does not own a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, cast

import pytest

from anabranch.errors import AnabranchError
from anabranch.kernel import stimuli as s
from anabranch.parts import Parts
from anabranch.runtime.cluster.member import ClusterMember
from anabranch.runtime.engine import SHARED_MAIL_SECONDS
from anabranch.runtime.messages.codec import write_message
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.ports import Store
from anabranch.work.kinds.callables import Toolbox
from dialects.xrc729.orchestrations import orchestration
from dialects.xrc729.orchestrations import step as process

from ..support import playbook, run, step

pytest.importorskip("psycopg")

from anabranch.store.postgres.cluster import PostgresCluster
from anabranch.store.postgres.connections import connect
from anabranch.store.postgres.store import PostgresStore

HELLO = playbook(step("greet", result="hello"), name="hello")
ASKING = playbook(step("ask", "decision", "after", ask="Go on?"), step("after", result="went on"))
CANARY = "canary-51b2-sings"
_numbers = count(1)


@pytest.fixture
def settings(postgres: str) -> Settings:
    joint = "&" if "?" in postgres else "?"
    store = f"{postgres}{joint}schema=any_{next(_numbers)}"
    return Settings(store=store, store_partitions=8, grace_seconds=0.1)


@asynccontextmanager
async def engine(settings: Settings, only: tuple[str, ...] | None = None) -> AsyncIterator[Parts]:
    """With `only` as a command has it: it leaves runs to the servers, where there are any."""
    store = open_store(settings)
    parts = Parts(store, settings, Toolbox())
    try:
        await parts.open(only)
        yield parts
    finally:
        await parts.close(grace_seconds=0)
        store.close()


def member(parts: Parts) -> ClusterMember:
    assert parts.engine.member is not None
    return parts.engine.member


async def until(true: Callable[[], Any]) -> None:
    while not true():
        await asyncio.sleep(0.01)


def test_a_command_beside_a_server_owns_nothing_and_its_run_ends_at_the_server(
    settings: Settings,
) -> None:
    async def work() -> None:
        async with engine(settings) as server, engine(settings, only=()) as command:
            begun = await command.verbs.start(HELLO)
            assert (await command.verbs.wait(begun)).status == "completed"
            assert member(command).owns_nothing
            assert member(server).here(begun)
            records = await asyncio.to_thread(server.store.cluster.servers)  # type: ignore[union-attr]
            assert sorted((one.partitions, one.draining) for one in records) == [(0, True), (8, False)]  # fmt: skip  # noqa: E501

    run(work())


def test_a_command_alone_owns_all_and_leaves_other_runs_as_they_are(settings: Settings) -> None:
    async def work() -> None:
        async with engine(settings) as server:
            left = await server.verbs.start(ASKING)
            await server.verbs.wait(left, standing=True)
        async with engine(settings, only=()) as command:
            begun = await command.verbs.start(HELLO)
            assert (await command.verbs.wait(begun)).status == "completed"
            assert len(member(command)._open) == 8
            assert command.engine.live_run(left) is None

    run(work())


def test_a_server_that_comes_takes_everything_from_a_command(settings: Settings) -> None:
    async def work() -> None:
        async with engine(settings, only=()) as command:
            begun = await command.verbs.start(ASKING)
            await command.verbs.wait(begun, standing=True)
            waiting = asyncio.create_task(command.verbs.wait(begun))
            async with engine(settings) as server:
                await until(lambda: len(member(server)._open) == 8)
                assert member(command).owns_nothing
                await command.verbs.send(begun, s.Decide("ask", "fulfil", "ann"))
                assert (await waiting).status == "completed", "who waited waits on elsewhere"
                events = [event async for _, _, event in command.engine.events(begun)]
                assert len(events) == (await server.verbs.wait(begun)).seq

    run(work())


def test_with_every_notification_lost_everything_is_only_slower(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PostgresCluster, "listen", lambda _self, _heard: lambda: None)

    async def work() -> None:
        async with engine(settings), engine(settings, only=()) as other:
            begun = await other.verbs.start(ASKING)
            await other.verbs.wait(begun, standing=True)
            seen: list[str] = []
            moved: list[int] = []

            async def follow() -> None:
                async for record in other.verbs.events(begun):
                    seen.append(record.kind)

            stop = other.engine.listen_elsewhere(lambda one: moved.append(one.seq))
            following = asyncio.create_task(follow())
            await other.verbs.send(begun, s.Pause("ann", "wait"))
            await other.verbs.send(begun, s.Resume("ann"))
            await other.verbs.send(begun, s.Decide("ask", "fulfil", "ann"))
            assert (await other.verbs.wait(begun)).status == "completed"
            await following
            assert seen[-1] == "run.finished"
            head = other.store.head(begun)
            assert head is not None
            await until(lambda: moved and moved[-1] == head.seq)
            stop()

    run(work())


def test_a_message_that_becomes_visible_after_one_with_a_higher_number_is_answered(
    settings: Settings,
) -> None:
    """Two servers post at once: the numbers are given out before the commits."""

    async def work() -> None:
        async with engine(settings) as server:
            begun = await server.verbs.start(ASKING)
            await server.verbs.wait(begun, standing=True)
            store = cast(PostgresStore, server.store)
            with connect(store._address) as other:
                other.execute("BEGIN")
                row = other.execute(
                    "INSERT INTO mailbox (partition, run, nonce, body, posted_at) "
                    "VALUES (%s, %s, 'n', %s, 1) RETURNING id",
                    [store.cluster.place(begun), begun, write_message(s.Pause("ann"))],
                ).fetchone()
                assert row is not None
                later = store.post(begun, write_message(s.Wake(step="none")), 1)
                assert later > row[0]
                await until(lambda: answered(store, later))
                await asyncio.sleep(2 * SHARED_MAIL_SECONDS)  # it has looked since
                other.execute("COMMIT")
                await until(lambda: answered(store, row[0]))
            assert server.verbs.read.summary(begun)["status"] == "paused"

    run(work())


def answered(store: Store, message: int) -> bool:
    found = store.message(message)
    return found is not None and found.answer is not None


def test_a_start_elsewhere_has_its_sealed_input_and_the_store_forgets_it(
    settings: Settings,
) -> None:
    rule = {
        "payload": {"__secret": {"type": "string"}},
        "rules": [f'[__secret] == "{CANARY}"'],
        "onValid": {"payload": {"ok": True}},
    }
    secretive = orchestration("secretive", A1=process(rule="cm:xrc137:A"))

    async def work() -> None:
        async with engine(settings) as server, engine(settings, only=()) as other:
            begun = await other.verbs.start(secretive, {"__secret": CANARY}, rules={"A": rule})
            await other.verbs.wait(begun)
            shown = other.verbs.read.summary(begun)
            assert shown["steps"]["A1"]["result"] == {"ok": True}, "the rule had it"
            rows = server.store._rows("SELECT run FROM sealed", {})  # type: ignore[attr-defined]
            assert rows == []

    run(work())


def test_a_start_under_an_id_that_exists_is_refused_alike_at_both(settings: Settings) -> None:
    async def work() -> None:
        async with engine(settings) as server, engine(settings, only=()) as other:
            await server.verbs.start(HELLO, run="given")
            refusals = []
            for parts in (server, other):
                with pytest.raises(AnabranchError) as refused:
                    await parts.verbs.start(HELLO, run="given")
                refusals.append((type(refused.value), refused.value.code, refused.value.message))
            assert refusals[0] == refusals[1]

    run(work())


def test_a_refusal_is_the_same_error_at_both(settings: Settings) -> None:
    async def work() -> None:
        async with engine(settings) as server, engine(settings, only=()) as other:
            begun = await server.verbs.start(ASKING)
            await server.verbs.wait(begun, standing=True)
            refusals = []
            for parts in (server, other):
                with pytest.raises(AnabranchError) as refused:
                    await parts.verbs.send(begun, s.Resume("ann"))
                refusals.append((type(refused.value), refused.value.code, refused.value.message))
            assert refusals[0] == refusals[1]

    run(work())

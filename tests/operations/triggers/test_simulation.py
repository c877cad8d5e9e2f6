"""Triggers after finished runs, with crashes between any two calls of the store, two servers,
pauses and purges.

Laws: every finished run that fits begins one run, and no other run begins any; a purge keeps the
runs that are still to begin one, and no others for long.
"""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from anabranch.clock import ManualClock
from anabranch.kernel import events as e
from anabranch.operations.runs.purge import purge
from anabranch.operations.triggers.chains import (
    BEGUN,
    ChainDispatcher,
    FinishMatcher,
    finished_at,
    keep_hooks,
    run_after,
    trigger_name,
)
from anabranch.operations.triggers.trigger import (
    FAMILY,
    TRIGGERS,
    AfterRules,
    Trigger,
    record_of,
)
from anabranch.operations.webhooks.sender import SendResult
from anabranch.settings import Settings
from anabranch.store.hook_ports import WebhookDelivery
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Commit, Head, HeadFilter
from seeds import seeds

NOW = 1_794_916_800_000
RUNS = 30
SERVERS = 2
LOOKS = 4000  # at most


class Crash(BaseException):
    """The process is gone."""


class World:
    """One store that outlives servers."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.clock = ManualClock(NOW)
        self.store = MemoryStore()
        self.chance = self.dice.choice([0.0, 0.02, 0.1, 0.3])
        self.begun: dict[str, set[str]] = {}  # by the run that has finished
        self.fitting: set[str] = set()

    def may_crash(self) -> None:
        if self.dice.random() < self.chance:
            raise Crash

    def pause(self, at: int | None) -> None:
        """Or let it go on; as the verbs do."""
        record = self.store.record(FAMILY, "then")
        assert record is not None
        trigger = replace(TRIGGERS.document(record), paused_at=at)
        assert self.store.put_record(record_of(trigger, NOW), record.version)
        keep_hooks(self.store)

    def purge(self) -> None:
        purge(self.store, 0, self.clock.now() + 1)

    def finish(self, number: int) -> None:
        run, name = f"r{number}", self.dice.choice(["order", "other"])
        status, label = self.dice.choice(["completed", "failed"]), self.dice.choice(["a", "b"])
        if (name, status, label) == ("order", "completed", "a"):
            self.fitting.add(run)
        ended = (e.RunStarted(run, "d", name, {}), e.RunFinished(status))
        head = Head(
            run=run,
            definition="d",
            name=name,
            dialect="noetl",
            status=status,
            seq=2,
            created_at=NOW,
            updated_at=self.clock.now(),
            finished=True,
            labels={"tenant": label},
        )
        commit = Commit(
            head=head, at=self.clock.now(), events=e.encode_events(ended), count=len(ended)
        )
        self.store.commit(Batch(commits=[commit]))


class CrashingStore:
    """Crashes before a call, or after it has taken effect."""

    cluster = None

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._world.store, name)

        def call(*given: Any, **named: Any) -> Any:
            self._world.may_crash()
            found = real(*given, **named)
            self._world.may_crash()
            return found

        return call


class Dispatcher(ChainDispatcher):
    """Begins a run as the engine does: one of an id that is known is found."""

    world: World

    async def _fire(self, name: str, one: WebhookDelivery) -> SendResult:
        run = run_after(name, one.run, finished_at(one.body))
        assert self.world.store.head(one.run) is not None, "its templates read the finished run"
        self.world.may_crash()
        self.world.begun.setdefault(one.run, set()).add(run)
        self.world.may_crash()
        return SendResult(BEGUN)


def server(world: World) -> Dispatcher:
    store = cast(Any, CrashingStore(world))
    nets = cast(Any, SimpleNamespace(get=lambda _of: SimpleNamespace(private="_")))
    unused = cast(Any, None)
    made = Dispatcher(
        store,
        FinishMatcher(store, nets, 16_000),
        unused,
        unused,
        clock=world.clock,
        settings=Settings(),
    )
    made.world = world
    return made


async def look(world: World, servers: list[Dispatcher | None], number: int) -> None:
    """One look of one server, begun anew where it has crashed."""
    try:
        one = servers[number] or server(world)
        servers[number] = one
        await one.round()
        while out := list(one._out.values()):
            done, _ = await asyncio.wait(out)
            for task in done:
                task.result()
    except Crash:
        servers[number] = None


@pytest.mark.parametrize("seed", seeds(60))
def test_each_finished_run_that_fits_begins_one_run_whatever_crashes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(call: Any, *given: Any, **named: Any) -> Any:
        return call(*given, **named)

    monkeypatch.setattr(asyncio, "to_thread", at_once)
    world = World(seed)
    after = AfterRules(definition="order", labels={"tenant": "a"})
    world.finish(1000)  # before there is a trigger
    world.fitting.clear()
    world.store.put_record(record_of(Trigger(name="then", after=after), NOW))
    assert keep_hooks(world.store)

    async def go() -> None:
        servers: list[Dispatcher | None] = [None] * SERVERS
        left = list(range(RUNS))
        for _ in range(LOOKS):
            if left and world.dice.random() < 0.5:
                world.finish(left.pop())
            if world.dice.random() < 0.1:
                world.purge()
            if left and world.dice.random() < 0.1:
                world.pause(world.dice.choice([NOW, None]))
            elif not left:
                world.pause(None)
            await look(world, servers, world.dice.randrange(SERVERS))
            world.clock.advance_to(world.clock.now() + world.dice.choice([0, 1000, 70_000]))
            if not left and world.chance:
                world.chance = world.chance if world.dice.random() < 0.95 else 0.0
            if not left and not world.chance and settled(world):
                return
        raise AssertionError("not everything was acted on")

    asyncio.run(go())
    (hook,) = world.store.hooks()
    assert trigger_name(hook) == "then"
    assert set(world.begun) == world.fitting
    assert all(len(runs) == 1 for runs in world.begun.values()), "firing again is the same run"
    world.purge()
    assert world.store.heads(HeadFilter()) == []


def settled(world: World) -> bool:
    """The cursor is at the end, and nothing is pending."""
    if world.store.cursors("tr.then").get(0, 0) < world.store.positions()[0]:
        return False
    backlog = world.store.backlog().get("tr.then")
    return len(world.begun) >= len(world.fitting) and (backlog is None or not backlog.pending)

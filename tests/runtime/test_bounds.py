"""What an engine keeps to be quick has a bound, and forgetting it changes nothing that is seen."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from anabranch.clock import ManualClock
from anabranch.kernel import events as e
from anabranch.kernel.state import Job, State
from anabranch.kernel.values import succeeded
from anabranch.net.net import Net, Step, Work
from anabranch.operations.access import tokens
from anabranch.operations.access.tokens import AccessControl
from anabranch.runtime.jobs import concurrency
from anabranch.runtime.jobs.concurrency import JobQueues
from anabranch.runtime.jobs.pool_queues import POOLS_KEPT, PoolQueues
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.messages.subscribers import Subscribers
from anabranch.runtime.metrics.engine_metrics import EngineMetrics
from anabranch.runtime.metrics.registry import OTHER, SERIES_MAX
from anabranch.runtime.nets import Nets
from anabranch.runtime.timers import SLACK, RunTimers
from anabranch.runtime.values import read_rights
from anabranch.runtime.values.read_rights import ReadRights
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Definition
from anabranch.work.participants import health, rotation
from anabranch.work.participants.health import HealthOfParticipants
from anabranch.work.participants.rotation import Rotation
from anabranch.work.secrets import credential_sources, keychain
from anabranch.work.secrets.credential_sources import CommandSource
from anabranch.work.secrets.keychain import Keychain
from anabranch.work.secrets.redaction import Redactor
from anabranch.work.sql import postgres
from anabranch.work.sql.postgres import Postgres
from costs import operations

from .support import asking, engine, playbook, run, start, step


class Shelf:
    """A store of definitions, and how often each was compiled."""

    def __init__(self, **bounds: int) -> None:
        self.store = MemoryStore()
        self.compiled: list[str] = []
        self.nets = Nets(self.store, self._compile, **bounds)

    def _compile(self, definition: Definition) -> Net:
        self.compiled.append(definition.name)
        return Net(definition.name, "test", definition.fingerprint, {}, "a")

    def put(self, name: str, chars: int = 1) -> None:
        self.store.put_definition(
            Definition(fingerprint=name, dialect="test", name=name, source="x" * chars, origin=name)
        )


def test_a_net_that_a_run_holds_is_compiled_once_however_many_others_are_used() -> None:
    shelf = Shelf(nets_max=3)
    for number in range(20):
        shelf.put(f"n{number}")
    held = shelf.nets.get("n0")
    for number in range(1, 20):
        shelf.nets.get(f"n{number}")
    assert shelf.nets.get("n0") is held
    assert shelf.nets.known("n0") is held
    assert shelf.compiled.count("n0") == 1
    assert [name for name in map(str, range(20)) if shelf.nets.known(f"n{name}")] == [
        "0",
        "17",
        "18",
        "19",
    ]


def test_the_net_used_longest_ago_leaves_first() -> None:
    shelf = Shelf(nets_max=2)
    for name in ("a", "b", "c"):
        shelf.put(name)
    for name in ("a", "b", "a", "c", "a", "b"):
        shelf.nets.get(name)
    assert shelf.compiled == ["a", "b", "c", "b"]


def test_nets_are_bounded_by_the_size_of_their_sources_too() -> None:
    shelf = Shelf(source_chars_max=100)
    for name, chars in (("a", 60), ("b", 60), ("huge", 500), ("c", 60)):
        shelf.put(name, chars)
        assert shelf.nets.get(name).name == name
    assert [name for name in ("a", "b", "huge", "c") if shelf.nets.known(name)] == ["c"]


def test_a_definition_that_was_forgotten_can_be_put_again() -> None:
    shelf = Shelf(nets_max=1)
    for name in ("a", "b", "a"):
        shelf.put(name)
        found = shelf.store.definition(name)
        assert found is not None
        shelf.nets.put(found, Net(name, "test", name, {}, "a"))
    assert shelf.nets.get("a").name == "a"
    assert shelf.compiled == []


def test_runs_of_more_definitions_than_nets_are_kept_for_are_not_compiled_again() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store) as made:
            made.nets._nets_max = 2
            made.nets._compile = None  # type: ignore[assignment]
            names = [
                await start(made, playbook(step("ask", "decision", ask="?"), name=f"n{number}"))
                for number in range(8)
            ]
            for name in names:
                live = made.live_run(name)
                assert live is not None
                assert made.nets.get(live.net.fingerprint) is live.net

    run(scenario())


def test_alarms_that_are_out_of_date_do_not_pile_up() -> None:
    timers, dice = RunTimers(), random.Random(7)
    wanted: dict[str, int] = {}
    timers.set("first", 1)
    wanted["first"] = 1
    for at in range(5_000):
        name = f"r{dice.randrange(20)}"
        if dice.random() < 0.1:
            timers.set(name, None)
            wanted.pop(name, None)
        else:
            wanted[name] = 1_000_000 - at
            timers.set(name, wanted[name])
        assert len(timers._heap) <= 2 * len(timers) + SLACK
    assert sorted(wanted.items()) == sorted((run, at) for at, run in timers.due(2_000_000))


def test_a_reader_that_gave_up_on_a_run_is_forgotten() -> None:
    async def scenario() -> None:
        known = Subscribers()
        stays = known.watch("r")
        for _ in range(100):
            known.watch("r").cancel()
        known.watch("other").cancel()
        await asyncio.sleep(0)
        assert known._watchers == {"r": [stays]}

    run(scenario())


def test_a_reader_of_events_is_forgotten_when_the_run_has_ended_or_it_leaves() -> None:
    async def scenario() -> None:
        async with engine() as made:
            ended = await start(made, playbook(step("only")))
            await made.wait(ended)
            async for _ in made.events(ended):
                pass
            left = await start(made, asking())
            reader = made.events(left)
            await anext(reader)
            await reader.aclose()  # type: ignore[attr-defined]
            await asyncio.sleep(0)
            assert made.subscribers._watchers == {}

    run(scenario())


def test_asking_for_pools_of_any_name_does_not_forget_one_with_jobs() -> None:
    pools = PoolQueues()
    pools.add("r", "1.0", 1, "gpu", 5)
    for number in range(POOLS_KEPT + 500):
        pools.saw(f"p{number}", "w", number)
    assert len(pools.names()) == POOLS_KEPT
    assert pools.waiting("gpu") == 1
    assert pools.asked(f"p{POOLS_KEPT + 499}")
    assert not pools.asked("p1")
    assert [ready.job for ready in pools.take("gpu", 5)] == ["1.0"]


def test_lanes_of_kinds_that_are_seen_no_more_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(concurrency, "LANES_KEPT", 3)
    lanes = JobQueues()
    for number in range(10):
        lanes.add("r", f"{number}.0", 1, f"kind{number}")
        for ready in lanes.take():
            lanes.free(ready.run, ready.job)
    assert len(lanes.waiting()) == len(lanes.in_use()) == 3
    assert lanes.at_work == lanes.queued == 0


def test_kinds_of_jobs_are_counted_apart_up_to_a_number() -> None:
    metrics = EngineMetrics()
    for number in range(SERIES_MAX + 50):
        one = Net("n", "test", "f", {"s": Step("s", Work(kind=f"k{number}"))}, "s")
        live = LiveRun(one, State(jobs={"1.0": Job("1.0", 1, -1, "s", 1, 0)}))
        metrics.began(live, e.JobStarted("1.0", 1, "engine"))
        metrics.ended(live, e.JobReported("1.0", 1, succeeded(None)))
    assert len(metrics._kinds) == SERIES_MAX
    assert metrics.jobs_started.value(("k7",)) == 1
    assert metrics.jobs_started.value((OTHER,)) == 50


def test_what_is_known_of_definitions_for_workers_is_found_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(read_rights, "STARTS_KEPT", 3)
    rights = ReadRights(MemoryStore(), Shelf().nets, lambda _pool: False)
    for number in range(10):
        assert not rights.lends(Net("n", "test", str(number), {}, "a"))
        assert len(rights._lends) <= 3


def test_participants_that_are_asked_no_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "NAMES_KEPT", 3)
    monkeypatch.setattr(rotation, "NAMES_KEPT", 3)
    conditions, turns = HealthOfParticipants(), Rotation()
    for at, name in enumerate(["a", "b", "c", "a", "d"]):
        conditions.note(name, "answered", at + 1)
        turns.recall([name])
    assert list(conditions.names()) == ["a", "c", "d"]
    assert conditions.of("a").answered == 2
    assert turns.chosen(["a", "b", "c", "d"], 2) == ["b", "c"], "who is forgotten goes first"


def test_a_participant_more_than_are_remembered_costs_no_more_than_one_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def noting(kept: int) -> int:
        monkeypatch.setattr(health, "NAMES_KEPT", kept)
        conditions = HealthOfParticipants()
        for number in range(kept):
            conditions.note(f"p{number}", "answered", number)
        return operations(lambda: conditions.note("another", "answered", kept))

    assert noting(1000) <= noting(10) + 10


def test_uses_of_tokens_are_forgotten_when_their_minute_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "TOKENS_NOTED", 3)
    clock = ManualClock(1_000_000)
    access = AccessControl(MemoryStore(), clock.now)
    for number in range(20):
        assert access.to_note(f"t{number}") is not None
        assert access.to_note(f"t{number}") is None
        clock.advance_to(clock.now() + tokens.USE_NOTED_MS // 2)
    assert len(access._noted) <= 3


def test_names_that_a_command_was_asked_for_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credential_sources, "NAMES_KEPT", 3)
    monkeypatch.setattr(credential_sources, "KEPT_SECONDS", -1.0)
    asked: list[str] = []

    async def scenario() -> None:
        source = CommandSource("true", 5)

        async def printed(name: str) -> str:
            asked.append(name)
            return ""

        monkeypatch.setattr(source, "_printed", printed)
        for number in range(20):
            assert await source.find(f"c{number}") is None
        assert len(source._asking) <= 4
        assert len(source._known) <= 4

    run(scenario())
    assert len(asked) == 20


def test_sources_of_tokens_are_kept_for_the_entries_used_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keychain, "ENTRIES_KEPT", 3)

    async def scenario() -> None:
        keys = Keychain(Redactor())

        def source(number: int) -> Any:
            return keys._source("api", {"kind": "oauth2", "client_id": f"c{number}"})

        first = source(0)
        for number in range(1, 10):
            source(number)
            assert source(0) is first, "it is used all the time"
        assert len(keys._sources) == 3
        await keys.close()

    run(scenario())


def test_connections_are_kept_for_the_addresses_used_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "POOLS_KEPT", 3)

    async def scenario() -> None:
        database = Postgres()
        first = database.pool(None, "host=0")
        for number in range(1, 10):
            database.pool(None, f"host={number}")
            assert database.pool(None, "host=0") is first
        assert len(database._pools) == 3
        await database.close()
        assert not database._closing

    run(scenario())


def test_a_run_that_is_set_aside_is_all_that_is_kept_of_it() -> None:
    """One entry a run: there are no more of them than runs that have not ended."""

    async def scenario() -> None:
        async with engine() as made:
            name = await start(made, playbook(step("ask", "decision", ask="?")))
            made._core._set_aside(name, ValueError("a defect"))
            assert list(made.set_aside) == [name]
            assert made.live_run(name) is None

    run(scenario())

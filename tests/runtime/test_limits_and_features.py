"""Limits across runs where they meet schedules, triggers, redrives, children, pauses, purges and
restarts. A plain model says which runs hold a place; the log shows that no limit was exceeded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from anabranch import Engine
from anabranch.errors import Refused
from anabranch.kernel import events as e
from anabranch.operations.definitions.prepare import prepare
from anabranch.operations.schedules.schedules import ScheduleDraft
from anabranch.operations.triggers.triggers import AfterDraft, TriggerDraft
from anabranch.store.ports import HeadFilter
from seeds import seeds

from .support import playbook, run, step


def limited(when_full: str = "queue", name: str = "limited", **more: Any) -> str:
    """Holds its place until somebody decides."""
    limit = {"limit": 1, "when_full": when_full}
    return playbook(step("ask", "decision", ask="go on?"), name=name, concurrency=limit, **more)


async def until(fits: Callable[[], bool]) -> None:
    while not fits():  # under the limit of `run`
        await asyncio.sleep(0.01)


def status(engine: Engine, name: str) -> str:
    head = engine.read.store.head(name)
    return "" if head is None else head.status


async def becomes(engine: Engine, name: str, wanted: str) -> None:
    await until(lambda: status(engine, name) == wanted)


async def finish(engine: Engine, name: str) -> None:
    await becomes(engine, name, "waiting")
    await engine.decide(name, "ask", "fulfil")
    await becomes(engine, name, "completed")


def known(engine: Engine) -> set[str]:
    return {head.run for head in engine.read.store.heads(HeadFilter(limit=1000))}


# -- schedules -------------------------------------------------------------------------------


@pytest.mark.parametrize("when_full", ["queue", "reject", "cancel_oldest"])
def test_a_tick_waits_is_refused_or_takes_the_place_as_its_limit_says(when_full: str) -> None:
    async def work() -> None:
        async with Engine(":memory:") as engine:
            text = limited(when_full)
            draft = ScheduleDraft(name="tick", definition=text, every="1h")
            engine.schedules.add(draft, prepare(text))
            first = engine.schedules.run_now("tick").run
            await becomes(engine, first, "waiting")
            second = engine.schedules.run_now("tick").run
            if when_full == "reject":
                await until(lambda: engine.schedules.show("tick").last[0].outcome == "refused")
                assert "limited is full" in engine.schedules.show("tick").last[0].why
                assert known(engine) == {first}
                second = ""
            elif when_full == "cancel_oldest":
                await becomes(engine, first, "cancelled")
            else:
                await becomes(engine, second, "queued")
            if when_full != "cancel_oldest":
                await finish(engine, first)
            if second:
                await finish(engine, second)
            third = engine.schedules.run_now("tick").run
            await finish(engine, third)
            assert engine.read.store.limited_keys() == []

    run(work())


@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel_running"])
def test_a_queued_run_of_a_schedule_is_one_that_goes_on(overlap: str) -> None:
    async def work() -> None:
        async with Engine(":memory:") as engine:
            holder = await engine.start(limited())
            await becomes(engine, holder, "waiting")
            text = limited()
            draft = ScheduleDraft(name="tick", definition=text, every="1s", overlap=overlap)
            engine.schedules.add(draft, prepare(text))

            def of_schedule() -> list[str]:
                return [
                    head.status
                    for head in engine.read.store.heads(HeadFilter(labels={"schedule": "tick"}))
                ]

            def gone_by() -> int:
                card = engine.schedules.show("tick")
                return card.queued + sum(card.skipped.values()) + len(of_schedule()) - 1

            await until(lambda: gone_by() >= 2)
            engine.schedules.pause("tick")
            while (waiting := Counter(of_schedule()))["queued"] > 1:
                await asyncio.sleep(0.01)  # a run begins before the one that it replaces is told
            assert waiting.keys() <= {"queued", "cancelled"}
            assert overlap == "cancel_running" or waiting == {"queued": 1}
            assert status(engine, holder) == "waiting", "no tick took its place"

    run(work())


# -- triggers --------------------------------------------------------------------------------


@pytest.mark.parametrize("when_full", ["queue", "reject"])
def test_a_run_after_another_waits_for_its_place_or_is_kept_as_refused(when_full: str) -> None:
    async def work() -> None:
        async with Engine(":memory:") as engine:
            text = limited(when_full, name="report")
            after = AfterDraft(definition="before")
            draft = TriggerDraft(name="then", after=after, definition=text, input={})
            engine.triggers.add(draft, prepare(text))
            holder = await engine.start(text)
            await becomes(engine, holder, "waiting")
            await engine.wait(await engine.start(playbook(step("a"), name="before")))

            def others() -> list[str]:
                found = engine.read.store.heads(HeadFilter(labels={"trigger": "then"}))
                return [head.run for head in found]

            if when_full == "reject":
                await until(lambda: engine.triggers.show("then").refused == 1)
                assert others() == []
                await finish(engine, holder)
                engine.triggers.retry("then")
                await until(lambda: len(others()) == 1)
            else:
                await until(lambda: len(others()) == 1)
                await becomes(engine, others()[0], "queued")
                await finish(engine, holder)
            await finish(engine, others()[0])

    run(work())


# -- redrives, children, pauses --------------------------------------------------------------


def test_a_redrive_waits_with_the_priority_of_its_origin_and_reject_refuses_it() -> None:
    async def work() -> None:
        async with Engine(":memory:") as engine:
            first = await engine.start(limited(), priority=7)
            await becomes(engine, first, "waiting")
            await engine.cancel(first)
            await becomes(engine, first, "cancelled")
            holder = await engine.start(limited())
            await becomes(engine, holder, "waiting")  # before another asks
            plain = await engine.start(limited())
            again = await engine.redrive(first)
            await until(lambda: len(engine.read.store.admissions("limited")) == 3)
            (place,) = engine.read.store.places(again)
            assert (place.admission.priority, place.place) == (7, 1)
            for name in (holder, again, plain):
                await finish(engine, name)
            refusing = limited("reject", name="refusing")
            one = await engine.start(refusing)
            await becomes(engine, one, "waiting")
            await engine.cancel(one)
            other = await engine.start(refusing)
            await becomes(engine, other, "waiting")
            before = known(engine)
            with pytest.raises(Refused) as refused:
                await engine.redrive(one)
            assert refused.value.code == "limit_full"
            assert known(engine) == before
            await finish(engine, other)

    run(work())


def has_asked(engine: Engine, count: int) -> bool:
    return len(engine.read.store.admissions("child")) == count


def test_a_queued_child_leaves_the_queue_with_its_parent(tmp_path: Path) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(limited(name="child"))
    parent = playbook(step("kid", "playbook", path=str(child), return_result=True), name="parent")

    async def work() -> None:
        async with Engine(":memory:") as engine:
            parents = []
            for count in range(1, 4):
                parents.append(await engine.start(parent))
                await until(partial(has_asked, engine, count))
            first, second, third = [one.run for one in engine.read.store.admissions("child")]
            await becomes(engine, first, "waiting")
            await engine.cancel(parents[1])
            await becomes(engine, second, "cancelled")
            assert status(engine, third) == "queued"
            await finish(engine, first)
            await finish(engine, third)
            ends = [(await engine.wait(name)).status for name in parents]
            assert ends == ["completed", "cancelled", "completed"]

    run(work())


def test_a_paused_queued_run_gets_its_place_in_turn_and_begins_when_it_is_resumed() -> None:
    async def work() -> None:
        async with Engine(":memory:") as engine:
            first, second, third = [  # in this order also where they begin in one millisecond
                await engine.start(limited(), run=name) for name in ("a", "b", "c")
            ]
            await until(lambda: len(engine.read.store.admissions("limited")) == 3)
            await engine.pause(second)
            assert status(engine, second) == "paused"
            await finish(engine, first)
            await until(lambda: engine.read.store.places(second)[0].place == 0)
            assert (status(engine, second), status(engine, third)) == ("paused", "queued")
            await engine.cancel(second)
            await finish(engine, third)
            assert status(engine, second) == "cancelled"

    run(work())


# -- several limits --------------------------------------------------------------------------


def test_a_run_that_waits_under_one_key_takes_no_place_under_another() -> None:
    """And is not refused where there is room."""

    def under(*limits: tuple[str, str]) -> str:
        several = [
            {"key": key, "limit": 1, "when_full": policy, "shared": True} for key, policy in limits
        ]
        return playbook(step("ask", "decision", ask="go on?"), name="p", concurrency=several)

    async def work() -> None:
        async with Engine(":memory:") as engine:
            holder = await engine.start(under(("a", "queue")))
            await becomes(engine, holder, "waiting")
            patient = await engine.start(under(("a", "queue"), ("b", "reject")))
            await becomes(engine, patient, "queued")
            await until(lambda: len(engine.read.store.places(patient)) == 2)
            other = await engine.start(under(("b", "queue")))
            await becomes(engine, other, "waiting")
            await becomes(engine, patient, "cancelled")  # now b is full
            await finish(engine, other)
            patient = await engine.start(under(("a", "queue"), ("b", "reject")))
            await becomes(engine, patient, "queued")
            await until(lambda: len(engine.read.store.places(patient)) == 2)
            await finish(engine, await engine.start(under(("b", "reject"))))
            await finish(engine, holder)

    run(work())


# -- whatever happens ------------------------------------------------------------------------

CUSTOMERS = ("a", "b")
POLICIES = ("queue", "queue", "reject", "cancel_oldest")


def definition(policy: str) -> str:
    """Of `queue` two limits: two of a customer, three of all together."""
    own = {"key": "{{ input.customer }}", "limit": 2, "when_full": policy}
    every = {"key": "every", "limit": 3, "shared": True}
    return playbook(
        step("ask", "decision", ask="go on?"),
        name=policy,
        concurrency=[own, every] if policy == "queue" else own,
        workload={"customer": "a"},
    )


@dataclass
class Expected:
    """A run, as the model has it."""

    name: str
    policy: str
    customer: str
    priority: int
    asked: tuple[int, str]
    state: str = "queued"  # holding, or how it ended
    paused: bool = False

    @property
    def keys(self) -> dict[str, int]:
        own = {f"{self.policy}[{self.customer}]": 2}
        return {**own, "[every]": 3} if self.policy == "queue" else own

    @property
    def status(self) -> str:
        if self.state not in ("queued", "holding"):
            return self.state
        return "paused" if self.paused else {"queued": "queued", "holding": "waiting"}[self.state]


class Model:
    def __init__(self) -> None:
        self.runs: dict[str, Expected] = {}

    def open(self, key: str = "") -> list[Expected]:
        found = [one for one in self.runs.values() if one.state in ("queued", "holding")]
        return [one for one in found if not key or key in one.keys]

    def held(self, key: str) -> int:
        return sum(one.state == "holding" for one in self.open(key))

    def is_refused(self, policy: str, customer: str) -> bool:
        return policy == "reject" and len(self.open(f"{policy}[{customer}]")) >= 2

    def settle(self) -> None:
        """The oldest make room where the policy says so; whoever has room under all keys begins."""
        for key in {key for one in self.open() for key in one.keys if "cancel_oldest" in key}:
            there = sorted(self.open(key), key=lambda one: one.asked)
            for one in there[: max(0, len(there) - 2)]:
                one.state = "cancelled"
        for one in sorted(self.open(), key=lambda one: (-one.priority, one.asked)):
            room = all(self.held(key) < limit for key, limit in one.keys.items())
            if one.state == "queued" and room:
                one.state = "holding"


class Trial:
    """Does something at random, and waits until the engine says what the model says."""

    def __init__(self, seed: int, store: Path) -> None:
        self.dice = Random(seed)
        self.model = Model()
        self.store = store
        self.done: Counter[str] = Counter()

    async def play(self) -> None:
        for _ in range(4):
            async with Engine(self.store) as engine:
                await self.agree(engine)  # after a restart, too
                for _ in range(8):
                    await self.act(engine)
                    await self.agree(engine)
        async with Engine(self.store) as engine:
            while found := [one for one in self.model.open() if one.state == "holding"]:
                await self.end(engine, found[0])
                await self.agree(engine)
            assert self.model.open() == [], "each of them got its place"
            assert engine.read.store.limited_keys() == []
            self.check_log(engine)

    async def act(self, engine: Engine) -> None:
        act = self.dice.choice(("start", "start", "start", "end", "cancel", "pause", "redrive"))
        if act in ("start", "redrive"):
            await self.begin(engine, again=act == "redrive")
            return
        there = [one for one in self.model.open() if act != "end" or one.state == "holding"]
        if not there:
            return
        one = self.dice.choice(there)
        self.done[act] += 1
        if act == "end":
            await self.end(engine, one)
        elif act == "cancel":
            await engine.cancel(one.name)
            one.state = "cancelled"
        elif one.paused:
            await engine.resume(one.name)
            one.paused = False
        else:
            await engine.pause(one.name)
            one.paused = True
        self.model.settle()

    async def end(self, engine: Engine, one: Expected) -> None:
        if one.paused:
            await engine.resume(one.name)
            one.paused = False
        await becomes(engine, one.name, "waiting")
        await engine.decide(one.name, "ask", "fulfil")
        one.state = "completed"
        self.model.settle()

    async def begin(self, engine: Engine, *, again: bool) -> None:
        origins = [one for one in self.model.runs.values() if one.state == "cancelled"]
        if again and not origins:
            return
        policy, customer = self.dice.choice(POLICIES), self.dice.choice(CUSTOMERS)
        priority = self.dice.choice((0, 0, 5))
        origin = self.dice.choice(origins) if again else None
        if origin is not None:
            policy, customer, priority = origin.policy, origin.customer, origin.priority

        async def begun() -> str:
            if origin is not None:
                return await engine.redrive(origin.name, again=True)
            given = {"customer": customer}
            return await engine.start(definition(policy), given, priority=priority)

        if self.model.is_refused(policy, customer):
            with pytest.raises(Refused) as refused:
                await begun()
            assert refused.value.code == "limit_full"
            self.done["refused"] += 1
            return
        name = await begun()
        head = engine.read.store.head(name)
        assert head is not None
        one = Expected(name, policy, customer, priority, (head.created_at, name))
        self.model.runs[name] = one
        self.done["redrive" if again else "start"] += 1
        self.model.settle()

    async def agree(self, engine: Engine) -> None:
        wanted = {one.name: one.status for one in self.model.runs.values()}
        await until(lambda: {name: status(engine, name) for name in wanted} == wanted)
        for one in self.model.open():  # who is paused looks the same; rows come a moment later
            await until(partial(self.is_so, engine, one))

    def is_so(self, engine: Engine, one: Expected) -> bool:
        held = {place.place == 0 for place in engine.read.store.places(one.name)}
        return held == {one.state == "holding"}

    def check_log(self, engine: Engine) -> None:
        """At no moment did more runs hold a key than its limit says."""
        held: Counter[str] = Counter()
        inside: set[str] = set()
        for entry in engine.read.store.feed(0, 100_000):
            one = self.model.runs[entry.run]
            for event in e.decode_events(entry.events):
                if isinstance(event, e.RunAdmitted):
                    inside.add(one.name)
                    held.update(list(one.keys))
                if isinstance(event, e.RunFinished) and one.name in inside:
                    inside.remove(one.name)
                    held.subtract(list(one.keys))
                assert all(held[key] <= limit for key, limit in one.keys.items()), (one, held)
        assert inside == set()


@pytest.mark.parametrize("seed", seeds(60))
def test_whatever_is_done_the_places_are_given_as_the_model_says(seed: int, tmp_path: Path) -> None:
    trial = Trial(seed, tmp_path / "a.db")
    run(trial.play())
    assert trial.done["start"] > 3

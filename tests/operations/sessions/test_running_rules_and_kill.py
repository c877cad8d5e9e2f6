"""Rules that run are never interrupted by a kill: with an engine, across engines, without one."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.clock import SystemClock
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer, WakeRequest, succeeded
from anabranch.operations.definitions.prepare import compiler, prepare
from anabranch.operations.read.reader import Reader
from anabranch.operations.sessions.sessions import Sessions
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.nets import Nets
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.work.port import Task
from dialects.xrc729.orchestrations import join, orchestration, step, then

from .support import run

RACE = orchestration(
    "race",
    A1=step(then("G1", "H1", join=join("J1", "any", "G1", "H1", wait="kill"))),
    G1=step(), H1=step(then("K1")), J1=step(), K1=step(),
)  # fmt: skip


class Rules:
    """Stands for the evaluation of rules: each step answers when it is let."""

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.begun: dict[str, asyncio.Event] = {}
        self.interrupted: list[str] = []
        self.answers: dict[str, Answer] = {}

    def gate(self, step_name: str) -> asyncio.Event:
        return self.gates.setdefault(step_name, asyncio.Event())

    def started(self, step_name: str) -> asyncio.Event:
        return self.begun.setdefault(step_name, asyncio.Event())

    async def perform(self, task: Task) -> Answer:
        self.started(task.step).set()
        try:
            if task.step in self.gates:
                await self.gates[task.step].wait()
        except asyncio.CancelledError:
            self.interrupted.append(task.step)
            raise
        return self.answers.get(task.step, succeeded({}, outcome="valid"))


def engine_on(store: MemoryStore, rules: Rules) -> EngineLoop:
    nets = Nets(store, compiler())
    return EngineLoop(store, nets, {"rule": rules}, clock=SystemClock(), settings=Settings())


def sessions_of(made: EngineLoop) -> Sessions:
    return Sessions(made.store, Reader(made.store, made.nets), made.send)


async def started(made: EngineLoop, document: Any, **given: Any) -> str:
    prepared = prepare(document)
    return await made.start(prepared.definition, prepared.net, **given)


def statuses(made: EngineLoop, session: str) -> dict[str, str]:
    return {row["step"]: row["status"] for row in sessions_of(made).list_sessions(run=session)}


def test_a_join_that_kills_lets_a_running_rule_finish() -> None:
    async def whole() -> None:
        rules = Rules()
        late = rules.gate("H1")
        async with engine_on(MemoryStore(), rules) as made:
            session = await started(made, RACE)
            await rules.started("J1").wait()
            assert statuses(made, session)["H1"] == "running"
            late.set()
            await made.wait(session)
            assert rules.interrupted == []
            assert statuses(made, session) == {
                "A1": "done", "J1": "done", "G1": "done", "H1": "done",
            }  # fmt: skip

    run(whole())


def test_what_a_killed_step_asked_of_others_still_happens() -> None:
    """It was done, and its wake-ups belong to what it did."""
    sleeper = orchestration("sleeper", A1=step(then("W1")), W1=step())

    async def whole() -> None:
        rules = Rules()
        late = rules.gate("H1")
        async with engine_on(MemoryStore(), rules) as made:
            rules.answers["A1"] = succeeded({}, outcome="valid", wait_ms=3_600_000)
            asleep = await started(made, sleeper, run="asleep")
            while statuses(made, asleep).get("W1") != "waiting":
                await asyncio.sleep(0.002)
            del rules.answers["A1"]
            wake = (WakeRequest("asleep", "W1"),)
            rules.answers["H1"] = Answer(status="ok", outcome="valid", wakes=wake)
            await started(made, RACE)
            await rules.started("J1").wait()
            late.set()
            await made.wait(asleep)

    run(whole())


def test_killing_a_session_waits_for_the_rule_that_runs_and_then_aborts_it() -> None:
    async def whole() -> None:
        rules = Rules()
        late = rules.gate("G1")
        wake = (WakeRequest("nobody", "W1"),)
        rules.answers["G1"] = Answer(status="ok", outcome="valid", wakes=wake)
        async with engine_on(MemoryStore(), rules) as made:
            session = await started(made, RACE)
            await rules.started("G1").wait()
            told = await sessions_of(made).control(session)
            assert told["affected"] >= 2
            assert statuses(made, session)["G1"] == "running"
            late.set()
            await made.wait(session)
            assert rules.interrupted == []
            assert statuses(made, session)["G1"] == "aborted"

    run(whole())


def test_a_session_left_by_a_crash_is_killed_without_an_engine() -> None:
    """Nobody evaluates its rules any more, so nobody is waited for."""

    async def whole() -> None:
        store, rules = MemoryStore(), Rules()
        rules.gate("A1")
        crashed = engine_on(store, rules)
        await crashed.open()
        session = await started(crashed, RACE)
        await rules.started("A1").wait()
        crashed._core.live.clear()  # its memory is gone, and what its workers say is not heard
        crashed._executor._offer = lambda _run, _stimulus: None
        await crashed.close(0)

        second = engine_on(store, Rules())
        await second.open(run_jobs=False)
        try:
            await second.send(session, s.Cancel("me", "enough"))
            head = store.head(session)
            assert head is not None
            assert (head.status, head.finished) == ("cancelled", True)
        finally:
            await second.close(0)

    run(whole())

"""Waiting processes are woken by time, by their owner, by whom they allow, and by other rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.errors import InputError, NotFound, Refused
from anabranch.kernel import events as e
from anabranch.runtime.live_run import history
from anabranch.store.sqlite.store import SqliteStore
from dialects.xrc729.orchestrations import join, orchestration, step, then

from .support import (
    FRIEND,
    NOTHING,
    OTHER,
    OWNER,
    engine,
    rule,
    run,
    until_waiting,
    waits,
)

SLEEPER = orchestration(
    "sleeper", A1=step(then("W1", "W1"), rule="cm:xrc137:A"), W1=step(rule="cm:xrc137:W")
)
HOUR = {"A": waits(3600), "W": rule({"n": "int64=0"}, valid={"n": "[n] + 1"})}
BELL = orchestration("bell", B1=step(rule="cm:xrc137:B"))
BELL_RULE = "0x" + "b" * 40


def bell(**wake: Any) -> dict[str, Any]:
    """A rule that wakes W1 of the session in its payload."""
    asked = {"runner": "[from]", "sessionId": "[session]", "stepId": "W1", **wake}
    branch = {"payload": {"n": 40, "_hidden": 1}, "wakeUps": [asked]}
    return rule({"session": "string"}, onValid=branch, address=BELL_RULE)


def test_by_pid_only_that_process_goes_on_and_its_payload_is_merged() -> None:
    async def whole() -> None:
        async with engine() as made:
            session = await made.start(SLEEPER, rules=HOUR, labels={"owner": OWNER})
            pid = await until_waiting(made, session, "W1")
            told = await made.sessions.wake_up_process(pid, payload={"n": 6, "_x": 1})
            assert told == {
                "ok": True,
                "owner": OWNER,
                "sessionId": "1",
                "rootPid": "1:1",
                "mode": "pid",
                "woken": 1,
            }
            while made.sessions.step_executed(session, 2) is not True:
                await asyncio.sleep(0.005)
            (receipt,) = made.sessions.receipts(session, iteration=2)
            assert receipt["payload"] == {"n": 7}
            assert made.sessions.step_executed(session, 3) is False
            assert (await made.sessions.wake_up_process(pid))["woken"] == 0

    run(whole())


def test_by_step_all_that_wait_there_go_on() -> None:
    async def whole() -> None:
        async with engine() as made:
            session = await made.start(SLEEPER, rules=HOUR)
            await until_waiting(made, session, "W1")
            told = await made.sessions.wake_up_process(session, step="W1")
            assert (told["mode"], told["woken"]) == ("step", 2)
            assert (await made.wait(session)).status == "completed"

    run(whole())


def test_others_need_to_be_named_by_the_waiting_process() -> None:
    async def whole() -> None:
        async with engine() as made:
            given = {"__wakeUp": {"steps": {"W1": {"rpc": [FRIEND]}}}}
            session = await made.start(SLEEPER, given, rules=HOUR, labels={"owner": OWNER})
            await until_waiting(made, session, "W1")
            wake = made.sessions.wake_up_process
            with pytest.raises(Refused, match="not allowed"):
                await wake(session, step="W1", runner=OTHER)
            assert (await wake(session, step="W1", runner=FRIEND))["woken"] == 2

    run(whole())


def test_what_is_asked_for_must_make_sense() -> None:
    async def whole() -> None:
        async with engine() as made:
            session = await made.start(SLEEPER, rules=HOUR)
            wake = made.sessions.wake_up_process
            for wrong in (session, f"{session}:x", f"{session}:0"):
                with pytest.raises(InputError):
                    await wake(wrong)
            with pytest.raises(InputError):
                await wake(f"{session}:2", step="W1")
            with pytest.raises(NotFound):
                await wake("nobody", step="W1")

    run(whole())


def test_an_open_join_is_not_woken() -> None:
    document = orchestration(
        A1=step(then("W1", join=join("J1", "any", "W1")), rule="cm:xrc137:A"),
        W1=step(rule="cm:xrc137:W"),
        J1=step(rule="cm:xrc137:W"),
    )

    async def whole() -> None:
        async with engine() as made:
            session = await made.start(document, rules=HOUR)
            await until_waiting(made, session, "W1")
            assert (await made.sessions.wake_up_process(session, step="J1"))["woken"] == 0

    run(whole())


def test_those_who_come_up_at_the_same_time_go_on_in_the_order_in_which_they_fell_asleep() -> None:
    many = 12
    document = orchestration(
        "crowd", A1=step(then(*["W1"] * many), rule="cm:xrc137:A"), W1=step(rule="cm:xrc137:W")
    )

    async def whole() -> None:
        async with engine() as made:
            session = await made.start(document, rules={"A": waits(1), "W": NOTHING})
            assert (await made.wait(session)).status == "completed"
            woken = [
                record.fields["token"]
                async for record in made.events(session)
                if record.kind == "token.woken"
            ]
            assert woken == list(range(2, 2 + many))

    run(whole())


# -- wake-ups of rules -----------------------------------------------------------------------


async def ring(
    made: anabranch.Engine, session: str, owner: str, **wake: Any
) -> anabranch.RunResult:
    rules = {"B": bell(**wake)}
    rung = await made.start(BELL, {"session": session}, rules=rules, labels={"owner": owner})
    return await made.wait(rung)


def test_a_rule_wakes_a_process_of_another_session_of_the_same_owner() -> None:
    async def whole() -> None:
        async with engine() as made:
            session = await made.start(SLEEPER, rules=HOUR, labels={"owner": OWNER})
            await until_waiting(made, session, "W1")
            await ring(made, session, OWNER, payload={"n": 41, "_secret": 1})
            result = await made.wait(session)
            assert result.steps["W1"]["result"] == {"n": 42}, "the wake-up's own payload wins"

    run(whole())


def test_the_output_of_the_step_travels_with_its_wake_up() -> None:
    async def whole() -> None:
        async with engine() as made:
            session = await made.start(SLEEPER, rules=HOUR, labels={"owner": OWNER})
            await until_waiting(made, session, "W1")
            await ring(made, session, OWNER)
            assert (await made.wait(session)).steps["W1"]["result"] == {"n": 41}

    run(whole())


@pytest.mark.parametrize(
    ("internal", "woken"),
    [
        (None, False),
        ([FRIEND], True),
        (["*"], True),
        ({"allow": ["*"], "fromXRC137": [BELL_RULE]}, True),
        ({"allow": ["*"], "fromXRC137": [OTHER]}, False),
    ],
)
def test_a_rule_of_somebody_else_needs_to_be_allowed(internal: Any, woken: bool) -> None:
    async def whole() -> None:
        async with engine() as made:
            given = {} if internal is None else {"__wakeUp": {"default": {"internal": internal}}}
            session = await made.start(SLEEPER, given, rules=HOUR, labels={"owner": OWNER})
            await until_waiting(made, session, "W1")
            result = await ring(made, session, FRIEND, runner=OWNER)
            assert result.status == "completed", "a request that is not granted hurts nobody"
            if woken:
                await made.wait(session)
            statuses = [row["status"] for row in made.sessions.list_sessions(run=session)]
            assert statuses == ["done", *(["done" if woken else "waiting"] * 2)]

    run(whole())


@pytest.mark.parametrize(
    ("owner", "runner", "woken"),
    [
        (OWNER, OWNER, True),
        (OWNER, OWNER.upper().replace("X", "x"), True),
        (OWNER, OTHER, False),
        (OWNER, "", False),
        (OWNER, "[Nobody]", False),
        ("", OWNER, False),
        ("", "", True),
    ],
)
def test_a_wake_up_reaches_only_the_session_of_the_runner_it_names(
    owner: str, runner: str, woken: bool
) -> None:
    async def whole() -> None:
        async with engine() as made:
            given = {"__wakeUp": {"default": {"internal": ["*"]}}}
            session = await made.start(SLEEPER, given, rules=HOUR, labels={"owner": owner})
            await until_waiting(made, session, "W1")
            assert (await ring(made, session, FRIEND, runner=runner)).status == "completed"
            if woken:
                await made.wait(session)
            statuses = [row["status"] for row in made.sessions.list_sessions(run=session)]
            assert statuses == ["done", *(["done" if woken else "waiting"] * 2)]

    run(whole())


@pytest.mark.parametrize("target", ["nobody", "", "W1"])
def test_a_wake_up_for_nobody_is_ignored(target: str) -> None:
    async def whole() -> None:
        async with engine() as made:
            assert (await ring(made, target, OWNER)).status == "completed"

    run(whole())


def test_the_wake_is_durable_in_the_very_commit_of_the_step_that_asked(tmp_path: Path) -> None:
    """So a crash loses or repeats neither without the other, and nothing has to be sent again."""
    path = str(tmp_path / "store.db")
    asleep: list[str] = []

    async def whole() -> None:
        async with engine(path) as made:
            session = await made.start(SLEEPER, rules=HOUR, labels={"owner": OWNER})
            asleep.append(session)
            await until_waiting(made, session, "W1")
            result = await ring(made, session, OWNER)
            asleep.append(result.run)

    run(whole())
    store = SqliteStore(path, read_only=True)
    try:
        session, rung = asleep
        woken = [
            at
            for at, event in history(store.read(session))
            if isinstance(event, e.TokenWoken) and event.by == f"{rung}:1"
        ]
        reported = [
            at for at, event in history(store.read(rung)) if isinstance(event, e.JobReported)
        ]
        assert len(woken) == 2
        assert set(woken) == set(reported), "one turn, one transaction"
    finally:
        store.close()


def test_a_sleeping_session_goes_on_after_a_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")

    async def begin() -> str:
        async with engine(path) as made:
            session = await made.start(SLEEPER, rules={**HOUR, "A": waits(1), "W": NOTHING})
            await until_waiting(made, session, "W1")
            return session

    async def go_on(session: str) -> str:
        async with engine(path) as made:
            return (await made.wait(session)).status

    assert run(go_on(run(begin()))) == "completed"

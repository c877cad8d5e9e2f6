"""A session is (owner, number): every owner counts their own, and ids of runs still name them."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anabranch.dialects.xrc729.words import SESSION
from anabranch.errors import InputError, NotFound, Refused
from anabranch.operations.definitions.prepare import prepare
from anabranch.store.memory.store import MemoryStore
from anabranch.store.sqlite.file import MIGRATIONS
from dialects.xrc729.orchestrations import orchestration, step, then

from .support import FRIEND, OTHER, OWNER, engine, rule, run, until_waiting, waits

ONE = orchestration("one", A1=step(rule="cm:xrc137:A"))
ID = {"A": rule(valid={"me": "[__sessionId]", "pid": "[pid]", "big": "[__sessionId] > 0"})}
SLEEPER = orchestration(
    "sleeper", A1=step(then("W1"), rule="cm:xrc137:A"), W1=step(rule="cm:xrc137:W")
)
HOUR = {"A": waits(3600), "W": rule({"x": "int64=0"}, valid={"x": "[x] + 1"})}


async def begun(made: Any, owner: str, **more: Any) -> str:
    labels = {"owner": owner, **more.pop("labels", {})}
    return str(await made.start(ONE, rules=ID, labels=labels, **more))


def test_two_owners_may_both_have_the_same_number() -> None:
    async def whole() -> None:
        async with engine() as made:
            assert made.sessions.next_number(OWNER) == 1
            mine = [await begun(made, OWNER), await begun(made, OWNER.upper().replace("X", "x"))]
            other = await begun(made, FRIEND)
            for one in (*mine, other):
                await made.wait(one)
            assert made.sessions.next_number(OWNER) == 3
            ask = made.sessions
            assert [ask.find(n, OWNER) for n in ("1", "2")] == mine, "whatever the case"
            assert ask.find("1", FRIEND) == other
            assert ask.find("2") == mine[1], "nobody else has a session 2"
            with pytest.raises(NotFound, match="several owners have a session 1"):
                ask.find("1")
            with pytest.raises(NotFound, match="has no session 9"):
                ask.find("9", OWNER)
            assert ask.session_alive("2", OWNER) is False
            assert ask.step_executed("2", 1, OWNER) is True
            assert ask.step_executed("9", 1, OWNER) is None

    run(whole())


def test_a_rule_sees_the_number_of_its_session() -> None:
    async def whole() -> None:
        async with engine() as made:
            await begun(made, OWNER)
            done = await made.wait(await begun(made, OWNER))
            assert done.steps["A1"]["result"] == {"me": "2", "pid": "2:1", "big": True}
            text = await made.wait(await made.start(ONE, rules={"A": rule(valid={"me": "[pid]"})}))
            assert text.steps["A1"]["result"] == {"me": f"{text.run}:1"}, "without an owner"

    run(whole())


def test_only_the_next_number_can_be_asked_for() -> None:
    async def whole() -> None:
        async with engine() as made:
            with pytest.raises(Refused, match="is number 1, not 7") as caught:
                await begun(made, OWNER, labels={SESSION: "7"})
            assert caught.value.code == "session_number"
            first = await begun(made, OWNER, labels={SESSION: "1"})
            assert made.sessions.find("1", OWNER) == first
            with pytest.raises(InputError, match="its number"):
                await begun(made, OWNER, labels={SESSION: "seven"})
            with pytest.raises(InputError):
                await begun(made, OWNER, run=first)
            assert made.sessions.next_number(OWNER) == 2, "what did not begin has no number"

    run(whole())


def test_ids_of_runs_and_sessions_without_an_owner_work_as_before() -> None:
    async def whole() -> None:
        async with engine() as made:
            chosen = await begun(made, OWNER, run="order-17")
            plain = await made.start(ONE, rules=ID, run="17")
            await made.wait(chosen)
            await made.wait(plain)
            ask = made.sessions
            assert (ask.find("order-17"), ask.find("1", OWNER)) == ("order-17", "order-17")
            assert ask.find("17") == "17"
            assert ask.list_sessions(run="17")[0]["sessionId"] == "17"

    run(whole())


def test_a_redriven_session_gets_a_number_of_its_own() -> None:
    async def whole() -> None:
        async with engine() as made:
            stops = {"A": rule(rules=[{"expression": "true", "type": "abortStep"}])}
            first = await made.start(ONE, rules=stops, labels={"owner": OWNER})
            await made.wait(first)
            again = await made.redrive(first)
            await made.wait(again)
            assert made.sessions.list_sessions(run=again)[0]["sessionId"] == "2"

    run(whole())


def test_a_redriven_session_says_its_own_number_and_whose_receipts_it_took_over() -> None:
    chain = orchestration(
        "chain",
        A1=step(then("B1"), rule="cm:xrc137:A"),
        B1=step(then("C1"), rule="cm:xrc137:B"),
        C1=step(rule="cm:xrc137:C"),
    )
    rules = {
        "A": rule({"pid": "string=mine"}, valid={"seen": "[pid]"}),  # an input of that name
        "B": rule(valid={"ticket": "[__pid]"}),
        "C": rule(rules=[{"expression": "true", "type": "abortStep"}]),
    }

    async def whole() -> None:
        async with engine() as made:
            first = await made.start(chain, rules=rules, labels={"owner": OWNER})
            assert (await made.wait(first)).steps["B1"]["result"]["ticket"] == "1:2"
            plan = await made.plan_redrive(first)
            assert {one.step: one.how for one in plan.again} == {"B1": "session", "C1": "arc"}
            assert [one.step for one in plan.reused] == ["A1"]
            again = await made.redrive(first)
            assert (await made.wait(again)).steps["B1"]["result"]["ticket"] == "2:2"
            taken, own, _ = made.sessions.receipts(again)
            assert (taken["sessionId"], taken["stepId"]) == ("2", "A1")
            assert taken["extras"]["takenOverFrom"] == {"sessionId": "1", "iteration": 1}
            assert (own["sessionId"], "takenOverFrom" in own["extras"]) == ("2", False)

    run(whole())


def test_what_a_step_does_outside_is_keyed_by_the_run_not_by_the_number() -> None:
    async def whole() -> None:
        async with engine() as made:
            call = {"execution": {"to": FRIEND, "function": "f()"}}
            keys = set()
            for owner in (OWNER, FRIEND):
                labels = {"owner": owner}
                session = await made.start(ONE, rules={"A": rule(onValid=call)}, labels=labels)
                await made.wait(session)
                (receipt,) = made.sessions.receipts(session)
                assert receipt["sessionId"] == "1"
                keys.add(receipt["extras"]["call"]["key"])
            assert len(keys) == 2

    run(whole())


def test_a_rule_wakes_a_session_by_its_number_and_owner() -> None:
    bell = orchestration("bell", B1=step(rule="cm:xrc137:B"))

    def ring(number: str) -> dict[str, Any]:
        asked = {"runner": OWNER, "sessionId": number, "stepId": "W1", "payload": {"x": "5"}}
        return {"B": rule(onValid={"wakeUps": [asked]})}

    async def whole() -> None:
        async with engine() as made:
            mine = await made.start(SLEEPER, rules=HOUR, labels={"owner": OWNER})
            other = await made.start(SLEEPER, rules=HOUR, labels={"owner": FRIEND})
            await until_waiting(made, mine, "W1")
            await until_waiting(made, other, "W1")
            for number in ("77", "1"):
                labels = {"owner": OWNER}
                await made.wait(await made.start(bell, rules=ring(number), labels=labels))
            done = await made.wait(mine)
            assert done.steps["W1"]["result"] == {"x": 6}
            assert made.sessions.session_alive("1", FRIEND), "the one of somebody else sleeps on"
            await made.cancel(other)

    run(whole())


# -- who may -------------------------------------------------------------------------------------


def test_a_delegate_wakes_by_step_only_and_nobody_but_the_owner_kills() -> None:
    async def whole() -> None:
        async with engine() as made:
            given = {"__wakeUp": {"steps": {"W1": {"rpc": [FRIEND]}}}}
            session = await made.start(SLEEPER, given, rules=HOUR, labels={"owner": OWNER})
            await until_waiting(made, session, "W1")
            wake, control = made.sessions.wake_up_process, made.sessions.control
            with pytest.raises(Refused, match="others name the step") as caught:
                await wake("1:2", runner=FRIEND, owner=OWNER)
            assert caught.value.code == "step_only"
            with pytest.raises(Refused, match=f"{FRIEND} may not end this session") as refused:
                await control("1", runner=FRIEND, owner=OWNER)
            assert refused.value.code == "not_allowed"
            assert (await wake("1", step="W1", runner=FRIEND, owner=OWNER))["woken"] == 1
            await made.wait(session)

    run(whole())


def test_the_owner_wakes_a_process_and_kills() -> None:
    async def whole() -> None:
        async with engine() as made:
            session = await made.start(SLEEPER, rules=HOUR, labels={"owner": OWNER})
            await until_waiting(made, session, "W1")
            assert (await made.sessions.wake_up_process("1:2", runner=OWNER))["woken"] == 1
            await made.wait(session)
            second = await made.start(SLEEPER, rules=HOUR, labels={"owner": OWNER})
            await until_waiting(made, second, "W1")
            assert (await made.sessions.control("2", runner=OWNER, owner=OWNER))["affected"] == 1

    run(whole())


def test_what_may_i_wake() -> None:
    async def whole() -> None:
        async with engine() as made:
            allowed = {"__wakeUp": {"steps": {"W1": {"rpc": [FRIEND]}}}}
            first = await made.start(SLEEPER, allowed, rules=HOUR, labels={"owner": OWNER})
            second = await made.start(SLEEPER, rules=HOUR, labels={"owner": OWNER})
            for one in (first, second):
                await until_waiting(made, one, "W1")
            ask = made.sessions.wakeable

            def seen(*given: Any, **only: Any) -> list[tuple[str, str]]:
                return [(row["pid"], row["step"]) for row in ask(*given, **only)]

            assert seen(OWNER) == [("2:2", "W1"), ("1:2", "W1")], "their own, newest first"
            assert seen(FRIEND) == [("1:2", "W1")], "what the owner allows"
            assert seen(OTHER) == []
            assert seen(FRIEND, owner=OTHER) == []
            assert seen(OWNER, run="2", owner=OWNER) == [("2:2", "W1")]
            assert seen(OWNER, step="A1") == []
            assert seen(OWNER, last=1) == [("2:2", "W1")]
            assert all("__wakeUp" not in json.dumps(row) for row in ask(OWNER))
            with pytest.raises(InputError, match="40 hex digits"):
                ask("me")
            for one in (first, second):
                await made.cancel(one)

    run(whole())


def test_numbers_go_on_after_a_restart_and_a_purge(tmp_path: Path) -> None:
    async def first() -> None:
        async with engine(tmp_path / "s.db") as made:
            session = await begun(made, OWNER)
            await made.wait(session)
            made.read._store.forget([session])

    async def later() -> None:
        async with engine(tmp_path / "s.db") as made:
            assert made.sessions.next_number(OWNER) == 2
            with pytest.raises(NotFound):
                made.sessions.find("1", OWNER)

    run(first())
    run(later())


def test_starts_at_the_same_moment_get_different_numbers() -> None:
    async def whole() -> None:
        async with engine() as made:
            runs = await asyncio.gather(*(begun(made, OWNER) for _ in range(12)))
            for one in runs:
                await made.wait(one)
            found = {row["sessionId"] for row in made.sessions.list_sessions(owner=OWNER)}
            assert found == {str(number) for number in range(1, 13)}

    run(whole())


def test_an_owner_that_is_no_address_has_no_numbers() -> None:
    async def whole() -> None:
        async with engine() as made:
            session = await made.start(ONE, rules=ID, labels={"owner": "kim"})
            await made.wait(session)
            assert made.sessions.list_sessions(owner="kim")[0]["sessionId"] == session

    run(whole())
    assert MemoryStore().next_session_number(OWNER) == 1


def test_sessions_of_an_older_store_keep_their_ids_and_new_ones_get_numbers(tmp_path: Path) -> None:
    store = tmp_path / "old.db"

    async def before() -> str:
        async with engine(store) as made:
            parts = made._open
            prepared = prepare(SLEEPER, rules=HOUR)
            labels = {"owner": OWNER}  # as it was begun before there were numbers
            session = await parts.engine.start(prepared.definition, prepared.net, labels=labels)
            await until_waiting(made, session, "W1")
            return session

    session = run(before())
    (before_numbers,) = (at for at, text in enumerate(MIGRATIONS) if "session_numbers" in text)
    with closing(sqlite3.connect(store)) as db:
        db.execute("DROP TABLE session_numbers")
        for made_later in (
            "grants",
            "streams",
            "stream_events",
            "work_logs",
            "named_records",
            "admissions",
            "run_labels",
        ):
            db.execute(f"DROP TABLE {made_later}")
        db.execute("DROP INDEX heads_of_name")
        db.execute("DROP INDEX heads_of_origin")
        db.execute("ALTER TABLE heads DROP COLUMN reason")
        db.execute(f"PRAGMA user_version = {before_numbers}")
        db.commit()

    async def after() -> None:
        async with engine(store) as made:
            ask = made.sessions
            assert {row["sessionId"] for row in ask.list_sessions(owner=OWNER)} == {session}
            assert ask.next_number(OWNER) == 1
            first = await begun(made, OWNER)
            await made.wait(first)
            assert ask.find("1", OWNER) == first
            assert (await ask.wake_up_process(f"{session}:2", runner=OWNER))["woken"] == 1
            assert (await made.wait(session)).steps["W1"]["result"] == {"x": 1}

    run(after())

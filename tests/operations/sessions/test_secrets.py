"""Sealed input: the rules can use it, and nothing that is written or shown has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.errors import InputError
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing import play, valid
from dialects.xrc729.orchestrations import orchestration, step, then

from .support import OWNER, engine, rule, run, until_waiting

CANARY = "canary-7f3a9c-sings"
SECRETS = {"__secret": CANARY, "__secret1": CANARY + "-too"}
TWO = orchestration(
    "secretive", A1=step(then("B1"), rule="cm:xrc137:A"), B1=step(rule="cm:xrc137:B")
)
USING = rule(
    {"__secret": "string", "n": "int64=1"},
    rules=[f'[__secret] == "{CANARY}"'],
    valid={"ok": True},
)
LEAKING = rule(
    {"__secret": "string"},
    valid={"told": "[__secret]", "inside": "it is [__secret] indeed"},
)
QUARRELING = rule({"__secret": "string"}, rules=["[__secret] + 1 == 2"])


def shown_of(made: Any, session: str) -> str:
    """Everything that anybody is shown of a session."""
    read = made.read
    parts = [
        read.show(session),
        read.explain(session),
        read.summary(session),
        [msgspec.to_builtins(one) for one in read.events(session)],
        made.sessions.list_sessions(run=session),
        made.sessions.receipts(session),
    ]
    return json.dumps(parts)


def files_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file())


def rules_with(second: dict[str, Any]) -> dict[str, Any]:
    return {"A": USING, "B": second}


@pytest.mark.parametrize("second", [USING, LEAKING, QUARRELING], ids=["use", "leak", "error"])
def test_rules_use_a_secret_and_nothing_shows_it(second: dict[str, Any], tmp_path: Path) -> None:
    async def whole() -> None:
        async with engine(tmp_path / "store.db") as made:
            session = await made.start(TWO, dict(SECRETS), rules=rules_with(second))
            result = await made.wait(session)
            assert result.steps["A1"]["result"] == {"ok": True}, "the rule had it"
            assert CANARY not in shown_of(made, session)
            assert CANARY not in json.dumps([result.steps, result.result, result.problem])

    # The rules themselves name the canary, so only what follows it can be looked for in the file.
    run(whole())
    left = files_of(tmp_path)
    assert (CANARY + "-too").encode() not in left


def test_it_is_gone_from_the_file_when_the_session_ends(tmp_path: Path) -> None:
    silent = rule({"__secret": "string", "n": "int64=1"}, valid={"length": "size([__secret])"})

    async def whole() -> None:
        async with engine(tmp_path / "store.db") as made:
            sessions = [
                await made.start(
                    TWO,
                    {"__secret": f"{CANARY}-{number}"},
                    rules=rules_with(silent) | {"A": silent},
                )
                for number in range(60)
            ]
            for session in sessions:
                result = await made.wait(session)
                assert result.steps["B1"]["result"]["length"] >= len(CANARY)

    run(whole())
    assert CANARY.encode() not in files_of(tmp_path)


def test_it_survives_a_restart_and_is_in_no_log(tmp_path: Path) -> None:
    waiting = rule({"__secret": "string"}, onValid={"waitSec": 1, "payload": {"n": 2}})
    rules = {"A": waiting, "B": USING}
    path = tmp_path / "store.db"

    async def begin() -> str:
        async with engine(path) as made:
            session = await made.start(TWO, dict(SECRETS), rules=rules)
            await until_waiting(made, session, "B1")
            return session

    session = run(begin())
    store = SqliteStore(path, read_only=True)
    try:
        assert set(store.sealed(session)) == set(SECRETS)
        log = b"".join(record.events for record in store.read(session))
        snapshot, _ = store.read_many([session])[session]
        assert b"-too" not in log
        assert snapshot is None or b"-too" not in snapshot.state
    finally:
        store.close()

    async def go_on() -> Any:
        async with engine(path) as made:
            return (await made.wait(session)).steps["B1"]["result"]

    assert run(go_on()) == {"ok": True}
    store = SqliteStore(path, read_only=True)
    try:
        assert store.sealed(session) == {}
    finally:
        store.close()


@pytest.mark.parametrize("wrong", [7, None, "", "x" * 513, {"a": CANARY}])
def test_a_secret_is_a_short_text(wrong: Any) -> None:
    async def whole() -> None:
        async with engine() as made:
            with pytest.raises(InputError, match="1 to 512 characters") as caught:
                await made.start(TWO, {"__secret": wrong}, rules=rules_with(USING))
            assert CANARY not in str(caught.value)
            assert made.sessions.list_sessions() == []

    run(whole())


def test_other_private_keys_travel_and_are_shown_nowhere() -> None:
    private = {"__tenant": "tenant-4711", "__wakeUp": {"default": {"rpc": [OWNER]}}}
    reading = rule({"__tenant": "string"}, rules=['[__tenant] == "tenant-4711"'], valid={"ok": 1})

    async def whole() -> None:
        async with engine() as made:
            session = await made.start(
                TWO,
                {**private, "n": 3},
                rules={"A": reading, "B": reading},
                allow_extra_input=True,
            )
            result = await made.wait(session)
            assert result.steps["B1"]["result"] == {"ok": 1}, "it is still there two steps later"
            shown = shown_of(made, session)
            live = [msgspec.to_builtins(one) async for one in made.events(session)]
            for word in ("tenant-4711", "__tenant", "__wakeUp"):
                assert word not in shown
                assert word not in json.dumps(live)
            assert '"n": 3' in shown

    run(whole())


def test_a_play_keeps_secrets_too() -> None:
    seen: list[str] = []

    def look(task: Any) -> Any:
        seen.append(task.inputs["payload"]["__secret"])
        return valid({"told": task.inputs["payload"]["__secret"]})

    played = play(TWO, {"__secret": CANARY, "__x": "hidden-word"}, script={"A1": look, "B1": look})
    assert seen == [CANARY, CANARY]
    told = "\n".join(map(str, played.events)) + repr(played) + json.dumps(played.steps)
    assert CANARY not in told
    assert "hidden-word" not in told


def test_a_redrive_is_given_what_rules_need_and_no_log_has(tmp_path: Path) -> None:
    """Without it, what was valid would be invalid by error, and the session has its one redrive."""
    read = {
        "to": "0x" + "11" * 20,
        "function": "price()(int64)",
        "saveAs": {"0": {"key": "Price", "type": "int64"}},
    }
    asks = rule({"__secret": "string"}, contractReads=[read])

    async def whole() -> None:
        async with engine(tmp_path / "store.db") as made:
            session = await made.start(TWO, {"__secret": CANARY}, rules=rules_with(asks))
            await made.wait(session)
            plan = await made.plan_redrive(session, from_step="B1")
            assert plan.secrets == ["__secret"]
            with pytest.raises(InputError, match="needs the secrets '__secret', which are not"):
                await made.redrive(session, from_step="B1")
            with pytest.raises(InputError, match="'other' is none of them"):
                await made.redrive(
                    session, from_step="B1", input={"__secret": CANARY, "other": "x"}
                )
            again = await made.redrive(
                session, from_step="B1", input={"__secret": CANARY, "__secretMore": "more"}
            )
            await made.wait(again)
            assert CANARY not in shown_of(made, again)
            (first, *_), (second, *_) = (made.sessions.receipts(one) for one in (session, again))
            assert first["extras"]["valid"] == second["extras"]["valid"] is True

    run(whole())

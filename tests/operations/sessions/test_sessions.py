"""Sessions in the words of the standards: processes, receipts, liveness, kill."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import DefinitionError, InputError, NotFound
from anabranch.operations.sessions.sessions import Sessions
from dialects.xrc729.orchestrations import join, orchestration, step, then

from .support import NOTHING, OWNER, bundle, engine, rule, run, until_waiting, waits

FORK = orchestration(
    "fork",
    A1=step(then("G1", "H1", join=join("J1", "all", "G1:valid", "H1:any")), rule="cm:xrc137:A"),
    G1=step(rule="{{G}}"),
    H1=step(rule="${addr:H}"),
    J1=step(rule="cm:xrc137:J"),
)
RULES = {
    "A": rule({"n": "int64"}, rules=["[n] > 0"], valid={"checked": True}),
    "G": rule({"n": "int64"}, valid={"twice": "[n] * 2"}),
    "H": rule({"n": "int64"}, rules=["[n] > 100"], invalid={"large": False}),
    "J": rule({"twice": "int64", "large": "bool=true"}, valid={"total": "[twice] + 1"}),
}
SLEEPER = orchestration(
    "sleeper", A1=step(then("W1"), rule="cm:xrc137:A"), W1=step(then("Z1"), rule="cm:xrc137:W"),
    Z1=step(rule="cm:xrc137:Z"),
)  # fmt: skip
SLOW = {"A": waits(3600), "W": NOTHING, "Z": NOTHING}


def finished(document: Any, rules: Any, **given: Any) -> tuple[Any, Any, Any]:
    """(result, rows, receipts) of a session that runs to its end."""

    async def whole() -> tuple[Any, Any, Any]:
        async with engine() as made:
            session = await made.start(document, rules=rules, **given)
            result = await made.wait(session)
            rows = made.sessions.list_sessions(run=session)
            return result, rows, made.sessions.receipts(session)

    return run(whole())


def test_rules_are_evaluated_and_payloads_merged() -> None:
    result, _, _ = finished(FORK, RULES, input={"n": 7})
    assert result.status == "completed"
    assert result.steps["J1"]["result"] == {"total": 15}
    assert result.session == {
        "result": "done",
        "processes": {"waiting": 0, "running": 0, "done": 4, "aborted": 0},
    }


def test_every_process_has_its_row_with_both_group_ids() -> None:
    result, rows, _ = finished(FORK, RULES, input={"n": 7}, labels={"owner": OWNER})
    session = "1"
    shown = [
        (row["pid"], row["parentPid"], row["step"], row["joinGroupId"], row["joinFromGroupId"])
        for row in rows
    ]
    assert shown == [
        (f"{session}:1", session, "A1", "", ""),
        (f"{session}:2", f"{session}:1", "J1", "", "g2"),
        (f"{session}:3", f"{session}:1", "G1", "g2", ""),
        (f"{session}:4", f"{session}:1", "H1", "g2", ""),
    ]
    assert {row["status"] for row in rows} == {"done"}
    assert {(row["owner"], row["run"]) for row in rows} == {(OWNER, result.run)}
    assert [row["iterationStep"] for row in rows] == [1, 2, 3, 4]
    assert set(rows[0]) == {
        "owner", "sessionId", "run", "pid", "parentPid", "step", "status", "outcome", "updated",
        "iterationStep", "error",
        "xrc729", "ostcId", "joinGroupId", "joinFromGroupId",
    }  # fmt: skip


def test_every_executed_step_leaves_a_receipt() -> None:
    _, _, receipts = finished(FORK, RULES, input={"n": 7}, labels={"owner": OWNER})
    by_step = {receipt["stepId"]: receipt for receipt in receipts}
    assert set(by_step) == {"A1", "G1", "H1", "J1"}
    final = by_step["J1"]
    assert (final["sessionId"], final["iteration"]) == ("1", 2)
    assert final["payload"] == {"total": 15}
    assert final["extras"]["valid"] is True
    assert final["extras"]["from"] == OWNER
    assert final["extras"]["gasUsed"] > 0
    assert final["ostcId"] == "fork"
    assert len(final["ruleHash"]) == len(final["ostcHash"]) == 66
    assert by_step["H1"]["extras"]["valid"] is False


def test_receipts_are_found_by_step_and_by_iteration() -> None:
    async def whole() -> None:
        async with engine() as made:
            session = await made.start(FORK, {"n": 7}, rules=RULES)
            await made.wait(session)
            ask = made.sessions
            assert [one["iteration"] for one in ask.receipts(session, step="G1")] == [3]
            assert [one["stepId"] for one in ask.receipts(session, iteration=4)] == ["H1"]
            assert ask.receipts(session, step="G1", iteration=4) == []

    run(whole())


def test_a_hard_error_aborts_the_process_and_the_session_goes_on() -> None:
    broken = {**RULES, "G": rule({"n": "int64"}, rules=["[n] + 1"])}
    result, rows, receipts = finished(FORK, broken, input={"n": 7})
    assert result.status == "completed"
    assert result.session["result"] == "finished_with_aborts"
    assert {row["step"]: row["status"] for row in rows}["G1"] == "aborted"
    (receipt,) = [one for one in receipts if one["stepId"] == "G1"]
    assert receipt["status"] == "aborted"
    assert receipt["error_class"]
    assert receipt["error_msg"]


def test_cancel_session_kills_it() -> None:
    cancels = rule({"n": "int64"}, rules=[{"expression": "[n] > 5", "type": "cancelSession"}])
    result, rows, _ = finished(FORK, {**RULES, "A": cancels}, input={"n": 7})
    assert (result.status, result.session["result"]) == ("cancelled", "killed")
    assert [row["status"] for row in rows] == ["aborted"]


def test_a_session_is_alive_while_a_process_waits() -> None:
    async def whole() -> None:
        async with engine() as made:
            session = await made.start(SLEEPER, rules=SLOW)
            await until_waiting(made, session, "W1")
            ask = made.sessions
            assert ask.session_alive(session)
            assert ask.step_executed(session, 1) is True
            assert ask.step_executed(session, 2) is False
            assert ask.step_executed(session, 9) is None
            assert ask.step_executed("nobody", 1) is None
            assert not ask.session_alive("nobody")
            await ask.control(session)
            await made.wait(session)
            assert not ask.session_alive(session)

    run(whole())


def test_kill_says_how_many_it_reached_and_a_second_one_none() -> None:
    async def whole() -> None:
        async with engine() as made:
            session = await made.start(SLEEPER, rules=SLOW, labels={"owner": OWNER})
            await until_waiting(made, session, "W1")
            told = await made.sessions.control(session, "kill", reason="enough")
            assert told == {
                "ok": True,
                "owner": OWNER,
                "processId": "1",
                "action": "kill",
                "status": "cancelled",
                "affected": 1,
            }
            assert (await made.sessions.control(session))["affected"] == 0
            result = await made.wait(session)
            assert result.session is not None
            assert result.session["result"] == "killed"
            with pytest.raises(InputError, match="nothing else"):
                await made.sessions.control(session, "pause")

    run(whole())


def test_sessions_are_listed_by_owner() -> None:
    async def whole() -> None:
        async with engine() as made:
            mine = await made.start(FORK, {"n": 1}, rules=RULES, labels={"owner": OWNER})
            other = await made.start(FORK, {"n": 1}, rules=RULES)
            await made.wait(mine)
            await made.wait(other)
            rows = made.sessions.list_sessions(owner=OWNER)
            assert {row["run"] for row in rows} == {mine}
            assert {row["run"] for row in made.sessions.list_sessions()} == {mine, other}
            newest = {row["run"] for row in made.sessions.list_sessions(last=1)}
            assert newest == {other}

    run(whole())


def test_a_run_of_a_playbook_is_no_session() -> None:
    async def whole() -> None:
        async with engine() as made:
            text = "workflow:\n- step: a\n  tool: {kind: noop}\n"
            playbook = await made.start(text)
            await made.wait(playbook)
            assert made.sessions.list_sessions() == []
            with pytest.raises(InputError, match="no session"):
                made.sessions.receipts(playbook)
            with pytest.raises(NotFound):
                made.sessions.receipts("nobody")

    run(whole())


def test_the_gas_of_a_rule_is_estimated_by_outcome() -> None:
    async def whole() -> dict[str, Any]:
        async with engine() as made:
            return made.sessions.estimate_rule_gas(RULES["A"])

    told = run(whole())
    assert told["totalValid"] == told["common"] + told["valid"]
    assert told["totalWorstCase"] == max(told["totalValid"], told["totalInvalid"])
    with pytest.raises(DefinitionError):
        Sessions.estimate_rule_gas("{")


def test_a_budget_stops_the_session_at_its_gas() -> None:
    loop = orchestration(A1=step(then("A1"), rule="cm:xrc137:A"))
    again = rule({"n": "int64=0"}, valid={"n": "[n] + 1"})
    result, rows, receipts = finished(loop, {"A": again}, labels={"max_gas": "60000"})
    assert result.status == "completed"
    assert rows[-1]["status"] == "aborted"
    assert receipts[-1]["error_class"] == "gas"
    used = sum(one["extras"].get("gasUsed", 0) for one in receipts)
    assert 0 < used <= 60_000


def test_a_start_step_may_be_named_and_must_exist() -> None:
    result, rows, _ = finished(FORK, RULES, input={"n": 200}, step="H1")
    assert [row["step"] for row in rows] == ["H1"]
    with pytest.raises(InputError, match="no step 'X1'"):
        finished(FORK, RULES, step="X1")
    assert result.status == "completed"


def test_a_rule_that_cannot_be_had_stops_the_start_and_leaves_nothing() -> None:
    async def whole() -> None:
        async with engine() as made:
            some = {name: RULES[name] for name in ("A", "G")}
            with pytest.raises(DefinitionError) as caught:
                await made.start(FORK, {"n": 1}, rules=some)
            assert [problem.code for problem in caught.value.problems] == ["no-rule", "no-rule"]
            assert "--rules" in str(caught.value)
            assert made.sessions.list_sessions() == []

    run(whole())


def test_a_bundle_runs_by_itself() -> None:
    result, _, _ = finished(bundle(FORK, RULES), None, input={"n": 7})
    assert result.steps["J1"]["result"] == {"total": 15}

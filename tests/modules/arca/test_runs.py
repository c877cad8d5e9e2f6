"""Runs at the surface of Arca: what is started, refused, looked at and decided."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.modules.arca.work.attempts import Attempt
from in_loop import in_loop

from .support import HOST_RUNS, RUNS, Stage, step, workflow

NOETL = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: a}\nworkflow: []\n"


@in_loop
async def test_the_host_knows_a_run_before_anything_of_it_is_done() -> None:
    async with Stage() as stage:
        stage.host_is_away = True
        answer = await stage.ask("POST", RUNS, {"definition": workflow(step("a"))})
        assert (answer.status, answer.body["code"]) == (503, "host_unavailable")
        stage.world.advance(30)
        assert stage.desk.asked == []
        assert (await stage.ask("GET", RUNS)).body == {"items": []}
        stage.host_is_away = False
        await stage.start(workflow(step("a")))
        made = [path for _, path in stage.asked_host].index(HOST_RUNS)
        assert made < len(stage.asked_host)
        assert stage.desk.asked == [("run:one", "a", 1)]


@in_loop
async def test_a_run_without_an_id_gets_one() -> None:
    async with Stage() as stage:
        runs = []
        for _ in range(2):
            answer = await stage.ask("POST", RUNS, {"definition": workflow(step("a"))})
            assert answer.status == 201
            runs.append(answer.body["run_id"])
        assert len(set(runs)) == 2
        assert all(run.startswith("run:") for run in runs)


@in_loop
async def test_the_same_id_is_the_same_run_and_another_definition_or_input_is_refused() -> None:
    async with Stage() as stage:
        body = {"definition": workflow(step("a"), input={"x": 0}), "input": {"x": 1}}
        made = await stage.ask("POST", RUNS, {**body, "run_id": "run:one"})
        again = await stage.ask("POST", RUNS, {**body, "run_id": "run:one"})
        assert (made.status, again.status) == (201, 200)
        assert again.body["run_id"] == made.body["run_id"]
        for other in (
            {"definition": workflow(step("b")), "input": {}},
            {**body, "input": {"x": 2}},
        ):
            refused = await stage.ask("POST", RUNS, {**other, "run_id": "run:one"})
            assert (refused.status, refused.body["code"]) == (409, "run_exists")
        assert stage.desk.asked == [("run:one", "a", 1)]


@in_loop
async def test_a_definition_is_refused_with_everything_that_is_wrong_with_it() -> None:
    wrong = workflow(step("a", depends_on=["nobody"]), step("b", fan_in={"policy": "most"}))
    async with Stage() as stage:
        answer = await stage.ask("POST", RUNS, {"definition": wrong})
        assert (answer.status, answer.body["code"]) == (400, "definition")
        problems = answer.body["problems"]
        assert len(problems) >= 2
        assert all(one["code"] and one["line"] >= 1 and one["message"] for one in problems)
        assert any(one["hint"] for one in problems)
        assert (await stage.ask("GET", HOST_RUNS)).body["items"] == []


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "schema"),
        ({"definition": {}, "template_id": "t"}, "schema"),
        ({"definition": 3}, "definition"),
        ({"definition": NOETL}, "definition"),
        ({"definition": "workflow_id: a"}, "definition"),
        ({"definition": workflow(step("a")), "run_id": "../x"}, "bad_run_id"),
        ({"definition": workflow(step("a")), "run_id": "r" * 129}, "bad_run_id"),
        ({"definition": workflow(step("a")), "input": [1]}, "schema"),
        ({"definition": workflow(step("a")), "unknown": 1}, "schema"),
        ({"definition": workflow(step("a")), "start": False}, "schema"),
        ({"definition": workflow(step("a"), input={"x": 0}), "input": {"y": 1}}, "unknown_input"),
    ],
)
@in_loop
async def test_bad_input_changes_nothing(body: Any, code: str) -> None:
    async with Stage() as stage:
        answer = await stage.ask("POST", RUNS, body)
        assert (answer.status, answer.body["code"]) == (400, code), answer.body
        assert stage.desk.asked == []
        assert (await stage.ask("GET", HOST_RUNS)).body["items"] == []
        assert (await stage.ask("GET", RUNS)).body["items"] == []


@in_loop
async def test_what_is_too_large_for_the_host_is_not_begun() -> None:
    async with Stage() as stage:
        body = {
            "definition": workflow(step("a"), input={"x": ""}),
            "input": {"x": "y" * 1024 * 1024},
        }
        answer = await stage.ask("POST", RUNS, body)
        assert answer.status in (400, 413)
        assert stage.desk.asked == []
        assert (await stage.ask("GET", RUNS)).body["items"] == []


@in_loop
async def test_runs_are_listed_newest_first_in_pages() -> None:
    async with Stage() as stage:
        for number in range(5):
            await stage.start(workflow(step("a")), f"run:{number}")
            stage.world.advance(1)
        first = (await stage.ask("GET", f"{RUNS}?limit=3")).body
        second = (await stage.ask("GET", f"{RUNS}?limit=3&before={first['next']}")).body
        listed = [one["run_id"] for one in (*first["items"], *second["items"])]
        assert listed == [f"run:{number}" for number in (4, 3, 2, 1, 0)]
        assert "next" not in second
        active = (await stage.ask("GET", f"{RUNS}?status=active")).body["items"]
        assert len(active) == 5
        stage.desk.answer("a", *[{}] * 5)
        stage.world.advance(5)
        assert (await stage.ask("GET", f"{RUNS}?status=active")).body["items"] == []
        done = (await stage.ask("GET", f"{RUNS}?status=completed&workflow_id=summaries")).body
        assert len(done["items"]) == 5
        for bad in ("limit=0", "before=x", "status=odd", "unknown=1"):
            answer = await stage.ask("GET", f"{RUNS}?{bad}")
            assert (answer.status, answer.body["code"]) == (400, "bad_query"), bad


@in_loop
async def test_what_a_run_waits_for_and_whom_it_asked_is_told() -> None:
    async with Stage() as stage:
        asking = {"policy": "requester_confirmation"}
        await stage.start(workflow(step("a", fulfillment=asking)))
        stage.world.advance(1)
        asked = (await stage.ask("GET", f"{RUNS}/run:one/dispatches")).body["items"]
        assert [one["status"] for one in asked] == ["pending"]
        stage.desk.answer("a", {"secret": "of the provider"})
        stage.world.advance(1)
        asked = (await stage.ask("GET", f"{RUNS}/run:one/dispatches")).body["items"]
        assert "secret" not in str(asked)
        explained = (await stage.ask("GET", f"{RUNS}/run:one/explain")).body
        assert explained["status"] == "paused"
        movers = [one for each in explained["waiting"] for one in each.get("movers", ())]
        assert any(one.startswith("anabranch arca confirm run:one a") for one in movers), movers
        for path in ("", "/dispatches", "/explain"):
            answer = await stage.ask("GET", f"{RUNS}/run:other{path}")
            assert (answer.status, answer.body["code"]) == (404, "not_found")


@pytest.mark.parametrize("policy", ["requester_confirmation", "never"])
@pytest.mark.parametrize("fulfilled", [True, False])
@in_loop
async def test_an_operator_confirms_a_step_with_his_name(policy: str, fulfilled: bool) -> None:
    async with Stage() as stage:
        await stage.start(workflow(step("a", fulfillment={"policy": policy})))
        path = f"{RUNS}/run:one/steps/a/confirm"
        said = {
            "fulfilled": fulfilled,
            "actor": "Ada",
            "reason": "I looked",
            "evidence": {"page": 3},
        }
        early = await stage.ask("POST", path, said)
        assert early.status == 409, early.body
        stage.desk.answer("a", {"text": "t"})
        shown = await stage.until(lambda shown: shown["status"] == "paused")
        assert shown["steps"][0]["status"] == "awaiting_fulfillment"
        assert shown["steps"][0]["execution"] == {"completed": True}
        assert shown["steps"][0]["task"] == {"fulfilled": None}
        assert (await stage.ask("POST", path, {"actor": "Ada"})).status == 400
        by_module = await stage.ask("POST", path, said, as_="arca")
        assert (by_module.status, by_module.body["code"]) == (403, "forbidden")
        assert (await stage.ask("POST", path, said)).status == 200
        shown = await stage.ended() if fulfilled else await stage.at_host()
        stage.world.advance(5)
        shown = await stage.at_host()
        assert shown["steps"][0]["task"] == {
            "fulfilled": fulfilled,
            "decided_by": "Ada",
            "reason": "I looked",
            "evidence": {"page": 3},
        }
        if fulfilled:
            assert shown["status"] == "completed"
            assert (await stage.ask("POST", path, said)).status == 409


@in_loop
async def test_runs_are_paused_resumed_and_cancelled_by_operators() -> None:
    async with Stage() as stage:
        await stage.start(workflow(step("a"), step("b", depends_on=["a"])))
        path = f"{RUNS}/run:one"
        assert (await stage.ask("POST", f"{path}/pause", {}, as_="arca")).status == 403
        paused = await stage.ask("POST", f"{path}/pause", {"actor": "Ada", "reason": "lunch"})
        assert (paused.status, paused.body["status"]) == (200, "paused")
        stage.desk.answer("a", {})
        stage.world.advance(10)
        shown = await stage.at_host()
        assert (shown["status"], shown["pause_reason"]) == ("paused", "lunch")
        assert stage.desk.asked == [("run:one", "a", 1)]
        assert (await stage.ask("POST", f"{path}/resume")).status == 200
        stage.world.advance(1)
        assert stage.desk.asked[-1] == ("run:one", "b", 1)
        cancelled = await stage.ask("POST", f"{path}/cancel", {"reason": "enough"})
        assert cancelled.status == 200
        shown = await stage.ended()
        assert shown["status"] == "cancelled"
        assert [one["status"] for one in shown["steps"]] == ["completed", "cancelled"]
        assert stage.desk.waiting == set()
        late = await stage.ask("POST", f"{path}/resume")
        assert late.status == 409
        assert (await stage.ask("POST", f"{RUNS}/run:other/cancel")).status == 404


@in_loop
async def test_a_step_that_failed_with_the_policy_pause_is_tried_again_or_given_up() -> None:
    async with Stage() as stage:
        stage.desk.answer("a", None, None, {"x": 1})
        await stage.start(workflow(step("a", fail_policy="pause")))
        path = f"{RUNS}/run:one/steps/a/confirm"
        for _ in range(2):
            shown = await stage.until(lambda shown: shown["status"] == "paused")
            assert "not today" in shown["pause_reason"]
            assert shown["steps"][0]["execution"] == {"completed": False}
            assert (await stage.ask("POST", path, {"fulfilled": True})).status == 200
            await stage.ask("POST", f"{RUNS}/run:one/resume")
            stage.world.advance(1)
        shown = await stage.ended()
        assert (shown["status"], shown["steps"][0]["output"]) == ("completed", {"x": 1})
        assert len(stage.desk.asked) == 3
        stage.desk.answer("a", None)
        await stage.start(workflow(step("a", fail_policy="pause")), "run:two")
        await stage.until(lambda shown: shown["status"] == "paused", "run:two")
        path = f"{RUNS}/run:two/steps/a/confirm"
        assert (await stage.ask("POST", path, {"fulfilled": False})).status == 200
        await stage.ask("POST", f"{RUNS}/run:two/resume")
        stage.world.advance(5)
        shown = await stage.at_host("run:two")
        assert (shown["status"], shown["steps"][0]["status"]) == ("failed", "failed")


@pytest.mark.soak
@in_loop
async def test_a_thousand_steps_that_wait_hold_nothing_up() -> None:
    async with Stage() as stage:
        steps = [step(f"wait{number}") for number in range(500)]
        many = workflow(*steps, max_parallel_steps=500)
        for number in range(2):
            await stage.start(many, f"run:{number}")
        stage.world.advance(2)
        assert len(stage.desk.waiting) == 1_000
        stage.desk.answer("quick", {"x": 1})
        await stage.start(workflow(step("quick")), "run:quick")
        assert (await stage.ended("run:quick"))["status"] == "completed"
        assert len(stage.desk.waiting) == 1_000


@in_loop
async def test_only_the_attempt_that_a_step_is_at_is_open_for_a_result() -> None:
    async with Stage() as stage:
        retry = {"max_attempts": 1, "backoff": "PT1M"}
        await stage.start(workflow(step("a", timing={"timeout": "PT10S", "retry": retry})))
        engine = stage.modules[-1].runs.engine

        def is_open() -> list[str]:
            labels = ("a1", "a2", "r1a1")
            return [one for one in labels if engine.is_attempt_open(Attempt("run:one", "a", one))]

        stage.world.advance(5)
        assert is_open() == ["a1"]
        stage.world.advance(10)
        assert "a1" not in is_open(), "its time is over, and it waits for the next one"
        stage.world.advance(60)
        assert is_open() == ["a2"]
        assert not engine.is_attempt_open(Attempt("run:one", "b", "a2"))
        assert not engine.is_attempt_open(Attempt("run:other", "a", "a2"))
        await stage.ended()
        assert is_open() == []

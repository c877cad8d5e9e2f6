"""The run at the host: every status by its name, the newest state, each end once, nothing raw."""

from __future__ import annotations

from typing import Any

import pytest

from in_loop import in_loop

from .support import BUYER, HOST_RUNS, PROVIDER, RUNS, Stage, step, workflow

OTHER = "participant:did:key:z6Mkw1nBNzbCRs31m4sCSDKgvMGXF4s5H5S2d3rqMTCtBkFR"
ACTIVE = ("pending", "running")


def statuses(shown: Any) -> dict[str, str]:
    return {one["step_id"]: one["status"] for one in shown["steps"]}


@in_loop
async def test_a_run_is_pending_then_running_then_completed_with_its_steps() -> None:
    async with Stage() as stage:
        started = await stage.start(workflow(step("a"), step("b", input_from="a")))
        assert started["status"] == "running"
        stage.world.advance(1)
        shown = await stage.at_host()
        assert statuses(shown) == {"a": "awaiting_execution", "b": "pending"}
        stage.desk.answer("a", {"x": 1})
        stage.desk.answer("b", {"y": 2})
        shown = await stage.ended()
        assert shown["status"] == "completed"
        assert statuses(shown) == {"a": "completed", "b": "completed"}
        a, b = shown["steps"]
        assert (a["output"], b["output"], b["depends_on"]) == ({"x": 1}, {"y": 2}, ["a"])
        assert a["execution"] == {"completed": True}
        assert a["task"]["fulfilled"] is True
        assert shown["finished_at"] >= shown["started_at"]


@pytest.mark.parametrize(
    ("more", "run_status", "step_status"),
    [
        ({}, "failed", "failed"),
        ({"fail_policy": "skip"}, "completed", "skipped"),
        ({"timing": {"timeout": "PT5S"}}, "step_timeout", "step_timeout"),
        ({"timing": {"timeout": "PT5S", "on_timeout": "skip"}}, "completed", "skipped"),
    ],
)
@in_loop
async def test_how_a_step_ends_is_shown_by_name(
    more: dict[str, Any], run_status: str, step_status: str
) -> None:
    async with Stage() as stage:
        if "timing" not in more:
            stage.desk.answer("a", None)
        await stage.start(workflow(step("a", **more)))
        shown = await stage.ended()
        assert (shown["status"], statuses(shown)) == (run_status, {"a": step_status})
        if run_status != "completed":
            assert shown["error"]["step_id"] == "a"
            assert shown["steps"][0]["error"]["code"]


@in_loop
async def test_a_deadline_a_cancel_and_a_retry_are_shown_by_name() -> None:
    async with Stage() as stage:
        steps = step("a", max_retries=1, retry_delay_ms=60_000), step("b")
        await stage.start(workflow(*steps, deadline="PT10M"))
        stage.desk.answer("a", None)
        shown = await stage.until(lambda shown: statuses(shown)["a"] == "retry_wait")
        assert shown["deadline_at"]
        stage.world.advance(61)
        assert statuses(await stage.at_host())["a"] == "awaiting_execution"
        assert (await stage.at_host())["steps"][0]["attempt"] == 2
        shown = await stage.ended()
        assert shown["status"] == "deadline_exceeded"
        assert set(statuses(shown).values()) == {"deadline_exceeded"}


@in_loop
async def test_a_step_that_is_searched_for_is_resolving() -> None:
    async with Stage() as stage:
        stage.desk.notes["a"] = {"status": "resolving"}
        await stage.start(workflow(step("a")))
        stage.world.advance(1)
        assert statuses(await stage.at_host()) == {"a": "resolving"}
        details = stage.modules[-1].runs._details
        loop = stage.node.modules["arca"].loop
        loop.call_soon(lambda: details.note("run:one", "a", status=None))
        stage.world.advance(1)
        assert statuses(await stage.at_host()) == {"a": "awaiting_execution"}


@in_loop
async def test_what_is_known_of_an_order_is_shown_and_survives_a_restart() -> None:
    order = {
        "order_id": "order:run:one-a-a1",
        "execution_id": "execution:run:one-a-a1",
        "contract_id": "contract:1",
        "delivery": {"operation_id": "deferred:artifact-delivery.submit:1", "status_href": "/v1/x"},
        "attempt": 1,
    }
    async with Stage() as stage:
        stage.desk.notes["a"] = order
        await stage.start(workflow(step("a")))
        stage.world.advance(1)
        stage.desk.notes.clear()
        stage.world.crash_module(BUYER, "arca")
        stage.world.advance(5)
        stage.desk.answer("a", {"x": 1})
        shown = (await stage.ended())["steps"][0]
        assert {name: shown[name] for name in order} == order


@in_loop
async def test_of_a_fan_out_the_chosen_answer_is_shown_and_no_other() -> None:
    target = {"resolve": "static", "participants": [PROVIDER, OTHER]}
    best = {"policy": "best_of", "score_field": "/price", "score_order": "asc"}
    asks = step("a", target=target, fan_in=best, timing={"timeout": "PT1M"})
    async with Stage() as stage:
        await stage.start(workflow(asks, step("b", depends_on=["a"])))
        stage.world.advance(1)
        assert statuses(await stage.at_host())["a"] == "awaiting_fan_out"
        stage.desk.answer("a", {"price": 7, "note": "the loser"}, {"price": 3, "note": "chosen"})
        shown = await stage.until(lambda shown: statuses(shown)["a"] == "completed")
        one = shown["steps"][0]
        assert one["selected_output"] == {"price": 3, "note": "chosen"}
        assert "output" not in one
        assert [each["outcome"] for each in one["dispatches"]] == ["usable", "usable"]
        assert "the loser" not in str(shown)
        assert "the loser" not in str(await stage.run())
        seen = (await stage.ask("GET", f"{RUNS}/run:one/dispatches")).body
        assert "the loser" not in str(seen)


@in_loop
async def test_a_large_output_is_shown_by_its_digest() -> None:
    async with Stage() as stage:
        await stage.start(workflow(*(step(f"s{number}") for number in range(30))))
        large = {"text": "x" * 200_000}
        for number in range(29):
            stage.desk.answer(f"s{number}", large)
        stage.desk.answer("s29", {"text": "y" * 400_000})
        shown = await stage.ended()
        assert shown["status"] == "completed"
        assert all(one["output_digest"].startswith("sha256:") for one in shown["steps"])
        assert "output" not in shown["steps"][-1], "larger than what is shown of one"


@in_loop
async def test_only_the_newest_state_is_shown_to_a_host_that_was_away() -> None:
    async with Stage() as stage:
        chain = [step("s0"), *(step(f"s{n}", depends_on=[f"s{n - 1}"]) for n in range(1, 8))]
        await stage.start(workflow(*chain))
        stage.world.advance(1)
        before = (await stage.at_host())["revision"]
        stage.host_is_away = True
        for number in range(7):
            stage.desk.answer(f"s{number}", {})
        stage.world.advance(60)
        assert (await stage.at_host())["revision"] == before
        stage.host_is_away = False
        stage.world.advance(10)
        shown = await stage.at_host()
        assert statuses(shown)["s6"] == "completed"
        assert shown["revision"] <= before + 2
        stage.desk.answer("s7", {})
        assert (await stage.ended())["status"] == "completed"


@in_loop
async def test_a_revision_of_another_writer_is_read_and_gone_on_from() -> None:
    async with Stage() as stage:
        await stage.start(workflow(step("a"), step("b", depends_on=["a"])))
        stage.world.advance(1)
        shown = await stage.at_host()
        late = {"status": "awaiting_execution", "revision": shown["revision"], "attempt": 1}
        written = await stage.ask("POST", f"{HOST_RUNS}/run:one/steps/a", late, as_="arca")
        assert written.status == 200
        stage.desk.answer("a", {"x": 1})
        stage.desk.answer("b", {"y": 1})
        shown = await stage.ended()
        assert (shown["status"], statuses(shown)) == (
            "completed",
            {"a": "completed", "b": "completed"},
        )
        assert [one for one in await _notified(stage) if one["correlation_id"] == "run:one"]


@in_loop
async def test_the_end_of_a_run_is_told_once_and_kept_as_an_artifact() -> None:
    async with Stage() as stage:
        stage.desk.answer("a", None)
        await stage.start(workflow(step("a")))
        await stage.ended()
        stage.world.crash_module(BUYER, "arca")
        stage.world.crash(BUYER)
        stage.world.advance(10)
        (told,) = await _notified(stage)
        assert told["level"] == "error"
        assert told["title"] == "Run run:one of summaries is failed"
        assert "step a" in told["body"]
        read = {
            "schema_version": "v1",
            "capability_id": "artifact_read",
            "path": "runs/run:one.json",
        }
        kept = (await stage.ask("POST", "/v1/module/artifact/read", read, as_="arca")).body
        assert kept["outcome"] == "found"
        assert kept["content_type"] == "application/json"
        gone = {
            "schema_version": "v1",
            "capability_id": "module_store_get",
            "record_kind": "workflow-run-definition",
            "record_id": "run:one",
        }
        record = await stage.ask("POST", "/v1/module/store/records/get", gone, as_="arca")
        assert record.body["outcome"] == "missing", "a run that has ended is not started again"


@in_loop
async def test_a_run_that_waits_for_a_decision_is_told_once_for_each_decision() -> None:
    confirmed = {"policy": "requester_confirmation"}
    steps = step("a", fulfillment=confirmed), step("b", fulfillment=confirmed, depends_on=["a"])
    async with Stage() as stage:
        await stage.start(workflow(*steps))
        for name in ("a", "b"):
            stage.desk.answer(name, {})
            await stage.until(lambda shown: shown["status"] == "paused")
            stage.world.crash_module(BUYER, "arca")
            stage.world.advance(5)
            path = f"{RUNS}/run:one/steps/{name}/confirm"
            assert (await stage.ask("POST", path, {"fulfilled": True})).status == 200
            stage.world.advance(1)
        assert (await stage.ended())["status"] == "completed"
        levels = [one["level"] for one in await _notified(stage)]
        assert sorted(levels) == ["info", "warning", "warning"]


async def _notified(stage: Stage) -> list[Any]:
    found: list[Any] = (await stage.ask("GET", "/v1/notifications")).body["items"]
    return found


@in_loop
async def test_a_step_that_is_never_begun_ends_as_the_run_does_and_not_before() -> None:
    async with Stage() as stage:
        first = step("a", timing={"timeout": "PT5S", "on_timeout": "fail"})
        steps = first, step("b", depends_on=["a"]), step("c", timing={"timeout": "PT10M"})
        await stage.start(workflow(*steps, deadline="PT1M"))
        shown = await stage.until(lambda shown: statuses(shown)["a"] == "step_timeout")
        assert statuses(shown) == {
            "a": "step_timeout", "b": "pending", "c": "awaiting_execution",
        }  # fmt: skip
        shown = await stage.ended()
        assert shown["status"] == "deadline_exceeded"
        assert statuses(shown) == {
            "a": "step_timeout", "b": "deadline_exceeded", "c": "deadline_exceeded",
        }  # fmt: skip

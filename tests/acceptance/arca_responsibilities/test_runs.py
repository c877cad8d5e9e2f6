"""Must: running workflows, each responsibility by its words."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from anabranch.testing.market import check_laws
from modules.arca.work.stage import RUNS, Make, Stage, failed, outputs, step

HOST_RUNS = "/v1/module/workflow/runs"


def at_host(stage: Stage, run: str = "run:one") -> Any:
    return stage.ask("GET", f"{HOST_RUNS}/{run}")


def statuses(snapshot: Any) -> dict[str, str]:
    return {one["step_id"]: one["status"] for one in snapshot["steps"]}


def order_of(stage: Stage, name: str, attempt: int = 1, run: str = "run:one") -> Any:
    return stage.ask("GET", f"/v1/executions/execution:{run}-{name}-a{attempt}")["order"]


def test_a_plan_becomes_steps_in_the_order_of_their_dependencies(made: Make) -> None:
    stage = made({"anna": 0})
    plan = [
        step("last", input={}, depends_on=["middle"]),
        step("middle", input={}, input_from=["first"]),
        step("first", input={}),
    ]
    stage.start(plan)
    run = stage.ended()
    assert run["status"] == "completed"
    carried_out = [request.split(":")[3] for request in stage.sold["anna"].requests]
    assert carried_out == ["first", "middle", "last"]
    shown = {one["step_id"]: one["depends_on"] for one in run["steps"]}
    assert shown == {"last": ["middle"], "middle": ["first"], "first": []}


def test_the_host_owns_the_run_and_is_shown_its_steps(made: Make) -> None:
    stage = made({"anna": 0})
    stage.sold["anna"].answers = lambda request: (
        None if request["workflow/phase-id"] == "second" else {"status": "completed", "output": 1}
    )
    stage.start([step("first", input={}), step("second", input={}, depends_on=["first"])])
    begun = at_host(stage)
    assert (begun["schema"], begun["module_id"]) == ("workflow-run-snapshot.v1", "arca")
    stage.world.advance(10)
    shown = at_host(stage)
    assert (shown["status"], statuses(shown)) == (
        "running", {"first": "completed", "second": "awaiting_execution"},
    )  # fmt: skip
    assert shown["revision"] > begun["revision"]
    written = [path for method, path, _ in stage.calls if method == "POST" and HOST_RUNS in path]
    assert len(written) >= 2, "it was shown by the module API and by nothing else"
    assert statuses(stage.ask("GET", f"{RUNS}/run:one")) == statuses(shown)


def test_an_order_is_built_from_the_input_and_the_outputs_before_it(made: Make) -> None:
    stage = made({"anna": 0})
    texts = {"first": {"words": 5, "text": "abc"}, "second": "done"}
    stage.sold["anna"].answers = lambda request: {
        "status": "completed", "output": texts[request["workflow/phase-id"]],
    }  # fmt: skip
    stage.start(
        [
            step("first", request_input={"text": "{{input.text}}"}),
            step("second", input_from=["first"],
                 request_input={"text": "{{steps.first.output.text}}!", "of": "{{input.text}}"}),
        ],
        input={"text": "long"},
    )  # fmt: skip
    assert stage.ended()["status"] == "completed"
    order = order_of(stage, "second")
    assert order["request/input"] == {
        "words": 5, "text": "abc!", "of": "long", "upstream": {"first": texts["first"]},
    }  # fmt: skip
    assert (order["workflow/run-id"], order["workflow/phase-id"]) == ("run:one", "second")
    assert order["lineage/upstream-refs"] == ["run:one:first"]
    assert order["service/type"] == "text/summarise"


def test_each_step_submits_one_order_through_the_classified_ingress(made: Make) -> None:
    stage = made({"anna": 100})
    stage.start([step("first", input={}), step("second", input={}, depends_on=["first"])])
    assert stage.ended()["status"] == "completed"
    drafts = [body for method, path, body in stage.calls if path == "/v1/service-orders"]
    ids = ["order:run:one-first-a1", "order:run:one-second-a1"]
    assert [one["order/id"] for one in drafts] == ids
    assert [one["order_id"] for one in stage.executions()] == ids
    assert stage.movements() == ["hold", "hold", "release", "release"], "the host settles"
    stage.start([step("dear", input={}, max_amount=99)], run="run:dear")
    run = stage.ended("run:dear")
    assert (run["status"], run["error"]["code"]) == ("failed", "price-exceeded")
    assert len(stage.executions()) == 2, "what is rejected opens nothing"
    assert check_laws(stage.world) == []


def test_an_execution_is_asked_for_through_the_manual_release(made: Make) -> None:
    stage = made({"anna": None})
    stage.offer("anna", 100, confirmation__mode="manual-review-only")
    stage.world.advance(10)  # Arca hears of it
    stage.start([step("order", input={})])
    for seconds in (10, 3600):
        stage.world.advance(seconds)
        (execution,) = stage.executions()
        assert execution["state"] == "awaiting_manual_release", "time does nothing"
        assert statuses(at_host(stage)) == {"order": "awaiting_execution"}
    stage.ask("POST", "/v1/executions/execution:run:one-order-a1/release", {})
    run = stage.ended(seconds=10)
    assert (run["status"], outputs(run)) == ("completed", {"order": {"made_of": {}}})


@pytest.mark.parametrize(
    ("policy", "run_is", "step_is"),
    [("abort_workflow", "failed", "failed"), ("skip", "completed", "skipped"),
     ("pause", "paused", "awaiting_fulfillment")],
)  # fmt: skip
def test_retries_wait_their_delay_and_then_the_fail_policy_applies(
    made: Make, policy: str, run_is: str, step_is: str
) -> None:
    stage = made({"anna": 0})
    stage.sold["anna"].answers = lambda _request: failed()
    stage.start([step("order", input={}, max_retries=2, retry_delay_ms=60_000,
                      fail_policy=policy)])  # fmt: skip
    stage.world.advance(30)
    assert statuses(at_host(stage)) == {"order": "retry_wait"}
    run = stage.ended()
    assert (run["status"], statuses(run)["order"]) == (run_is, step_is)
    orders = stage.executions()
    assert [one["order_id"][-2:] for one in orders] == ["a1", "a2", "a3"]
    opened = [datetime.fromisoformat(one["opened_at"]).timestamp() for one in orders]
    assert all(60 <= after - before < 75 for before, after in pairwise(opened))


def test_the_end_is_told_to_the_operator_and_written_as_an_artifact(made: Make) -> None:
    stage = made({"anna": 0})
    stage.start([step("order", input={"text": "x"})])
    run = stage.ended()
    stage.world.advance(5)
    (told,) = stage.ask("GET", "/v1/notifications")["items"]
    assert (told["module_id"], told["correlation_id"], told["level"]) == (
        "arca", "run:one", "info",
    )  # fmt: skip
    paths = [path for _, path, _ in stage.calls]
    assert paths.count("/v1/module/notify") == paths.count("/v1/module/artifact/write") == 1
    file = stage.world.folder_of(stage.buyer) / "middleware/arca/output/runs/run:one.json"
    assert '"completed"' in file.read_text(encoding="utf-8"), run


@pytest.mark.parametrize("killed", ["module", "node"])
def test_a_run_is_resumed_after_a_restart_without_a_second_order(made: Make, killed: str) -> None:
    stage = made({"anna": 0})
    stage.sold["anna"].answers = lambda request: (
        None if request["workflow/phase-id"] == "second" else {"status": "completed", "output": 1}
    )
    stage.start([step("first", input={}), step("second", input={}, depends_on=["first"])])
    stage.world.advance(10)
    assert statuses(at_host(stage)) == {"first": "completed", "second": "awaiting_execution"}
    if killed == "module":
        stage.world.crash_module("buyer", "arca")
    else:
        stage.world.crash("buyer", 5)
    stage.world.advance(10)
    assert statuses(at_host(stage)) == {"first": "completed", "second": "awaiting_execution"}
    run = stage.ended()
    assert run["status"] == "failed", "its order has expired"
    assert [one["order_id"] for one in stage.executions()] == [
        "order:run:one-first-a1", "order:run:one-second-a1",
    ]  # fmt: skip
    assert check_laws(stage.world) == []

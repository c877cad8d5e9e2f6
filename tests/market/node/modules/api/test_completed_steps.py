"""Completed steps: records that are only added, read for one run."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market.node.api import Answer
from anabranch.market.node.modules.laws import broken_laws

from ..support import Hosted, hosted, in_process, run

GRANT = "workflow.step.completed.publish"
CONFIGS = [
    in_process("dator", enabled=False, grants=[GRANT]),
    in_process("other", enabled=False),
]


async def publish(node: Hosted, record: Any, as_: str = "dator") -> Answer:
    return await node.ask("POST", f"/v1/host/capabilities/{GRANT}", {"record": record}, as_=as_)


def record(run_id: str = "run:1", step: str = "s1", **more: Any) -> dict[str, Any]:
    return {"workflow/run-id": run_id, "workflow/phase-id": step, **more}


def test_records_of_a_run_are_read_in_order_and_kept_once() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            first = await publish(node, record(step="s1"))
            await publish(node, record(run_id="run:2"))
            again = await publish(node, record(step="s1"))
            assert first.body == again.body
            assert first.body["record_id"].startswith("sha256:")
            snake = await publish(node, {"run_id": "run:1", "step_id": "s2"})
            assert snake.status == 200
            path = "/v1/workflows/runs/run:1/steps/completed"
            listed = (await node.ask("GET", path)).body
            assert listed["workflow_run_id"] == "run:1"
            assert {item["step_id"] for item in listed["items"]} == {"s1", "s2"}
            assert listed["items"][0]["module_id"] == "dator"
            assert (await node.ask("GET", path, as_="other")).body == listed
            assert (await node.ask("GET", path, as_="open")).status == 401
            empty = await node.ask("GET", "/v1/workflows/runs/run:9/steps/completed")
            assert empty.body["items"] == []
            assert await broken_laws(node.node.entities) == []

    run(scenario())


@pytest.mark.parametrize(
    ("body", "as_", "status"),
    [
        (record(), "other", 403),
        ({}, "dator", 400),
        ({"workflow/run-id": "run:1"}, "dator", 400),
        (record(run_id="a b"), "dator", 400),
        (record(step=""), "dator", 400),
        ([], "dator", 400),
        (None, "dator", 400),
        (record(blob="x" * 256 * 1024), "dator", 413),
    ],
)
def test_a_bad_record_is_refused(body: Any, as_: str, status: int) -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            assert (await publish(node, body, as_)).status == status
            path = "/v1/workflows/runs/run:1/steps/completed"
            assert (await node.ask("GET", path)).body["items"] == []

    run(scenario())

"""A run in the market as its module would show it: a fan-out, an order, a decision."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ..support import eventually
from .support import TwoNodes, request_for

ELSEWHERE = "node:did:key:z6MkfVJAvfWEfSPHmFyc7mm84n3oQiTrGrv8tY9fGLcjU1RS"
DIGEST = "sha256:" + "A" * 43
RUNS = "/v1/module/workflow/runs"


def instant(seconds: float = 0) -> str:
    """From now."""
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def order(nodes: TwoNodes, run: str, step: str, attempt: int = 1, **changes: Any) -> str:
    """An order of a step that the provider has received; its execution."""
    offer = nodes.buyer.ask("GET", "/v1/service-offers/offer:summaries")["offer"]
    order_id = f"order:{run}-{step}-a{attempt}".replace("run:", "")
    draft = {
        "schema/v": 1,
        "order/id": order_id,
        "created-at": instant(-1),
        "provider/node-id": offer["provider/node-id"],
        "provider/participant-id": offer["provider/participant-id"],
        "offer/id": offer["offer/id"],
        "offer/seq": offer["sequence/no"],
        "service/type": offer["service/type"],
        "request/units": 1,
        "request/input": {"text": "a long text"},
        "pricing/max-amount": 500,
        "pricing/currency": "ORC",
        "workflow/run-id": run,
        "workflow/phase-id": step,
        **changes,
    }
    opened = nodes.buyer.say("arca", "/v1/service-orders", draft)
    assert opened["status"] == "opened-execution", opened
    execution: str = opened["execution_id"]
    nodes.buyer.ask("POST", f"/v1/executions/{execution}/dispatch")
    assert eventually(lambda: request_for(nodes, order_id))
    return execution


def dispatch(run: str, step: str, target: str, status: str, **more: Any) -> dict[str, Any]:
    return {
        "dispatch_id": f"dispatch:{run}-{step}-{target[-6:]}",
        "run_id": run,
        "step_id": step,
        "target": target,
        "dispatched_at": instant(-20),
        "status": status,
        "attempt": 1,
        **more,
    }


def answered(run: str, step: str, target: str, outcome: str, **more: Any) -> dict[str, Any]:
    said = {"responded_at": instant(-19.6), "outcome": outcome, "response_digest": DIGEST}
    return dispatch(run, step, target, "responded", **said, **more)


def fan_out(nodes: TwoNodes, run: str, **changes: Any) -> dict[str, Any]:
    """A step that asked three, of which one has an offer that is known here."""
    offer = nodes.buyer.ask("GET", "/v1/service-offers/offer:summaries")["offer"]
    return {
        "step_id": "find",
        "status": "completed",
        "attempt": 1,
        "service_type": "text/summarise",
        "started_at": instant(-21),
        "finished_at": instant(-18),
        "execution": {"completed": True},
        "task": {"fulfilled": True, "decided_by": "auto"},
        "dispatches": [
            answered(run, "find", offer["provider/node-id"], "usable"),
            answered(run, "find", nodes.buyer.node_id, "negative"),
            dispatch(run, "find", ELSEWHERE, "timeout", timeout_at=instant(-18)),
        ],
        "selected_output": {"status": "offer", "offer": offer},
        "output_digest": DIGEST,
        **changes,
    }


def bought(execution: str, **changes: Any) -> dict[str, Any]:
    """A step with an order."""
    name = execution.removeprefix("execution:")
    return {
        "step_id": "buy",
        "status": "awaiting_execution",
        "attempt": 1,
        "service_type": "text/summarise",
        "depends_on": ["find"],
        "started_at": instant(-18),
        "timeout_at": instant(600),
        "order_id": f"order:{name}",
        "execution_id": execution,
        "contract_id": f"contract:{name}",
        **changes,
    }


def waiting(**changes: Any) -> dict[str, Any]:
    """A step that waits for a person."""
    return {
        "step_id": "check",
        "status": "awaiting_fulfillment",
        "attempt": 1,
        "depends_on": ["buy"],
        "started_at": instant(-5),
        "execution": {"completed": True},
        "output": {"summary": "short"},
        "output_digest": DIGEST,
        **changes,
    }


def write_run(nodes: TwoNodes, run: str, steps: list[dict[str, Any]], **changes: Any) -> None:
    document = {
        "run_id": run,
        "workflow_id": "best-summary",
        "status": "running",
        "input": {"text": "a long text"},
        "started_at": instant(-22),
        "deadline_at": instant(3600),
        "steps": steps,
        **changes,
    }
    nodes.buyer.say("arca", RUNS, document)

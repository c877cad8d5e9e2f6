"""Whether the result of a provider is one for an order of this node, and a new one.

Who sent it is known by the transport. Nothing in the result says so with authority, and nothing of
it has an effect before all of this holds. Its form was checked where it was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.market.node.orders.executions import Execution, Result
from anabranch.market.node.orders.machine import SENT
from anabranch.market.node.ports import Acceptance

ACCEPTOR = "host.service-orders"
UNKNOWN = "unknown-request"
CONFLICT = "result-conflict"
CLOSED = "step-already-closed"


def mismatch(execution: Execution, result: Mapping[str, Any], source_peer: str) -> str:
    """The class of what does not match the request that was sent, or ""."""
    order, request = execution.order, execution.request
    if request is None or request.request_id != result["request_id"]:
        return UNKNOWN
    lineage = result["workflow/run-id"], result["workflow/phase-id"]
    if lineage != (request.run_id, request.phase_id):
        return "workflow-mismatch"
    if result["correlation/id"] != request.correlation_id:
        return "correlation-mismatch"
    if result["service_type"] != order["service/type"]:
        return "service-type-mismatch"
    if any(result[key] != order[key] for key in ("provider/node-id", "provider/participant-id")):
        return "provider-mismatch"
    if source_peer != order["provider/node-id"]:
        return "source-peer-mismatch"
    return ""


def standing(execution: Execution, digest: str) -> Acceptance | None:
    """What a matching result meets: None where the execution waits for one."""
    if execution.result is not None:
        if execution.result.digest == digest:
            return acceptance("already-present")
        return acceptance("rejected", CONFLICT)
    return None if execution.state in SENT else acceptance("rejected", CLOSED)


def acceptance(status: str, reason: str = "") -> Acceptance:
    return Acceptance(status=status, acceptor_id=ACCEPTOR, reason=reason)


def taken(result: Mapping[str, Any], digest: str, at: int, reason: str = "") -> Result:
    error = result.get("error")
    return Result(status=result["status"], digest=digest, at=at, error=error, reason=reason)

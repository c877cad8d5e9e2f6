"""The request that brings an order to its provider, and the envelope that it travels in."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.market.documents import digest_of
from anabranch.market.identities import canonical
from anabranch.market.node.ids import derived

REQUEST = "service-order.dispatch.request.v1"
ENVELOPE = "artifact-delivery-envelope.v1"
HOST = "host"  # the component of what the node itself sends
_ID_MAX = 256  # characters of the ids of a request; an order and a run may have longer ones


def dispatch_request(
    order: Mapping[str, Any],
    execution_id: str,
    deadline: str,
    reply_to: str,
    *,
    request_id: str = "",
    dispatch_id: str = "",
    reply_plan: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Without a workflow the execution stands for the run, and `order` for the step; ids that are
    not given follow from the order."""
    run = order.get("workflow/run-id") or _fitting(*execution_id.split(":", 1))
    phase = order.get("workflow/phase-id") or "order"
    common = {
        "service_type": order["service/type"],
        "request/input": order["request/input"],
        "delivery_deadline": deadline,
        "workflow/run-id": run,
        "workflow/phase-id": phase,
        "correlation/id": run if len(run) <= _ID_MAX else _fitting("run", run),
    }
    dispatch = {
        "dispatch/id": dispatch_id or f"dispatch:{order['order/id']}",
        "execution_ref": execution_id,
        **common,
    }
    return {
        "schema": REQUEST,
        "request_id": request_id or _fitting("remote-execution", order["order/id"]),
        "order": dict(order),
        "dispatch_payload": {
            "schema_version": "v1",
            "capability_id": "service_dispatch_execute",
            "dispatch": dispatch,
        },
        **common,
        "reply/target": {"selector/kind": "node", "node/id": reply_to},
        **({"reply/delivery_plan": dict(reply_plan)} if reply_plan else {}),
    }


def _fitting(prefix: str, name: str) -> str:
    """An id with this prefix for a thing of this name, however long that is."""
    whole = f"{prefix}:{name}"
    return whole if len(whole) <= _ID_MAX else f"{prefix}:{derived(prefix, name)}"


def envelope_of(
    artifact: Mapping[str, Any],
    target: str,
    component: str = HOST,
    fallback: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The artifact inline, in canonical bytes, for one node; `fallback` has stages for where that
    node does not take it."""
    data = canonical(dict(artifact))
    return {
        "schema": ENVELOPE,
        "component/id": component,
        "artifact": {
            "schema": artifact["schema"],
            "content/type": "application/json",
            "digest": digest_of(data),
            "size/bytes": len(data),
            "bytes/base64": base64.b64encode(data).decode(),
        },
        "delivery/plan": {
            "mode": "sequence",
            "stages": [
                {
                    "stage/id": "direct",
                    "mode": "parallel",
                    "targets": [{"selector/kind": "node", "node/id": target}],
                },
                *map(dict, fallback),
            ],
        },
        "policy": {"privacy": "private-direct", "delivery": "at-least-once"},
    }

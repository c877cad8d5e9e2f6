"""Where the result of a request goes: its reply plan, brought into the form of delivery plans.

Delivery plans have stages in sequence and targets in parallel. A stage of a reply plan that tries
its targets one after the other until one takes it becomes as many stages; where all of them must
take it, or a quorum, the order makes no difference and they are tried together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.market.node.delivery.envelope import refused


def reply_stages(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The stages of the delivery of a result. Raises `NodeError` for plans that have no such
    form."""
    plan = request.get("reply/delivery_plan")
    if plan is None:
        stage = {"stage/id": "reply", "targets": [request["reply/target"]], "success/policy": "any"}
        return [stage]
    stages = plan["stages"]
    if plan["mode"] == "parallel" and len(stages) > 1:
        raise refused(
            "kind-not-supported",
            "the reply plan wants its stages in parallel; stages are tried one after the other",
        )
    first = {stage["stage/id"]: _first_id(stage) for stage in stages}
    return [part for stage in stages for part in _narrow(stage, first)]


def _narrow(stage: Mapping[str, Any], first: Mapping[str, str]) -> list[dict[str, Any]]:
    kept = ("success/policy", "quorum/min-success")
    more = {name: stage[name] for name in kept if name in stage}
    after = {"on/failure": first[stage["on/failure"]]} if "on/failure" in stage else {}
    if not _is_split(stage):
        return [{"stage/id": stage["stage/id"], "targets": stage["targets"], **more, **after}]
    parts: list[dict[str, Any]] = [
        {"stage/id": f"{stage['stage/id']}.{number}", "targets": [target], **more}
        for number, target in enumerate(stage["targets"], 1)
    ]
    parts[-1].update(after)
    return parts


def _is_split(stage: Mapping[str, Any]) -> bool:
    one_by_one = stage["mode"] == "sequence" and stage["success/policy"] == "any"
    return one_by_one and len(stage["targets"]) > 1


def _first_id(stage: Mapping[str, Any]) -> str:
    return f"{stage['stage/id']}.1" if _is_split(stage) else str(stage["stage/id"])

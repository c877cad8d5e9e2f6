"""Deliveries as documents: the result, the status, the operation."""

from __future__ import annotations

from typing import Any

from anabranch.market.node.delivery.plan import NO_STAGE, Outcome, Stage
from anabranch.market.node.delivery.records import TERMINAL, Delivery
from anabranch.work.participants.performers import rfc3339

OPERATION_KIND = "artifact-delivery.submit"
PATH = "/v1/artifact-delivery/deliveries"


def result_document(delivery_id: str, delivery: Delivery) -> dict[str, Any]:
    """The `artifact-delivery-result.v1`."""
    return {
        "schema": "artifact-delivery-result.v1",
        "delivery/id": delivery_id,
        "status": delivery.status,
        **_failure(delivery),
        "stage/results": _stage_outcomes(delivery),
    }


def status_document(delivery_id: str, delivery: Delivery) -> dict[str, Any]:
    """The `artifact-delivery-status.v1`."""
    submitted = delivery.submitted
    document = {
        "schema": "artifact-delivery-status.v1",
        "delivery/id": delivery_id,
        "status": delivery.status,
        "component/id": submitted.component_id,
        "artifact": {
            "schema": submitted.artifact.schema,
            "content/type": submitted.artifact.content_type,
            "digest": submitted.artifact.digest,
            "size/bytes": submitted.artifact.size,
        },
        "submitted-at": rfc3339(submitted.at),
        "updated-at": rfc3339(delivery.updated_at),
        "expires-at": rfc3339(submitted.expires_at),
        "attempts": delivery.attempts,
        "dispatch/plan": {
            **({"route/ref": submitted.route_ref} if submitted.route_ref else {}),
            "mode": "sequence",
            "stages": [_stage(stage, submitted.stages) for stage in submitted.stages],
        },
        "stage/outcomes": _stage_outcomes(delivery),
        "retry/history": [
            {
                "attempt": one.number,
                "at": rfc3339(one.at),
                "failure/class": one.failure_class,
                "diagnostic": one.diagnostic,
            }
            for one in delivery.history
        ],
        **_failure(delivery),
    }
    if delivery.status == "failed-retryable":
        document["next-attempt-at"] = rfc3339(delivery.next_at)
    if submitted.idempotency_key:
        document["idempotency/key"] = submitted.idempotency_key
    return document


def operation_ending(delivery: Delivery) -> str:
    """How the deferred operation of a delivery has ended; "" while it has not."""
    if delivery.status not in TERMINAL:
        return ""
    if delivery.status == "succeeded":
        return "completed"
    if delivery.status == "expired":
        return "expired"
    return "timed-out" if delivery.failure_class == "stage-timeout" else "failed"


def operation_status(delivery: Delivery) -> str:
    """The same in the words of operations, for a delivery that nothing was deferred for."""
    return operation_ending(delivery) or ("pending" if delivery.status == "accepted" else "running")


def diagnostics_of(delivery: Delivery) -> list[str]:
    """What went wrong, in one line."""
    if not delivery.failure_class:
        return [delivery.diagnostic] if delivery.diagnostic else []
    return [f"{delivery.failure_class}: {delivery.diagnostic}"]


def _failure(delivery: Delivery) -> dict[str, Any]:
    document = {}
    if delivery.failure_class:
        document["failure/class"] = delivery.failure_class
    if delivery.diagnostic:
        document["diagnostic"] = delivery.diagnostic
    return document


def _stage(stage: Stage, stages: tuple[Stage, ...]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "stage/id": stage.stage_id,
        "mode": "parallel",
        "success/policy": stage.policy,
        "targets": [{"selector/kind": "node", "node/id": node} for node in stage.nodes],
    }
    if stage.policy == "quorum":
        document["quorum/min-success"] = stage.need
    if stage.next != NO_STAGE:
        document["on/failure"] = stages[stage.next].stage_id
    return document


def _stage_outcomes(delivery: Delivery) -> list[dict[str, Any]]:
    return [
        {"stage/id": stage.stage_id, "targets": [_target(one) for one in outcomes]}
        for stage in delivery.submitted.stages
        if (outcomes := delivery.outcomes.get(stage.stage_id)) is not None
    ]


def _target(outcome: Outcome) -> dict[str, Any]:
    document = {"node/id": outcome.node_id, "status": outcome.status}
    named = (
        ("admission", outcome.answer),
        ("failure/class", outcome.failure_class),
        ("diagnostic", outcome.diagnostic),
    )
    return document | {name: value for name, value in named if value}

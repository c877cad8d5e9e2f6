"""Artifacts to one node: the peer messages, and what an answer means for the delivery."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from anabranch.errors import AnabranchError
from anabranch.market.node.delivery.plan import Outcome
from anabranch.market.node.delivery.records import Artifact
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ports import Peers

MESSAGE = "artifact-delivery.deliver"
MESSAGE_SCHEMA = "artifact-delivery-deliver.v1"
MANY = "artifact-delivery.deliver-many"
MANY_SCHEMA = "artifact-delivery-deliver-many.v1"
MANY_MAX = 16  # deliveries in one message
DIAGNOSTIC_MAX = 500

#: What a peer refuses for good, in an answer that it has signed. Everything else may pass: what has
#: no signature may come from whatever has the address of the peer now.
_REFUSED_FOR_GOOD = frozenset({"message_unknown"})
#: Where several artifacts went together, these send each of them alone.
_TOO_MUCH_TOGETHER = frozenset({"too_large", "peer_envelope_size"})
#: Reasons of an acceptor that are failure classes of their own.
_REJECTIONS = frozenset(
    {"admission-conflict", "kind-not-supported", "envelope-malformed", "envelope-invalid",
     "runtime-limit"}
)  # fmt: skip


class AdmissionResponse(
    msgspec.Struct, frozen=True, kw_only=True, rename={"acceptor_id": "acceptor/id"}
):
    """As much of an `artifact-delivery-admission-response.v1` as the sender acts on."""

    status: Literal["accepted", "already-present", "rejected", "retryable"]
    acceptor_id: str
    reason: str | None = None
    diagnostic: Any = None


def deliver_message(
    delivery_id: str, component_id: str, key: str, artifact: Artifact, base64: str
) -> dict[str, Any]:
    return {
        "schema": MESSAGE_SCHEMA,
        "delivery/id": delivery_id,
        "component/id": component_id,
        "idempotency/key": key,
        "artifact": {
            "schema": artifact.schema,
            "content/type": artifact.content_type,
            "digest": artifact.digest,
            "size/bytes": artifact.size,
            "bytes/base64": base64,
        },
    }


async def ask(peers: Peers, node_id: str, msg: str, message: dict[str, Any], seconds: float) -> Any:
    """What the peer answers, or the `Outcome` of a peer that does not. Never raises for what the
    peer or the network does."""
    try:
        async with asyncio.timeout(seconds):
            return await peers.request(
                node_id,
                msg,
                message,
                correlation_id=message.get("delivery/id", msg),
                seconds=seconds + 1.0,  # the stage ends first, and says so
            )
    except TimeoutError:
        return timed_out(node_id, seconds)
    except AnabranchError as error:
        signed = isinstance(error, NodeError) and error.code in _REFUSED_FOR_GOOD
        if signed or (msg == MANY and error.code in _TOO_MUCH_TOGETHER):
            return _failed(node_id, "permanent", "adapter-permanent", error.message)
        return _failed(node_id, "transient", "adapter-transient", error.message)


def timed_out(node_id: str, seconds: float) -> Outcome:
    return _failed(node_id, "transient", "stage-timeout", f"no answer within {seconds:g} s")


def outcome_of(node_id: str, answer: Any) -> Outcome:
    """What the admission of the peer says."""
    if isinstance(answer, Outcome):
        return answer
    if answer is None:
        return _failed(node_id, "permanent", "adapter-permanent", "the node takes no deliveries")
    try:
        said = msgspec.convert(answer, AdmissionResponse)
    except msgspec.ValidationError:
        return _failed(node_id, "permanent", "adapter-permanent", "the answer is no admission")
    status, reason, note = said.status, said.reason or "", said.diagnostic
    diagnostic = f"{reason}: {note}" if reason and isinstance(note, str) and note else reason
    if status in ("accepted", "already-present"):
        return Outcome(node_id=node_id, status="admitted", answer=status)
    if status == "retryable":
        timed_out = reason == "admission-timeout"
        failure = "admission-timeout" if timed_out else "adapter-transient"
        return _failed(node_id, "transient", failure, diagnostic, status)
    failure = reason if reason in _REJECTIONS else "adapter-permanent"
    return _failed(node_id, "permanent", failure, diagnostic or "rejected", status)


def _failed(
    node_id: str, status: Any, failure_class: str, diagnostic: str, answer: str = ""
) -> Outcome:
    return Outcome(
        node_id=node_id,
        status=status,
        answer=answer,
        failure_class=failure_class,
        diagnostic=diagnostic[:DIAGNOSTIC_MAX],
    )

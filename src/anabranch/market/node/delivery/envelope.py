"""An envelope that a component hands in: checked, and taken apart.

What is refused here has changed nothing; the failure class says what was wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.market.documents import check, digest_of
from anabranch.market.identities import canonical
from anabranch.market.node.errors import NodeError

ENVELOPE = "artifact-delivery-envelope.v1"
DISPATCH = "service-order.dispatch.request.v1"
RESULT = "service-order.result.v1"
#: Artifacts that the host reads itself: they open and close orders.
READ_BY_HOST = (DISPATCH, RESULT)

#: Problems of a document that has its form: the fields contradict each other, or the bytes.
_OF_MEANING = frozenset(
    {
        "conflicting-fields", "conflicting-values", "forbidden-field", "wrong-digest", "wrong-size",
        "unknown-reference", "stage-loop",
    }
)  # fmt: skip
_STATUS_OF_CLASS = {
    "envelope-malformed": 400,
    "envelope-invalid": 400,
    "kind-not-supported": 400,
    "outbound-denied": 403,
    "route-unresolved": 422,
    "runtime-limit": 429,
    "ledger-error": 503,
}


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """An envelope whose form is right; there are no bytes where `ref` says where they are."""

    component_id: str
    schema: str
    content_type: str
    digest: str
    size: int
    inline: str  # base64 of the bytes, whose digest was checked
    ref: str
    route_ref: str
    stages: list[dict[str, Any]]
    plan_digest: str
    idempotency_key: str
    privacy: str
    again: bool
    timeout_ms: int | None


def refused(failure_class: str, message: str) -> NodeError:
    """The class is the code of the error, and is in its body under the name of the ledger, too."""
    headers = {"Retry-After": "1"} if failure_class == "runtime-limit" else {}
    return NodeError(
        _STATUS_OF_CLASS[failure_class],
        failure_class,
        message,
        headers=headers,
        more={"failure/class": failure_class},
    )


def read_envelope(document: Any, component_id: str) -> Envelope:
    """Raises `NodeError` with the failure class."""
    problems = check(document, kind=ENVELOPE)
    if problems:
        codes = {problem.code for problem in problems}
        text = "; ".join(str(problem) for problem in problems[:3])
        if "too-large" in codes:
            raise refused("runtime-limit", text)
        raise refused("envelope-invalid" if codes <= _OF_MEANING else "envelope-malformed", text)
    if document["component/id"] != component_id:
        raise refused(
            "outbound-denied",
            f"the envelope is of component {document['component/id']!r}, and {component_id!r} "
            "hands it in; write the id of the module that sends",
        )
    artifact, plan = document["artifact"], document["delivery/plan"]
    policy = document.get("policy", {})
    try:
        plan_digest = digest_of(canonical(plan))
    except InputError as error:
        raise refused("envelope-invalid", f"/delivery~1plan: {error.message}") from None
    return Envelope(
        component_id=component_id,
        schema=artifact["schema"],
        content_type=artifact["content/type"],
        digest=artifact["digest"],
        size=artifact["size/bytes"],
        inline=artifact.get("bytes/base64", ""),
        ref=artifact.get("artifact/ref", ""),
        route_ref=plan.get("route/ref", ""),
        stages=plan.get("stages", []),
        plan_digest=plan_digest,
        idempotency_key=document.get("idempotency/key", ""),
        privacy=policy.get("privacy", ""),
        again=policy.get("delivery", "at-least-once") == "at-least-once",
        timeout_ms=policy.get("timeout/ms"),
    )


def require_bytes(envelope: Envelope, data: bytes) -> None:
    """The bytes behind a reference are those that the envelope names."""
    if len(data) != envelope.size:
        raise refused(
            "envelope-invalid",
            f"/artifact/size~1bytes: {envelope.size:,} is here, and the bytes behind "
            f"{envelope.ref[:200]!r} are {len(data):,}",
        )
    if digest_of(data) != envelope.digest:
        raise refused(
            "envelope-invalid", f"/artifact/digest: not that of the bytes at {envelope.ref[:200]!r}"
        )


def read_document(schema: str, data: bytes) -> dict[str, Any]:
    """The document in an artifact that the host reads. Raises `InputError`."""
    try:
        document = json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InputError(f"the bytes are no {schema}: they are not JSON") from None
    problems = check(document, kind=schema)
    if problems:
        raise InputError("; ".join(str(problem) for problem in problems[:3]))
    assert isinstance(document, dict)
    return document


def kept_document(data: bytes) -> dict[str, Any]:
    """The same of an artifact that was read before it was kept: nothing is checked again."""
    document = json.loads(data)
    assert isinstance(document, dict)
    return document


def order_of(document: Mapping[str, Any]) -> str:
    """The order that a dispatch request is about."""
    return str(document["order"]["order/id"])


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")

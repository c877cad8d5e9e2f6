"""Results: the `service-order.result.v1` of a request, its bytes, and how it is delivered."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.market.documents import check, digest_of
from anabranch.market.identities import canonical
from anabranch.modules.dator.requests import Request
from anabranch.modules.dator.roles import CODE_MAX, MESSAGE_MAX, RoleAnswer
from anabranch.work.participants.performers import rfc3339

SCHEMA = "service-order.result.v1"
RESULT_BYTES = 768 * 1024  # it is kept in a record of the host, and sent in one message
_FROM_REQUEST = (
    "request_id", "workflow/run-id", "workflow/phase-id", "correlation/id", "service_type",
)  # fmt: skip


def failure(code: str, message: str) -> RoleAnswer:
    return RoleAnswer(status="failed", code=code, message=message)


def result_text(request: Request, answer: RoleAnswer, now: int) -> tuple[str, RoleAnswer]:
    """The text of the artifact, and the answer that is in it: another one where the output can be
    no part of a result."""
    document = _document(request, answer, now)
    problems = check(document, kind=SCHEMA)
    if problems:
        answer = failure("role-answer-invalid", f"the output cannot be sent: {problems[0]}")
        return _text(_document(request, answer, now)), answer
    text = _text(document)
    if len(text.encode()) > RESULT_BYTES:
        said = f"the output is too large: a result has at most {RESULT_BYTES:,} bytes"
        answer = failure("role-answer-invalid", said)
        return _text(_document(request, answer, now)), answer
    return text, answer


def _document(request: Request, answer: RoleAnswer, now: int) -> dict[str, Any]:
    asked = request.document
    assert asked is not None
    document: dict[str, Any] = {
        "schema": SCHEMA,
        **{name: asked[name] for name in _FROM_REQUEST},
        "status": answer.status,
        "provider/node-id": asked["order"]["provider/node-id"],
        "provider/participant-id": asked["order"]["provider/participant-id"],
        "responded_at": rfc3339(now),
    }
    if answer.status == "completed":
        document["output"] = answer.output
        if answer.metadata:
            document["provider/metadata"] = answer.metadata
    else:
        message = answer.message[:MESSAGE_MAX] or answer.code
        document["error"] = {"code": answer.code[:CODE_MAX], "message": message}
    return document


def _text(document: dict[str, Any]) -> str:
    """Canonical where that is possible: numbers with a point have no canonical form."""
    try:
        return canonical(document).decode()
    except InputError:
        return json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def envelope_of(request: Request, component: str, number: int) -> dict[str, Any]:
    """The delivery of a result; the same bytes whatever its number."""
    data = request.result.encode()
    return {
        "schema": "artifact-delivery-envelope.v1",
        "component/id": component,
        "artifact": {
            "schema": SCHEMA,
            "content/type": "application/json",
            "digest": digest_of(data),
            "size/bytes": len(data),
            "bytes/base64": b64encode(data).decode(),
        },
        "delivery/plan": {"mode": "sequence", "stages": request.stages},
        "policy": {"privacy": "private-direct", "delivery": "at-least-once"},
        "idempotency/key": f"{request.key}:{number}",
    }


def completed_step(request: Request) -> dict[str, Any]:
    """The record of the executing node that a step was completed: the same every time."""
    return {
        "workflow/run-id": request.run_id,
        "workflow/phase-id": request.phase_id,
        "request_id": request.request_id,
        "order/id": request.order_id,
        "buyer/node-id": request.buyer,
        "service_type": request.service_type,
        "dispatch/id": request.dispatch_id,
        "status": "completed",
        "completed_at": rfc3339(request.finished_at),
        "result/artifact-digest": digest_of(request.result.encode()),
    }


def standing(delivery: Mapping[str, Any]) -> tuple[str, str]:
    """How a delivery stands, and why it failed."""
    why = ": ".join(
        str(delivery[name]) for name in ("failure/class", "diagnostic") if delivery.get(name)
    )
    return str(delivery["status"]), why

"""Role modules: what Dator asks of them, and what it makes of their answers.

A role is asked at least once for every order, always under the same `dispatch/id`: a role whose
work must not happen twice knows by it what it has done. An answer that is not understood to the
letter is a failure; nothing of it is guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from anabranch.errors import AnabranchError
from anabranch.modules.dator.config import DispatchConfig

FORMATS = ("json", "application/json")
MESSAGE_MAX = 4096
CODE_MAX = 128
#: Of an answer that is passed on to the buyer as `provider/metadata`.
_METADATA = (
    "completed-at", "confidence/signal", "human-linked-participation", "provenance/origin-classes",
)  # fmt: skip
_MISSING = object()


class RoleUnavailable(AnabranchError):
    """The role cannot be asked now. Ask again later; `begun` where it may have begun to work."""

    code = "role-unavailable"

    def __init__(self, message: str, *, begun: bool = False) -> None:
        super().__init__(message)
        self.begun = begun


class RoleFailed(AnabranchError):
    """The role gave no answer that counts. The code says why: role-timeout, role-refused,
    role-answer-invalid."""

    code = "role-answer-invalid"


class RoleCalls(Protocol):
    """How roles are asked: over loopback HTTP, or as functions in tests."""

    async def call(
        self, capability_id: str, request: Mapping[str, Any], seconds: float
    ) -> Mapping[str, Any]:
        """The `service-dispatch-response`. Raises `RoleUnavailable` and `RoleFailed`."""


class RoleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a role said, in the words of results."""

    status: Literal["completed", "failed", "rejected"]
    output: Any = None
    code: str = ""
    message: str = ""
    metadata: dict[str, Any] = {}


def role_request(
    dispatch: DispatchConfig, dispatch_id: str, request: Mapping[str, Any]
) -> dict[str, Any]:
    """The request for a role; the same for the same `service-order.dispatch.request.v1`."""
    asked: dict[str, Any] = {
        "schema_version": "v1",
        "capability_id": "role_task_execute",
        "role/capability_id": dispatch.capability_id,
        "dispatch/id": dispatch_id,
        "service_type": request["service_type"],
        "request/input": request["request/input"],
        "workflow/run-id": request["workflow/run-id"],
        "workflow/phase-id": request["workflow/phase-id"],
        "correlation/id": request["correlation/id"],
        "execution_ref": _execution_ref(request),
    }
    if dispatch.required_sensorium_actions:
        asked["required_sensorium_actions"] = list(dispatch.required_sensorium_actions)
    return asked


def _execution_ref(request: Mapping[str, Any]) -> str:
    dispatch = request["dispatch_payload"].get("dispatch")
    found = dispatch.get("execution_ref") if isinstance(dispatch, Mapping) else None
    return found if isinstance(found, str) else str(request["order"]["order/id"])


def read_answer(answer: Any, dispatch_id: str) -> RoleAnswer:
    """Raises `RoleFailed` for what is no answer to this dispatch."""
    if not isinstance(answer, Mapping):
        raise RoleFailed("the role answered with no object")
    _require(answer, "schema_version", "v1")
    _require(answer, "capability_id", "service_dispatch_execute")
    if answer.get("dispatch/id") != dispatch_id:
        raise RoleFailed("the role answered another dispatch")
    message = str(answer.get("message") or "")[:MESSAGE_MAX]
    match answer.get("status"):
        case "completed":
            return RoleAnswer(status="completed", output=_output(answer), metadata=_said(answer))
        case "rejected-invalid-request":
            return RoleAnswer(
                status="rejected",
                code="rejected-invalid-request",
                message=message or "the role rejects the request",
            )
        case "failed":
            return RoleAnswer(
                status="failed", code="role-failed", message=message or "the role failed"
            )
    raise RoleFailed(f"the role answered with the status {str(answer.get('status'))[:80]!r}")


def _require(answer: Mapping[str, Any], name: str, value: str) -> None:
    if answer.get(name, value) != value:
        raise RoleFailed(f"`{name}` of the answer is not {value!r}")


def _output(answer: Mapping[str, Any]) -> Any:
    """The content: a value as it is, or JSON as text."""
    named = answer.get("answer/format", "json")
    if named not in FORMATS:
        raise RoleFailed(f"the format {str(named)[:80]!r} of the answer is not known; use json")
    content = answer.get("answer/content", _MISSING)
    if content is _MISSING:
        raise RoleFailed("a completed answer needs `answer/content`")
    if not isinstance(content, str):
        return content
    try:
        return json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise RoleFailed("`answer/content` is a text and not JSON") from None


def _said(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in _METADATA if name in answer} | {"answer/format": "json"}


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")

"""Deferred operations: what a host answers at once, and how the operation stands later."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.market.documents.problems import Found, below
from anabranch.market.documents.rules import exactly_one, follows, valid_from, valid_until
from anabranch.market.documents.shapes import (
    ANYTHING,
    INSTANT,
    NAME,
    OBJECT,
    Constant,
    Fields,
    ListOf,
    Object,
    Shape,
    TextOr,
    Whole,
    choice,
    pattern,
)

OPERATION_STATUSES = (
    "pending", "running", "completed", "failed", "timed-out", "cancelled", "expired", "unknown",
)  # fmt: skip

_OPERATION: Mapping[str, Shape] = {
    "schema/v": Constant(1),
    "operation/id": pattern(
        "deferred:, a kind and an id", r"deferred:[a-z][a-z0-9.-]*:[A-Za-z0-9_-]+"
    ),
    "operation/kind": pattern(
        "a dotted name in small letters", r"[a-z][a-z0-9-]*(\.[a-z][a-z0-9-]*)*"
    ),
}
_HREF = pattern("a path of the host such as /v1/…, or a URL", r"(/|https?://)[^\s]*")
_RETRY = Whole(1, 3600)
_NOTES = ListOf(TextOr(OBJECT))

DEFERRED = Fields(
    {
        "schema": Constant("deferred-operation.v1"),
        **_OPERATION,
        "status": Constant("deferred"),
        "created_at": INSTANT,
        "retry_after_seconds": _RETRY,
        "expires_at": INSTANT,
    },
    {
        "cancel_href": _HREF,
        "cancel/unavailable-reason": NAME,
        "status_href": _HREF,
        "correlation/id": NAME,
        "audit/outcome-ref": NAME,
        "continuation": ANYTHING,
        "diagnostics": _NOTES,
        "causal/context": OBJECT,
        "extensions": OBJECT,
    },
    closed=True,
    rules=(
        exactly_one("cancel_href", "cancel/unavailable-reason"),
        follows("created_at", "expires_at"),
        valid_from("created_at"),
        valid_until("expires_at"),
    ),
)


def _result_iff_completed(status: Object, path: str, found: Found) -> None:
    word = status.get("status")
    where = below(path, "result")
    if word == "completed" and "result" not in status:
        found.add(where, "missing-field", "a completed operation needs `result`; add it")
    elif word in OPERATION_STATUSES and word != "completed" and "result" in status:
        message = f"an operation that is {word} has no `result`; remove it"
        found.add(where, "forbidden-field", message)


DEFERRED_STATUS = Fields(
    {
        "schema": Constant("deferred-operation-status.v1"),
        **_OPERATION,
        "status": choice(*OPERATION_STATUSES),
        "updated_at": INSTANT,
    },
    {
        "result": ANYTHING,
        "retry_after_seconds": _RETRY,
        "expires_at": INSTANT,
        "diagnostics": _NOTES,
        "extensions": OBJECT,
    },
    closed=True,
    rules=(_result_iff_completed, valid_from("updated_at")),
)

KINDS: Mapping[str, Fields] = {
    "deferred-operation.v1": DEFERRED,
    "deferred-operation-status.v1": DEFERRED_STATUS,
}

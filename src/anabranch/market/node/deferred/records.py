"""An operation that was deferred: its events, and what they come to."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from anabranch.market.node.entities import Family
from anabranch.market.node.ids import derived

Status = Literal[
    "pending", "running", "completed", "failed", "timed-out", "cancelled", "expired", "unknown"
]
Ending = Literal["completed", "failed", "timed-out", "cancelled", "expired", "unknown"]
OPEN: frozenset[str] = frozenset({"pending", "running"})


class Deferred(msgspec.Struct, frozen=True, kw_only=True, tag="deferred"):
    """The caller was promised an answer."""

    kind: str
    key: str  # what its owner knows it by
    owner: str  # the component that asked for it
    at: int
    expires_at: int
    retry_after_seconds: int
    status_href: str
    cancel_unavailable: str = ""  # why it cannot be cancelled; "" where it can
    correlation_id: str = ""
    audit_ref: str = ""


class Running(msgspec.Struct, frozen=True, kw_only=True, tag="running"):
    at: int


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    at: int
    status: Ending
    result: Any = None
    diagnostics: tuple[str, ...] = ()


Event = Deferred | Running | Ended


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """An operation as it stands."""

    promise: Deferred
    updated_at: int
    status: Status = "pending"
    result: Any = None
    diagnostics: tuple[str, ...] = ()


def evolve(state: Operation | None, event: Event) -> Operation:
    if isinstance(event, Deferred):
        return Operation(promise=event, updated_at=event.at)
    assert state is not None
    if isinstance(event, Running):
        return msgspec.structs.replace(state, status="running", updated_at=event.at)
    return msgspec.structs.replace(
        state,
        status=event.status,
        result=event.result,
        diagnostics=event.diagnostics,
        updated_at=event.at,
    )


OPERATIONS: Family[Operation] = Family(
    "deferred-operation",
    Operation,
    Event,
    evolve,
    is_open=lambda state: state.status in OPEN,
    wake=lambda state: state.promise.expires_at,
    group=lambda state: state.promise.owner,
)


def operation_id_of(kind: str, key: str) -> str:
    return f"deferred:{kind}:{derived('anabranch deferred-operation.v1', kind, key)}"

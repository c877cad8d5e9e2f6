"""What the endpoints of a node take and answer, as types, where the table does not say it.

Documents that nodes exchange are described by name: `anabranch.market.documents` checks them, and
their fields are in docs/node.md. A row here is for the OpenAPI document alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

_Document = dict[str, Any]


class _Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Answers may have more fields than these."""


class Items(_Shape, frozen=True):
    """Everything there is."""

    items: list[_Document]


class NodePage(_Shape, frozen=True):
    """Newest first; `next` is there where more may follow, for `before`."""

    items: list[_Document]
    next: str | msgspec.UnsetType = msgspec.UNSET


class SeedPage(_Shape, frozen=True, rename={"max_items": "max-items"}):
    items: list[_Document]
    next: str | None
    max_items: int


class Health(_Shape, frozen=True):
    status: Literal["ok", "ready"]


class NodeStatus(_Shape, frozen=True):
    name: str
    url: str
    version: str
    node_id: str
    participant_id: str
    org_id: str | None
    opened_at: int  # milliseconds since 1970
    now: int
    open: dict[str, int]  # open things, by family


class AccountBalance(_Shape, frozen=True):
    """What is on hold is no longer in the balance."""

    account_id: str
    unit: str
    balance: int
    held: int


class AccountPage(_Shape, frozen=True):
    items: list[AccountBalance]
    next: str | msgspec.UnsetType = msgspec.UNSET


class Payment(_Shape, frozen=True):
    amount: int
    currency: str
    rail: Literal["none", "external-invoice", "host-ledger"]


class ExecutionOverview(_Shape, frozen=True):
    execution_id: str
    order_id: str
    state: Literal[
        "opened", "dispatch_prepared", "dispatched", "awaiting_acceptance",
        "awaiting_manual_release", "disputed", "released", "failed", "rejected", "expired",
    ]  # fmt: skip
    status: str  # the same as `state`
    terminal: bool
    offer_id: str
    service_type: str
    provider: dict[str, str]
    workflow: dict[str, str | None]
    payment: Payment
    confirmation_mode: str | None
    opened_at: str
    updated_at: str
    deadlines: dict[str, str]
    acceptance_overdue: bool
    contract_id: str
    hold_id: str | None
    receipt_id: str | None
    request_id: str | None
    delivery_id: str | None
    result: _Document | None
    refused_results: list[_Document]
    actor: str | None
    reason: str | None


class ExecutionSnapshot(ExecutionOverview, frozen=True):
    order: _Document  # the service-order.v1


class ExecutionPage(_Shape, frozen=True):
    items: list[ExecutionOverview]
    next: str | msgspec.UnsetType = msgspec.UNSET


class OrderAnswer(_Shape, frozen=True):
    """Where `status` is rejected, `classifier` says why."""

    status: str


class OperationStatus(
    _Shape, frozen=True, rename={"operation_id": "operation/id", "operation_kind": "operation/kind"}
):
    """A deferred-operation.v1 or deferred-operation-status.v1"""

    schema: str
    status: str
    operation_id: str
    operation_kind: str
    expires_at: str


class OperationPage(_Shape, frozen=True):
    items: list[OperationStatus]
    next: str | msgspec.UnsetType = msgspec.UNSET


class ModuleView(_Shape, frozen=True):
    module_id: str
    component_id: str
    kind: str
    state: str
    ready: bool
    restarts: int
    grants: list[str]
    last_problem: _Document | None


class Modules(_Shape, frozen=True):
    items: list[ModuleView]


class PeerView(_Shape, frozen=True):
    node_id: str
    status: Literal["unknown", "unreachable", "reachable"]
    url: str | None
    session_id: str | None
    failures: int


class Peers(_Shape, frozen=True):
    items: list[PeerView]


class ModuleAnswered(_Shape, frozen=True):
    schema_version: str
    outcome: str


#: By method and path; where there is none any JSON object is answered.
ANSWERS: Mapping[str, Any] = {
    "GET /healthz": Health,
    "GET /readyz": Health,
    "GET /v1/status": NodeStatus,
    "GET /v1/deferred-operations": OperationPage,
    "GET /v1/deferred-operations/{operation}": OperationStatus,
    "GET /v1/deferred-operations/{operation}/status": OperationStatus,
    "POST /v1/deferred-operations/{operation}/cancel": OperationStatus,
    "GET /v1/artifact-delivery/deliveries/{delivery}/operation-status": OperationStatus,
    "GET /v1/peers": Peers,
    "GET /adv": SeedPage,
    "GET /cap": SeedPage,
    "GET /cap/{node}": SeedPage,
    "GET /revocations": SeedPage,
    "GET /v1/directory/holders": Items,
    "GET /v1/directory/nodes": Items,
    "GET /v1/passports": Items,
    "GET /v1/trusted-providers": Items,
    "GET /v1/ledger/account": AccountBalance,
    "GET /v1/ledger/accounts": AccountPage,
    "GET /v1/ledger/movements": NodePage,
    "POST /v1/service-orders": OrderAnswer,
    "POST /v1/orders": OrderAnswer,
    "GET /v1/executions": ExecutionPage,
    "GET /v1/executions/{execution}": ExecutionSnapshot,
    "POST /v1/executions/{execution}/release": ExecutionSnapshot,
    "POST /v1/executions/{execution}/accept": ExecutionSnapshot,
    "POST /v1/executions/{execution}/dispute": ExecutionSnapshot,
    "POST /v1/executions/{execution}/resolve": ExecutionSnapshot,
    "POST /v1/executions/{execution}/dispatch": ExecutionSnapshot,
    "GET /v1/artifact-delivery/deliveries": NodePage,
    "GET /v1/artifact-delivery/admissions": NodePage,
    "GET /v1/inbox": NodePage,
    "GET /v1/modules": Modules,
    "GET /v1/modules/{module}": ModuleView,
    "POST /v1/modules/{module}/start": ModuleView,
    "POST /v1/modules/{module}/stop": ModuleView,
    "POST /v1/modules/{module}/restart": ModuleView,
    "POST /v1/module/store/records/put": ModuleAnswered,
    "POST /v1/module/store/records/get": ModuleAnswered,
    "POST /v1/module/store/records/list": ModuleAnswered,
    "POST /v1/module/store/records/delete": ModuleAnswered,
    "POST /v1/module/notify": ModuleAnswered,
    "POST /v1/module/artifact/write": ModuleAnswered,
    "POST /v1/module/artifact/read": ModuleAnswered,
    "GET /v1/notifications": NodePage,
    "GET /v1/module/workflow/runs": NodePage,
}
#: Documents that are read as a whole by the part that takes them.
BODIES: Mapping[str, str] = {
    "POST /peer/messages": "A signed envelope of another node",
    "PUT /adv/{node}": "A signed node-advertisement.v1",
    "PUT /cap/{node}/{capability*}": "A capability with its passport, signed",
    "POST /revoke": "A signed capability-passport-revocation.v1",
    "POST /v1/service-offers": "A service-offer.v1, or a draft of one",
    "POST /v1/service-orders": "A service-order.v1, or a draft of one",
    "POST /v1/artifact-delivery/admissions": "An artifact, or an invocation token",
}
#: Capabilities say what they take; some take nothing.
ANY_BODY = ("POST /v1/host/capabilities/{capability}",)

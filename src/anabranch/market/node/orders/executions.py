"""Executions: an order that was opened, and everything that happened to it since.

The stream of an order is that of its execution, so an order opens at most one. Contract, receipt
and hold have the id of the order with another prefix.
"""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.errors import LawBroken
from anabranch.market.node.entities import Family
from anabranch.market.node.ledger.holds import Deadlines
from anabranch.market.node.orders.machine import AWAITING, TERMINAL, WORKING, step
from anabranch.work.participants.performers import rfc3339

LATE_KEPT = 20  # results that came too late, or in conflict, for people who ask


def with_prefix(order_id: str, prefix: str) -> str:
    return f"{prefix}:{order_id.removeprefix('order:')}"


def order_id_of(name: str, prefix: str) -> str:
    """The order to which an execution, a contract or a receipt belongs; "" for other names."""
    kind, _, rest = name.partition(":")
    return f"order:{rest}" if kind == prefix and rest else ""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What was agreed when the order was opened; the offer may change, this does not."""

    amount: int
    currency: str
    rail: str  # none, external-invoice, host-ledger
    mode: str  # of confirmation; "" where the offer names none
    deadlines: Deadlines
    arbiters: tuple[str, ...] = ()
    escrow_policy: str = ""
    hold_id: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """How the request to the provider is known to both sides."""

    request_id: str
    run_id: str
    phase_id: str
    correlation_id: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    status: str  # completed, failed, rejected
    digest: str
    at: int
    error: dict[str, Any] | None = None
    reason: str = ""  # why it was not taken


class Opened(msgspec.Struct, frozen=True, kw_only=True, tag="opened"):
    order: dict[str, Any]
    digest: str  # of the order without its signature
    terms: Terms
    at: int


class Prepared(msgspec.Struct, frozen=True, kw_only=True, tag="prepared"):
    request: Request
    delivery_id: str
    at: int


class ResultTaken(msgspec.Struct, frozen=True, kw_only=True, tag="result"):
    result: Result


class ResultRefused(msgspec.Struct, frozen=True, kw_only=True, tag="result-refused"):
    result: Result


class AcceptanceOverdue(msgspec.Struct, frozen=True, kw_only=True, tag="overdue"):
    at: int


class Moved(msgspec.Struct, frozen=True, kw_only=True, tag="moved"):
    """A trigger of the machine, with the receipt where it ends the execution."""

    trigger: str
    at: int
    actor: str = ""
    reason: str = ""
    receipt: dict[str, Any] | None = None


Event = Opened | Prepared | ResultTaken | ResultRefused | AcceptanceOverdue | Moved


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    order_id: str
    order: dict[str, Any]
    digest: str
    terms: Terms
    opened_at: int
    updated_at: int
    state: str = "opened"
    request: Request | None = None
    delivery_id: str = ""
    result: Result | None = None
    refused: tuple[Result, ...] = ()
    overdue: bool = False
    actor: str = ""  # of the last transition that a person made
    reason: str = ""
    receipt: dict[str, Any] | None = None

    @property
    def execution_id(self) -> str:
        return with_prefix(self.order_id, "execution")

    @property
    def contract_id(self) -> str:
        return with_prefix(self.order_id, "contract")

    @property
    def receipt_id(self) -> str:
        return with_prefix(self.order_id, "receipt")

    @property
    def provider(self) -> str:
        return str(self.order["provider/participant-id"])

    @property
    def is_open(self) -> bool:
        return self.state not in TERMINAL

    def wake_at(self) -> int | None:
        """When time does something to it."""
        deadlines = self.terms.deadlines
        if self.state in WORKING:
            return deadlines.work_by
        if self.state not in AWAITING:
            return None
        if not self.overdue:
            return deadlines.accept_by
        return deadlines.auto_release if self.state == "awaiting_acceptance" else None


def _evolve(state: Execution | None, event: Event) -> Execution:
    if isinstance(event, Opened):
        if state is not None:
            raise LawBroken(f"{state.order_id} would open a second execution")
        return Execution(
            order_id=event.order["order/id"],
            order=event.order,
            digest=event.digest,
            terms=event.terms,
            opened_at=event.at,
            updated_at=event.at,
        )
    if state is None:
        raise LawBroken("something would happen to an order that was not opened")
    return msgspec.structs.replace(state, **_changes(state, event))


def _changes(state: Execution, event: Event) -> dict[str, Any]:
    match event:
        case Prepared(request=request, delivery_id=delivery, at=at):
            return {"request": request, "delivery_id": delivery, "updated_at": at}
        case ResultTaken(result=result):
            if state.result is not None:
                raise LawBroken(f"{state.order_id} would have a second result")
            return {"result": result, "updated_at": result.at}
        case ResultRefused(result=result):
            return {"refused": (*state.refused, result)[-LATE_KEPT:]}
        case AcceptanceOverdue(at=at):
            return {"overdue": True, "updated_at": at}
        case Moved():
            return _moved(state, event)
    raise LawBroken(f"unknown event {event!r}")


def _moved(state: Execution, event: Moved) -> dict[str, Any]:
    to = step(state.state, event.trigger)
    if to is None:
        raise LawBroken(f"{state.order_id} is {state.state} and cannot take {event.trigger}")
    if bool(to.receipt) != (event.receipt is not None):
        raise LawBroken(f"{state.order_id} would become {to.to} with a wrong receipt")
    return {
        "state": to.to,
        "updated_at": event.at,
        "actor": event.actor,
        "reason": event.reason,
        "receipt": event.receipt,
    }


EXECUTIONS = Family(
    "service-order",
    Execution,
    Event,
    _evolve,
    is_open=lambda execution: execution.is_open,
    wake=Execution.wake_at,
    group=lambda execution: str(execution.order.get("workflow/run-id", "")),
)


class Bound(msgspec.Struct, frozen=True, tag="bound"):
    """The id of a request belongs to this order; a result names the request alone."""

    order_id: str


def _bound(state: Bound | None, event: Bound) -> Bound:
    if state is not None:
        raise LawBroken(f"a request of {state.order_id} would be one of {event.order_id}")
    return event


REQUESTS = Family("service-order-request", Bound, Bound, _bound)


def snapshot(execution: Execution) -> dict[str, Any]:
    """What callers see of an execution, with its order."""
    return {**overview(execution), "order": execution.order}


def overview(execution: Execution) -> dict[str, Any]:
    """What lists show. `status` says the same as `state`: every other snapshot of the node has its
    state there."""
    order, terms = execution.order, execution.terms
    return {
        "execution_id": execution.execution_id,
        "order_id": execution.order_id,
        "state": execution.state,
        "status": execution.state,
        "terminal": not execution.is_open,
        "offer_id": order["offer/id"],
        "service_type": order["service/type"],
        "provider": {"node_id": order["provider/node-id"], "participant_id": execution.provider},
        "workflow": {
            "run_id": order.get("workflow/run-id"),
            "phase_id": order.get("workflow/phase-id"),
        },
        "payment": {"amount": terms.amount, "currency": terms.currency, "rail": terms.rail},
        "confirmation_mode": terms.mode or None,
        "opened_at": rfc3339(execution.opened_at),
        "updated_at": rfc3339(execution.updated_at),
        "deadlines": {
            name: rfc3339(getattr(terms.deadlines, name)) for name in Deadlines.__struct_fields__
        },
        "acceptance_overdue": execution.overdue,
        "contract_id": execution.contract_id,
        "hold_id": terms.hold_id or None,
        "receipt_id": execution.receipt_id if execution.receipt else None,
        "request_id": execution.request.request_id if execution.request else None,
        "delivery_id": execution.delivery_id or None,
        "result": _shown(execution.result) if execution.result else None,
        "refused_results": [_shown(each) for each in execution.refused],
        "actor": execution.actor or None,
        "reason": execution.reason or None,
    }


def _shown(result: Result) -> dict[str, Any]:
    return {
        "status": result.status,
        "digest": result.digest,
        "received_at": rfc3339(result.at),
        **({"error": result.error} if result.error else {}),
        **({"reason": result.reason} if result.reason else {}),
    }

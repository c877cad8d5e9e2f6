"""Admissions: artifacts that an acceptor of this node was offered, and what it said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.market.node.delivery.envelope import RESULT
from anabranch.market.node.entities import Family
from anabranch.market.node.ids import derived
from anabranch.market.passports import instant


class Offered(msgspec.Struct, frozen=True, kw_only=True, tag="offered"):
    """The key belongs to this digest from here on, unless the acceptor rejects it."""

    at: int
    adapter: str
    peer: str  # as the transport knows it; "" for what the operator hands in
    component_id: str  # of the sender, as the peer says
    key: str
    schema: str
    content_type: str
    digest: str
    size: int
    acceptor_id: str


class Decided(msgspec.Struct, frozen=True, kw_only=True, tag="decided"):
    at: int
    status: Literal["accepted", "rejected"]
    reason: str = ""
    artifact_ref: str = ""


class Told(msgspec.Struct, frozen=True, kw_only=True, tag="told"):
    """The order was closed with this result."""

    at: int


Event = Offered | Decided | Told


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """An admission as it stands; `pending` until the acceptor has decided."""

    offered: Offered
    updated_at: int
    status: Literal["pending", "accepted", "rejected"] = "pending"
    reason: str = ""
    artifact_ref: str = ""
    told: bool = False


def evolve(state: Admission | None, event: Event) -> Admission:
    if isinstance(event, Offered):
        return Admission(offered=event, updated_at=event.at)
    assert state is not None
    if isinstance(event, Told):
        return msgspec.structs.replace(state, told=True, updated_at=event.at)
    return msgspec.structs.replace(
        state,
        status=event.status,
        reason=event.reason,
        artifact_ref=event.artifact_ref,
        updated_at=event.at,
    )


#: Why an acceptor rejects a result that comes late: the work was done, and its order is closed.
STEP_CLOSED = "step-already-closed"


def closes_order(schema: str, status: str, reason: str) -> bool:
    """Whether the order is told of a result that was decided so."""
    return schema == RESULT and (status == "accepted" or reason == STEP_CLOSED)


def is_owed(state: Admission) -> bool:
    """Whether an order has not been told of its result."""
    decided = state.status != "pending" and not state.told
    return decided and closes_order(state.offered.schema, state.status, state.reason)


ADMISSIONS: Family[Admission] = Family(
    "artifact-admission",
    Admission,
    Event,
    evolve,
    is_open=is_owed,
    group=lambda state: state.offered.peer,
)


def admission_id_of(peer: str, schema: str, *key: str) -> str:
    return f"admission:{derived('anabranch artifact-delivery.admission.v1', peer, schema, *key)}"


# -- orders ----------------------------------------------------------------------------------


class OrderTaken(msgspec.Struct, frozen=True, tag="taken"):
    """A request for the work of this order was taken; another one for it is not."""

    admission_id: str


#: By buyer and order: who pays once is worked for once, under whatever ids it is asked for.
ORDERS_TAKEN: Family[OrderTaken] = Family(
    "service-order-taken", OrderTaken, OrderTaken, lambda _state, event: event
)


def order_taken_of(order: Mapping[str, Any]) -> str:
    return derived("anabranch service-order.taken.v1", order["buyer/node-id"], order["order/id"])


# -- the inbox of the operator ---------------------------------------------------------------


class Received(msgspec.Struct, frozen=True, kw_only=True, tag="received"):
    """A dispatch request for which no module of this node has an acceptor."""

    at: int
    peer: str
    digest: str
    request: dict[str, Any]
    until: int | None = None  # the work of its offer has ended by then, whatever the request says
    price: int | None = None  # of all units, as the offer was when the request came
    size: int = 0  # bytes of the artifact


class Answered(msgspec.Struct, frozen=True, kw_only=True, tag="answered"):
    """The operator has answered; once more where the first delivery of it failed."""

    at: int
    result: dict[str, Any]
    delivery_id: str


class Lapsed(msgspec.Struct, frozen=True, kw_only=True, tag="lapsed"):
    """The deadline of the request has passed without an answer."""

    at: int


class InboxEntry(msgspec.Struct, frozen=True, kw_only=True):
    received: Received
    answers: tuple[Answered, ...] = ()
    lapsed: bool = False

    @property
    def deadline(self) -> int:
        named = instant(self.received.request["delivery_deadline"], "delivery_deadline")
        return named if self.received.until is None else min(named, self.received.until)


def evolve_inbox(state: InboxEntry | None, event: Received | Answered | Lapsed) -> InboxEntry:
    if isinstance(event, Received):
        return InboxEntry(received=event)
    assert state is not None
    if isinstance(event, Lapsed):
        return msgspec.structs.replace(state, lapsed=True)
    return msgspec.structs.replace(state, answers=(*state.answers, event))


LAPSED = "lapsed"  # the group of those that nobody has answered in time

INBOX: Family[InboxEntry] = Family(
    "service-inbox",
    InboxEntry,
    Received | Answered | Lapsed,
    evolve_inbox,
    is_open=lambda state: not state.answers and not state.lapsed,
    wake=lambda state: state.deadline,
    group=lambda state: LAPSED if state.lapsed and not state.answers else "",
)

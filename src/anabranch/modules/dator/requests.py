"""Requests for work: how one is read, and what is kept of it until its result has arrived.

    waiting ──▶ admitted ──▶ executing ──▶ result ──▶ sent
    (an operator decides)     (a role works)  (kept)    (handed to the host)

Each state is a record at the host before anything follows from it. A request that has ended is a
short record of another kind.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.errors import AnabranchError
from anabranch.market.documents import check, digest_of
from anabranch.market.documents.shapes import moment
from anabranch.market.node.delivery.replies import reply_stages
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ids import derived
from anabranch.market.node.orders.agreement import request_problem
from anabranch.modules.dator.config import DatorConfig, DispatchConfig
from anabranch.work.participants.performers import rfc3339

SCHEMA = "service-order.dispatch.request.v1"
#: Kinds of records: requests that are open, those that have ended, and which request an order has.
OPEN, DONE, ORDERS = "dator-request", "dator-done", "dator-order"
SKEW_MS = 5 * 60 * 1000  # by which clocks may differ
#: Of a request as it is kept: a record of the host has 1 MiB, and a little is added on the way.
RECORD_BYTES = 1008 * 1024

State = Literal["waiting", "admitted", "executing", "result", "sent"]
Ending = Literal["delivered", "refused", "undelivered"]


class Unacceptable(AnabranchError):
    """The request is rejected, and nothing has changed. The code is the reason."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery of a result."""

    number: int  # how often it was sent
    delivery_id: str
    operation_id: str
    status_href: str


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is open, as it is kept."""

    key: str
    request_id: str
    order_id: str
    buyer: str  # its node
    digest: str  # of the artifact
    offer_id: str
    service_type: str
    dispatch: DispatchConfig
    run_id: str
    phase_id: str
    stages: list[dict[str, Any]]  # of the delivery of the result
    state: State
    admitted_at: int
    deadline: int
    document: dict[str, Any] | None = None  # until there is a result
    started: int = 0  # how often a role was asked
    decided_by: str = ""
    result: str = ""  # the text of the artifact, the same for every delivery
    result_status: str = ""
    result_code: str = ""
    finished_at: int = 0
    sent: Sent | None = None

    @property
    def is_queued(self) -> bool:
        """Whether it takes a place in the queue of its offer."""
        return self.state in ("waiting", "admitted", "executing")

    @property
    def dispatch_id(self) -> str:
        """What a role knows it by. Not what the buyer calls it: two buyers may say the same."""
        return f"dispatch:{self.key}"

    @property
    def fits_a_record(self) -> bool:
        return len(msgspec.json.encode(self)) <= RECORD_BYTES

    def view(self, input_bytes: int | None = None) -> dict[str, Any]:
        """For people; of a larger input only its size is said."""
        shown: dict[str, Any] = {
            "id": self.key,
            "request_id": self.request_id,
            "state": self.state,
            "order/id": self.order_id,
            "buyer/node-id": self.buyer,
            "offer/id": self.offer_id,
            "service_type": self.service_type,
            "role": self.dispatch.capability_id,
            "workflow/run-id": self.run_id,
            "workflow/phase-id": self.phase_id,
            "admitted_at": rfc3339(self.admitted_at),
            "delivery_deadline": rfc3339(self.deadline),
        }
        if self.document is not None:
            given = self.document["request/input"]
            size = len(msgspec.json.encode(given))
            if input_bytes is None or size <= input_bytes:
                shown["request/input"] = given
            else:
                shown["input_bytes"] = size
        if self.decided_by:
            shown["decided_by"] = self.decided_by
        if self.result_status:
            shown["result"] = self.result_status
            shown["finished_at"] = rfc3339(self.finished_at)
        if self.result_code:
            shown["code"] = self.result_code
        if self.sent is not None:
            shown["delivery_id"] = self.sent.delivery_id
            shown["status_href"] = self.sent.status_href
        return shown

    def ended(self, ending: Ending, now: int, reason: str = "") -> dict[str, Any]:
        """The record of a request that has ended."""
        shown = self.view()
        shown.pop("request/input", None)
        done = {**shown, "state": ending, "digest": self.digest, "ended_at": rfc3339(now)}
        return done | {"reason": reason[:500]} if reason else done


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was handed in, before it is admitted."""

    key: str
    digest: str
    document: dict[str, Any]
    stages: list[dict[str, Any]]
    trusted: bool = False  # whether the host trusts the node of the buyer

    @property
    def order(self) -> Mapping[str, Any]:
        order: Mapping[str, Any] = self.document["order"]
        return order

    @property
    def order_key(self) -> str:
        return derived("dator-order", self.order["buyer/node-id"], self.order["order/id"])


def read_arrived(invoke: Mapping[str, Any], config: DatorConfig) -> Arrived:
    """What the host hands in, checked once more, but for its times. Raises `Unacceptable`."""
    artifact = invoke.get("artifact")
    if not isinstance(artifact, Mapping) or artifact.get("schema") != SCHEMA:
        raise Unacceptable(f"this acceptor takes {SCHEMA}", code="kind-not-supported")
    data = _bytes(artifact, config.max_request_bytes)
    document = _document(data)
    order, request_id = document["order"], document["request_id"]
    if invoke.get("source/peer") != order["buyer/node-id"]:
        raise Unacceptable("the order is by another node", code="buyer-mismatch")
    code, message = request_problem(document)
    if code:
        raise Unacceptable(message, code=code)
    try:
        stages = reply_stages(document)
    except NodeError as error:
        raise Unacceptable(error.message, code="reply-not-supported") from None
    key = derived("dator-request", order["buyer/node-id"], request_id)
    return Arrived(
        key=key,
        digest=digest_of(data),
        document=document,
        stages=stages,
        trusted=invoke.get("source/trusted") is True,
    )


def require_timely(arrived: Arrived, now: int, remember_ms: int) -> None:
    """Only for a request that is new: one that came before is known also when its time is over, as
    long as it is remembered. What is older may have come, too."""
    if (moment(arrived.document["delivery_deadline"]) or 0) <= now:
        raise Unacceptable("its time has passed", code="deadline-passed")
    created = moment(arrived.order["created-at"]) or 0
    if created > now + SKEW_MS:
        raise Unacceptable("the order is from the future", code="other-reason")
    if created < now - remember_ms:
        raise Unacceptable("the order may be forgotten", code="order-too-old")


def _bytes(artifact: Mapping[str, Any], most: int) -> bytes:
    inline = artifact.get("bytes/base64")
    if not isinstance(inline, str):
        raise Unacceptable("the artifact has no bytes", code="envelope-malformed")
    if len(inline) > most * 4 // 3 + 4:
        said = f"a request has at most {most:,} bytes (max_request_bytes)"
        raise Unacceptable(said, code="request-too-large")
    try:
        return b64decode(inline, validate=True)
    except ValueError:
        raise Unacceptable("the bytes are no base64", code="envelope-malformed") from None


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise Unacceptable("the request is no JSON", code="envelope-invalid") from None
    problems = check(document, kind=SCHEMA)
    if problems:
        raise Unacceptable(str(problems[0]), code="envelope-invalid")
    assert isinstance(document, dict)
    return document

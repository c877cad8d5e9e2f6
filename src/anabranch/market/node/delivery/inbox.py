"""The inbox of the host: dispatch requests that the operator answers, where no module does."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from anabranch.errors import InputError
from anabranch.market.catalog.routes import is_active
from anabranch.market.documents import check, digest_of
from anabranch.market.identities import canonical
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.delivery.admission_records import (
    INBOX,
    Answered,
    InboxEntry,
    Lapsed,
    Received,
)
from anabranch.market.node.delivery.arrivals import Arrival
from anabranch.market.node.delivery.config import DeliveryConfig
from anabranch.market.node.delivery.envelope import ENVELOPE, RESULT
from anabranch.market.node.delivery.outbound import Outbound
from anabranch.market.node.delivery.records import DELIVERIES
from anabranch.market.node.delivery.replies import reply_stages
from anabranch.market.node.delivery.rules import HOST
from anabranch.market.node.delivery.targets import is_supported
from anabranch.market.node.entities import Change
from anabranch.market.node.errors import NodeError
from anabranch.market.node.orders.agreement import request_problem, terms_problem, total_of
from anabranch.market.node.paging import page_of, paged
from anabranch.market.node.peers.envelope import SKEW_MS
from anabranch.market.node.ports import Acceptance, NodeContext
from anabranch.market.passports import instant
from anabranch.work.participants.performers import rfc3339

INBOX_ACCEPTOR = "host.inbox"
RESERVED = 4  # one of so many places is for nodes that this one trusts
_FROM_REQUEST = ("request_id", "workflow/run-id", "workflow/phase-id", "correlation/id")


class AnswerError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    code: str
    message: str


class InboxAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the operator answers: an output where it is completed, else an error."""

    status: Literal["completed", "failed", "rejected"]
    output: Any = msgspec.UNSET
    error: AnswerError | msgspec.UnsetType = msgspec.UNSET


class Inbox:
    def __init__(self, context: NodeContext, config: DeliveryConfig, outbound: Outbound) -> None:
        self._context = context
        self._entities = context.entities
        self._config = config
        self._outbound = outbound

    # -- in ----------------------------------------------------------------------------------

    def receive(
        self, change: Change, admission_id: str, arrival: Arrival, request: dict[str, Any]
    ) -> Acceptance:
        """Put a request into the inbox, in the block that admits it."""
        if not self._has_room(arrival.peer, arrival.artifact.size):
            return Acceptance(status="retryable", acceptor_id=INBOX_ACCEPTOR, reason="inbox-full")
        offer, until, price = self._own_offer(request), None, None
        if offer is not None:  # an honest order has no later deadline, but for the clock
            until = change.now + offer["delivery/max-duration-sec"] * 1000 + SKEW_MS
            price = total_of(request["order"], self._terms(request) or offer)
        received = Received(
            at=change.now, peer=arrival.peer, digest=arrival.artifact.digest, request=request,
            until=until, price=price, size=arrival.artifact.size,
        )  # fmt: skip
        change.add(INBOX, entry_id_of(admission_id), received)
        return Acceptance(status="accepted", acceptor_id=INBOX_ACCEPTOR)

    def _has_room(self, peer: str, size: int) -> bool:
        """For one more request of so many bytes. A peer that asks for much leaves room for others,
        and all who only have a key for those whom this node trusts."""
        waiting = [one.received for _, one in self._entities.each_open(INBOX)]
        of_peer = [one for one in waiting if one.peer == peer]
        config, trusted = self._config, self._context.directory.is_trusted(peer)
        return (
            len(waiting) < _share(config.inbox_max, trusted=trusted)
            and len(of_peer) < config.inbox_per_peer
            and _bytes_of(waiting) + size <= _share(config.inbox_bytes, trusted=trusted)
            and _bytes_of(of_peer) + size <= config.inbox_bytes_per_peer
        )

    def _own_offer(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The offer of this node that the order is about."""
        offers = getattr(self._context, "offers", None)
        found = None if offers is None else offers.offer(request["order"]["offer/id"])
        mine = found is not None and found["provider/node-id"] == self._context.signer.node_id
        return found if mine else None

    def offer_refusal(self, request: Mapping[str, Any]) -> str:
        """Why the operator is not asked, where the offers of this node are here: whom the order is
        of, anyone with a key can be; what it is about has to be on offer, on these terms."""
        if getattr(self._context, "offers", None) is None:
            return ""
        offer = self._own_offer(request)
        if offer is None:
            return "offer-not-found"
        if not is_active(dict(offer), self._entities.clock.now()):
            return "offer-not-active"
        terms = self._terms(request)
        return "offer-seq-mismatch" if terms is None else terms_problem(request["order"], terms)[0]

    def _terms(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What the order was promised: it may have been on its way when the offer was published
        again."""
        order = request["order"]
        return self._context.offers.terms(order["offer/id"], order["offer/seq"])

    def lapse(self, entry_id: str) -> None:
        """The deadline of a request has passed: it takes no room any more. It can be answered
        still; whether that counts is for the buyer to say."""
        with self._entities.change() as change:
            entry = change.get(INBOX, entry_id)
            waiting = entry is not None and not entry.answers and not entry.lapsed
            if entry is not None and waiting and entry.deadline <= change.now:
                change.add(INBOX, entry_id, Lapsed(at=change.now))

    def refusal(self, peer: str, request: Mapping[str, Any]) -> str:
        """Why a request is for no acceptor of this node: its order is by another node than the one
        that sent it, or for another one or other work, its time has passed, or no result could be
        sent back."""
        order, signer = request["order"], self._context.signer
        if order["buyer/node-id"] != peer:
            return "buyer-mismatch"
        if order["provider/node-id"] != signer.node_id:
            return "provider-mismatch"
        if order["provider/participant-id"] != signer.participant_id:
            return "provider-mismatch"
        now = self._entities.clock.now()
        if instant(request["delivery_deadline"], "delivery_deadline") <= now:
            return "deadline-passed"
        created = instant(order["created-at"], "created-at")
        if created > now + SKEW_MS:
            return "order-from-the-future"
        if created < now - self._config.remember_seconds * 1000:
            return "order-too-old"  # whether it was worked for may be forgotten
        if reason := request_problem(request)[0]:
            return reason
        return "" if _can_reply(request) else "reply-not-supported"

    # -- out ---------------------------------------------------------------------------------

    async def answer(self, entry_id: str, given: InboxAnswer) -> dict[str, Any]:
        """Send the result. The same answer again changes nothing, unless its delivery failed: then
        the same result is sent again."""
        entry = self._get(entry_id)
        result = self._result(entry, given)
        number = 1
        if entry.answers:
            _require_same(entry.answers[0].result, result)
            last = self._entities.get(DELIVERIES, entry.answers[-1].delivery_id)
            assert last is not None
            if last.status not in ("failed-permanent", "expired"):
                return entry_document(entry_id, entry)
            result, number = entry.answers[0].result, len(entry.answers) + 1
        submission = await self._outbound.prepare(HOST, self._envelope(entry, result, number))
        with self._entities.change() as change:
            before = change.get(INBOX, entry_id)
            assert before is not None
            if len(before.answers) == number - 1:
                self._outbound.submit(change, submission)
                answered = Answered(
                    at=change.now, result=result, delivery_id=submission.delivery_id
                )
                change.add(INBOX, entry_id, answered)
        self._outbound.begin(submission)
        await self._entities.durable()
        return entry_document(entry_id, self._get(entry_id))

    def _result(self, entry: InboxEntry, given: InboxAnswer) -> dict[str, Any]:
        request = entry.received.request
        result: dict[str, Any] = {
            "schema": RESULT,
            **{name: request[name] for name in _FROM_REQUEST},
            "service_type": request["service_type"],
            "status": given.status,
            "provider/node-id": self._context.signer.node_id,
            "provider/participant-id": self._context.signer.participant_id,
            "responded_at": rfc3339(self._entities.clock.now()),
        }
        if given.output is not msgspec.UNSET:
            result["output"] = given.output
        if given.error is not msgspec.UNSET:
            result["error"] = msgspec.to_builtins(given.error)
        if problems := check(result, kind=RESULT):
            raise NodeError(400, "schema", "; ".join(str(problem) for problem in problems[:3]))
        return result

    def _envelope(self, entry: InboxEntry, result: dict[str, Any], number: int) -> dict[str, Any]:
        data = _bytes(result)
        return {
            "schema": ENVELOPE,
            "component/id": HOST,
            "artifact": {
                "schema": RESULT,
                "content/type": "application/json",
                "digest": digest_of(data),
                "size/bytes": len(data),
                "bytes/base64": b64encode(data).decode(),
            },
            "delivery/plan": {
                "mode": "sequence",
                "stages": reply_stages(entry.received.request),
            },
            "policy": {"privacy": "private-direct", "delivery": "at-least-once"},
            "idempotency/key": f"answer-{number}",
        }

    # -- the surface -------------------------------------------------------------------------

    def endpoints(self) -> tuple[Endpoint, ...]:
        return (
            Endpoint(
                method="GET",
                path="/v1/inbox",
                scopes=("operator",),
                handler=self._list,
                summary="Requests for work that the operator answers, newest first",
                query=("open", "limit", "before"),
            ),
            Endpoint(
                method="POST",
                path="/v1/inbox/{request}/answer",
                scopes=("operator",),
                handler=self._post_answer,
                summary="Answer a request with an output or an error",
                body=InboxAnswer,
                example={"status": "completed", "output": {"text": "…"}},
                errors=(400, 404, 409, 422),
            ),
        )

    async def _list(self, call: Call) -> Answer:
        page = page_of(call.query)
        rows = await self._entities.listed(
            INBOX, is_open=page.is_open, before=page.before, limit=page.limit
        )
        return paged([(entry_document(one, state), card) for one, state, card in rows], page)

    async def _post_answer(self, call: Call) -> Answer:
        given = msgspec.convert(call.body, InboxAnswer)
        return Answer(body=await self.answer(self._find(call.params["request"]), given))

    def _find(self, named: str) -> str:
        """By the id of the entry, or by that of the request where no other open one has it."""
        if self._entities.get(INBOX, named) is not None:
            return named
        same = [
            entry_id
            for entry_id, entry in self._entities.each_open(INBOX)
            if entry.received.request["request_id"] == named
        ]
        if len(same) == 1:
            return same[0]
        if same:
            message = f"{len(same)} requests have the id {named[:200]!r}: name the entry"
            raise NodeError(409, "ambiguous_request", message)
        raise NodeError(404, "unknown_request", f"there is no request {named[:200]!r}")

    def _get(self, entry_id: str) -> InboxEntry:
        entry = self._entities.get(INBOX, entry_id)
        assert entry is not None
        return entry


def _share(most: int, *, trusted: bool) -> int:
    return most if trusted else most - most // RESERVED


def _bytes_of(requests: Iterable[Received]) -> int:
    return sum(one.size for one in requests)


def _can_reply(request: Mapping[str, Any]) -> bool:
    try:
        stages = reply_stages(request)
    except NodeError:
        return False
    return all(is_supported(target) for stage in stages for target in stage["targets"])


def entry_id_of(admission_id: str) -> str:
    return f"request:{admission_id.partition(':')[2]}"


def entry_document(entry_id: str, entry: InboxEntry) -> dict[str, Any]:
    request, order = entry.received.request, entry.received.request["order"]
    document: dict[str, Any] = {
        "id": entry_id,
        "status": "answered" if entry.answers else "lapsed" if entry.lapsed else "open",
        "request_id": request["request_id"],
        "order/id": order["order/id"],
        "offer/id": order["offer/id"],
        "offer/seq": order["offer/seq"],
        "request/units": order["request/units"],
        "pricing/max-amount": order["pricing/max-amount"],
        "pricing/currency": order["pricing/currency"],
        "source/peer": entry.received.peer,
        "received_at": rfc3339(entry.received.at),
        "service_type": request["service_type"],
        "request/input": request["request/input"],
        "workflow/run-id": request["workflow/run-id"],
        "workflow/phase-id": request["workflow/phase-id"],
        "delivery_deadline": rfc3339(entry.deadline),
    }
    if entry.received.price is not None:
        document["pricing/total"] = entry.received.price
    if entry.answers:
        last = entry.answers[-1]
        document |= {
            "answered_at": rfc3339(entry.answers[0].at),
            "result": last.result,
            "delivery/id": last.delivery_id,
        }
    return document


def _require_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    names = ("status", "output", "error")
    if any(before.get(name) != now.get(name) for name in names):
        raise NodeError(409, "already_answered", "the request was answered otherwise before")


def _bytes(result: dict[str, Any]) -> bytes:
    """Canonical where that is possible: numbers with a point have no canonical form."""
    try:
        return canonical(result)
    except InputError:
        text = json.dumps(result, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        return text.encode()

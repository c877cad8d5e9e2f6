"""Artifacts that arrive: each is offered to one acceptor, and admitted at most once.

The key of an artifact belongs to the first digest that was offered under it: the same digest again
is `already-present`, another one is refused. This is on the disk before an acceptor is called, so a
node that goes down meanwhile asks the same acceptor about the same digest when it is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode
from collections import Counter, deque
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.errors import AnabranchError, StoreError
from anabranch.market.documents.delivery import ADMISSIONS as ADMISSION_STATUSES
from anabranch.market.node.delivery.admission_records import (
    ADMISSIONS,
    ORDERS_TAKEN,
    Admission,
    Decided,
    Offered,
    OrderTaken,
    Told,
    closes_order,
    is_owed,
    order_taken_of,
)
from anabranch.market.node.delivery.arrivals import (
    NAME_MAX,
    Arrival,
    CloseOut,
    DeliverMessage,
    id_of,
    invoke_document,
    read_arrival,
)
from anabranch.market.node.delivery.config import DeliveryConfig
from anabranch.market.node.delivery.envelope import DISPATCH, RESULT, kept_document
from anabranch.market.node.delivery.inbox import INBOX_ACCEPTOR, Inbox
from anabranch.market.node.delivery.outbound import STORE_SCHEME, keep_content
from anabranch.market.node.delivery.records import CONTENTS
from anabranch.market.node.delivery.rules import HOST
from anabranch.market.node.delivery.tokens import InvocationTokens
from anabranch.market.node.delivery.transport import MANY_MAX
from anabranch.market.node.door import LARGE, Door, size_of, weigh_artifact
from anabranch.market.node.entities import Change
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ports import Acceptance, InboundMessage, NodeContext
from anabranch.work.participants.performers import rfc3339
from anabranch.work.values.served_json import do_aside

logger = logging.getLogger("anabranch.node")

REFUSALS_KEPT = 200  # for the operator; they are not part of the ledger
DECIDED_SECONDS = 0.5  # that artifacts which came together wait for each other
#: Artifacts of one peer that came together and are not decided; more are taken one by one, and so
#: are bounded by the messages of a peer that are answered at a time.
UNDECIDED_OF_A_PEER = 512
_TEXT_MAX = 500


class Inbound:
    def __init__(self, context: NodeContext, config: DeliveryConfig, inbox: Inbox) -> None:
        self._context = context
        self._entities = context.entities
        self._config = config
        self._inbox = inbox
        self._host_acceptor_ids = frozenset(one.acceptor_id for one in config.acceptors)
        self._calls: dict[str, asyncio.Task[Acceptance]] = {}
        self._undecided: Counter[str] = Counter()  # by peer, of those that came together
        self._door = Door()
        self.tokens = InvocationTokens(context.random_bytes, self._host_acceptor_ids)
        self.refusals: deque[dict[str, Any]] = deque(maxlen=REFUSALS_KEPT)

    def open(self) -> None:
        """Results that were accepted just before the node went down close their orders now."""
        for admission_id, _admission in list(self._entities.each_open(ADMISSIONS)):
            self._context.spawn(self._tell_order(admission_id))

    async def close(self) -> None:
        await cancel_and_wait(*self._calls.values(), ignore=AnabranchError)

    # -- ways in -----------------------------------------------------------------------------

    async def message(self, message: InboundMessage) -> dict[str, Any]:
        """The peer message. A large one of a stranger takes room while it waits."""
        peer, size = message.remote_node_id, message.size or size_of(message.payload)
        trusted = size < LARGE or self._context.directory.is_trusted(peer)
        if not self._door.waiting.take(size, trusted=trusted):
            return _response(_retryable(HOST, "peer_busy"), "")
        try:
            return await self._message(message)
        finally:
            self._door.waiting.leave(size, trusted=trusted)

    async def _message(self, message: InboundMessage) -> dict[str, Any]:
        """Who sent it is what the transport says, whatever the body says."""
        try:
            sent = msgspec.convert(message.payload, DeliverMessage)
        except msgspec.ValidationError as error:
            return self._refuse(message.remote_node_id, None, "envelope-malformed", str(error))
        return await self.admit("peer", message.remote_node_id, sent)

    async def messages(self, message: InboundMessage) -> dict[str, Any]:
        """Several artifacts in one message. Those that are not decided soon are answered with null:
        the peer asks for them alone, and waits for nothing else meanwhile."""
        payload = message.payload
        sent = payload.get("deliveries") if isinstance(payload, dict) else None
        if not isinstance(sent, list) or not 0 < len(sent) <= MANY_MAX:
            raise NodeError(400, "envelope-malformed", f"`deliveries` has 1 to {MANY_MAX} of them")
        answers: list[asyncio.Future[dict[str, Any]]] = []
        for one in sent:
            alone = msgspec.structs.replace(message, payload=one, size=0)
            if (answer := self._begin(alone)) is None:
                break
            answers.append(answer)
        if answers:
            await asyncio.wait(answers, timeout=DECIDED_SECONDS)
        found = [one.result() if one.done() else None for one in answers]
        return {"admissions": found + [None] * (len(sent) - len(found))}

    def _begin(self, message: InboundMessage) -> asyncio.Future[dict[str, Any]] | None:
        """What will be the answer to one of several artifacts; None where too many wait, of this
        peer or of all strangers."""
        peer, size = message.remote_node_id, size_of(message.payload)
        trusted = self._context.directory.is_trusted(peer)
        if self._undecided[peer] >= UNDECIDED_OF_A_PEER:
            return None
        if not self._door.waiting.take(size, trusted=trusted):
            return None
        self._undecided[peer] += 1
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._context.spawn(self._answer_later(message, answer, size, trusted=trusted))
        return answer

    async def _answer_later(
        self,
        message: InboundMessage,
        answer: asyncio.Future[dict[str, Any]],
        size: int,
        *,
        trusted: bool,
    ) -> None:
        try:
            found = await self._message(message)
        finally:
            self._undecided -= Counter([message.remote_node_id])  # keeps those above zero
            self._door.waiting.leave(size, trusted=trusted)
        if not answer.done():
            answer.set_result(found)

    async def admit(self, adapter: str, peer: str, sent: DeliverMessage) -> dict[str, Any]:
        """The `artifact-delivery-admission-response.v1`."""
        try:
            arrival = await self._read(adapter, peer, sent)
        except NodeError as error:
            return self._refuse(peer, sent, error.code, error.message)
        admission_id = id_of(arrival)
        admission = self._entities.get(ADMISSIONS, admission_id)
        if admission is not None and admission.offered.digest != sent.artifact.digest:
            if admission.status != "rejected":
                note = "another artifact was offered under this key before"
                return self._refuse(peer, sent, "admission-conflict", note)
            admission = None
        if admission is not None and admission.status != "pending":
            await self._tell_order(admission_id)
            return _response(_acceptance(admission, again=True), sent.key)
        if admission_id in self._calls:
            return _response(_again(await self._wait(admission_id)), sent.key)
        return await self._offer(admission_id, admission, arrival, sent)

    async def _read(self, adapter: str, peer: str, sent: DeliverMessage) -> Arrival:
        """Raises `NodeError` with the failure class."""
        read = partial(read_arrival, adapter, peer, sent, self._config.max_bytes)
        trusted = adapter != "peer" or self._context.directory.is_trusted(peer)
        return await self._door.read(read, weigh_artifact(sent.artifact.inline), trusted=trusted)

    def _is_trusted(self, arrival: Arrival) -> bool:
        return arrival.adapter != "peer" or self._context.directory.is_trusted(arrival.peer)

    async def _offer(
        self, admission_id: str, admission: Admission | None, arrival: Arrival, sent: DeliverMessage
    ) -> dict[str, Any]:
        """To the acceptor, where orders have nothing against it. A request is one of the node that
        sent it and for this one, whoever carries it out."""
        if arrival.document is not None and arrival.artifact.schema == RESULT:
            said = self._context.orders.check_result(
                arrival.document, arrival.peer, arrival.artifact.digest
            )
            if said is not None:
                if said.status == "rejected":
                    self._note_refusal(arrival.peer, sent, said.reason, "")
                return _response(said, sent.key)
        if admission is None and arrival.artifact.schema == DISPATCH:
            assert arrival.document is not None
            if reason := self._inbox.refusal(arrival.peer, arrival.document):
                return self._refuse(arrival.peer, sent, reason, "")
            if self._has_other_request(admission_id, arrival.document["order"]):
                note = "a request for the work of this order came under another id"
                return self._refuse(arrival.peer, sent, "order-conflict", note)
        artifact = arrival.artifact
        acceptor_id = self._context.modules.acceptor_for(artifact.schema, artifact.content_type)
        if acceptor_id:
            loop = asyncio.get_running_loop()
            with self._entities.change() as change:
                if admission is None:
                    self._claim(change, admission_id, arrival, acceptor_id)
            call = loop.create_task(self._ask_module(admission_id, arrival, acceptor_id))
            self._calls[admission_id] = call
            call.add_done_callback(lambda done: self._called(admission_id, done))
            return _response(await self._wait(admission_id), sent.key)
        if artifact.schema == DISPATCH:
            assert arrival.document is not None
            if reason := self._inbox.offer_refusal(arrival.document):
                return self._refuse(arrival.peer, sent, reason, "")
        acceptance = self._decide_by_host(admission_id, admission, arrival)
        if acceptance is None:
            note = f"no acceptor of this node takes {artifact.schema}"
            return self._refuse(arrival.peer, sent, "kind-not-supported", note)
        await self._tell_order(admission_id)
        return _response(acceptance, sent.key)

    def _has_other_request(self, admission_id: str, order: Mapping[str, Any]) -> bool:
        """Whether the order was taken with another request, which no acceptor has rejected."""
        taken = self._entities.get(ORDERS_TAKEN, order_taken_of(order))
        if taken is None or taken.admission_id == admission_id:
            return False
        other = self._entities.get(ADMISSIONS, taken.admission_id)
        return other is not None and other.status != "rejected"

    # -- deciding ----------------------------------------------------------------------------

    def _claim(self, change: Change, admission_id: str, arrival: Arrival, acceptor_id: str) -> None:
        artifact = arrival.artifact
        offered = Offered(
            at=change.now,
            adapter=arrival.adapter,
            peer=arrival.peer,
            component_id=arrival.component_id,
            key=arrival.key,
            schema=artifact.schema,
            content_type=artifact.content_type,
            digest=artifact.digest,
            size=artifact.size,
            acceptor_id=acceptor_id,
        )
        change.add(ADMISSIONS, admission_id, offered)
        if artifact.schema == DISPATCH:
            assert arrival.document is not None
            taken = order_taken_of(arrival.document["order"])
            change.add(ORDERS_TAKEN, taken, OrderTaken(admission_id))

    def _decide_by_host(
        self, admission_id: str, admission: Admission | None, arrival: Arrival
    ) -> Acceptance | None:
        """Offered and decided in one block; None where the host takes no such artifacts."""
        acceptor_id = self._host_acceptor(arrival)
        if not acceptor_id:
            return None
        with self._entities.change() as change:
            acceptance = Acceptance(status="accepted", acceptor_id=acceptor_id)
            if arrival.artifact.schema == DISPATCH:
                assert arrival.document is not None
                acceptance = self._inbox.receive(change, admission_id, arrival, arrival.document)
            if acceptance.status == "accepted":
                if admission is None:
                    self._claim(change, admission_id, arrival, acceptor_id)
                self._decide(change, admission_id, arrival, acceptance)
        return acceptance

    def _host_acceptor(self, arrival: Arrival) -> str:
        artifact = arrival.artifact
        for one in self._config.acceptors:
            if one.artifact_schema == artifact.schema and one.content_type in (
                "",
                artifact.content_type,
            ):
                return one.acceptor_id
        return {DISPATCH: INBOX_ACCEPTOR, RESULT: HOST}.get(artifact.schema, "")

    def _decide(
        self, change: Change, admission_id: str, arrival: Arrival, acceptance: Acceptance
    ) -> None:
        """What the acceptor said becomes final; nothing where it was final before."""
        admission = change.get(ADMISSIONS, admission_id)
        if admission is None or admission.status != "pending":
            return
        accepted = acceptance.status in ("accepted", "already-present")
        status: Literal["accepted", "rejected"] = "accepted" if accepted else "rejected"
        reference, schema = acceptance.artifact_ref, arrival.artifact.schema
        kept_by_host = accepted and acceptance.acceptor_id in self._host_acceptor_ids
        if kept_by_host or closes_order(schema, status, acceptance.reason):
            # A result is needed again where the node goes down before its order is closed.
            keep_content(change, arrival.artifact, arrival.artifact.inline)
            reference = reference or f"{STORE_SCHEME}:{arrival.artifact.digest}"
        decided = Decided(
            at=change.now,
            status=status,
            reason=acceptance.reason[:_TEXT_MAX],
            artifact_ref=reference,
        )
        change.add(ADMISSIONS, admission_id, decided)
        self.tokens.forget(admission_id)

    # -- acceptors of modules ----------------------------------------------------------------

    async def _ask_module(
        self, admission_id: str, arrival: Arrival, acceptor_id: str
    ) -> Acceptance:
        await self._entities.durable()
        token = self.tokens.issue(admission_id, acceptor_id, arrival)
        acceptance = await self._accept(
            acceptor_id,
            invoke_document(
                admission_id, acceptor_id, arrival, token, trusted=self._is_trusted(arrival)
            ),
        )
        with self._entities.change() as change:
            admission = change.get(ADMISSIONS, admission_id)
            assert admission is not None
            if admission.status != "pending":  # closed out with the token meanwhile
                acceptance = _acceptance(admission, again=False)
            elif acceptance.status == "retryable":
                pass
            elif arrival.artifact.schema in self._config.closeout_tokens and (
                acceptance.status != "rejected"
            ):
                acceptance = _retryable(acceptor_id, "closeout-pending")
            else:
                self._decide(change, admission_id, arrival, acceptance)
        if arrival.artifact.schema not in self._config.closeout_tokens:
            self.tokens.forget(admission_id)
        await self._tell_order(admission_id)
        return acceptance

    async def _accept(self, acceptor_id: str, invoke: Mapping[str, Any]) -> Acceptance:
        try:
            async with asyncio.timeout(self._config.acceptor_timeout_ms / 1000):
                acceptance = await self._context.modules.accept(acceptor_id, invoke)
        except TimeoutError:
            return _retryable(acceptor_id, "admission-timeout")
        except StoreError:
            raise
        except AnabranchError as error:
            return _retryable(acceptor_id, error.code)
        if acceptance.status not in ADMISSION_STATUSES:
            return _retryable(acceptor_id, "acceptor-answer")
        return acceptance

    async def close_out(self, body: CloseOut) -> dict[str, Any]:
        """A module hands the token back, with what it decides. Raises `NodeError`."""
        admission = self._entities.get(ADMISSIONS, body.admission_id)
        arrival = self.tokens.arrival_for(body)
        if admission is None or arrival is None:
            raise _no_token()
        acceptance = Acceptance(
            status=body.status, acceptor_id=body.acceptor_id, reason=body.reason
        )
        if arrival.artifact.schema == RESULT and arrival.document is not None:
            said = self._context.orders.check_result(
                arrival.document, arrival.peer, arrival.artifact.digest
            )
            acceptance = said or acceptance
        with self._entities.change() as change:
            self._decide(change, body.admission_id, arrival, acceptance)
        await self._tell_order(body.admission_id)
        return _response(acceptance, arrival.key)

    async def _wait(self, admission_id: str) -> Acceptance:
        """The call goes on where the one who waits for it is gone."""
        return await asyncio.shield(self._calls[admission_id])

    def _called(self, admission_id: str, call: asyncio.Task[Acceptance]) -> None:
        del self._calls[admission_id]
        if not call.cancelled() and (error := call.exception()) is not None:
            logger.warning("%s was not decided: %s", admission_id, error)

    # -- afterwards --------------------------------------------------------------------------

    async def _tell_order(self, admission_id: str) -> None:
        """What was decided is on the disk, and an accepted result has closed its order."""
        await self._entities.durable()
        admission = self._entities.get(ADMISSIONS, admission_id)
        if admission is None or not is_owed(admission):
            return
        content = self._entities.get(CONTENTS, admission.offered.digest)
        assert content is not None
        data = b64decode(content.base64)
        result = await do_aside(len(data), kept_document, data)
        try:
            await self._context.orders.result_accepted(
                result, admission.offered.peer, admission.offered.digest
            )
        except StoreError:
            raise
        except AnabranchError as error:
            logger.warning("%s did not close its order: %s", admission_id, error.message)
        with self._entities.change() as change:
            now = change.get(ADMISSIONS, admission_id)
            if now is not None and is_owed(now):
                change.add(ADMISSIONS, admission_id, Told(at=change.now))
        self._context.spawn(self._entities.durable())  # no answer waits for it

    def _refuse(
        self, peer: str, sent: DeliverMessage | None, reason: str, diagnostic: str
    ) -> dict[str, Any]:
        self._note_refusal(peer, sent, reason, diagnostic)
        acceptance = Acceptance(status="rejected", acceptor_id=HOST, reason=reason)
        return _response(acceptance, sent.key if sent else "", diagnostic)

    def _note_refusal(
        self, peer: str, sent: DeliverMessage | None, reason: str, diagnostic: str
    ) -> None:
        logger.info("an artifact of %s was rejected: %s %s", peer, reason, diagnostic[:_TEXT_MAX])
        self.refusals.append(
            {
                "at": rfc3339(self._entities.clock.now()),
                "source/peer": peer,
                "schema": sent.artifact.schema[:200] if sent else "",
                "digest": sent.artifact.digest[:100] if sent else "",
                "reason": reason[:_TEXT_MAX],
                "diagnostic": diagnostic[:_TEXT_MAX],
            }
        )


def _acceptance(admission: Admission, *, again: bool) -> Acceptance:
    status = "already-present" if again and admission.status == "accepted" else admission.status
    return Acceptance(
        status=status,
        acceptor_id=admission.offered.acceptor_id,
        reason=admission.reason,
        artifact_ref=admission.artifact_ref,
    )


def _again(acceptance: Acceptance) -> Acceptance:
    if acceptance.status != "accepted":
        return acceptance
    return msgspec.structs.replace(acceptance, status="already-present")


def _retryable(acceptor_id: str, reason: str) -> Acceptance:
    return Acceptance(status="retryable", acceptor_id=acceptor_id, reason=reason)


def starting() -> dict[str, Any]:
    """The answer of a node that is not open yet."""
    return _response(_retryable(HOST, "starting"), "")


def _no_token() -> NodeError:
    message = "the token is not that of an open invocation for this acceptor, schema and digest"
    return NodeError(403, "invalid_token", message)


def _response(acceptance: Acceptance, key: str, diagnostic: str = "") -> dict[str, Any]:
    named = (
        ("idempotency/key", key[:NAME_MAX]),
        ("artifact/ref", acceptance.artifact_ref),
        ("reason", acceptance.reason[:_TEXT_MAX]),
        ("diagnostic", diagnostic[:_TEXT_MAX]),
    )
    return {
        "schema": "artifact-delivery-admission-response.v1",
        "status": acceptance.status,
        "acceptor/id": acceptance.acceptor_id or HOST,
        **{name: value for name, value in named if value},
    }

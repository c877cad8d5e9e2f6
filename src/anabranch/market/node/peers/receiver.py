"""Messages that come in: checked, given to who answers them, and answered with an envelope.

Refusals before a message is taken are answered without a signature, as any refused call is: the
sender is told which limit or check it met, and nothing was changed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from anabranch.errors import AnabranchError
from anabranch.market.node.api import Answer, Call
from anabranch.market.node.door import LARGE, WAITING_BYTES, WAITING_MAX, Waiting, weigh_text
from anabranch.market.node.errors import NodeError
from anabranch.market.node.peers.envelope import PeerEnvelope, read_genuine, seal
from anabranch.market.node.peers.sessions import ESTABLISH, NONCE_BYTES, Sessions
from anabranch.market.node.peers.settings import PeerSettings
from anabranch.market.node.ports import InboundMessage, MessageHandler, NodeContext
from anabranch.work.participants.performers import rfc3339
from anabranch.work.values.served_json import do_aside

logger = logging.getLogger("anabranch.node")

RESERVED = 4  # one of so many places is for nodes that this one trusts
MESSAGE_MAX = 1000  # characters of an error that a peer is told


class Receiver:
    """`heard` is told of every genuine envelope: the node that signed it is there."""

    def __init__(
        self, context: NodeContext, settings: PeerSettings, heard: Callable[[str], None]
    ) -> None:
        self._context = context
        self._settings = settings
        self._heard = heard
        self._handlers: dict[str, MessageHandler] = {}
        self._in_flight: Counter[str] = Counter()
        #: Of large messages of strangers, until they are answered, whoever answers them.
        self._waiting = Waiting(WAITING_MAX, WAITING_BYTES)
        me = context.signer.node_id
        self.sessions = Sessions(me, settings.session_ms, settings.skew_ms)

    def on(self, msg: str, handler: MessageHandler) -> None:
        if msg in self._handlers or msg == ESTABLISH:
            raise ValueError(f"{msg} has a handler already")
        self._handlers[msg] = handler

    @property
    def messages(self) -> list[str]:
        """What the host itself answers."""
        return sorted((ESTABLISH, *self._handlers))

    async def receive(self, call: Call) -> Answer:
        data = call.raw or msgspec.json.encode(call.body)
        now, me = self._context.clock.now(), self._context.signer.node_id
        envelope = await read_genuine(
            data, me, now, limit=self._settings.envelope_bytes, skew_ms=self._settings.skew_ms
        )
        if envelope.kind != "request":
            raise NodeError(400, "peer_envelope", "only requests are posted; answers are returned")
        self._heard(envelope.source)
        if envelope.msg == ESTABLISH:
            return self._open_session(envelope, now)
        self._require_room(envelope.source)
        payload = bytes(envelope.payload)
        weight = await do_aside(len(payload), weigh_text, payload)
        trusted = weight < LARGE or self._context.directory.is_trusted(envelope.source)
        with self._waiting.place(weight, trusted=trusted):
            self.sessions.take(envelope, now)
            return await self._answered(envelope)

    def _require_room(self, peer: str) -> None:
        of_all, strangers = self._in_flight.total(), self._settings.in_flight_all
        strangers -= strangers // RESERVED
        most = strangers
        if of_all >= strangers and self._context.directory.is_trusted(peer):
            most = self._settings.in_flight_all
        limits = (
            (self._in_flight[peer], self._settings.in_flight, "of this peer"),
            (of_all, most, "of all peers"),
        )
        for count, limit, which in limits:
            if count >= limit:
                message = f"{limit:,} messages {which} are being answered"
                raise NodeError(429, "peer_busy", message, headers={"Retry-After": "1"})

    async def handle(self, message: InboundMessage) -> Any:
        """What the host or a module says to the message."""
        handler = self._handlers.get(message.msg)
        if handler is not None:
            return await handler(message)
        modules = getattr(self._context, "modules", None)
        if modules is None:
            raise NodeError(404, "message_unknown", f"nothing here answers {message.msg!r}")
        if message.broadcast:
            return (await modules.message("broadcast", message)).payload
        return await modules.peer_message(message)

    def _open_session(self, envelope: PeerEnvelope, now: int) -> Answer:
        nonce = self._context.random_bytes(NONCE_BYTES).hex()
        session = self.sessions.open(envelope, nonce, now)
        payload = {"session_id": session.session, "expires_at": rfc3339(session.expires_at)}
        return self._reply(envelope, payload, session=session.session, nonce=nonce)

    async def _answered(self, envelope: PeerEnvelope) -> Answer:
        message = InboundMessage(
            msg=envelope.msg,
            payload=None,
            correlation_id=envelope.correlation_id,
            remote_node_id=envelope.source,
            broadcast=envelope.broadcast is True,
            size=len(bytes(envelope.payload)),
        )
        self._in_flight[envelope.source] += 1
        try:
            async with asyncio.timeout(self._settings.handler_ms / 1000):
                message = msgspec.structs.replace(message, payload=await envelope.content())
                reply = await self.handle(message)
                await self._context.entities.durable()
            return self._reply(envelope, reply)
        except TimeoutError:
            late = NodeError(504, "peer_handler_timeout", f"{envelope.msg} took too long")
            return self._refusal(envelope, late)
        except AnabranchError as error:
            return self._refusal(envelope, error)
        except Exception:
            logger.exception("%s of %s could not be answered", envelope.msg, envelope.source)
            failed = NodeError(500, "peer_handler_failed", f"{envelope.msg} could not be answered")
            return self._refusal(envelope, failed)
        finally:
            self._in_flight[envelope.source] -= 1
            if not self._in_flight[envelope.source]:
                del self._in_flight[envelope.source]

    def _refusal(self, envelope: PeerEnvelope, error: AnabranchError) -> Answer:
        payload = {"code": error.code, "message": error.message[:MESSAGE_MAX]}
        return self._reply(envelope, payload, is_error=True)

    def _reply(
        self, envelope: PeerEnvelope, payload: Any, *, is_error: bool = False,
        session: str = "", nonce: str = "",
    ) -> Answer:  # fmt: skip
        data = seal(
            self._context.signer,
            to=envelope.source,
            msg=envelope.msg,
            kind="error" if is_error else "response",
            payload=payload,
            correlation_id=envelope.correlation_id,
            now=self._context.clock.now(),
            session=session or envelope.session,
            sequence=envelope.sequence,
            nonce=nonce,
        )
        return Answer(body=msgspec.Raw(data))

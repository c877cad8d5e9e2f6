"""Messages to other nodes: in a session that is opened when it is needed, answered or refused in
bounded time.

A peer that cannot be reached is not tried again for a while, which doubles with every failure; a
message from it, or one that it answers, ends that. A session that the peer does not know (it was
started again, or the session has expired) is opened anew, once for each message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from anabranch.errors import AnabranchError
from anabranch.market.node.errors import NodeError
from anabranch.market.node.peers.envelope import PeerEnvelope, read_envelope, require_genuine, seal
from anabranch.market.node.peers.http_transport import CONNECTIONS_MAX
from anabranch.market.node.peers.receiver import Receiver
from anabranch.market.node.peers.sessions import (
    ESTABLISH,
    NONCE_BYTES,
    SESSION_UNKNOWN,
    session_id,
)
from anabranch.market.node.peers.settings import PeerSettings
from anabranch.market.node.ports import (
    InboundMessage,
    MessageHandler,
    NodeContext,
    PeerUnreachable,
)
from anabranch.market.passports import instant
from anabranch.work.values.served_json import do_aside

REMEMBERED_MAX = 10_000  # peers
REFUSAL_BYTES = 16 * 1024  # that are read of what a peer says who does not take a message
#: Of an answer of a peer that this node does not trust: hundreds are asked at once, and wait for
#: each other. Catalogs are asked a few at a time, and their pages are larger.
STRANGERS_ANSWER_BYTES = 1024 * 1024
STRANGERS_AT_ONCE = CONNECTIONS_MAX - CONNECTIONS_MAX // 4  # messages to them on their way
LARGE_ANSWERS = ("offer-catalog.fetch.request",)
_TEXT_MAX = 300


class _Message(NamedTuple):
    """What is to be sent."""

    msg: str
    payload: Any
    correlation_id: str
    broadcast: bool


class OutboundSession(msgspec.Struct):
    session: str
    expires_at: int
    last: int = 0  # number of the last message

    def next(self) -> int:
        self.last += 1
        return self.last


class RemotePeer:
    """What is known of one peer since this node was started."""

    def __init__(self) -> None:
        self.session: OutboundSession | None = None
        self.establishing: asyncio.Task[OutboundSession] | None = None
        self.failures = 0
        self.not_before = 0
        self.heard_at: int | None = None
        self.error = ""

    def failed(self, error: str, now: int, settings: PeerSettings) -> None:
        self.failures += 1
        wait = min(settings.backoff_ms << min(self.failures - 1, 30), settings.backoff_max_ms)
        self.not_before, self.error, self.session = now + wait, error, None

    def answered(self, now: int) -> None:
        self.failures, self.not_before, self.heard_at, self.error = 0, 0, now, ""


class Messenger:
    """The port `Peers`."""

    def __init__(self, context: NodeContext, settings: PeerSettings) -> None:
        self._context = context
        self._settings = settings
        self.remotes: dict[str, RemotePeer] = {}
        self._strangers = asyncio.Semaphore(STRANGERS_AT_ONCE)
        self.receiver = Receiver(context, settings, self._heard)

    def on(self, msg: str, handler: MessageHandler) -> None:
        self.receiver.on(msg, handler)

    def messages(self) -> Sequence[str]:
        return self.receiver.messages

    async def establish(self, node_id: str, seconds: float) -> str:
        return (await self._session(node_id, seconds)).session

    async def request(
        self, node_id: str, msg: str, payload: Any, *, correlation_id: str, seconds: float,
        broadcast: bool = False,
    ) -> Any:  # fmt: skip
        message = _Message(msg, payload, correlation_id, broadcast)
        if node_id == self._context.signer.node_id:
            return await self._to_itself(message, seconds)
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        session = await self._session(node_id, seconds)
        left = max(until - loop.time(), 0.001)
        try:
            return await self._ask(node_id, session, message, left)
        except PeerUnreachable as error:
            if error.code != SESSION_UNKNOWN:
                raise
        self._forget_session(node_id, session)
        session = await self._session(node_id, max(until - loop.time(), 0.001))
        left = max(until - loop.time(), 0.001)
        return await self._ask(node_id, session, message, left)

    async def close(self) -> None:
        tasks = [one.establishing for one in self.remotes.values() if one.establishing]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # -- one message -------------------------------------------------------------------------

    async def _to_itself(self, message: _Message, seconds: float) -> Any:
        """As a message of another node is answered: in time, with what is on the disk."""
        inbound = InboundMessage(
            msg=message.msg,
            payload=msgspec.json.decode(msgspec.json.encode(message.payload)),
            correlation_id=message.correlation_id,
            remote_node_id=self._context.signer.node_id,
            broadcast=message.broadcast,
        )
        try:
            async with asyncio.timeout(seconds):
                reply = await self.receiver.handle(inbound)
                await self._context.entities.durable()
        except TimeoutError:
            text = f"this node did not answer {message.msg} within {seconds:g} s"
            raise PeerUnreachable(text, code="peer_timeout") from None
        return reply

    async def _ask(
        self, node_id: str, session: OutboundSession, message: _Message, seconds: float
    ) -> Any:
        sequence = session.next()
        data = seal(
            self._context.signer, to=node_id, msg=message.msg, kind="request",
            payload=message.payload, correlation_id=message.correlation_id,
            now=self._context.clock.now(), session=session.session, sequence=sequence,
            broadcast=message.broadcast,
        )  # fmt: skip
        try:
            answer = await self._exchange(node_id, data, seconds, message.msg)
        except PeerUnreachable as error:
            self._lost(node_id, session, error)
            raise
        if (answer.session, answer.sequence) != (session.session, sequence):
            raise PeerUnreachable(f"{node_id} answers another message", code="peer_answer")
        return await _content(answer, node_id)

    async def _exchange(self, node_id: str, data: bytes, seconds: float, msg: str) -> PeerEnvelope:
        """The answer, which the node that was asked has signed."""
        url = await self._context.directory.locate(node_id)
        if not url:
            raise PeerUnreachable(f"no address of {node_id} is known", code="peer_unknown")
        most, trusted = self._settings.envelope_bytes, self._context.directory.is_trusted(node_id)
        if msg not in LARGE_ANSWERS and not trusted:
            most = min(most, STRANGERS_ANSWER_BYTES)
        if trusted:
            body = await self._context.transport.send(node_id, url, data, seconds, most=most)
        else:
            body = await self._send_to_stranger(node_id, url, data, seconds, most)
        answer = await self._read(node_id, body)
        if answer.source != node_id:
            message = f"{answer.source} answers in place of {node_id}"
            raise PeerUnreachable(message, code="peer_impostor")
        if answer.kind == "request":
            raise PeerUnreachable(f"{node_id} answers with a request", code="peer_answer")
        self._heard(node_id)
        return answer

    async def _send_to_stranger(
        self, node_id: str, url: str, data: bytes, seconds: float, most: int
    ) -> bytes:
        """Few such messages are on their way at once: strangers who do not answer leave connections
        to nodes that this one trusts."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        try:
            async with asyncio.timeout(seconds):
                await self._strangers.acquire()
        except TimeoutError:
            message = f"{STRANGERS_AT_ONCE} messages to nodes that are not trusted wait for answers"
            raise PeerUnreachable(f"{message}; {node_id} was not asked", code="peer_busy") from None
        try:
            left = max(until - loop.time(), 0.001)
            return await self._context.transport.send(node_id, url, data, left, most=most)
        finally:
            self._strangers.release()

    async def _read(self, node_id: str, body: bytes) -> PeerEnvelope:
        """Of many bytes beside the event loop: whoever answers chooses how many they are."""
        limit, skew_ms = self._settings.envelope_bytes, self._settings.skew_ms
        try:
            answer = await do_aside(len(body), read_envelope, body, limit)
        except NodeError:
            raise _refused(node_id, body) from None
        me, now = self._context.signer.node_id, self._context.clock.now()
        try:
            await do_aside(len(body), require_genuine, answer, me, now, skew_ms)
        except NodeError as error:
            message = f"the answer of {node_id}: {error.message}"
            raise PeerUnreachable(message, code=error.code) from None
        return answer

    # -- sessions ----------------------------------------------------------------------------

    async def _session(self, node_id: str, seconds: float) -> OutboundSession:
        """The session with that node; several who need it wait for the same one."""
        remote, now = self._remote(node_id), self._context.clock.now()
        if remote.session is not None and remote.session.expires_at > now:
            return remote.session
        if remote.establishing is None:
            if now < remote.not_before:
                raise PeerUnreachable(
                    f"{node_id} could not be reached ({remote.error}); it is tried again in "
                    f"{(remote.not_before - now) / 1000:g} s",
                    code="peer_backoff",
                )
            loop = asyncio.get_running_loop()
            remote.establishing = loop.create_task(self._establish(node_id, remote))
            remote.establishing.add_done_callback(_seen)
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(remote.establishing)
        except TimeoutError:
            message = f"{node_id} opened no session within {seconds:g} s"
            raise PeerUnreachable(message, code="peer_timeout") from None

    async def _establish(self, node_id: str, remote: RemotePeer) -> OutboundSession:
        try:
            remote.session = await self._handshake(node_id)
            return remote.session
        except PeerUnreachable as error:
            # The directory may learn of it at any time, and who is busy is there.
            if error.code not in ("peer_unknown", "peer_busy"):
                remote.failed(error.message[:_TEXT_MAX], self._context.clock.now(), self._settings)
            raise
        finally:
            remote.establishing = None

    async def _handshake(self, node_id: str) -> OutboundSession:
        me, nonce = self._context.signer.node_id, self._context.random_bytes(NONCE_BYTES).hex()
        now = self._context.clock.now()
        data = seal(
            self._context.signer, to=node_id, msg=ESTABLISH, kind="request", payload={},
            correlation_id=nonce, now=now, nonce=nonce,
        )  # fmt: skip
        seconds = self._settings.establish_ms / 1000
        answer = await self._exchange(node_id, data, seconds, ESTABLISH)
        if answer.session != session_id(me, node_id, nonce, answer.nonce) or not answer.nonce:
            raise PeerUnreachable(f"{node_id} opened another session", code="peer_answer")
        try:
            expires = instant((await _content(answer, node_id))["expires_at"], "expires_at")
        except (AnabranchError, LookupError, TypeError):
            raise PeerUnreachable(f"{node_id} opened no session", code="peer_answer") from None
        # By the shorter of both, and a little earlier than the peer, whose clock may be ahead.
        life = min(expires - now, self._settings.session_ms)
        return OutboundSession(answer.session, now + life * 9 // 10)

    def _lost(self, node_id: str, session: OutboundSession, error: PeerUnreachable) -> None:
        """Whether it is there is asked with the next message; a slow answer is no absence."""
        if error.code in ("peer_unreachable", "peer_address", "peer_redirect"):
            now = self._context.clock.now()
            self._remote(node_id).failed(error.message[:_TEXT_MAX], now, self._settings)
        elif error.code == "peer_timeout":
            self._forget_session(node_id, session)

    def _forget_session(self, node_id: str, session: OutboundSession) -> None:
        remote = self._remote(node_id)
        if remote.session is session:
            remote.session = None

    def _remote(self, node_id: str) -> RemotePeer:
        """As the one that was needed last: thousands who are heard once make this node forget
        nobody that it talks to."""
        known = self.remotes.pop(node_id, None)
        if known is None and len(self.remotes) >= REMEMBERED_MAX:
            self._forget_one()
        self.remotes[node_id] = known or RemotePeer()
        return self.remotes[node_id]

    def _forget_one(self) -> None:
        """The one that was not needed for the longest."""
        idle = (name for name, one in self.remotes.items() if one.establishing is None)
        self.remotes.pop(next(idle, ""), None)

    def _heard(self, node_id: str) -> None:
        self._remote(node_id).answered(self._context.clock.now())


def _seen(task: asyncio.Task[OutboundSession]) -> None:
    """Those who waited may be gone; what they would have been told is no defect."""
    if not task.cancelled():
        task.exception()


async def _content(answer: PeerEnvelope, node_id: str) -> Any:
    content = await answer.content()
    if answer.kind != "error":
        return content
    fields = content if isinstance(content, dict) else {}
    code, message = str(fields.get("code", "error")), str(fields.get("message", ""))
    raise NodeError(502, code[:100], f"{node_id} answers: {message[:_TEXT_MAX]}")


def _refused(node_id: str, body: bytes) -> PeerUnreachable:
    """What a peer says that did not take the message; anything else is no node."""
    try:
        said = msgspec.json.decode(body[:REFUSAL_BYTES], type=dict[str, Any])
        code, detail = str(said["code"])[:100], str(said["detail"])[:_TEXT_MAX]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return PeerUnreachable(f"what answers for {node_id} is no node", code="peer_answer")
    return PeerUnreachable(f"{node_id} refuses the message: {detail}", code=code)

"""Signed envelopes: how a message travels from one node to another.

    {"schema": "peer-envelope.v1", "from": "node:…", "to": "node:…", "session": "session:…",
     "sequence": 7, "nonce": "", "correlation_id": "dispatch:…", "msg": "workflow.fanout.request",
     "kind": "request", "sent_at": "2026-06-10T08:00:00.000Z", "payload_digest": "sha256:…",
     "signature": {…}, "payload": {…}}

`"broadcast": true` is there besides where the message goes to every node with a capability.
The key of the node in `from` signs everything but the payload, which is bound by the digest of its
bytes as they are sent. So a payload may hold any JSON, also numbers that have no canonical form,
and reading a large one costs one hash.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from anabranch.errors import InputError
from anabranch.market.documents import digest_of
from anabranch.market.identities import is_signed_by
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ports import Signer
from anabranch.market.passports import instant
from anabranch.work.participants.performers import rfc3339
from anabranch.work.values.served_json import JsonRefused, build_json, do_aside

SCHEMA = "peer-envelope.v1"
ENVELOPE_BYTES = 8 * 1024 * 1024
SKEW_MS = 5 * 60 * 1000
_MESSAGE = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_CORRELATION_MAX = 256
_NONCE_MAX = 64

Kind = Literal["request", "response", "error"]


class PeerEnvelope(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An envelope as it came; nothing in it counts before `require_signature`."""

    schema: Literal["peer-envelope.v1"]
    source: str = msgspec.field(name="from")
    to: str
    session: str
    sequence: int
    nonce: str
    correlation_id: str
    msg: str
    kind: Kind
    sent_at: str
    payload_digest: str
    payload: msgspec.Raw
    signature: dict[str, str]
    broadcast: Literal[True] | msgspec.UnsetType = msgspec.UNSET

    async def content(self) -> Any:
        """The payload, read where it holds nobody up. Raises `NodeError`."""
        payload = bytes(self.payload)
        return await do_aside(len(payload), content_of, payload)

    def header(self) -> dict[str, Any]:
        """What is signed, with the signature."""
        names = self.__struct_encode_fields__
        values = (getattr(self, name) for name in self.__struct_fields__)
        found = zip(names, values, strict=True)
        return {k: v for k, v in found if k != "payload" and v is not msgspec.UNSET}


_decoder = msgspec.json.Decoder(PeerEnvelope)


def seal(
    signer: Signer, *, to: str, msg: str, kind: Kind, payload: Any, correlation_id: str, now: int,
    session: str = "", sequence: int = 0, nonce: str = "", broadcast: bool = False,
) -> bytes:  # fmt: skip
    """The bytes of an envelope that this node has signed."""
    try:
        content = msgspec.json.encode(payload)
    except (TypeError, UnicodeEncodeError, RecursionError, OverflowError) as error:
        raise InputError(f"the payload of {msg[:80]!r} cannot be sent: {error}") from None
    header = {
        "schema": SCHEMA,
        "from": signer.node_id,
        "to": to,
        "session": session,
        "sequence": sequence,
        "nonce": nonce,
        "correlation_id": correlation_id,
        "msg": msg,
        "kind": kind,
        "sent_at": rfc3339(now),
        "payload_digest": digest_of(content),
        **({"broadcast": True} if broadcast else {}),
    }
    require_names(msg, correlation_id)
    return msgspec.json.encode({**signer.sign_as_node(header), "payload": msgspec.Raw(content)})


def read_envelope(data: bytes, limit: int = ENVELOPE_BYTES) -> PeerEnvelope:
    """The envelope in these bytes; raises `NodeError` where they are none."""
    if len(data) > limit:
        raise NodeError(413, "peer_envelope_size", f"an envelope has at most {limit:,} bytes")
    try:
        envelope = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NodeError(400, "peer_envelope", f"this is no {SCHEMA}: {error}"[:300]) from None
    try:
        require_names(envelope.msg, envelope.correlation_id)
    except InputError as error:
        raise NodeError(400, "peer_envelope", error.message) from None
    if envelope.sequence < 0 or len(envelope.nonce) > _NONCE_MAX:
        raise NodeError(400, "peer_envelope", "`sequence` or `nonce` is out of bounds")
    return envelope


def content_of(payload: bytes) -> Any:
    """What is in the bytes of a payload. Raises `NodeError`."""
    try:
        return build_json(payload)
    except JsonRefused as error:
        message = f"the payload is no JSON that is taken: {error}"
        raise NodeError(400, "peer_envelope", message[:300]) from None


def require_names(msg: str, correlation_id: str) -> None:
    if not _MESSAGE.fullmatch(msg):
        raise InputError(f"`msg` is {msg[:80]!r}, which is no name of a message")
    if not 0 < len(correlation_id) <= _CORRELATION_MAX:
        raise InputError(f"`correlation_id` has 1 to {_CORRELATION_MAX} characters")


async def read_genuine(
    data: bytes, me: str, now: int, *, limit: int = ENVELOPE_BYTES, skew_ms: int = SKEW_MS
) -> PeerEnvelope:
    """As `read_envelope` and `require_genuine`, of many bytes beside the event loop."""

    def read() -> PeerEnvelope:
        envelope = read_envelope(data, limit)
        require_genuine(envelope, me, now, skew_ms)
        return envelope

    return await do_aside(len(data), read)


def require_genuine(envelope: PeerEnvelope, me: str, now: int, skew_ms: int = SKEW_MS) -> None:
    """The node in `from` wrote all of this, to this node, just now. Raises `NodeError`."""
    if not envelope.source.startswith("node:"):
        raise NodeError(401, "peer_signature", "only nodes sign envelopes")
    if digest_of(envelope.payload) != envelope.payload_digest:
        raise NodeError(401, "peer_signature", "the payload is not the one that was signed")
    if not is_signed_by(envelope.header(), envelope.source):
        raise NodeError(401, "peer_signature", "the signature is not that of the node in `from`")
    if envelope.to != me:
        raise NodeError(403, "peer_recipient", f"the envelope is for {envelope.to[:100]!r}")
    try:
        sent_at = instant(envelope.sent_at, "sent_at")
    except InputError as error:
        raise NodeError(400, "peer_envelope", error.message) from None
    if abs(sent_at - now) > skew_ms:
        ahead = "ahead of" if sent_at > now else "behind"
        raise NodeError(
            400,
            "clock_skew",
            f"the clock of the sender is {abs(sent_at - now) // 1000:,} s {ahead} the clock here; "
            f"at most {skew_ms // 1000:,} s are taken",
        )

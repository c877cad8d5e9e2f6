"""What arrives: the message of a peer or an artifact of the operator, its bytes checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from anabranch.errors import InputError
from anabranch.market.documents import digest_of
from anabranch.market.documents.values import decoded
from anabranch.market.node.delivery.admission_records import admission_id_of
from anabranch.market.node.delivery.envelope import DISPATCH, READ_BY_HOST, read_document
from anabranch.market.node.errors import NodeError

NAME_MAX = 256  # of the key, and of what else is kept of an artifact


class ArrivedArtifact(
    msgspec.Struct, frozen=True, kw_only=True, rename={"content_type": "content/type",
    "size": "size/bytes", "inline": "bytes/base64"}, forbid_unknown_fields=True,
):  # fmt: skip
    schema: str
    content_type: str
    digest: str
    size: int
    inline: str


class DeliverMessage(
    msgspec.Struct, frozen=True, kw_only=True, rename={"schema_name": "schema", "key":
    "idempotency/key", "component_id": "component/id", "delivery_id": "delivery/id"},
):  # fmt: skip
    """What a peer sends; fields of later versions are passed over."""

    schema_name: str
    delivery_id: str
    component_id: str
    key: str
    artifact: ArrivedArtifact


class Arrival(NamedTuple):
    """An artifact whose bytes are those it names, and who it came from."""

    adapter: str
    peer: str
    component_id: str
    key: str
    artifact: ArrivedArtifact
    document: dict[str, Any] | None = None  # of artifacts that the host reads


class CloseOut(
    msgspec.Struct, frozen=True, kw_only=True, rename={"admission_id": "admission/id", "token":
    "invocation/token", "acceptor_id": "acceptor/id", "schema_name": "schema"},
):  # fmt: skip
    """What a module hands back; the token is bound to the acceptor, the schema and the digest."""

    admission_id: str
    token: str
    acceptor_id: str
    schema_name: str
    digest: str
    status: Literal["accepted", "rejected"] = "accepted"
    reason: str = ""


def deliver_message_of(artifact: Mapping[str, Any], key: str, component_id: str) -> DeliverMessage:
    """An artifact that the operator hands in here. Raises `InputError`."""
    try:
        arrived = msgspec.convert(artifact, ArrivedArtifact)
    except msgspec.ValidationError as error:
        raise InputError(f"artifact: {error}") from None
    return DeliverMessage(
        schema_name="", delivery_id="", component_id=component_id,
        key=key or arrived.digest, artifact=arrived,
    )  # fmt: skip


def read_arrival(adapter: str, peer: str, sent: DeliverMessage, max_bytes: int) -> Arrival:
    """Raises `NodeError` with the failure class."""
    artifact = sent.artifact
    if artifact.size > max_bytes:
        limit = f"delivery.max_bytes of this node is {max_bytes:,}"
        raise NodeError(413, "runtime-limit", f"{artifact.size:,} bytes are too many: {limit}")
    names = (sent.key, sent.component_id, artifact.schema, artifact.content_type)
    if not all(0 < len(name) <= NAME_MAX for name in names):
        note = f"the key, the component, the schema and the type have 1 to {NAME_MAX} characters"
        raise NodeError(400, "envelope-malformed", note)
    data = decoded(artifact.inline)
    if data is None:
        raise NodeError(400, "envelope-malformed", "the bytes are no standard base64")
    if len(data) != artifact.size:
        note = f"the artifact has {len(data):,} bytes, and says {artifact.size:,}"
        raise NodeError(400, "envelope-invalid", note)
    if digest_of(data) != artifact.digest:
        raise NodeError(400, "envelope-invalid", "the digest is not that of the bytes")
    document = None
    if artifact.schema in READ_BY_HOST:
        try:
            document = read_document(artifact.schema, data)
        except InputError as error:
            raise NodeError(400, "envelope-invalid", error.message) from None
    return Arrival(adapter, peer, sent.component_id, sent.key, artifact, document)


def id_of(arrival: Arrival) -> str:
    """The id of its admission. Requests and results have a key of their own, so that two of them
    are the same or in conflict whatever their senders say; others have the key of their sender."""
    schema, document = arrival.artifact.schema, arrival.document
    if document is None:
        return admission_id_of(arrival.peer, schema, arrival.component_id, arrival.key)
    request_id = str(document["request_id"])
    if schema == DISPATCH:
        buyer = str(document["order"]["buyer/node-id"])
        return admission_id_of(arrival.peer, schema, buyer, request_id)
    run, phase = str(document["workflow/run-id"]), str(document["workflow/phase-id"])
    return admission_id_of(arrival.peer, schema, run, phase, request_id)


def invoke_document(
    admission_id: str, acceptor_id: str, arrival: Arrival, token: str, *, trusted: bool
) -> dict[str, Any]:
    """The `artifact-delivery-acceptor-invoke.v1`. Whether this node trusts the sender is for the
    host to say: nothing in an artifact does."""
    return {
        "schema": "artifact-delivery-acceptor-invoke.v1",
        "admission/id": admission_id,
        "acceptor/id": acceptor_id,
        "source/adapter": arrival.adapter,
        "source/peer": arrival.peer or None,
        "source/trusted": trusted,
        "idempotency/key": arrival.key,
        "artifact": {
            "schema": arrival.artifact.schema,
            "content/type": arrival.artifact.content_type,
            "digest": arrival.artifact.digest,
            "size/bytes": arrival.artifact.size,
            "bytes/base64": arrival.artifact.inline,
        },
        "invocation/token": token,
    }

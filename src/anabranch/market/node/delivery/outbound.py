"""The host capability `artifact.delivery.send`: from an envelope to a delivery in the ledger."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from anabranch.errors import InputError, StoreError
from anabranch.market.node.api import Answer, Caller
from anabranch.market.node.deferred.records import operation_id_of
from anabranch.market.node.delivery.arrivals import ArrivedArtifact
from anabranch.market.node.delivery.config import DeliveryConfig
from anabranch.market.node.delivery.envelope import (
    DISPATCH,
    READ_BY_HOST,
    Envelope,
    order_of,
    read_document,
    read_envelope,
    refused,
    require_bytes,
)
from anabranch.market.node.delivery.records import (
    CONTENTS,
    DELIVERIES,
    Artifact,
    Kept,
    Submitted,
    delivery_id_of,
)
from anabranch.market.node.delivery.rules import HOST, require_allowed
from anabranch.market.node.delivery.sender import Sender
from anabranch.market.node.delivery.targets import find_targets
from anabranch.market.node.delivery.views import OPERATION_KIND, result_document
from anabranch.market.node.entities import Change
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ports import NodeContext

CAPABILITY = "artifact.delivery.send"
RENEWED_MS = 12 * 3_600_000  # of bytes that are delivered again: below what they are kept for
#: References that can be read here: what this node keeps, and what the module has written.
STORE_SCHEME, MODULE_SCHEME = "artifact", "module-artifact"


class Submission(NamedTuple):
    """`submitted` is None where the delivery is in the ledger already."""

    delivery_id: str
    submitted: Submitted | None = None
    inline: str = ""  # the bytes, in base64


class Outbound:
    def __init__(self, context: NodeContext, config: DeliveryConfig, sender: Sender) -> None:
        self._context = context
        self._entities = context.entities
        self._config = config
        self._sender = sender

    async def capability(self, body: Any, caller: Caller, query: Mapping[str, str]) -> Answer:
        mode = _mode(query)
        component_id = caller.module or caller.actor
        if component_id == HOST:
            message = f"no module sends as {HOST!r}: rules do not limit what the host sends"
            raise refused("outbound-denied", f"{message}; give the module another id")
        if mode == "deferred":
            document = await self.send_deferred(component_id, body)
            retry = {"Retry-After": str(document["retry_after_seconds"])}
            return Answer(status=202, body=document, headers=retry)
        return Answer(body=await self.send(component_id, body))

    async def send(self, component_id: str, envelope: Any) -> Mapping[str, Any]:
        """Waits for the first attempt."""
        delivery_id = await self._take_on(component_id, envelope, deferred=False)
        await self._sender.attempted(delivery_id)
        with _ledger():
            await self._entities.durable()
        delivery = self._entities.get(DELIVERIES, delivery_id)
        assert delivery is not None
        return result_document(delivery_id, delivery)

    async def send_deferred(self, component_id: str, envelope: Any) -> Mapping[str, Any]:
        delivery_id = await self._take_on(component_id, envelope, deferred=True)
        return self._context.deferred.document(operation_id_of(OPERATION_KIND, delivery_id))

    async def _take_on(self, component_id: str, document: Any, *, deferred: bool) -> str:
        """The id of the delivery; the same envelope again is the same delivery."""
        with _ledger():
            submission = await self.prepare(component_id, document)
            with self._entities.change() as change:
                self.submit(change, submission)
                if deferred:
                    self._sender.defer(change, submission.delivery_id)
            self._sender.begin(submission.delivery_id)
            await self._entities.durable()
        return submission.delivery_id

    async def prepare(self, component_id: str, document: Any) -> Submission:
        """An envelope that may be sent; nothing is recorded yet."""
        envelope = read_envelope(document, component_id)
        delivery_id = delivery_id_of(
            component_id, envelope.digest, envelope.plan_digest, envelope.idempotency_key
        )
        if self._entities.get(DELIVERIES, delivery_id) is not None:
            return Submission(delivery_id)
        return await self._submission(delivery_id, envelope)

    def submit(self, change: Change, submission: Submission) -> None:
        """Take it on with its bytes, in this block, unless it was before."""
        known = change.get(DELIVERIES, submission.delivery_id) is not None
        if submission.submitted is None or known:
            return
        keep_content(change, submission.submitted.artifact, submission.inline, brief=True)
        self._sender.submit(change, submission.delivery_id, submission.submitted)

    def begin(self, submission: Submission) -> None:
        """Once the block is closed."""
        self._sender.begin(submission.delivery_id)

    async def _submission(self, delivery_id: str, envelope: Envelope) -> Submission:
        stages = find_targets(envelope, self._config, self._context.directory)
        require_allowed(self._config.outbound, envelope, stages, envelope.size)
        self._require_room(envelope.size)
        inline = await self._inline(envelope)
        order_id = ""
        if envelope.schema in READ_BY_HOST:
            try:
                inside = read_document(envelope.schema, b64decode(inline))
            except InputError as error:
                raise refused("envelope-invalid", error.message) from None
            if envelope.schema == DISPATCH:
                order_id = order_of(inside)
                await self._context.orders.dispatch_prepared(order_id, delivery_id, inside)
        now = self._entities.clock.now()
        submitted = Submitted(
            component_id=envelope.component_id,
            artifact=Artifact(
                schema=envelope.schema,
                content_type=envelope.content_type,
                digest=envelope.digest,
                size=envelope.size,
                ref=envelope.ref,
            ),
            plan_digest=envelope.plan_digest,
            stages=stages,
            at=now,
            expires_at=now + int(self._config.ttl_seconds * 1000),
            route_ref=envelope.route_ref,
            idempotency_key=envelope.idempotency_key,
            privacy=envelope.privacy,
            again=envelope.again,
            stage_ms=min(envelope.timeout_ms or self._config.stage_timeout_ms, 24 * 3600 * 1000),
            order_id=order_id,
        )
        return Submission(delivery_id, submitted, inline)

    def _require_room(self, size: int) -> None:
        limits = (
            ("max_bytes", size > self._config.max_bytes, f"{size:,} bytes are too many"),
            (
                "max_open",
                self._sender.open_count >= self._config.max_open,
                f"{self._sender.open_count:,} deliveries are open",
            ),
        )
        for name, is_over, what in limits:
            if is_over:
                most = getattr(self._config, name)
                raise refused("runtime-limit", f"{what}: delivery.{name} is {most:,}")

    async def _inline(self, envelope: Envelope) -> str:
        """The bytes in base64."""
        if not envelope.ref:
            return envelope.inline
        scheme, _, name = envelope.ref.partition(":")
        if scheme == STORE_SCHEME:
            content = self._entities.get(CONTENTS, name)
            if content is None:
                raise refused("envelope-invalid", f"this node keeps no {envelope.ref[:200]!r}")
            data = b64decode(content.base64)
        elif scheme == MODULE_SCHEME:
            try:
                data = await self._context.modules.read_artifact(envelope.component_id, name)
            except NodeError as error:
                raise refused(
                    "envelope-invalid", f"/artifact/artifact~1ref: {error.message}"
                ) from None
        else:
            known = f"{STORE_SCHEME}:sha256:… and {MODULE_SCHEME}:PATH"
            raise refused(
                "kind-not-supported", f"references {scheme[:40]!r} are not read here; use {known}"
            )
        require_bytes(envelope, data)
        return b64encode(data).decode()


@contextmanager
def _ledger() -> Iterator[None]:
    """What the store refuses is a failure of the ledger."""
    try:
        yield
    except StoreError as error:
        message = f"the delivery was not recorded: {error.message}"
        raise refused("ledger-error", message) from error


def keep_content(
    change: Change, artifact: Artifact | ArrivedArtifact, inline: str, *, brief: bool = False
) -> None:
    """The same bytes are kept once; as long as the last delivery of them needs them, or for
    good."""
    known = change.get(CONTENTS, artifact.digest)
    if known is not None and (not known.brief or (brief and known.at > change.now - RENEWED_MS)):
        return
    kept = Kept(base64=inline, size=artifact.size, brief=brief, at=change.now)
    change.add(CONTENTS, artifact.digest, kept)


def _mode(query: Mapping[str, str]) -> str:
    unknown = sorted(set(query) - {"mode"})
    if unknown:
        hint = "; write mode=deferred" if "deferred" in unknown else ""
        raise NodeError(400, "bad_query", f"there is no query {unknown[0][:40]!r} here{hint}")
    mode = query.get("mode", "sync")
    if mode not in ("sync", "deferred"):
        raise NodeError(400, "bad_query", f"`mode` is sync or deferred, not {mode[:40]!r}")
    return mode

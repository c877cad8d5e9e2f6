"""Artifact delivery: envelopes, the call of an acceptor and its reply, results and status."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.documents.rules import exactly_one, follows, valid_from
from anabranch.market.documents.shapes import (
    ANYTHING,
    FLAG,
    INSTANT,
    NAME,
    OBJECT,
    Constant,
    Fields,
    ListOf,
    Object,
    OrNull,
    Selected,
    Shape,
    Text,
    TextOr,
    Whole,
    choice,
    pattern,
    text_of,
    whole_of,
)
from anabranch.market.documents.stages import check_quorum, check_stages
from anabranch.market.documents.values import (
    BASE64,
    DIGEST,
    NODE,
    ORG,
    PARTICIPANT,
    decoded,
    digest_of,
)

STATUSES = (
    "accepted", "running", "succeeded", "partial", "failed-retryable", "failed-permanent",
    "expired",
)  # fmt: skip
FAILURE_CLASSES = (
    "envelope-malformed", "envelope-invalid", "route-unresolved", "admission-conflict",
    "kind-not-supported", "outbound-denied", "adapter-transient", "adapter-permanent",
    "stage-timeout", "admission-timeout", "ledger-error", "runtime-limit",
)  # fmt: skip
ADMISSIONS = ("accepted", "already-present", "rejected", "retryable")

_INLINE, _REFERENCE = "bytes/base64", "artifact/ref"
_KEY = Text(most=256)


def _bytes_are_as_said(artifact: Object, path: str, found: Found) -> None:
    data = decoded(artifact.get(_INLINE))
    if data is None:
        return  # there are none, or they are told already
    size, digest = whole_of(artifact, "size/bytes"), text_of(artifact, "digest")
    if size is not None and size >= 0 and size != len(data):
        message = f"{size:,} is here, and the bytes are {len(data):,}; write that"
        found.add(below(path, "size/bytes"), "wrong-size", message)
    where = below(path, "digest")
    if digest is not None and not found.has(where) and digest != digest_of(data):
        message = f"{shown(digest)} is not the digest of the bytes, which is {digest_of(data)}"
        found.add(where, "wrong-digest", message)


ARTIFACT = Fields(
    {"schema": NAME, "content/type": NAME, "digest": DIGEST, "size/bytes": Whole(0)},
    {_INLINE: BASE64, _REFERENCE: NAME},
    closed=True,
    rules=(exactly_one(_INLINE, _REFERENCE), _bytes_are_as_said),
)

# -- plans -----------------------------------------------------------------------------------

_AUTHORIZATION: Mapping[str, Shape] = {
    "inac/authorization": Fields(
        {"mode": choice("invitation-passport", "capability-passport"), "passport": OBJECT},
        closed=True,
    )
}
_MANY: Mapping[str, Shape] = {"max/nodes": Whole(1)}


def _selector(required: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None) -> Fields:
    return Fields({"selector/kind": ANYTHING, **required}, optional or {}, closed=True)


SELECTORS: Mapping[str, Fields] = {
    "node": _selector({"node/id": NODE}, _AUTHORIZATION),
    "configured-default": _selector({"name": NAME}),
    "group": _selector({"group/id": NAME}),
    "agora-default": _selector({}),
    "capability-first": _selector({"capability/id": NAME}, {"filters": OBJECT}),
    "capability-many": _selector({"capability/id": NAME}, {"filters": OBJECT, **_MANY}),
    "participant": _selector({"participant/id": PARTICIPANT}, _MANY),
    "org": _selector({"org/id": ORG}, _MANY),
    "routing-subject": _selector({"routing-subject/id": NAME}, {**_AUTHORIZATION, **_MANY}),
    "contact-lookup": Fields({"selector/kind": ANYTHING}),  # what it looks up is its own affair
    "object-store-indirect": _selector({"node/id": NODE}, _AUTHORIZATION),
}

STAGE = Fields(
    {"stage/id": NAME, "targets": ListOf(Selected("selector/kind", SELECTORS), least=1)},
    {
        "mode": Constant("parallel"),
        "success/policy": choice("all", "any", "quorum"),
        "quorum/min-success": Whole(1),
        "on/failure": NAME,
    },
    closed=True,
    rules=(check_quorum,),
)

PLAN = Fields(
    {},
    {"mode": Constant("sequence"), "route/ref": NAME, "stages": ListOf(STAGE, least=1)},
    closed=True,
    rules=(exactly_one("route/ref", "stages"), check_stages),
)

ENVELOPE = Fields(
    {
        "schema": Constant("artifact-delivery-envelope.v1"),
        "component/id": NAME,
        "artifact": ARTIFACT,
        "delivery/plan": PLAN,
    },
    {
        "classification": TextOr(OBJECT),
        "causal/context": OBJECT,
        "policy": Fields(
            {},
            {
                "privacy": choice("private", "private-direct", "public", "federated"),
                "delivery": choice("at-least-once", "best-effort"),
                "timeout/ms": Whole(1),
            },
            closed=True,
        ),
        "idempotency/key": _KEY,
    },
    closed=True,
)

# -- acceptors -------------------------------------------------------------------------------

ACCEPTOR_INVOKE = Fields(
    {
        "schema": Constant("artifact-delivery-acceptor-invoke.v1"),
        "admission/id": NAME,
        "acceptor/id": NAME,
        "source/adapter": NAME,
        "artifact": ARTIFACT,
    },
    {
        "source/peer": OrNull(NODE),
        "source/trusted": FLAG,
        "idempotency/key": OrNull(_KEY),
        "invocation/token": OrNull(Text(secret=True)),
    },
)

ADMISSION_RESPONSE = Fields(
    {"status": choice(*ADMISSIONS), "acceptor/id": NAME},
    {
        "schema": Constant("artifact-delivery-admission-response.v1"),
        "idempotency/key": OrNull(_KEY),
        "artifact/ref": OrNull(NAME),
        "reason": OrNull(Text(least=0, most=1024)),
        "diagnostic": OrNull(TextOr(OBJECT)),
    },
)

# -- results ---------------------------------------------------------------------------------

_DELIVERY_ID = pattern("delivery: and letters, digits, _ or -", r"delivery:[A-Za-z0-9_-]+")


def _failures_belong_to_failures(result: Object, path: str, found: Found) -> None:
    if result.get("status") == "succeeded" and result.get("failure/class") is not None:
        message = "a delivery that succeeded has no `failure/class`; remove it"
        found.add(below(path, "failure/class"), "forbidden-field", message)


RESULT = Fields(
    {
        "schema": Constant("artifact-delivery-result.v1"),
        "delivery/id": _DELIVERY_ID,
        "status": choice(*STATUSES),
    },
    {
        "failure/class": OrNull(choice(*FAILURE_CLASSES)),
        "diagnostic": OrNull(TextOr(OBJECT)),
        "stage/results": ListOf(OBJECT),
    },
    rules=(_failures_belong_to_failures,),
)

STATUS = Fields(
    {
        "schema": Constant("artifact-delivery-status.v1"),
        "delivery/id": _DELIVERY_ID,
        "status": choice(*STATUSES),
    },
    {
        "submitted-at": INSTANT,
        "dispatch/plan": OBJECT,
        "stage/outcomes": ListOf(OBJECT),
        "expires-at": OrNull(INSTANT),
        "retry/history": ListOf(OBJECT),
        "failure/class": OrNull(choice(*FAILURE_CLASSES)),
        "diagnostic": OrNull(TextOr(OBJECT)),
    },
    rules=(
        _failures_belong_to_failures,
        follows("submitted-at", "expires-at"),
        valid_from("submitted-at"),
    ),
)

# -- what a host is configured with ----------------------------------------------------------

OUTBOUND_RULE = Fields(
    {"component/id": NAME, "schema": NAME},
    {
        "recipient/selectors": ListOf(choice(*SELECTORS)),
        "route/refs": ListOf(NAME),
        "target/node-ids": ListOf(NODE),
        "artifact/ref-schemes": ListOf(NAME),
        "fanout/max-targets": Whole(1),
        "fallback/max-stages": Whole(1),
        "max/bytes": Whole(0),
    },
    closed=True,
)

ACCEPTOR = Fields(
    {
        "acceptor_id": NAME,
        "component_id": NAME,
        "artifact_schema": NAME,
        "invoke_path": pattern("a path such as /v1/accept", r"/[^\s?#]*"),
    },
    {
        "content_type": OrNull(NAME),
        "request_timeout_ms": Whole(1),
        "max_response_bytes": Whole(1),
    },
    closed=True,
)

KINDS: Mapping[str, Fields] = {
    "artifact-delivery-envelope.v1": ENVELOPE,
    "artifact-delivery-acceptor-invoke.v1": ACCEPTOR_INVOKE,
    "artifact-delivery-admission-response.v1": ADMISSION_RESPONSE,
    "artifact-delivery-result.v1": RESULT,
    "artifact-delivery-status.v1": STATUS,
    "artifact-delivery-outbound-rule": OUTBOUND_RULE,
    "artifact-delivery-acceptor": ACCEPTOR,
}

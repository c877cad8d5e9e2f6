"""Orders, requests to dispatch them to a provider, and their results."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.market.documents.problems import Found, below
from anabranch.market.documents.rules import agrees, forbids, needs, valid_from, valid_until, when
from anabranch.market.documents.shapes import (
    ANYTHING,
    INSTANT,
    NAME,
    OBJECT,
    Constant,
    Fields,
    ListOf,
    Object,
    Selected,
    Text,
    Whole,
    choice,
)
from anabranch.market.documents.signing import SIGNATURE, signature_of
from anabranch.market.documents.stages import check_quorum, check_stages
from anabranch.market.documents.values import (
    AMOUNT,
    BUYER,
    CORRELATION,
    CURRENCY,
    DIGEST,
    NODE,
    OFFER_ID,
    ORDER_ID,
    PARTICIPANT,
    REQUEST_ID,
    VERSION,
)


def _subject_has_its_kind(order: Object, path: str, found: Found) -> None:
    """An org is an org; its custodian is named and signs."""
    kind, subject = order.get("buyer/subject-kind"), order.get("buyer/subject-id")
    where = below(path, "buyer/subject-id")
    known = kind in ("participant", "org") and isinstance(subject, str) and not found.has(where)
    if known and not str(subject).startswith(f"{kind}:"):
        message = f"`buyer/subject-kind` is {kind}; write {kind}:did:key:z6Mk…"
        found.add(where, "wrong-role", message)
    if kind == "org":
        because = "an order of an org"
        needs(order, path, found, ("buyer/operator-participant-id",), because)


ORDER = Fields(
    {
        "schema/v": VERSION,
        "order/id": ORDER_ID,
        "created-at": INSTANT,
        "buyer/node-id": NODE,
        "buyer/subject-kind": choice("participant", "org"),
        "buyer/subject-id": BUYER,
        "provider/node-id": NODE,
        "provider/participant-id": PARTICIPANT,
        "offer/id": OFFER_ID,
        "offer/seq": Whole(0),
        "service/type": NAME,
        "request/units": Whole(1),
        "request/input": OBJECT,
        "pricing/max-amount": AMOUNT,
        "pricing/currency": CURRENCY,
        "signature": SIGNATURE,
    },
    {
        "buyer/operator-participant-id": PARTICIPANT,
        "request/output-constraints": OBJECT,
        "delivery/requested-by": INSTANT,
        "workflow/run-id": NAME,
        "workflow/phase-id": NAME,
        "lineage/upstream-refs": ListOf(NAME),
        "policy_annotations": OBJECT,
    },
    rules=(
        _subject_has_its_kind,
        valid_from("created-at"),
        valid_until("delivery/requested-by"),
        signature_of("service-order.v1"),
    ),
    by_host=frozenset({"signature", "buyer/node-id", "buyer/subject-kind", "buyer/subject-id"}),
    name="service-order.v1",
)

# -- dispatch --------------------------------------------------------------------------------

_SUBJECT = {"routing-subject/id": NAME}
_REPLY_TARGETS: Mapping[str, Fields] = {
    "routing-subject": Fields(
        {"selector/kind": ANYTHING, **_SUBJECT}, {"max/nodes": Whole(1)}, closed=True
    ),
    "participant": Fields(
        {"selector/kind": ANYTHING, "participant/id": PARTICIPANT},
        {"max/nodes": Whole(1)},
        closed=True,
    ),
    "node": Fields({"selector/kind": ANYTHING, "node/id": NODE}, closed=True),
}
REPLY_TARGET = Selected("selector/kind", _REPLY_TARGETS)

_PLAN_TARGET = Selected(
    "selector/kind",
    {
        **_REPLY_TARGETS,
        "object-store-indirect": Fields(
            {"selector/kind": ANYTHING, "node/id": NODE},
            {"inac/authorization": OBJECT},
            closed=True,
        ),
    },
)

_MODES = choice("sequence", "parallel")

REPLY_PLAN = Fields(
    {
        "mode": _MODES,
        "stages": ListOf(
            Fields(
                {
                    "stage/id": NAME,
                    "mode": _MODES,
                    "targets": ListOf(_PLAN_TARGET, least=1),
                    "success/policy": choice("all", "any", "quorum"),
                },
                {"on/failure": NAME, "quorum/min-success": Whole(1)},
                closed=True,
                rules=(check_quorum,),
            ),
            least=1,
        ),
    },
    closed=True,
    rules=(check_stages,),
)

DISPATCH_REQUEST = Fields(
    {
        "schema": Constant("service-order.dispatch.request.v1"),
        "request_id": REQUEST_ID,
        "order": ORDER,
        "dispatch_payload": OBJECT,
        "service_type": NAME,
        "request/input": OBJECT,
        "workflow/run-id": NAME,
        "workflow/phase-id": NAME,
        "correlation/id": CORRELATION,
        "reply/target": REPLY_TARGET,
        "delivery_deadline": INSTANT,
    },
    {
        "reply/delivery_plan": REPLY_PLAN,
        "constraints": OBJECT,
        "order/payment-ref": NAME,
        "settlement/refs": ListOf(NAME),
        "policy_annotations": OBJECT,
    },
    closed=True,
    rules=(
        agrees("order", "service_type", "service/type"),
        agrees("order", "workflow/run-id", "workflow/run-id"),
        agrees("order", "workflow/phase-id", "workflow/phase-id"),
        valid_until("delivery_deadline"),
    ),
)

# -- result ----------------------------------------------------------------------------------

_ERROR = Fields(
    {"code": Text(most=128), "message": Text(most=4096)}, {"tracking/id": NAME}, closed=True
)


def _completed(result: Object, path: str, found: Found) -> None:
    if "output" not in result:  # null is an output
        message = "a completed result needs `output`; add it"
        found.add(below(path, "output"), "missing-field", message)
    forbids(result, path, found, ("error",), "a completed result")


def _not_completed(result: Object, path: str, found: Found) -> None:
    because = f"a {result['status']} result"
    needs(result, path, found, ("error",), because)
    forbids(result, path, found, ("output",), because)


RESULT = Fields(
    {
        "schema": Constant("service-order.result.v1"),
        "request_id": REQUEST_ID,
        "workflow/run-id": NAME,
        "workflow/phase-id": NAME,
        "correlation/id": CORRELATION,
        "service_type": NAME,
        "status": choice("completed", "failed", "rejected"),
        "provider/node-id": NODE,
        "provider/participant-id": PARTICIPANT,
        "responded_at": INSTANT,
    },
    {
        "output": ANYTHING,
        "error": _ERROR,
        "provider/metadata": OBJECT,
        "result/artifact-digest": DIGEST,
        "settlement/refs": ListOf(NAME),
        "receipt/ref": NAME,
        "hold/ref": NAME,
    },
    closed=True,
    rules=(
        when("status", "completed", _completed),
        when("status", "failed", _not_completed),
        when("status", "rejected", _not_completed),
        valid_from("responded_at"),
    ),
)

KINDS: Mapping[str, Fields] = {
    "service-order.v1": ORDER,
    "service-order.dispatch.request.v1": DISPATCH_REQUEST,
    "service-order.result.v1": RESULT,
}

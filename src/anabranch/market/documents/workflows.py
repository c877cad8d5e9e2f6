"""Documents around workflow runs: templates, dispatches, snapshots, fan-out, role modules."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.market.documents.offers import OFFER
from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.documents.rules import exactly_one, follows, forbids, needs, valid_until, when
from anabranch.market.documents.shapes import (
    ANYTHING,
    FLAG,
    FREE_TEXT,
    INSTANT,
    NAME,
    OBJECT,
    Constant,
    Fields,
    ListOf,
    MapOf,
    Number,
    Object,
    OrNull,
    Rule,
    Shape,
    Text,
    TextOr,
    Whole,
    choice,
    pattern,
)
from anabranch.market.documents.signing import SIGNATURE, signature_of
from anabranch.market.documents.values import CALL_VERSION, CORRELATION, DIGEST, NODE, PARTICIPANT

RUN_STATUSES = (
    "pending", "running", "paused", "completed", "failed", "cancelled", "deadline_exceeded",
    "step_timeout",
)  # fmt: skip
STEP_STATUSES = (
    "pending", "resolving", "awaiting_fan_out", "awaiting_execution", "awaiting_fulfillment",
    "retry_wait", "completed", "failed", "skipped", "cancelled", "step_timeout",
    "deadline_exceeded",
)  # fmt: skip
DISPATCH_STATUSES = ("pending", "responded", "timeout", "cancelled")

_STEP_ID = pattern("1 to 128 letters, digits and _ . : -", r"[A-Za-z0-9_.:-]+", most=128)
_ERROR = Fields({"code": NAME, "message": FREE_TEXT}, {"step_id": OrNull(NAME)})

# -- templates -------------------------------------------------------------------------------

_REMOVED = "deadline_seconds"


def _no_deadline_seconds(template: Object, path: str, found: Found) -> None:
    """A key that is no longer read, refused wherever it could be meant."""
    plan = template.get("plan")
    places: list[tuple[object, str]] = [(template, path), (plan, below(path, "plan"))]
    steps = plan.get("steps") if isinstance(plan, dict) else None
    inside = below(below(path, "plan"), "steps")
    if isinstance(steps, dict):
        places += [(step, below(inside, name)) for name, step in steps.items()]
    elif isinstance(steps, list):
        places += [(step, below(inside, position)) for position, step in enumerate(steps)]
    for place, where in places:
        if isinstance(place, dict) and _REMOVED in place:
            message = f"`{_REMOVED}` is no longer read; write `deadline` as a duration such as PT1H"
            found.add(below(where, _REMOVED), "forbidden-field", message)


def _kind_has_its_part(template: Object, path: str, found: Found) -> None:
    kind = template.get("template_kind", "workflow")
    if kind == "workflow":
        needs(template, path, found, ("plan",), "a template of a workflow")
    elif kind in ("step", "offer"):
        needs(template, path, found, ("service_type",), f"a template of the kind {kind}")


def _a_signature_has_its_publisher(template: Object, path: str, found: Found) -> None:
    if "signature" in template:
        needs(template, path, found, ("participant_id",), "a template with a `signature`")


TEMPLATE = Fields(
    {"template_id": NAME},
    {
        "schema": Constant("workflow-template.v1"),
        "template_kind": choice("workflow", "step", "offer"),
        "participant_id": OrNull(PARTICIPANT),
        "workflow_kind": OrNull(NAME),
        "service_type": OrNull(NAME),
        "label": OrNull(FREE_TEXT),
        "description": OrNull(FREE_TEXT),
        "plan": OrNull(OBJECT),
        "request_input": OrNull(OBJECT),
        "request_input_hints": ANYTHING,
        "parameters": MapOf(
            Fields(
                {"type": NAME},
                {"required": FLAG, "default": ANYTHING, "description": FREE_TEXT},
            )
        ),
        "deleted": FLAG,
        "created_at": INSTANT,
        "updated_at": INSTANT,
        "signature": SIGNATURE,
    },
    rules=(
        _kind_has_its_part,
        _no_deadline_seconds,
        follows("created_at", "updated_at", same_is_fine=True),
        _a_signature_has_its_publisher,
        signature_of("workflow-template.v1"),
    ),
)

#: All public templates of a node, behind `after`; or with `template_id` that one.
TEMPLATE_REQUEST = Fields(
    {"schema_version": CALL_VERSION, "query_id": NAME},
    {"template_id": NAME, "after": NAME, "limit": Whole(1)},
)

_TEMPLATE_ROW = Fields(
    {"template_id": NAME, "publisher": PARTICIPANT, "digest": DIGEST, "size_bytes": Whole(1)},
    {"label": FREE_TEXT, "description": FREE_TEXT},
)
_TEMPLATE_ANSWER = ("templates", "template", "error")

TEMPLATE_RESPONSE = Fields(
    {"schema_version": CALL_VERSION, "query_id": NAME},
    {"templates": ListOf(_TEMPLATE_ROW), "next": NAME, "template": OBJECT, "error": _ERROR},
    rules=(exactly_one(*_TEMPLATE_ANSWER),),
)

# -- dispatches ------------------------------------------------------------------------------

_DISPATCH: Mapping[str, Shape] = {
    "dispatch_id": pattern("dispatch:…", r"dispatch:.+"),
    "run_id": NAME,
    "step_id": _STEP_ID,
    "target": NAME,
    "dispatched_at": INSTANT,
    "status": choice(*DISPATCH_STATUSES),
}
_MORE: Mapping[str, Shape] = {
    "responded_at": OrNull(INSTANT),
    "attempt": Whole(0),
    "target_node_id": OrNull(NODE),
    "timeout_at": OrNull(INSTANT),
    "outcome": OrNull(choice("", "usable", "negative", "unreachable")),
    "response_digest": OrNull(DIGEST),
}


def _responded_says_when(dispatch: Object, path: str, found: Found) -> None:
    needs(dispatch, path, found, ("responded_at",), "`status` responded")


def _pending_has_no_answer(dispatch: Object, path: str, found: Found) -> None:
    for key in ("response", "responded_at"):
        if dispatch.get(key) is not None:
            message = f"`status` pending rules out `{key}`; remove it"
            found.add(below(path, key), "forbidden-field", message)


_ANSWERS: tuple[Rule, ...] = (
    when("status", "responded", _responded_says_when),
    when("status", "pending", _pending_has_no_answer),
    follows("dispatched_at", "responded_at", same_is_fine=True),
)

DISPATCH = Fields(
    _DISPATCH,
    {"schema": Constant("workflow-dispatch.v1"), "response": ANYTHING, **_MORE},
    rules=_ANSWERS,
)


def _no_raw_response(dispatch: Object, path: str, found: Found) -> None:
    forbids(dispatch, path, found, ("response",), "a dispatch inside a snapshot")


_INSPECTED = Fields(_DISPATCH, _MORE, rules=(_no_raw_response, *_ANSWERS))

# -- snapshots -------------------------------------------------------------------------------

_STEP = Fields(
    {
        "step_id": _STEP_ID,
        "status": choice(*STEP_STATUSES),
        "attempt": Whole(0),
        "execution": Fields({"completed": FLAG}),
        "task": Fields(
            {"fulfilled": OrNull(FLAG)},
            {"decided_by": OrNull(FREE_TEXT), "reason": OrNull(FREE_TEXT), "evidence": ANYTHING},
        ),
        "dispatches": ListOf(_INSPECTED),
    },
    {
        "service_type": OrNull(Text(least=0)),
        "depends_on": ListOf(NAME),
        "started_at": OrNull(INSTANT),
        "finished_at": OrNull(INSTANT),
        "timeout_at": OrNull(INSTANT),
        "output": ANYTHING,
        "selected_output": ANYTHING,
        "output_digest": OrNull(DIGEST),
        **dict.fromkeys(("order_id", "execution_id", "contract_id", "receipt_id"), OrNull(NAME)),
        "delivery": OrNull(
            Fields({"operation_id": NAME}, {"status_href": NAME, "audit_ref": OrNull(NAME)})
        ),
        "error": OrNull(_ERROR),
    },
    rules=(follows("started_at", "finished_at", same_is_fine=True),),
)


def _steps_are_distinct(snapshot: Object, path: str, found: Found) -> None:
    seen: set[str] = set()
    steps = snapshot.get("steps")
    for position, step in enumerate(steps if isinstance(steps, list) else ()):
        named = step.get("step_id") if isinstance(step, dict) else None
        if isinstance(named, str) and named in seen:
            where = below(below(below(path, "steps"), position), "step_id")
            message = f"{shown(named)} is the id of an earlier step; give each its own"
            found.add(where, "bad-list", message)
        if isinstance(named, str):
            seen.add(named)


SNAPSHOT = Fields(
    {
        "schema": Constant("workflow-run-snapshot.v1"),
        "run_id": NAME,
        "workflow_id": Text(least=0),
        "workflow_kind": Text(least=0),
        "status": choice(*RUN_STATUSES),
        "input": ANYTHING,
        "created_at": INSTANT,
        "updated_at": INSTANT,
        "revision": Whole(0),
        "steps": ListOf(_STEP),
    },
    {
        "module_id": OrNull(NAME),
        "pause_reason": OrNull(FREE_TEXT),
        "started_at": OrNull(INSTANT),
        "deadline_at": OrNull(INSTANT),
        "finished_at": OrNull(INSTANT),
        "error": OrNull(_ERROR),
    },
    rules=(
        _steps_are_distinct,
        follows("created_at", "updated_at", same_is_fine=True),
        follows("started_at", "finished_at", same_is_fine=True),
    ),
)

# -- fan-out between peers -------------------------------------------------------------------

FANOUT_REQUEST = Fields(
    {
        "schema_version": CALL_VERSION,
        "dispatch_id": pattern("dispatch:…", r"dispatch:.+"),
        "run_id": NAME,
        "step_id": _STEP_ID,
        "service_type": NAME,
        "input": OBJECT,
        "respond_by": INSTANT,
    },
    {"filter": OrNull(OBJECT)},
    rules=(valid_until("respond_by"),),
)


def _an_offer_comes_with_one(response: Object, path: str, found: Found) -> None:
    status = response.get("status")
    if status == "offer":
        needs(response, path, found, ("offer",), "`status` offer")
    elif status in ("no_offer_available", "error"):
        forbids(response, path, found, ("offer",), f"`status` {status}")
    if status == "error":
        needs(response, path, found, ("error",), "`status` error")


FANOUT_RESPONSE = Fields(
    {
        "schema_version": CALL_VERSION,
        "dispatch_id": pattern("dispatch:…", r"dispatch:.+"),
        "status": choice("offer", "no_offer_available", "error"),
    },
    {"offer": OFFER, "error": OrNull(_ERROR)},
    rules=(_an_offer_comes_with_one,),
)

FULFILMENT_DECISION = Fields(
    {
        "schema": Constant("arca-task-fulfillment-decision.v1"),
        "fulfillment/status": choice("fulfilled", "not_fulfilled"),
    },
    {"reason": FREE_TEXT, "evidence": OBJECT},
)

# -- execution at the provider ---------------------------------------------------------------

_LINEAGE: Mapping[str, Shape] = {
    "dispatch/id": NAME,
    "service_type": NAME,
    "request/input": OBJECT,
    "workflow/run-id": NAME,
    "workflow/phase-id": NAME,
    "correlation/id": CORRELATION,
}

ROLE_REQUEST = Fields(
    {
        "schema_version": CALL_VERSION,
        "capability_id": Constant("role_task_execute"),
        "role/capability_id": NAME,
        **_LINEAGE,
        "execution_ref": NAME,
    }
)

#: Role modules also write the media type; hosts write `json`.
_FORMATS = choice("plain-text", "markdown", "json", "edn", "mixed", "application/json")


def _completed_has_an_answer(response: Object, path: str, found: Found) -> None:
    keys = ("completed-at", "answer/content", "confidence/signal", "human-linked-participation")
    needs(response, path, found, keys, "`status` completed")


DISPATCH_RESPONSE = Fields(
    {
        "schema_version": CALL_VERSION,
        "capability_id": Constant("service_dispatch_execute"),
        "status": choice("completed", "rejected-invalid-request", "failed"),
        "dispatch/id": NAME,
        "provenance/origin-classes": ListOf(
            choice("node-generated", "node-mediated-human", "human-live"), distinct=True
        ),
        "message": FREE_TEXT,
    },
    {
        "completed-at": INSTANT,
        "answer/content": TextOr(OBJECT),
        "answer/format": _FORMATS,
        "confidence/signal": Number(0, 1),
        "human-linked-participation": FLAG,
    },
    rules=(when("status", "completed", _completed_has_an_answer),),
)

KINDS: Mapping[str, Fields] = {
    "workflow-template.v1": TEMPLATE,
    "workflow-template.fetch.request": TEMPLATE_REQUEST,
    "workflow-template.fetch.response": TEMPLATE_RESPONSE,
    "workflow-dispatch.v1": DISPATCH,
    "workflow-run-snapshot.v1": SNAPSHOT,
    "workflow.fanout.request": FANOUT_REQUEST,
    "workflow.fanout.response": FANOUT_RESPONSE,
    "arca-task-fulfillment-decision.v1": FULFILMENT_DECISION,
    "role-task-request": ROLE_REQUEST,
    "service-dispatch-response": DISPATCH_RESPONSE,
}

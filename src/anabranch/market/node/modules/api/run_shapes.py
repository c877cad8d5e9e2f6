"""The shape of workflow-run-snapshot.v1 and of what a module writes into it. PURE.

Shapes are closed: what is not named here cannot be kept, so no raw answer of a participant gets
into a snapshot by the side door. Of a dispatch there is the inspection view alone.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import msgspec

from anabranch.market.node.errors import NodeError

RunStatus = Literal[
    "pending", "running", "paused", "completed", "failed", "cancelled", "deadline_exceeded",
    "step_timeout",
]  # fmt: skip
StepStatus = Literal[
    "pending", "resolving", "awaiting_fan_out", "awaiting_execution", "awaiting_fulfillment",
    "retry_wait", "completed", "failed", "skipped", "cancelled", "step_timeout",
    "deadline_exceeded",
]  # fmt: skip
CLOSED_RUNS = frozenset({"completed", "failed", "cancelled", "deadline_exceeded", "step_timeout"})
CLOSED_STEPS = CLOSED_RUNS | {"skipped"}
STEPS_MAX = 1000
_ID = re.compile(r"[A-Za-z0-9_.:-]{1,128}")

Text = Annotated[str, msgspec.Meta(max_length=4096)]
Instant = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")]
Count = Annotated[int, msgspec.Meta(ge=0)]


class RunError(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    code: Text
    message: Text = ""
    step_id: Text = ""


class Dispatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A workflow-step dispatch as anyone may see it."""

    dispatch_id: Text
    run_id: Text
    step_id: Text
    target: Text
    dispatched_at: Instant
    status: Literal["pending", "responded", "timeout", "cancelled"]
    responded_at: Instant | None = None
    timeout_at: Instant | None = None
    attempt: Count = 0
    target_node_id: Text = ""
    outcome: Literal["usable", "negative", "unreachable"] | None = None
    response_digest: Text = ""
    response: Any = msgspec.UNSET  # known, so that it is refused by name


class Execution(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    completed: bool = False


class Fulfilment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    fulfilled: bool | None
    decided_by: Text = ""
    reason: Text = ""
    evidence: Any = None


class DeliveryTrace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    operation_id: Text = ""
    status_href: Text = ""
    audit_ref: Text = ""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A step of a run. `revision` is that of the run a single step is written to."""

    step_id: str
    status: StepStatus = "pending"
    attempt: Count = 0
    service_type: Text = ""
    depends_on: list[Text] = []
    started_at: Instant | None = None
    finished_at: Instant | None = None
    timeout_at: Instant | None = None
    execution: Execution = Execution()
    task: Fulfilment = Fulfilment(None)
    output: Any = msgspec.UNSET
    selected_output: Any = msgspec.UNSET
    output_digest: Text = ""
    order_id: Text = ""
    execution_id: Text = ""
    contract_id: Text = ""
    receipt_id: Text = ""
    delivery: DeliveryTrace | None = None
    dispatches: list[Dispatch] = []
    error: RunError | None = None


class WriteStep(Step, frozen=True, forbid_unknown_fields=True, kw_only=True):
    step_id: str = ""  # the path says it
    revision: Count = 0


class WriteRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`revision` is the one this write is based on; 0 makes the run. What the host says itself
    (schema, module_id, updated_at) may be handed back with it and is not kept."""

    run_id: str
    workflow_id: Text = ""
    workflow_kind: Text = "service-order-orchestration"
    status: RunStatus = "pending"
    pause_reason: Text = ""
    input: Any = {}
    created_at: Instant | None = None
    started_at: Instant | None = None
    deadline_at: Instant | None = None
    finished_at: Instant | None = None
    error: RunError | None = None
    steps: list[Step] = []
    revision: Count = 0
    schema: Literal["workflow-run-snapshot.v1"] = "workflow-run-snapshot.v1"
    module_id: str = ""
    updated_at: Instant | None = None


#: null and "" are values of theirs.
_ANY_VALUE = {"input", "output", "selected_output", "workflow_id", "workflow_kind"}
#: Of a `WriteRun` these are not part of the document that is kept.
HOSTS_OWN = ("revision", "schema", "module_id", "updated_at")


def document_of(wanted: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """What is kept of a run or a step: without what was not said."""
    document: dict[str, Any] = msgspec.to_builtins(wanted)
    return {
        name: value
        for name, value in document.items()
        if name not in without and (name in _ANY_VALUE or (value is not None and value != ""))
    }


def require_run(wanted: WriteRun) -> None:
    require_id("run_id", wanted.run_id)
    if len(wanted.steps) > STEPS_MAX:
        raise NodeError(400, "schema", f"steps: a run has at most {STEPS_MAX}")
    if len({step.step_id for step in wanted.steps}) < len(wanted.steps):
        raise NodeError(400, "schema", "steps: two of them have the same step_id")
    for step in wanted.steps:
        require_step(step)


def require_step(step: Step) -> None:
    require_id("step_id", step.step_id)
    if any(one.response is not msgspec.UNSET for one in step.dispatches):
        raise NodeError(
            400,
            "raw_response",
            f"steps.{step.step_id}.dispatches: a snapshot holds no response of a participant",
        )


def require_id(name: str, text: str) -> None:
    if not _ID.fullmatch(text):
        raise NodeError(400, "schema", f"{name} is 1 to 128 letters, digits, _ . : -")


def require_run_open(run: dict[str, Any]) -> None:
    if run["status"] in CLOSED_RUNS:
        raise NodeError(409, "run_closed", f"the run is {run['status']}")


def require_run_follows(before: dict[str, Any], after: dict[str, Any]) -> None:
    """An end is final, and no step is lost or closed twice. Raises `NodeError` 409."""
    require_run_open(before)
    if after["status"] == "pending" and before["status"] != "pending":
        raise NodeError(409, "run_transition", f"status: {before['status']} is past pending")
    steps = {step["step_id"]: step for step in after["steps"]}
    for step in before["steps"]:
        if step["step_id"] not in steps:
            raise NodeError(409, "step_lost", f"steps: {step['step_id']} is missing")
        require_step_follows(step, steps[step["step_id"]])


def require_step_follows(before: dict[str, Any], after: dict[str, Any]) -> None:
    if before["status"] not in CLOSED_STEPS or before == after:
        return
    again = before["status"] == "failed" and after["attempt"] > before["attempt"]
    if not again:
        raise NodeError(
            409, "step_closed", f"the step {before['step_id']} is {before['status']} already"
        )

"""A run as the host is shown it: the `workflow-run-snapshot.v1` of the engine, with its orders.

The host's shape is closed and its texts are bounded, so what it has no place for is left out, and
what is too large is shown by its digest. A response of a participant that was not chosen is nowhere
in it. PURE, given what the reader read.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

import msgspec

from anabranch.kernel.state import State
from anabranch.market.node.modules.api.run_shapes import HOSTS_OWN, WriteRun, document_of
from anabranch.modules.arca.details import StepDetails
from anabranch.net.net import Net
from anabranch.operations.read.reader import Reader
from anabranch.operations.read.snapshots import steps_of

TEXT_MAX = 4096  # characters, as the host keeps them
#: The host takes 4 MiB in all. Of one run:
OUTPUT_BYTES = 1_500_000  # outputs and evidence; what is larger is shown by its digest
INPUT_BYTES = 500_000
DISPATCHES_SHOWN = 3_000
ERROR_MAX = 1_000  # characters
RUN_FIELDS = (
    "run_id", "workflow_id", "workflow_kind", "status", "pause_reason", "input", "started_at",
    "deadline_at", "finished_at", "error",
)  # fmt: skip
STEP_FIELDS = (
    "step_id", "status", "attempt", "depends_on", "started_at", "finished_at", "timeout_at",
    "execution", "output", "selected_output", "output_digest", "error",
)  # fmt: skip
DISPATCH_FIELDS = (
    "dispatch_id", "run_id", "step_id", "target", "dispatched_at", "status", "responded_at",
    "timeout_at", "attempt", "target_node_id", "outcome", "response_digest",
)  # fmt: skip
ORDER_FIELDS = ("order_id", "execution_id", "contract_id", "receipt_id")
#: What performers may say about a step that the log only knows to be at work.
_WORKING = ("resolving", "retry_wait")


def run_document(
    reader: Reader, details: StepDetails, run: str, output_bytes: int
) -> dict[str, Any]:
    """The newest durable state of a run."""
    shown = reader.snapshot(run)
    net = reader.net(reader.find(run))
    above = _bounded({name: shown[name] for name in RUN_FIELDS if name in shown})
    steps = [
        _step(net, step, details.of(run, step["step_id"]), output_bytes) for step in shown["steps"]
    ]
    return _as_kept({**above, "steps": steps})


def _as_kept(document: dict[str, Any]) -> dict[str, Any]:
    """In the words of the host, so that the two can be compared."""
    wanted = msgspec.convert(document, WriteRun)
    kept = document_of(wanted, without=(*HOSTS_OWN, "created_at"))
    kept["steps"] = [document_of(step) for step in wanted.steps]
    return kept


def first_document(net: Net, run: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """A run that has not begun; the same for the same definition and input."""
    document = {
        "run_id": run,
        "workflow_id": net.name[:TEXT_MAX],
        "workflow_kind": net.labels.get("workflow_kind", ""),
        "status": "pending",
        "input": dict(given),
        "steps": [
            {
                "step_id": step.name,
                "status": "pending",
                "service_type": service_type(net, step.name),
            }
            for step in steps_of(net)
        ],
    }
    return _as_kept(document)


def fitting(
    document: dict[str, Any], closed: Container[str] = (), output_bytes: int = OUTPUT_BYTES
) -> dict[str, Any]:
    """The document within the size that the host takes. Steps that are `closed` there stay as they
    are; of the others, outputs and dispatches are shown in order while there is room."""
    room, dispatches = output_bytes, DISPATCHES_SHOWN
    for step in document["steps"]:
        if step["step_id"] in closed:
            room -= _size(step)
            dispatches -= len(step.get("dispatches", ()))
    steps = []
    for step in document["steps"]:
        if step["step_id"] not in closed:
            if (size := _size(step)) > room:
                step, size = _without_values(step), 0
            room -= size
            step = {**step, "dispatches": step.get("dispatches", [])[: max(dispatches, 0)]}
            dispatches -= len(step["dispatches"])
        steps.append(step)
    shown = document["input"]
    if len(msgspec.json.encode(shown)) > INPUT_BYTES:
        shown = {}
    return {**document, "input": shown, "steps": steps}


def bare(document: dict[str, Any], closed: Container[str] = ()) -> dict[str, Any]:
    """Statuses and ids alone, for a host that does not take more."""
    steps = [
        step if step["step_id"] in closed else {**_without_values(step), "dispatches": []}
        for step in document["steps"]
    ]
    return {**document, "input": {}, "steps": steps}


def gates_of(state: State) -> list[str]:
    """The decisions that a run waits for."""
    return sorted(state.gates)


def service_type(net: Net, step: str) -> str:
    work = net.steps[step].work if step in net.steps else None
    facts = getattr(work.inputs, "facts", {}) if work is not None else {}
    return str(facts.get("service_type") or "")[:TEXT_MAX]


def _step(
    net: Net, shown: Mapping[str, Any], known: Mapping[str, Any], output_bytes: int
) -> dict[str, Any]:
    step = _bounded({name: shown[name] for name in STEP_FIELDS if name in shown})
    step["service_type"] = service_type(net, shown["step_id"])
    step["task"] = _task(shown["task"])
    step["dispatches"] = [_dispatch(one) for one in shown["dispatches"]]
    if "selected_output" in step:
        step.pop("output", None)  # the same, once
    for name in ("output", "selected_output"):
        if name in step and len(msgspec.json.encode(step[name])) > output_bytes:
            del step[name]  # its digest stays
    return _with_details(step, known)


def _with_details(step: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    step |= {name: str(known[name])[:TEXT_MAX] for name in ORDER_FIELDS if known.get(name)}
    step["attempt"] = max(step["attempt"], int(known.get("attempt") or 0))
    delivery = {
        name: str(value)[:TEXT_MAX]
        for name, value in (known.get("delivery") or {}).items()
        if name in ("operation_id", "status_href", "audit_ref") and value
    }
    if delivery.get("operation_id"):
        step["delivery"] = delivery
    if step["status"] == "awaiting_execution" and known.get("status") in _WORKING:
        step["status"] = known["status"]
    return step


def _task(said: Mapping[str, Any]) -> dict[str, Any]:
    names = ("fulfilled", "decided_by", "reason", "evidence")
    return _bounded({name: said[name] for name in names if name in said})


def _dispatch(shown: Mapping[str, Any]) -> dict[str, Any]:
    return {name: shown[name] for name in DISPATCH_FIELDS if shown.get(name) not in (None, "")}


def _bounded(document: dict[str, Any]) -> dict[str, Any]:
    """Texts that the host would refuse are cut: they are messages for people."""
    out = dict(document)
    for name in ("pause_reason", "decided_by", "reason", "workflow_id"):
        if isinstance(out.get(name), str):
            out[name] = out[name][:TEXT_MAX]
    error = out.get("error")
    if isinstance(error, Mapping):
        out["error"] = {name: str(text)[:ERROR_MAX] for name, text in error.items()}
    return out


def _size(step: Mapping[str, Any]) -> int:
    """Of the values in it, which can be large."""
    values = [step.get("output"), step.get("selected_output"), step.get("task", {}).get("evidence")]
    return len(msgspec.json.encode(values))


def _without_values(step: Mapping[str, Any]) -> dict[str, Any]:
    """The digest of its output stays."""
    kept = {
        name: value for name, value in step.items() if name not in ("output", "selected_output")
    }
    task = step.get("task", {})
    return {**kept, "task": {name: value for name, value in task.items() if name != "evidence"}}

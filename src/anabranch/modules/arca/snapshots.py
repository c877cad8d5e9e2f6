"""A run as the host is shown it: the `workflow-run-snapshot.v1` of the engine, with its orders.

The host's shape is closed and its texts are bounded, so what it has no place for is left out, and
what is too large is shown by its digest. A response of a participant that was not chosen is nowhere
in it. PURE, given what the reader read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.kernel.state import State
from anabranch.market.node.modules.api.run_shapes import HOSTS_OWN, WriteRun, document_of
from anabranch.modules.arca.details import StepDetails
from anabranch.net.net import Net
from anabranch.operations.read.reader import Reader
from anabranch.operations.read.snapshots import steps_of

TEXT_MAX = 4096  # characters, as the host keeps them
SNAPSHOT_BYTES = 3_500_000  # the host takes 4 MiB
DISPATCHES_SHOWN = 2_000  # of one step, where the whole is too large
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


def fitting(document: dict[str, Any], limit: int = SNAPSHOT_BYTES) -> dict[str, Any]:
    """The document within the size that the host takes; what goes first is the largest."""
    for reduce in (lambda one: one, _few_outputs, _few_dispatches, _bare):
        document = reduce(document)
        if len(msgspec.json.encode(document)) <= limit:
            break
    return document


def bare(document: dict[str, Any]) -> dict[str, Any]:
    """Statuses and ids alone, for a host that does not take more."""
    return _bare(_few_dispatches(_few_outputs(document)))


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
        out["error"] = {name: str(text)[:TEXT_MAX] for name, text in error.items()}
    return out


def _few_outputs(document: dict[str, Any]) -> dict[str, Any]:
    return _steps_without(document, "output", "selected_output")


def _few_dispatches(document: dict[str, Any]) -> dict[str, Any]:
    steps = [
        {**step, "dispatches": step.get("dispatches", [])[:DISPATCHES_SHOWN]}
        for step in document["steps"]
    ]
    return {**document, "steps": steps}


def _bare(document: dict[str, Any]) -> dict[str, Any]:
    document = _steps_without(document, "dispatches")
    for step in document["steps"]:
        task = step.get("task", {})
        step["task"] = {name: value for name, value in task.items() if name != "evidence"}
    return {**document, "input": {}}


def _steps_without(document: dict[str, Any], *names: str) -> dict[str, Any]:
    steps = [
        {name: value for name, value in step.items() if name not in names}
        for step in document["steps"]
    ]
    return {**document, "steps": steps}

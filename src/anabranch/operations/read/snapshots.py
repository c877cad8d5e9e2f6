"""`WorkflowRunSnapshot`: a run of an Arca definition as its own world describes it.

It has the status of every step, what was asked of whom and what that came to, and the two facts
about each task. It never has a raw response: of a fan-out only the one output that was chosen.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.dialects.arca.plan import START
from anabranch.errors import InputError
from anabranch.kernel import events as e
from anabranch.kernel.jobs import CUT_SLOT, JUDGE_SLOT
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State, Token
from anabranch.kernel.values import Fault, code_of, is_step_timeout
from anabranch.market.identities import canonical
from anabranch.net.net import Net, Step
from anabranch.operations.read.dispatches import Dispatch, by_step, dispatches_of
from anabranch.work.participants.performers import rfc3339

SCHEMA = "workflow-run-snapshot.v1"


class _Past(msgspec.Struct):
    """What the log says about a step that the state no longer knows."""

    started_at: int = 0
    finished_at: int = 0
    answered: bool = False
    ending: str = ""
    end: str = ""
    fault: Fault | None = None


def snapshot_of(
    net: Net,
    state: State,
    history: Sequence[tuple[int, e.Event]],
    whole: Callable[[Any], Any] = lambda output: output,
) -> dict[str, Any]:
    """The run as it stands at the last of these events; `whole` brings in large outputs."""
    past = _pasts(history)
    asked = by_step(dispatches_of(net, state.run, history))
    steps = steps_of(net)
    status = _run_status(state)
    snapshot = {
        "schema": SCHEMA,
        "run_id": state.run,
        "workflow_id": net.name,
        "workflow_kind": net.labels.get("workflow_kind", ""),
        "status": status,
        "pause_reason": _pause_reason(state) if status == "paused" else None,
        "input": state.workload,
        "created_at": rfc3339(state.started_at),
        "started_at": rfc3339(state.started_at),
        "deadline_at": rfc3339(state.deadline) if state.deadline else None,
        "finished_at": rfc3339(state.finished_at) if state.finished_at else None,
        "updated_at": rfc3339(state.updated_at),
        "revision": state.seq,
        "error": _error(state),
        "steps": [
            _step(net, state, step, past.get(step.name, _Past()), asked.get(step.name, []), whole)
            for step in steps
        ],
    }
    return {key: value for key, value in snapshot.items() if value is not None}


def steps_of(net: Net) -> list[Step]:
    """The steps that a definition names."""
    return [step for step in net.steps.values() if not _is_start(net, step)]


def _is_start(net: Net, step: Step) -> bool:
    return step.name == net.entry and step.work is None and step.name.startswith(START)


def _pasts(history: Iterable[tuple[int, e.Event]]) -> dict[str, _Past]:
    past: dict[str, _Past] = {}
    steps: dict[int, str] = {}
    for at, event in history:
        match event:
            case e.TokenCreated():
                steps[event.token] = event.step
                past[event.step] = _Past()
            case e.JobScheduled():
                here = past[steps[event.token]]
                here.started_at = here.started_at or at
            case e.TokenAnswered():
                past[steps[event.token]].answered = True
            case e.TokenRetrying():
                past[steps[event.token]].answered = False
            case e.TokenFinished():
                here = past[steps[event.token]]
                here.finished_at, here.ending, here.fault = at, event.ending, event.fault
                here.end = event.end
            case _:
                pass
    return past


def _run_status(state: State) -> str:
    status = status_of(state)
    return {"waiting": "paused", "partial": "completed"}.get(status, status)


def _pause_reason(state: State) -> str:
    if state.pause_reason:
        return state.pause_reason
    asked = [gate.ask or f"a decision at {gate.step}" for gate in state.gates.values()]
    return "; ".join(asked) or "paused"


def _error(state: State) -> dict[str, Any] | None:
    if state.problem is None:
        return None
    step = next((step for step, fault in state.faults if fault == state.problem), "")
    return {
        "code": code_of(state.problem),
        "message": state.problem.message,
        **({"step_id": step} if step else {}),
    }


def _step(
    net: Net,
    state: State,
    step: Step,
    past: _Past,
    dispatches: Sequence[Dispatch],
    whole: Callable[[Any], Any],
) -> dict[str, Any]:
    status = _step_status(state, step, past)
    done = status == "completed"
    shows = done or (status == "awaiting_fulfillment" and past.answered)  # people decide about it
    output = whole(_output(state, step)) if shows else None
    fan_out = step.work is not None and step.work.kind == "dispatch"
    fields: dict[str, Any] = {
        "step_id": step.name,
        "status": status,
        "attempt": max((dispatch.attempt for dispatch in dispatches), default=0),
        "depends_on": _depends_on(net, step),
        "started_at": rfc3339(past.started_at) if past.started_at else None,
        "finished_at": rfc3339(past.finished_at) if past.finished_at else None,
        "timeout_at": _timeout_at(state, step),
        "execution": {"completed": past.answered or done},
        "task": _task(state, step),
        "output": output,
        "selected_output": output if fan_out else None,
        "output_digest": _digest(output) if shows else None,
        "dispatches": [dispatch.inspection() for dispatch in dispatches],
        "error": _fault(past.fault),
    }
    return {key: value for key, value in fields.items() if value is not None}


def _output(state: State, step: Step) -> Any:
    """What the work of a step came to, whether its task counts as fulfilled yet or not."""
    token = _token(state, step)
    if token is None:
        return state.results.get(step.name)
    return token.answer.result if token.answer is not None else None


def _token(state: State, step: Step) -> Token | None:
    return next((token for token in state.tokens.values() if token.step == step.name), None)


def _step_status(state: State, step: Step, past: _Past) -> str:
    token = _token(state, step)
    if token is not None:
        return _live_status(state, step, token)
    match past.ending:
        case "done":
            return "completed"
        case "failed":
            return "step_timeout" if is_step_timeout(past.fault) else "failed"
        case "skipped" if past.end != "stopped":
            return "skipped"
    # It was never begun, or stopped with the run: how the run ends says how, and until that is
    # known nothing is, for a word that was said stays.
    ends_as = state.status or state.ending
    if not ends_as or (not past.ending and not state.finished):
        return "pending"
    return "deadline_exceeded" if ends_as == "deadline_exceeded" else "cancelled"


def _live_status(state: State, step: Step, token: Token) -> str:
    slots = [job.slot for job in state.jobs.values() if job.token == token.id]
    if token.phase == "deciding" or JUDGE_SLOT in slots:
        return "awaiting_fulfillment"
    if token.phase in ("ready", "running"):
        if CUT_SLOT in slots:
            return "resolving"
        backing_off = all(
            job.phase == "backoff" for job in state.jobs.values() if job.token == token.id
        )
        if slots and backing_off:
            return "retry_wait"
        fan_out = step.work is not None and step.work.kind == "dispatch"
        return "awaiting_fan_out" if fan_out else "awaiting_execution"
    return "retry_wait" if token.phase == "sleeping" else "pending"


def _depends_on(net: Net, step: Step) -> list[str]:
    return [
        other.name
        for other in net.steps.values()
        if not _is_start(net, other)
        and any(arc.target == step.name for branch in other.branches for arc in branch.arcs)
    ]


def _timeout_at(state: State, step: Step) -> str | None:
    token = next((t for t in state.tokens.values() if t.step == step.name), None)
    if token is None:
        return None
    jobs = [job.until for job in state.jobs.values() if job.token == token.id and job.until]
    until = token.until or min(jobs, default=0)
    return rfc3339(until) if until else None


def _task(state: State, step: Step) -> dict[str, Any]:
    said = state.judged.get(step.name)
    if said is None:
        return {"fulfilled": None}
    fields = {
        "fulfilled": said.fulfilled,
        "policy": said.policy,
        "decided_by": said.actor,
        "reason": said.reason or None,
        "evidence": said.evidence,
        "override": said.override or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _digest(output: Any) -> str:
    """Without padding, as everywhere in that world; fractions, which it never signs, as written."""
    try:
        text = canonical(output)
    except InputError:
        text = json.dumps(output, sort_keys=True, separators=(",", ":")).encode()
    data = hashlib.sha256(text).digest()
    return "sha256:" + base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _fault(fault: Fault | None) -> Mapping[str, Any] | None:
    if fault is None:
        return None
    return {"code": fault.code or fault.kind, "message": fault.message}

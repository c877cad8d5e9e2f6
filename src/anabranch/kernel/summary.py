"""A run as people and programs see it: the object that `run --json` prints."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from anabranch.kernel.causes import chain_of, last_effect
from anabranch.kernel.privacy import public
from anabranch.kernel.quiescence import result_of, status_of
from anabranch.kernel.state import State, StepTally
from anabranch.kernel.step_status import step_statuses
from anabranch.kernel.tracker import loop_name, progress
from anabranch.kernel.values import Answer, code_of, failed, succeeded
from anabranch.net.net import Net


def summarise(net: Net, state: State) -> dict[str, Any]:
    summary = {
        "run": state.run,
        "name": net.name,
        "dialect": net.dialect,
        "status": status_of(state),
        "result": public(result_of(state), net.private),
        "steps": steps_of(net, state),
        "joins": joins_of(state),
        "problem": problem_of(state),
        "problems": problems_of(state),
        "tolerated": state.counts.tolerated,
        "handled": state.counts.handled,
        "failures": faults_of(state),
    }
    if net.carries_payload:
        summary["session"] = session_of(state)
    if state.joins_dropped:  # the list has only the last ones; the log has them all
        summary["joins_dropped"] = state.joins_dropped
    return summary


def problems_of(state: State) -> int:
    """Step runs that did not end as they should: those that nothing took care of, and those that a
    policy tolerates. A failure with a way of its own out of the step is handled, and none."""
    return state.counts.problems + state.counts.tolerated


def steps_of(net: Net, state: State) -> dict[str, Any]:
    """Steps that have run, in document order."""
    stand = step_statuses(state)
    return {
        name: _step_of(net, state, name, tally) | {"state": stand[name].status}
        for name in net.steps
        if (tally := state.steps.get(name)) is not None
    }


def _step_of(net: Net, state: State, name: str, tally: StepTally) -> dict[str, Any]:
    step: dict[str, Any] = {
        "runs": tally.runs,
        "status": tally.statuses[-1],
        "statuses": list(tally.statuses),
        "result": public(state.results.get(name), net.private),
    }
    if tally.outcome:  # what its work calls what it came to, such as valid
        step["outcome"] = tally.outcome
    if tally.by_error:
        step["by_error"] = tally.by_error
    if tally.dropped:  # the list has only the last ones; the log has them all
        step["earlier"] = _earlier(state, name, tally)
    return step


def _earlier(state: State, name: str, tally: StepTally) -> dict[str, int]:
    """How many of the runs of a step that are no longer listed are in which status."""
    sums = Counter(tally.earlier)
    if tally.dropped:
        sums.update(
            token.phase
            for token in state.tokens.values()
            if token.step == name and token.ordinal < tally.dropped
        )
    return dict(sums)


#: What the states of a step run are called where step runs are processes.
PROCESS = {"running": "running", "done": "done", "failed": "aborted", "aborted": "aborted",
           "skipped": "aborted", "discarded": "aborted"}  # fmt: skip


def session_of(state: State) -> dict[str, Any]:
    """The run as a session of processes: how many are in which state, and what it came to."""
    sums = dict.fromkeys(("waiting", "running", "done", "aborted"), 0)
    for name, tally in state.steps.items():
        listed = Counter(tally.statuses)
        listed.update(_earlier(state, name, tally))
        for status, count in listed.items():
            sums[PROCESS.get(status, "waiting")] += count
    result = None
    if state.finished:
        aborts = "finished_with_aborts" if sums["aborted"] else "done"
        result = "killed" if state.ending else aborts
    return {"result": result, "processes": sums}


def joins_of(state: State) -> list[dict[str, Any]]:
    return [
        {
            "target": record.target,
            "verdict": record.verdict,
            "selected": list(record.selected),
            "late": record.late,
        }
        for record in state.joins.values()
    ]


def loops_of(state: State, now: int) -> list[dict[str, Any]]:
    """Every loop of the run: how far an open one is, what a finished one came to."""
    return [
        {
            "loop": name,
            "loop_id": loop_name(state.run, name),
            "step": record.step,
            "mode": record.mode,
            "status": record.status,
            **(
                progress(state.loops[name], now)
                if record.status == "open" and name in state.loops
                else {
                    "total": record.total,
                    "succeeded": record.succeeded,
                    "failed": record.failed,
                    "retries": record.retries,
                    "shards": record.shards,
                }
            ),
        }
        for name, record in state.looped.items()
    ]


def problem_of(state: State) -> dict[str, Any] | None:
    if state.problem is None:
        return None
    fault = state.problem
    problem: dict[str, Any] = {"code": code_of(fault), "message": fault.message}
    chain = chain_of(state, last_effect(state, fault))
    if len(chain) > 1 and chain[0][1] == fault:  # it led to others
        problem["chain"] = [
            {"step": step, "code": code_of(one), "message": one.message} for step, one in chain
        ]
    return problem


def faults_of(state: State) -> list[dict[str, Any]]:
    return [
        {"step": step, **msgspec.to_builtins(fault), "code": code_of(fault)}
        for step, fault in state.faults
    ]


def child_answer(state: State) -> Answer:
    """What a finished child run answers to the parked job that waits for it."""
    if state.status in ("completed", "partial"):
        return _good_child(state)
    why = state.problem.message if state.problem is not None else state.status
    message = f"child run {state.run} ended {state.status}: {why}"
    return failed("child", message, retryable=state.status != "cancelled")


def _good_child(state: State) -> Answer:
    """With the result of the whole run, or of the step that was asked for."""
    step = state.returns
    if step and step not in state.results:
        tally = state.steps.get(step)
        became = "did not run" if tally is None else f"was {tally.statuses[-1]}"
        message = f"child run {state.run} ended {state.status}, but its step {step} {became}"
        return failed("child", message, retryable=False)
    result = state.results[step] if step else result_of(state)
    return succeeded({"run": state.run, "status": state.status, "result": result})

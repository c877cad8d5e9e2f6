"""Quiescence: when a run is complete, and as what.

A run ends when no token can move, nobody works for it (now, later or outside) and no gather is
open. Then the final step runs, once; then the status follows from the rule in `completion`. Tokens
that stand at closed gates keep a run open: it is `waiting`, and `explain` says for whom.
"""

from __future__ import annotations

from typing import Any

from anabranch.ids import run_number
from anabranch.kernel import events as e
from anabranch.kernel.causes import first_cause
from anabranch.kernel.ending import end_now
from anabranch.kernel.state import ROOT_SCOPE, State
from anabranch.kernel.tracker import loop_ref
from anabranch.kernel.turn import Turn
from anabranch.kernel.values import Fault
from anabranch.literals import RunStatus
from anabranch.net.net import Net


def status_of(state: State) -> RunStatus:
    """The status of a run as people see it."""
    if state.status:
        return state.status  # type: ignore[return-value]
    if state.paused:
        return "paused"
    if state.queued_for_place and not state.ending:
        return "queued"
    return "waiting" if stands_still(state) else "running"


def stands_still(state: State) -> bool:
    """Only somebody outside can move this run.

    Every token is at a gate, waits for one that is, or has its answer coming from outside.
    """
    if state.busy or not (state.tokens or state.jobs):
        return False
    return not (state.phases.get("sleeping") or state.phases.get("new"))


def settle(turn: Turn) -> bool:
    """If nothing moves any more, do what comes next; true when that gave the run new work."""
    state = turn.state
    if state.status or state.jobs or _moves(state):
        return False
    if state.queued_for_place and not state.ending:
        return False  # it has not begun
    if state.gates or (state.held and turn.net.policy.held == "wait"):
        return False  # somebody at a gate can still move the run
    for token in state.held:
        end_now(turn, state.tokens[token], "discarded", None)
        return True
    if turn.net.final is not None and not state.finalised and not state.ending:
        turn.create(turn.net.final, scope=ROOT_SCOPE, via="final", args=_final_args(turn))
        return True
    status, problem = completion(turn.net, state)
    turn.emit(e.RunFinished(status, problem))
    return False


def _moves(state: State) -> bool:
    phases = state.phases
    return bool(
        phases.get("running")
        or phases.get("ready")
        or phases.get("sleeping")
        or phases.get("new")
        or phases.get("queued")
    )


def completion(net: Net, state: State) -> tuple[str, Fault | None]:
    """The rule for the final status, first match wins.

    1. a run that was cancelled, ran out of time or was stopped by fail-fast: that status
    2. the final step failed: `failed`, or `partial` by policy
    3. a step run failed: by policy `failed` (or `step_timeout` where that was the reason),
       `partial`, or `completed` if every failure was followed by a route
    4. otherwise `completed`
    """
    why = _why(net, state)
    if state.ending and state.ending != "completed":
        stopped = Fault(state.ending, state.ending_reason, retryable=False)
        by_failure = state.ending in ("failed", "partial", "step_timeout")
        return state.ending, (why or stopped) if by_failure else stopped
    if state.final_ending not in (None, "done", "skipped"):
        ended = Fault("final_step", f"the final step was {state.final_ending}", retryable=False)
        status = "partial" if net.policy.on_final_failure == "partial" else "failed"
        return status, state.final_fault or ended
    return _by_failures(net, state, why)


def _why(net: Net, state: State) -> Fault | None:
    """The first cause of what failed. By policy a failure with a route is none of anything else."""
    last = state.unhandled or state.failure
    return last if net.policy.on_failure == "handled" else first_cause(state, last)


def _by_failures(net: Net, state: State, why: Fault | None) -> tuple[str, Fault | None]:
    counts = state.counts
    failed, timed_out = counts.failed, counts.timed_out
    if net.policy.on_failure == "handled":
        failed, timed_out = failed - counts.handled, timed_out - counts.timed_out_handled
    if not failed:
        return "completed", None
    if net.policy.on_failure == "partial":
        return "partial", why
    own_status = net.policy.timeouts_have_own_status and timed_out == failed
    return ("step_timeout" if own_status else "failed"), why


def _final_args(turn: Turn) -> dict[str, Any]:
    """The summary; what arcs to the final step handed on was named by somebody, and goes before."""
    return {**summary(turn), **turn.state.final_args}


def step_ref(run: str, step: str) -> str:
    """Where the last result of a step is; the verb `get` and the kind `artifact` read it."""
    return f"anabranch:run:{run}/step/{step}"


def summary(turn: Turn) -> dict[str, Any]:
    """What the final step gets as args: counts and where the results are, never the results."""
    state = turn.state
    return {
        "execution_id": run_number(state.root_run),
        "run_id": state.run,
        "steps": {
            name: {"runs": tally.runs, "status": tally.statuses[-1]}
            for name, tally in state.steps.items()
        },
        "counts": {
            "steps": len(state.steps),
            "step_runs": state.counts.finished,
            "branches": state.counts.branch_ends,
            "failed": state.counts.failed,
            "aborted": state.counts.aborted,
        },
        "results": {name: step_ref(state.run, name) for name in state.results},
        "loops": {
            record.step: loop_ref(state.run, loop)
            for loop, record in state.looped.items()
            if record.status != "open"
        },
        "failures": [
            {"step": step, "kind": fault.kind, "message": fault.message}
            for step, fault in state.faults
        ],
    }


def result_of(state: State) -> Any:
    """The result of the run: the final step's, else that of the one branch end, else a map."""
    if state.finalised:
        return state.final_result
    if len(state.ends) == 1:
        return next(iter(state.ends.values()))
    return dict(state.ends) if state.ends else None

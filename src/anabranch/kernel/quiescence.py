"""Quiescence: when a run is complete, and as what.

A run ends when no token can move, nobody works for it (now, later or outside) and no gather is
open. Then the final step runs, once; then the status follows from the rule in `completion`. Tokens
that stand at closed gates keep a run open: it is `waiting`, and `explain` says for whom.
"""

from __future__ import annotations

from typing import Any

from anabranch.kernel import events as e
from anabranch.kernel.ending import end_now
from anabranch.kernel.joins import release_barrier
from anabranch.kernel.state import ROOT_SCOPE, State
from anabranch.kernel.tokens import create
from anabranch.kernel.turn import Turn
from anabranch.kernel.values import Fault, RunStatus
from anabranch.net.net import Net

_AT_A_GATE = ("held", "deciding")


def status_of(state: State) -> RunStatus:
    """The status of a run as people see it."""
    if state.status:
        return state.status  # type: ignore[return-value]
    if state.paused:
        return "paused"
    return "waiting" if stands_still(state) else "running"


def stands_still(state: State) -> bool:
    """Only somebody outside can move this run: every token is at a gate and nobody works."""
    for job in state.jobs.values():
        if job.phase != "parked":
            return False
    if not state.tokens:
        return False
    parked = {job.token for job in state.jobs.values()}
    return all(token.phase in _AT_A_GATE or token.id in parked for token in state.tokens.values())


def settle(turn: Turn) -> bool:
    """If nothing moves any more, do what comes next; true when that gave the run new work."""
    state = turn.state
    if state.finished or state.jobs or not _quiet(state):
        return False
    if _waits(turn):
        return False
    for token in [token for token in state.tokens.values() if token.phase == "held"]:
        end_now(turn, token, "discarded", None)
        return True
    if state.barriers:  # barriers that wait for one another: the oldest gives way
        release_barrier(turn, state.tokens[min(state.barriers.values())])
        return True
    if turn.net.final is not None and not state.finalised and not state.ending:
        create(turn, turn.net.final, scope=ROOT_SCOPE, via="final", args=summary(turn))
        return True
    status, problem = completion(turn.net, state)
    turn.emit(e.RunFinished(status, problem))
    return False


def _quiet(state: State) -> bool:
    quiet = (*_AT_A_GATE, "joining")
    return all(token.phase in quiet for token in state.tokens.values())


def _waits(turn: Turn) -> bool:
    """Somebody at a gate can still move the run."""
    phases = {token.phase for token in turn.state.tokens.values()}
    return "deciding" in phases or ("held" in phases and turn.net.policy.held == "wait")


def completion(net: Net, state: State) -> tuple[str, Fault | None]:
    """The rule for the final status, first match wins.

    1. a run that was cancelled, ran out of time or was stopped by fail-fast: that status
    2. the final step failed: `failed`, or `partial` by policy
    3. a step run failed: by policy `failed` (or `step_timeout` where that was the reason),
       `partial`, or `completed` if every failure was followed by a route
    4. otherwise `completed`
    """
    first = state.faults[0][1] if state.faults else None
    if state.ending:
        return state.ending, Fault(state.ending, state.ending_reason, retryable=False)
    if state.final_ending not in (None, "done", "skipped"):
        return ("partial" if net.policy.on_final_failure == "partial" else "failed"), first
    failed, handled = state.counts.failed, state.counts.handled
    match net.policy.on_failure:
        case "fail" if failed:
            timed_out = net.policy.timeouts_have_own_status and state.counts.timed_out == failed
            return ("step_timeout" if timed_out else "failed"), first
        case "partial" if failed:
            return "partial", first
        case "handled" if failed > handled:
            return "failed", first
        case _:
            return "completed", None


def summary(turn: Turn) -> dict[str, Any]:
    """What the final step gets as args: counts and where the results are, never the results."""
    state = turn.state
    return {
        "execution_id": state.run,
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
        "results": {name: f"run:{state.run}/step/{name}" for name in state.results},
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

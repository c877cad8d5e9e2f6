"""Ending tokens that do not get to finish: kill, cancel, discard.

A token nobody works for ends at once. One whose job runs is *doomed*: its job is told to stop, the
token stays until that job is discharged or reports, and whatever comes then has no effect.
"""

from __future__ import annotations

from anabranch.kernel import events as e
from anabranch.kernel.jobs import PLAIN_SLOT, cancel, jobs_of
from anabranch.kernel.state import Job, Token
from anabranch.kernel.turn import Turn
from anabranch.kernel.values import Ending, Fault


def abort(turn: Turn, token: Token, reason: str) -> None:
    """End the token now, or doom it while its work runs. The scopes below go down with it.

    Scopes nest without limit, so they are walked with a list, not by recursion.
    """
    marked = [token.id]
    while marked:
        one = turn.state.tokens.get(marked.pop())
        if one is None or one.doomed:
            continue
        below = _members_below(turn, one)
        _abort_one(turn, one, reason)
        marked += reversed(below)


def _abort_one(turn: Turn, token: Token, reason: str) -> None:
    jobs = jobs_of(turn, token)
    works = token.phase in ("ready", "running")
    doomed = works and any(job.phase in ("running", "cancelling") for job in jobs)
    if doomed:
        give_up(turn, token, reason)
        turn.emit(e.TokenDoomed(token.id, reason))
    for job in jobs:
        if not comes_to_its_end(turn, job):
            cancel(turn, job, reason)
    if not doomed:
        fault = Fault("aborted", reason, retryable=False)
        end_now(turn, token, "aborted", fault, end="killed")


def comes_to_its_end(turn: Turn, job: Job) -> bool:
    """Work that is not interrupted: its token is doomed, and ends when the work does."""
    work = turn.net.steps[job.step].work
    plain = job.slot == PLAIN_SLOT and job.phase == "running"
    return plain and work is not None and work.finishes_when_killed


def _members_below(turn: Turn, token: Token) -> list[int]:
    """Who works for the open join that this token waits at."""
    gather = turn.state.gathers.get(token.gather)
    if gather is None or gather.kind != "join" or gather.verdict != "open":
        return []
    return list(turn.state.scopes[token.id].members)


def end_now(
    turn: Turn, token: Token, ending: Ending, fault: Fault | None, *, end: str = "stopped"
) -> None:
    """Finish a token without routing: no branch, no delivery."""
    why = fault.message if fault is not None else ending
    close_gate(turn, token, why)
    give_up(turn, token, why)
    turn.emit(e.TokenFinished(token.id, ending, "", end, fault))
    turn.dirty[token.scope] = True


def close_gate(turn: Turn, token: Token, why: str) -> None:
    """A gate nobody needs to answer any more."""
    gate = gate_id(token)
    if gate in turn.state.gates:
        turn.emit(e.GateDecided(gate, "reject", "engine", why))


def gate_id(token: Token) -> str:
    return f"gate-{token.id}"


def give_up(turn: Turn, token: Token, why: str) -> None:
    """The token ends while its gather or its loop is open."""
    gather = turn.state.gathers.get(token.gather)
    if gather is not None and gather.verdict == "open":
        turn.emit(e.GatherSettled(gather.id, "impossible", (), why))
    tracker = turn.state.loops.get(token.loop)
    if tracker is not None and tracker.status == "open":
        turn.emit(e.LoopSettled(tracker.id, "failed", why))


def kill_scope(turn: Turn, scope_id: int, reason: str) -> None:
    """Stop every member of the scope, and of the scopes below its waiting joins."""
    scope = turn.state.scopes.get(scope_id)
    for member in list(scope.members if scope is not None else ()):
        token = turn.state.tokens.get(member)
        if token is not None:
            abort(turn, token, reason)

"""Timers: what happens when time has passed.

Timers are derived from events (`evolve` sets and drops them), so nothing extra is recorded for them
and a lost or doubled wake-up changes nothing: `Tick` does whatever is due, once.

    deadline   the run has taken too long           job:J    an attempt has taken too long
    abandon    an ended run is rid of what goes on
    step:T     a step has taken too long            lease:J  a worker has not been heard of
    wake:T     a sleeping token goes on             retry:J  a failed job is tried again
                                                    queue:J  a shard found no worker in time
                                                    wait:J   a parked job goes on without an answer,
                                                             or has waited for as long as it wanted
    signal:S   no wait has taken it in time
"""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.errors import Refused
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.ending import close_gate, give_up
from anabranch.kernel.fans import close_with_candidates, has_candidates, time_is_up
from anabranch.kernel.finishing import wind_down
from anabranch.kernel.fulfilment import ENGINE, decision_timeout
from anabranch.kernel.gates import resume_for
from anabranch.kernel.jobs import abandon, cancel, jobs_of, lose, time_out, wait_over
from anabranch.kernel.loops import waited_too_long
from anabranch.kernel.quiescence import completion
from anabranch.kernel.rounds import ask_everybody_again
from anabranch.kernel.signals import end_wait, expire
from anabranch.kernel.state import State, Token
from anabranch.kernel.tokens import timed_out
from anabranch.kernel.turn import Activate, Conclude, Turn
from anabranch.kernel.values import STEP_TIMEOUT, Fault
from anabranch.net.net import OWNER, Decision

#: These begin work, so a paused run leaves them until it is resumed.
_BEGINS_WORK = ("wake", "retry")


def next_wake(state: State) -> int | None:
    """When the run wants its next tick; a paused one only for what can end something."""
    if not state.paused:
        return state.timers.earliest()
    due = [at for key, at in state.timers.due.items() if not key.startswith(_BEGINS_WORK)]
    return min(due, default=None)


def tick(turn: Turn) -> None:
    for key in turn.state.timers.due_by(turn.at):
        if turn.state.finished or turn.state.timers.due.get(key, turn.at + 1) > turn.at:
            continue  # handled meanwhile, by what an earlier timer did
        if turn.state.paused and key.startswith(_BEGINS_WORK):
            continue
        if key == "deadline" and any(_has_closed(event) for event in turn.events):
            continue  # it ends the run when what follows from that is recorded
        kind, _, name = key.partition(":")
        _DUE[kind](turn, name)


def _has_closed(event: e.Event) -> bool:
    return isinstance(event, e.GatherSettled) and event.verdict == "closed"


def is_past_deadline(turn: Turn) -> bool:
    """Whether the run is to end now, whatever came in just before: nothing new may be begun."""
    state = turn.state
    if not 0 < state.deadline <= turn.at or state.ending or state.finished:
        return False
    return bool(turn.events and (state.tokens or state.jobs))


def end_at_deadline(turn: Turn, _name: str = "") -> None:
    state = turn.state
    if close_with_candidates(turn):
        return  # it comes back in this turn, when what follows from that is recorded
    if state.tokens or (turn.net.final is not None and not state.finalised):
        wind_down(turn, "deadline_exceeded", "the run passed its deadline")
        return
    # Every step has ended in time; only the work of losers is not over yet.
    status, _problem = completion(turn.net, state)
    wind_down(turn, status, "nobody waits for what is still out at the deadline")


def _abandon(turn: Turn, _name: str) -> None:
    """Whoever was told to stop and goes on all the same does not keep the run."""
    for job in list(turn.state.jobs.values()):
        cancel(turn, job, "the time of the run is up")
        if job.id in turn.state.jobs:
            abandon(turn, job)


def _step_timeout(turn: Turn, name: str) -> None:
    token = turn.state.tokens[int(name)]
    hurries = token.hurries
    turn.emit(e.TokenTimed(token.id, 0))
    step = turn.net.steps[token.step]
    if token.phase == "deciding" and step.decision is not None and step.decision.timeout_ms:
        _nobody_decided(turn, token, step.decision)
        return
    if hurries and not has_candidates(turn, token):
        return  # the deadline itself says what becomes of it
    if time_is_up(turn, token):
        return
    seconds = (step.timeout_ms or 0) / 1000
    fault = Fault("timeout", f"step {step.name} took longer than {seconds:g} s", STEP_TIMEOUT)
    for job in jobs_of(turn, token):
        cancel(turn, job, fault.message)
    close_gate(turn, token, fault.message)
    give_up(turn, token, fault.message)
    if not ask_everybody_again(turn, token, fault):
        timed_out(turn, token, fault)


def _nobody_decided(turn: Turn, token: Token, decision: Decision) -> None:
    fault = decision_timeout(
        token, f"nobody decided within {(decision.timeout_ms or 0) / 1000:g} s"
    )
    close_gate(turn, token, fault.message)
    resume_for(turn, token, ENGINE)
    turn.agenda.append(Conclude(token.id, fault))


def _wake(turn: Turn, name: str) -> None:
    turn.emit(e.TokenWoken(int(name), "time"))
    turn.agenda.append(Activate(int(name)))


def _on_retry_due(turn: Turn, name: str) -> None:
    job = turn.state.jobs[name]
    turn.emit(e.JobScheduled(job.id, job.token, job.slot, job.attempt + 1))


def _job_timeout(turn: Turn, name: str) -> None:
    time_out(turn, turn.state.jobs[name])


def _wait_over(turn: Turn, name: str) -> None:
    job = turn.state.jobs[name]
    if job.wait is not None:
        end_wait(turn, job)
    else:
        wait_over(turn, job)


def _on_lease_expired(turn: Turn, name: str) -> None:
    job = turn.state.jobs[name]
    lose(turn, s.JobLose(job.id, job.attempt, "its lease ran out", worker=True))


_DUE = {
    "deadline": end_at_deadline,
    "abandon": _abandon,
    "step": _step_timeout,
    "wake": _wake,
    "retry": _on_retry_due,
    "job": _job_timeout,
    "lease": _on_lease_expired,
    "queue": waited_too_long,
    "wait": _wait_over,
    "signal": expire,
}


def is_owner(labels: Mapping[str, str], who: str) -> bool:
    """Does the run with these labels belong to them? Addresses are written in either case."""
    return labels.get(OWNER, "").lower() == who.lower()


def _allowed(turn: Turn, token: Token, stimulus: s.Wake) -> bool:
    if not stimulus.way or is_owner(turn.state.labels, stimulus.asker):
        return True
    policy = turn.net.wake_policy
    return policy is not None and policy.allows(
        token.payload, token.step, way=stimulus.way, asker=stimulus.asker, rule=stimulus.rule
    )


def wake(turn: Turn, stimulus: s.Wake) -> None:
    """Somebody wakes sleeping tokens before their time. An open join is never woken."""
    labels = turn.state.labels
    if stimulus.runner is not None and not is_owner(labels, stimulus.runner):
        raise Refused("the named address does not own this run", code="other_owner")
    if stimulus.token:
        named = turn.state.tokens.get(stimulus.token)
        there = [named] if named is not None else []
    else:
        there = [token for token in turn.state.tokens.values() if token.step == stimulus.step]
    asleep = [token for token in there if token.phase == "sleeping"]
    if not asleep:
        raise Refused("nothing sleeps there", code="not_sleeping")
    if stimulus.token and stimulus.way == "rpc" and not is_owner(labels, stimulus.asker):
        message = "only the owner wakes a single process: others name the step that they may wake"
        raise Refused(message, code="step_only")
    asleep = [token for token in asleep if _allowed(turn, token, stimulus)]
    if not asleep:
        who = stimulus.asker or "this caller"
        raise Refused(f"{who} is not allowed to wake what sleeps there", code="not_allowed")
    payload = {k: v for k, v in stimulus.payload.items() if not k.startswith("_")}
    for token in asleep:
        turn.emit(e.TokenWoken(token.id, stimulus.actor or "wake", payload))
        turn.agenda.append(Activate(token.id))

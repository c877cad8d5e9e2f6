"""One step of a run, with everything that is known of it: for the drawer of the pages.

What a job was given is not in the log: it is rendered again, from the state that the run had when
the job began, with stars in the place of secrets. Nothing here is ever a secret in clear.
"""

from __future__ import annotations

from typing import Any

import msgspec

from anabranch.errors import AnabranchError, NotFound
from anabranch.kernel.evolve import evolve
from anabranch.kernel.explain import Unfinished, explain
from anabranch.kernel.fans import slot_value
from anabranch.kernel.gates import source_of
from anabranch.kernel.jobs import JUDGE_SLOT, work_of
from anabranch.kernel.privacy import public
from anabranch.kernel.routing import names_of_run
from anabranch.kernel.state import Job, State, Token
from anabranch.kernel.step_status import step_statuses, work_word
from anabranch.net.net import Net, Step
from anabranch.net.problems import did_you_mean
from anabranch.operations.read.reader import Reader
from anabranch.operations.read.steps.definition_lines import StepLines, lines_of_step
from anabranch.operations.read.steps.starred import STARS, Starred
from anabranch.operations.read.steps.step_log import Attempt, StepLog, StepRun
from anabranch.runtime.jobs.tasks import rendered_inputs, whole_names
from anabranch.runtime.live_run import history
from anabranch.store.ports import Head, Store

EVENTS_RENDERED = 20_000  # a longer log is not gone through again for one input


class StepInput(msgspec.Struct, frozen=True):
    """What the work of a step run was given, as far as that can be said."""

    rendered: Any = None
    why_not: str = ""  # it cannot be said, and why
    args: Any = None  # what the arc handed on
    asked: str = ""  # of a step that asks several: whom


class StepActions(msgspec.Struct, frozen=True):
    """What can be done with a step run now."""

    retry: bool = False
    skip: bool = False
    wake: bool = False
    gate: str = ""  # the decision that it waits for
    gate_asks: str = ""
    admission: bool = False  # the gate is that of its admission
    source: str = ""  # who alone decides it
    actors: tuple[str, ...] = ()  # who may answer; empty is anybody
    rerun: bool = False  # a redrive can begin from here


class StepView(msgspec.Struct, frozen=True, kw_only=True):
    run: str
    step: str
    description: str
    does: str  # the kind of its work
    pool: str
    status: str  # of its last run
    total: int  # how often it ran
    runs: list[StepRun]  # the last of them, newest first
    shown: StepRun | None  # the one that is looked at
    attempt: Attempt | None  # the last of it, or of the job that was asked for
    input: StepInput
    output: Any
    has_output: bool
    waits: list[Unfinished]
    can: StepActions
    lines: StepLines | None


def step_view(read: Reader, run: str, step: str, token: int = 0, job: str = "") -> StepView:
    """Reads the log: not in the event loop. Without a token the last run of the step is shown."""
    head = read.find(run)
    net, state = read.net(head), read.state_of(head)
    if step not in net.steps:
        hint = did_you_mean(step, net.steps)
        raise NotFound(f"run {head.run} has no step {step!r}" + (f"; {hint}" if hint else ""))
    log = StepLog(step).read(read.store, head.run)
    shown = _chosen(log, token or (_token_in(job) if job else 0), state)
    if token and shown is None:
        raise NotFound(f"step {step} of run {head.run} has no run {token} that is kept")
    for one in log.runs.values():
        if one.token in state.tokens:
            one.status = _standing(state, one.token)
    declared, standing = net.steps[step], step_statuses(state).get(step)
    attempt = _attempt(shown, job)
    output, has_output = _output(read, net, state, step, shown, log)
    return StepView(
        run=head.run,
        step=step,
        description=declared.description,
        does=does(declared),
        pool=declared.work.pool if declared.work is not None else "",
        status=standing.status if standing is not None else "",
        total=log.total,
        runs=list(reversed(log.runs.values())),
        shown=shown,
        attempt=attempt,
        input=_input(read, head, net, state, shown, attempt),
        output=output,
        has_output=has_output,
        waits=_waits(net, state, step, shown),
        can=_actions(net, state, declared, shown),
        lines=_lines(read.store, head, declared),
    )


def does(step: Step) -> str:
    """The kind of its work in a word; of a loop that of its items."""
    if step.loop is not None:
        return "loop"
    if step.work is not None:
        return step.work.kind
    return "decision" if step.decision is not None else "–"


def _standing(state: State, token: int) -> str:
    """How an unfinished run of the step stands."""
    phase = state.tokens[token].phase
    jobs = [job for job in state.jobs.values() if job.token == token]
    return work_word(jobs) if jobs and phase in ("ready", "running") else phase


def _token_in(job: str) -> int:
    head = job.partition(".")[0].partition("r")[0]
    return int(head) if head.isdecimal() and len(head) < 16 else 0


def _chosen(log: StepLog, token: int, state: State) -> StepRun | None:
    if token:
        return log.runs.get(token)
    unfinished = [one for one in log.runs.values() if one.token in state.tokens]
    return unfinished[-1] if unfinished else next(reversed(log.runs.values()), None)


def _attempt(shown: StepRun | None, job: str) -> Attempt | None:
    if shown is None or not shown.attempts:
        return None
    return (shown.last(job) if job else None) or shown.attempts[-1]


# -- what went in and out --------------------------------------------------------------------------


def _input(
    read: Reader,
    head: Head,
    net: Net,
    state: State,
    shown: StepRun | None,
    attempt: Attempt | None,
) -> StepInput:
    if shown is None:
        return StepInput(why_not="it has not run")
    if shown.loop:
        return StepInput(why_not="each item of a loop has its own input: see its items")
    if attempt is None:
        token = state.tokens.get(shown.token)
        given = public(read.whole(dict(token.args)), net.private) if token is not None else None
        return StepInput(why_not="it takes none", args=given or None)
    if not attempt.begun_seq:
        return StepInput(why_not="its work has not begun", asked=attempt.whom)
    if attempt.begun_seq > EVENTS_RENDERED:
        said = f"{attempt.begun_seq:,} events come before it: too many to render it again"
        return StepInput(why_not=said, asked=attempt.whom)
    return _rendered(read, head, net, attempt)


def _rendered(read: Reader, head: Head, net: Net, attempt: Attempt) -> StepInput:
    then = _state_at(read.store, head.run, attempt.begun_seq)
    job = then.jobs.get(attempt.job)
    token = then.tokens.get(job.token) if job is not None else None
    if job is None or token is None:
        return StepInput(why_not="the log does not say what it was given", asked=attempt.whom)
    args = public(read.whole(dict(token.args)), net.private) or None
    work = work_of(net.steps[job.step], job)
    if work.inputs is None:
        why = "its tasks render their inputs when they run" if work.program else "it takes none"
        return StepInput(why_not=why, args=args, asked=attempt.whom)
    try:
        made = rendered_inputs(work, _names(read, then, token, job))
    except AnabranchError as error:
        return StepInput(why_not=error.message, args=args, asked=attempt.whom)
    return StepInput(public(_plain(made), net.private), "", args, attempt.whom)


def _state_at(store: Store, run: str, seq: int) -> State:
    state = State()
    for at, event in history(store.read(run), run=run):
        if state.seq >= seq:
            break
        evolve(state, event, at)
    return state


def _names(read: Reader, state: State, token: Token, job: Job) -> dict[str, Any]:
    """What its templates saw, with stars for what nobody may see."""
    names = names_of_run(state) | {"args": token.args or {}, "payload": token.payload or {}}
    names["workload"] = {
        key: STARS if key in state.sealed else value for key, value in state.workload.items()
    }
    if job.slot >= 0 and job.gather in state.gathers:
        names["slot"] = slot_value(state.gathers[job.gather], job.slot)
    if job.slot == JUDGE_SLOT:
        names["answer"] = token.answer.result if token.answer is not None else None
    return {**whole_names(names, read.store.payload), "keychain": Starred()}


def _plain(value: Any) -> Any:
    """As JSON has it; what stands for a secret becomes stars."""
    if isinstance(value, Starred):
        return STARS
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value


def _output(
    read: Reader, net: Net, state: State, step: str, shown: StepRun | None, log: StepLog
) -> tuple[Any, bool]:
    """Of a step with one job its answer; of others the result of the step, where it is the last."""
    if shown is None:
        return None, False
    if shown.has_result:
        return public(read.whole(shown.result), net.private), True
    ended = [one.token for one in log.runs.values() if one.ended]
    if ended and ended[-1] == shown.token and step in state.results:
        return public(read.whole(state.results[step]), net.private), True
    return None, False


# -- what it waits for, and what can be done -------------------------------------------------------


def _waits(net: Net, state: State, step: str, shown: StepRun | None) -> list[Unfinished]:
    if shown is None or shown.ended:
        return []
    mine = (str(shown.token), f"{shown.token}.", f"{shown.token}r")
    found = []
    for one in explain(net, state):
        its_own = one.id == mine[0] or one.id.startswith(mine[1:])
        if one.step == step and (its_own or one.what in ("loop", "gather")):
            found.append(one)
    return found


def _actions(net: Net, state: State, step: Step, shown: StepRun | None) -> StepActions:
    if state.finished:
        return StepActions(rerun=shown is not None)
    token = state.tokens.get(shown.token) if shown is not None else None
    if token is None or state.ending:
        return StepActions()
    gate = state.gates.get(f"gate-{token.id}")
    held = token.phase == "held"
    rule = step.work is not None and step.work.error_aborts
    return StepActions(
        retry=not state.paused and _waits_for_retry(state, token),
        skip=not (token.doomed or rule or token.phase == "joining"),
        wake=token.phase == "sleeping" and not token.round,
        gate=f"gate-{token.id}" if gate is not None or held else "",
        gate_asks=gate.ask if gate is not None else "",
        admission=held,
        source=source_of(net, gate) if gate is not None else "",
        actors=tuple(gate.actors) if gate is not None else (),
    )


def _waits_for_retry(state: State, token: Token) -> bool:
    if token.phase == "sleeping" and token.round:
        return True
    return any(job.token == token.id and job.phase == "backoff" for job in state.jobs.values())


def _lines(store: Store, head: Head, step: Step) -> StepLines | None:
    kept = store.definition(head.definition)
    if kept is None or step.position is None:
        return None
    return lines_of_step(kept.source, step.position.line, step.position.column)

"""`step`: the one door of the kernel.

`step(net, state, stimulus, at)` takes a state by ownership, advances it and returns what was
recorded. It refuses a stimulus that does not fit (`Refused`, `InputError`) before anything is
emitted, so a refusal leaves the state as it was.

All expressions that one call evaluates share one budget (`expressions.budget`), so that no stimulus
holds the caller for longer than that, however many arcs follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.errors import AnabranchError, ExpressionError, InputError, Refused
from anabranch.expressions.budget import TurnBudget, share_budget, unshare_budget
from anabranch.kernel import events as e
from anabranch.kernel import (
    fans,
    finishing,
    fulfilment,
    gates,
    jobs,
    joins,
    limits,
    loops,
    quiescence,
    signals,
    step_control,
    timing,
    tokens,
)
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.kernel.tracker import loop_id
from anabranch.kernel.turn import (
    Activate,
    Conclude,
    EndRun,
    FillLoop,
    FillWindow,
    SlotOver,
    Turn,
)
from anabranch.kernel.value_access import INLINE, ValueAccess
from anabranch.net.net import Net
from anabranch.net.problems import did_you_mean


def step(
    net: Net,
    state: State,
    stimulus: s.Stimulus,
    at: int,
    values: ValueAccess = INLINE,
    budget: TurnBudget | None = None,
) -> list[e.Event]:
    """Decide what `stimulus`, arriving at instant `at`, means for this run. `budget` is what its
    expressions may take together; without one, as much as a turn always may."""
    if state.status:  # it has finished
        if isinstance(stimulus, s.Decide) and gates.said_before(state, stimulus):
            return []
        if isinstance(stimulus, s.Signal) and signals.sent_before(state, stimulus):
            return []
        raise Refused(f"run {state.run} has ended: {state.status}", code="run_finished")
    if not state.run and not isinstance(stimulus, s.Start):
        raise Refused("the run has not been started", code="not_started")
    turn = Turn(
        net,
        state,
        at,
        first_token=state.next_token,
        tokens_before=len(state.tokens),
        values=values,
        budget=budget or TurnBudget(),
    )
    try:
        if type(stimulus) is s.JobStart:  # nothing follows from a start
            jobs.start(turn, stimulus)
            return turn.events
        shared = share_budget(turn.budget)
        try:
            _STIMULI[type(stimulus)](turn, stimulus)
            _work_off(turn)
        finally:
            unshare_budget(shared)
    except AnabranchError as error:
        if turn.events:  # not a refusal any more: the state has moved
            raise RuntimeError(f"refused halfway through a turn: {error}") from error
        raise
    return turn.events


def _work_off(turn: Turn) -> None:
    """Follow every consequence until nothing is left to decide."""
    while True:
        if turn.agenda:
            for item in turn.agenda:  # and whatever is put on it meanwhile
                _AGENDA[type(item)](turn, item)
            turn.agenda.clear()
        if turn.dirty:
            scope = next(iter(turn.dirty))
            del turn.dirty[scope]
            joins.recheck(turn, scope)
        elif turn.readmit:
            turn.readmit = False
            gates.readmit(turn)
            signals.rematch(turn)
        elif (turn.state.queued and tokens.admit_queued(turn)) or (
            turn.to_take_over and tokens.take_over_next(turn)
        ):
            pass
        elif turn.state.deadline and timing.is_past_deadline(turn):
            timing.end_at_deadline(turn)
        elif not turn.events or turn.state.jobs or not quiescence.settle(turn):
            return  # somebody works for the run, or it is at rest


def _start(turn: Turn, stimulus: s.Start) -> None:
    if turn.state.run:
        raise Refused("the run has been started already", code="already_started")
    net = turn.net
    entry = stimulus.step or net.entry
    if not stimulus.run:
        raise InputError("a run needs an id", code="run_id")
    if entry not in net.steps:
        raise InputError(f"there is no step {entry!r} to start at", code="unknown_step")
    if stimulus.returns and stimulus.returns not in net.steps:
        hint = did_you_mean(stimulus.returns, net.steps)
        message = f"there is no step {stimulus.returns!r} whose result it could answer with"
        raise InputError(f"{message}; {hint}" if hint else message, code="unknown_step")
    workload = workload_of(net, stimulus)
    waits = limits.limits_of(net, stimulus, workload) if net.limits else ()
    timed = net.policy.deadline_ms is not None and not waits  # or its time runs once it is admitted
    deadline = turn.at + (net.policy.deadline_ms or 0) if timed else 0
    turn.emit(
        e.RunStarted(
            stimulus.run,
            net.fingerprint,
            net.name,
            turn.values.fit_fields(workload),
            deadline,
            stimulus.parent,
            stimulus.origin,
            {**net.labels, **stimulus.labels},
            stimulus.reuse,
            stimulus.returns,
            stimulus.trace,
            stimulus.sealed,
            stimulus.begun_by,
            stimulus.depth,
            stimulus.started_with,
            net.priority if stimulus.priority is None else stimulus.priority,
            stimulus.held,
            stimulus.first_run,
            stimulus.known_keys,
        )
    )
    if waits:
        turn.emit(e.RunQueued(waits, stimulus.step or ""))
    else:
        limits.enter(turn, entry)


def workload_of(net: Net, stimulus: s.Start) -> dict[str, Any]:
    """What a run works with: the defaults of its definition under what it was given."""
    return deep_merge({**net.workload, **_computed(net, stimulus)}, stimulus.input)


def _computed(net: Net, stimulus: s.Start) -> dict[str, Any]:
    """Defaults that are worked out now; what the input gives is not."""
    names = {"run": stimulus.run, "args": stimulus.input, "workload": net.workload}
    try:
        return {
            key: value.evaluate(names)
            for key, value in net.computed.items()
            if key not in stimulus.input
        }
    except ExpressionError as error:
        raise InputError(f"workload: {error}", code="workload") from None


def deep_merge(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key; anything else is replaced by what was given."""
    merged = dict(defaults)
    for key, value in given.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = deep_merge(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _tick(turn: Turn, _stimulus: s.Tick) -> None:
    timing.tick(turn)


def _cancel(turn: Turn, stimulus: s.Cancel) -> None:
    if turn.state.ending:
        raise Refused(f"the run is ending already: {turn.state.ending}", code="ending")
    finishing.wind_down(turn, "cancelled", stimulus.reason or "cancelled", stimulus.actor)


def _overrun(turn: Turn, stimulus: s.Overrun) -> None:
    if not turn.state.ending:
        finishing.wind_down(turn, "failed", stimulus.reason)


def _resume(turn: Turn, stimulus: s.Resume) -> None:
    gates.resume(turn, stimulus)
    timing.tick(turn)


_STIMULI: dict[type, Callable[[Turn, Any], None]] = {
    s.Start: _start,
    s.Admit: limits.admit,
    s.Tick: _tick,
    s.JobExtend: jobs.extend,
    s.JobProgress: jobs.progress,
    s.JobPark: signals.park,
    s.JobReport: jobs.report,
    s.JobLose: jobs.lose,
    s.JobLate: jobs.late,
    s.JobDischarge: jobs.stopped,
    s.Decide: gates.decide,
    s.PatchContext: gates.patch,
    s.Pause: gates.pause,
    s.Resume: _resume,
    s.Cancel: _cancel,
    s.Wake: timing.wake,
    s.Signal: signals.receive,
    s.TuneLoop: loops.tune,
    s.RetryNow: step_control.retry_now,
    s.Skip: step_control.skip,
    s.Overrun: _overrun,
}


def _slot_over(turn: Turn, item: SlotOver) -> None:
    """A job that is one of many, or beside the work of its step."""
    job = turn.state.jobs.get(item.job)
    if job is None:
        return
    if loop_id(job.token) in turn.state.looped:
        loops.job_over(turn, item)
    elif job.slot == jobs.JUDGE_SLOT:
        fulfilment.judged(turn, item)
    elif job.slot == jobs.CUT_SLOT:
        fans.targets_found(turn, item)
    else:
        fans.slot_over(turn, item)


_AGENDA: dict[type, Callable[[Turn, Any], None]] = {
    Activate: tokens.activate,
    Conclude: tokens.conclude,
    FillWindow: fans.fill_window,
    SlotOver: _slot_over,
    FillLoop: loops.fill_loop,
    EndRun: finishing.end_run,
}

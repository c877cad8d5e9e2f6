"""The life of a token, from created to its outcome; `kernel.finishing` does the rest.

created ─▶ admission ─▶ wake time ─▶ work or fan ─▶ decision ─▶ outcome ─▶ patches ─▶ routes
"""

from __future__ import annotations

from heapq import heappop

from anabranch.errors import ExpressionError, InputError
from anabranch.kernel import events as e
from anabranch.kernel.ending import abort, end_now
from anabranch.kernel.fans import closing_time, open_fan
from anabranch.kernel.finishing import finish, wind_down
from anabranch.kernel.fulfilment import ask_whether_to_try_again, open_decision
from anabranch.kernel.gates import admitted
from anabranch.kernel.jobs import (
    PLAIN_SLOT,
    find_reusable,
    reuse_answer,
    schedule,
    settle_slot,
    take_over_later,
)
from anabranch.kernel.joins import offer
from anabranch.kernel.loops import open_loop
from anabranch.kernel.reducers import preview
from anabranch.kernel.reuse import ADMITTED, LOOP
from anabranch.kernel.rounds import ask_everybody_again
from anabranch.kernel.routing import (
    names_for,
    outcome_of,
)
from anabranch.kernel.state import Token
from anabranch.kernel.turn import Activate, Conclude, Turn
from anabranch.kernel.value_access import fit_patches
from anabranch.kernel.values import (
    DECISION_TIMEOUT,
    STEP_TIMEOUT,
    ContextPatch,
    Ending,
    Fault,
)
from anabranch.net.net import Step
from anabranch.net.reach import positions

TOKENS_PER_TURN_MAX = 20_000

# -- getting going ---------------------------------------------------------------------------


def activate(turn: Turn, item: Activate) -> None:
    """Let the token go as far as it can."""
    token = turn.state.tokens.get(item.token)
    if token is None or token.phase != "new":
        return
    if turn.state.ending:
        abort(turn, token, turn.state.ending_reason)
        return
    created = turn.state.next_token - turn.first_token
    if created > TOKENS_PER_TURN_MAX and created > _tokens_max(turn):
        _stop_running_wild(turn, token)
        return
    step = turn.net.steps[token.step]
    passes = step.admission is None or token.admitted
    if not passes and not _admit(turn, token, step):
        return
    if token.wake > turn.at:
        if not passes and not token.admitted:  # asked once: it is not asked again when it wakes
            turn.emit(e.TokenAdmitted(token.id, "rules"))
        turn.emit(e.TokenSlept(token.id))
        return
    _make_ready(turn, token, step)


def _tokens_max(turn: Turn) -> int:
    """A crowd that wakes at once may well make a crowd."""
    return TOKENS_PER_TURN_MAX + 10 * turn.tokens_before


def _stop_running_wild(turn: Turn, token: Token) -> None:
    """Steps without work that lead back to themselves would keep this turn from ever ending."""
    message = (
        f"one event led to more than {_tokens_max(turn):,} step runs with no work in between, "
        f"the last at step {token.step}: let the way back lead through a step that works or waits"
    )
    end_now(turn, token, "failed", Fault("endless", message, retryable=False))
    wind_down(turn, "failed", message)


def _admit(turn: Turn, token: Token, step: Step) -> bool:
    assert step.admission is not None, "only asked where there is a gate"
    try:
        allowed = admitted(step.admission, names_for(turn.state, token, turn.values))
    except ExpressionError as error:
        message = f"admission of step {token.step}: {error}"
        finish(turn, token, "failed", Fault("expression", message, retryable=False))
        return False
    if allowed:
        return True
    if find_reusable(turn, token, label=ADMITTED):
        turn.emit(e.TokenAdmitted(token.id, "origin"))  # somebody let it in there
        return True
    match step.admission.on_deny:
        case "pending":
            turn.emit(e.TokenHeld(token.id, f"admission of {token.step} is denied"))
        case "discard":
            end_now(turn, token, "discarded", None)
        case "skip":
            finish(turn, token, "skipped", None)
    return False


def _make_ready(turn: Turn, token: Token, step: Step) -> None:
    """Answers that are taken over come in the order in which they came in the origin: who was first
    there is first at a join here."""
    key = find_reusable(turn, token)
    if not key and step.loop is not None:
        key = find_reusable(turn, token, label=LOOP)
    if not key:
        _begin(turn, token, step)
        return
    take_over_later(turn, token, key)


def take_over_next(turn: Turn) -> bool:
    """Once everything has followed from what came before, the next of them goes on."""
    while turn.to_take_over:
        _, name, slot = heappop(turn.to_take_over)
        turn.budget.renew()  # in the origin this answer had a turn of its own
        if slot != PLAIN_SLOT:
            settle_slot(turn, name, slot)
            return True
        token = turn.state.tokens.get(name)
        if token is not None and token.phase == "new" and not token.doomed:
            _begin(turn, token, turn.net.steps[token.step])
            return True
    return False


def _begin(turn: Turn, token: Token, step: Step) -> None:
    if turn.net.policy.parallel_max is not None and not token.round and _queues(turn, token, step):
        turn.emit(e.TokenQueued(token.id))
        return
    if step.timeout_ms is not None or step.fan is not None:
        _start_the_clock(turn, token, step)
    if (step.fan is not None or step.loop is not None) and reuse_answer(turn, token):
        pass  # whoever was asked is not asked again; of a loop it is a result that somebody gave
    elif step.loop is not None:
        open_loop(turn, token, step.loop)
    elif step.fan is not None:
        open_fan(turn, token, step.fan)
    elif step.work is not None:
        schedule(turn, token)
    elif step.decision is None or not reuse_answer(turn, token):
        turn.agenda.append(Conclude(token.id))


def _start_the_clock(turn: Turn, token: Token, step: Step) -> None:
    """Its own time limit; for what waits for the best also that of the run, whichever is first."""
    if token.until:
        return
    own = turn.at + step.timeout_ms if step.timeout_ms is not None else 0
    closing = closing_time(turn.state, step.fan)
    if closing > turn.at and (not own or closing <= own):
        turn.emit(e.TokenTimed(token.id, closing, True))
    elif own:
        turn.emit(e.TokenTimed(token.id, own))


_UNDER_WAY = ("ready", "running", "sleeping", "deciding")


def _queues(turn: Turn, token: Token, step: Step) -> bool:
    """Where not everybody fits, who comes next is not whom this turn happens to look at first."""
    if _works(step) and not token.admitted:
        return len(turn.state.tokens) > (turn.net.policy.parallel_max or 1)
    return _crowded(turn, step)


def _works(step: Step) -> bool:
    return step.work is not None or step.fan is not None or step.loop is not None


def _crowded(turn: Turn, step: Step) -> bool:
    """There is no room for another step run; what does no work needs none."""
    if not _works(step):
        return False
    phases = turn.state.phases
    return sum(phases.get(phase, 0) for phase in _UNDER_WAY) >= (turn.net.policy.parallel_max or 1)


def admit_queued(turn: Turn) -> bool:
    """If there is room, the next in the order of the net goes on."""
    queued = turn.state.queued
    if not queued or turn.state.ending:
        return False
    order = positions(turn.net)
    token = min((turn.state.tokens[each] for each in queued), key=lambda t: (order[t.step], t.id))
    if _crowded(turn, turn.net.steps[token.step]):
        return False
    turn.emit(e.TokenAdmitted(token.id, "room"))
    turn.agenda.append(Activate(token.id))
    return True


# -- the end of its work ---------------------------------------------------------------------


def conclude(turn: Turn, item: Conclude) -> None:
    """The work is over: decide how the step run ends, or ask whoever has to decide."""
    token = turn.state.tokens.get(item.token)
    if token is None:
        return
    if token.doomed:
        _bury(turn, token)
        return
    answer = token.answer
    if item.given_up:
        finish(turn, token, "failed", item.fault)
    elif item.fault is not None or (answer is not None and answer.status == "error"):
        fault = item.fault or (answer.fault if answer is not None else None)
        _fail(turn, token, fault or Fault("unknown", "the work failed"))
    elif answer is not None and answer.status in ("aborted", "cancel_run"):
        _stop(turn, token, answer.status == "cancel_run", answer.fault)
    elif turn.net.steps[token.step].decision is None or not open_decision(turn, token):
        finish(turn, token, "done", None)


def _fail(turn: Turn, token: Token, fault: Fault) -> None:
    step = turn.net.steps[token.step]
    work = step.work
    if work is not None and work.error_aborts:
        end_now(turn, token, "aborted", fault)
    elif fault.code == DECISION_TIMEOUT and step.decision is not None:
        timed_out(turn, token, fault, step.decision.on_timeout or "fail")
    elif ask_everybody_again(turn, token, fault):
        pass
    elif fault.kind == "timeout" and work is not None and work.retry_timeouts is not None:
        own = Fault("timeout", f"step {step.name}: {fault.message}", STEP_TIMEOUT)
        timed_out(turn, token, own)
    else:
        _failed_for_good(turn, token, step, fault)


def _failed_for_good(turn: Turn, token: Token, step: Step, fault: Fault) -> None:
    match step.on_failure:
        case "route":
            finish(turn, token, "failed", fault)
        case "skip":
            finish(turn, token, "skipped", fault)
        case "pause":
            ask_whether_to_try_again(turn, token, fault)
        case "abort_run":
            end_now(turn, token, "failed", fault)
            if not turn.state.ending:
                wind_down(turn, "failed", f"step {token.step} failed: {fault.message}")


def timed_out(turn: Turn, token: Token, fault: Fault, then: str = "") -> None:
    """The step, or who decides about it, has taken too long, and nothing is left to try."""
    match then or turn.net.steps[token.step].on_timeout:
        case "fail":
            finish(turn, token, "failed", fault)
        case "skip":
            finish(turn, token, "skipped", fault)
        case "abort_run":
            end_now(turn, token, "failed", fault)
            wind_down(turn, "step_timeout", fault.message)


def _bury(turn: Turn, token: Token) -> None:
    """A doomed token's work has ended: it did what it did, and nothing follows."""
    answer = token.answer
    scope = turn.state.scopes[token.scope]
    did_it = answer is not None and answer.status == "ok" and not turn.state.ending
    ending: Ending = "done" if did_it else "aborted"
    fault = None if did_it else Fault("aborted", token.reason, retryable=False)
    outcome = outcome_of(token, ending)
    _keep_costs(turn, token)
    turn.emit(e.TokenFinished(token.id, ending, outcome, "killed", fault))
    turn.dirty[token.scope] = True
    if ending == "done":
        offer(turn, token, scope, outcome, token.payload)


def _keep_costs(turn: Turn, token: Token) -> None:
    """Work that was not interrupted has cost what it cost: its counts are kept, nothing else."""
    work, answer = turn.net.steps[token.step].work, token.answer
    if work is not None and work.finishes_when_killed and answer is not None:
        counts = tuple(patch for patch in answer.patches if patch.reducer == "sum")
        _patch(turn, counts, f"the work of token {token.id}")


def _patch(turn: Turn, patches: tuple[ContextPatch, ...], by: str) -> None:
    """Writes of a step run that goes no further; what does not fit is as good as not said."""
    try:
        patches = fit_patches(turn.state.ctx, patches, turn.values)
        preview(turn.state.ctx, patches)
    except (ExpressionError, InputError):
        return
    if patches:
        turn.emit(e.ContextPatched(patches, by))
        turn.readmit = True


def _stop(turn: Turn, token: Token, whole_run: bool, fault: Fault | None) -> None:
    """The work asked for the end of its step run, or of everything."""
    if token.answer is not None:
        _patch(turn, token.answer.patches, f"token {token.id}")
    end_now(turn, token, "aborted", fault)
    if whole_run:
        wind_down(turn, "cancelled", fault.message if fault is not None else "asked by its work")

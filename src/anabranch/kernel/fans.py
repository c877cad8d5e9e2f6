"""Fans: one token asks many at once, one job per slot, and gathers the answers.

Jobs are scheduled inside a window. Each answer is weighed as it comes; with the verdict the losers
are told to stop and the token goes on at once, without waiting for them.
"""

from __future__ import annotations

import math
from typing import Any

from anabranch.errors import ExpressionError
from anabranch.kernel import events as e
from anabranch.kernel.gather import Verdict, expire, open_slots, weigh
from anabranch.kernel.jobs import cancel, fan_id, jobs_of, schedule
from anabranch.kernel.routing import names_for
from anabranch.kernel.state import Gather, Job, Token
from anabranch.kernel.turn import Conclude, EndRun, FillWindow, SlotOver, Turn
from anabranch.kernel.values import Fault
from anabranch.net.net import Fan


def open_fan(turn: Turn, token: Token, fan: Fan) -> None:
    """Find the slots and schedule the first window of jobs."""
    try:
        slots = fan.over.evaluate(names_for(turn.state, token))
    except ExpressionError as error:
        turn.later(Conclude(token.id, Fault("expression", str(error), retryable=False)))
        return
    if not isinstance(slots, list | tuple):
        message = f"a fan-out needs a list, not {type(slots).__name__}"
        turn.later(Conclude(token.id, Fault("collection", message, retryable=False)))
        return
    plain = all(isinstance(slot, str) for slot in slots)
    labels = list(slots) if plain else [str(index) for index in range(len(slots))]
    values: list[Any] = [] if plain else list(slots)
    turn.emit(e.GatherOpened(fan_id(token.id), "fan", token.id, fan.rule, labels, (), values))
    _settle(turn, turn.state.gathers[fan_id(token.id)])
    turn.later(FillWindow(token.id))


def fill_window(turn: Turn, item: FillWindow) -> None:
    token = turn.state.tokens.get(item.token)
    gather = turn.state.gathers.get(token.gather) if token is not None else None
    if token is None or gather is None or gather.verdict != "open" or token.doomed:
        return
    fan = turn.step_of(token).fan
    window = fan.window if fan is not None and fan.window else len(gather.labels)
    while gather.verdict == "open" and gather.next_slot < len(gather.labels):
        if token.jobs >= window:
            return
        schedule(turn, token, gather.next_slot)


def slot_value(gather: Gather, slot: int) -> Any:
    """What the job of this slot works on."""
    return gather.values[slot] if gather.values else gather.labels[slot]


def slot_over(turn: Turn, item: SlotOver) -> None:
    """The job of a slot has its last answer: a delivery, or a slot lost."""
    job = turn.state.jobs.get(item.job)
    if job is None:
        return
    gather = turn.state.gathers.get(fan_id(job.token))
    if gather is None or gather.verdict != "open":
        if job.answer is not None and job.answer.status == "ok":
            turn.emit(e.DeliveryLate(fan_id(job.token), job.id, job.answer.outcome))
        turn.emit(e.JobDischarged(job.id, "reported" if job.answer is not None else "lost"))
        return
    if job.answer is not None and job.answer.status == "cancel_run":
        why = job.answer.fault.message if job.answer.fault is not None else "asked by its work"
        turn.later(EndRun(why))
    _take(turn, gather, job, item.fault)
    _settle(turn, gather)
    turn.later(FillWindow(job.token))


def _take(turn: Turn, gather: Gather, job: Job, fault: Fault | None) -> None:
    if fault is not None or job.answer is None or job.answer.status != "ok":
        fault = fault or (job.answer.fault if job.answer is not None else None)
        kind = fault.kind if fault is not None else "aborted"
        turn.emit(e.SlotLost(gather.id, job.slot, job.id, kind, kind == "unreachable"))
        return
    try:
        usable, score = _judge(turn, job)
    except ExpressionError as error:
        turn.emit(e.SlotLost(gather.id, job.slot, job.id, f"not scored: {error}"))
        return
    if usable:
        turn.emit(e.Delivered(gather.id, job.slot, job.id, job.answer.outcome, score))
    else:
        turn.emit(e.SlotLost(gather.id, job.slot, job.id, "negative"))


def _judge(turn: Turn, job: Job) -> tuple[bool, float | None]:
    """Does the answer count, and with which score? Without a number where one is needed: no."""
    fan = turn.net.steps[job.step].fan
    assert fan is not None, "a slot belongs to a fan"
    assert job.answer is not None, "judged after an answer"
    names = {"answer": job.answer.result}
    if fan.usable is not None and not fan.usable.evaluate(names):
        return False, None
    if fan.score is None:
        return True, None
    score = fan.score.evaluate(names)
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        return fan.rule.select != "score", None
    return True, float(score)


def _settle(turn: Turn, gather: Gather) -> None:
    verdict = weigh(gather, open_slots(gather))
    if verdict is not None:
        close(turn, gather, verdict)


def close(turn: Turn, gather: Gather, verdict: Verdict) -> None:
    """Record the verdict, stop the losers, let the token go on."""
    token = turn.state.tokens[gather.token]
    turn.emit(e.GatherSettled(gather.id, verdict.verdict, verdict.selected, verdict.reason))
    drains = ("running", "parked") if gather.rule.losers == "drain" else ()
    for job in jobs_of(turn, token):
        if job.phase != "answered" and job.phase not in drains:
            cancel(turn, job, f"the gather at {token.step} is {verdict.verdict}")
    fault = None
    if verdict.verdict != "closed":
        fault = Fault(f"gather_{verdict.verdict}", verdict.reason, retryable=False)
    turn.later(Conclude(token.id, fault))


def time_is_up(turn: Turn, token: Token) -> bool:
    """The step timeout found an open fan; true if what there is was enough."""
    gather = turn.state.gathers.get(token.gather)
    if gather is None or gather.kind != "fan" or gather.verdict != "open":
        return False
    verdict = expire(gather)
    if verdict.verdict == "closed":
        close(turn, gather, verdict)
        return True
    turn.emit(e.GatherSettled(gather.id, "expired", (), verdict.reason))
    return False

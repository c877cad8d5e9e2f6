"""Fans: one token asks many at once, one job per slot, and gathers the answers.

Jobs are scheduled inside a window. Each answer is weighed as it comes; with the verdict the losers
are told to stop and the token goes on at once, without waiting for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.errors import ExpressionError
from anabranch.kernel import events as e
from anabranch.kernel.gather import (
    Verdict,
    enough_when_time_is_up,
    expire,
    open_slots,
    weigh,
)
from anabranch.kernel.jobs import CUT_SLOT, cancel, fan_id, jobs_of, schedule
from anabranch.kernel.rounds import FINAL, NOBODY, TOO_FEW
from anabranch.kernel.routing import names_for
from anabranch.kernel.state import Gather, Job, State, Token
from anabranch.kernel.turn import Conclude, EndRun, FillWindow, SlotOver, Turn
from anabranch.kernel.values import Fault, is_number
from anabranch.net.net import Fan

LEFT_MS_MAX = 1_000
UNREACHED = "no_reachable_targets"


def open_fan(turn: Turn, token: Token, fan: Fan) -> None:
    """Find out whom to ask, by a job where the world has to be looked at."""
    if fan.keeps_targets and token.asked:
        _open(turn, token, fan, token.asked)
    elif fan.targets is not None:
        schedule(turn, token, CUT_SLOT)
    else:
        _ask(turn, token, fan)


def targets_found(turn: Turn, item: SlotOver) -> None:
    """The job that looked for targets is over."""
    job = turn.state.jobs[item.job]
    token, answer = turn.state.tokens.get(job.token), job.answer
    turn.emit(e.JobDischarged(job.id, "reported" if answer is not None else "lost"))
    fan = turn.net.steps[job.step].fan
    if token is None or fan is None:
        return
    if item.fault is not None or token.doomed or answer is None or answer.status != "ok":
        fault = item.fault or (answer.fault if answer is not None else None)
        turn.agenda.append(Conclude(token.id, _search_failed(fault)))
        return
    _ask(turn, token, fan, found=answer.result)


def _search_failed(fault: Fault | None) -> Fault:
    """A search that took too long is a failure; the time limit of the step is another matter."""
    if fault is None:
        return Fault("targets", "no targets could be found")
    if fault.kind == "timeout":
        return Fault("targets", f"the search for targets: {fault.message}", "TIMEOUT")
    return fault


def _ask(turn: Turn, token: Token, fan: Fan, found: Any = None) -> None:
    """Find the slots; `found` is what the search for targets came to."""
    names = names_for(turn.state, token, turn.values)
    try:
        if fan.targets is not None:
            names["found"] = turn.values.whole(found)
        slots = fan.over.evaluate(names)
        if isinstance(slots, list | tuple) and not _names(slots):
            slots = [turn.values.fit(slot) for slot in slots]
    except ExpressionError as error:
        turn.agenda.append(Conclude(token.id, Fault("expression", str(error), retryable=False)))
        return
    if not isinstance(slots, list | tuple):
        message = f"a fan-out needs a list, not {type(slots).__name__}"
        turn.agenda.append(Conclude(token.id, Fault("collection", message, retryable=False)))
        return
    why = names["found"].get("why") if isinstance(names.get("found"), Mapping) else ""
    _open(turn, token, fan, slots, why if isinstance(why, str) else "")


def _open(turn: Turn, token: Token, fan: Fan, slots: Sequence[Any], why: str = "") -> None:
    """Open the slots and schedule the first window of jobs; `why` there are none, if so."""
    plain = _names(slots)
    labels = list(slots) if plain else [str(index) for index in range(len(slots))]
    values: list[Any] = [] if plain else list(slots)
    turn.emit(e.GatherOpened(fan_id(token), "fan", token.id, fan.rule, labels, (), values))
    gather = turn.state.gathers[fan_id(token)]
    if _too_few(gather):
        close(turn, gather, Verdict("impossible", (), "there are fewer slots than it needs"))
        return
    nobody = Fault("gather_impossible", f"there is nobody to ask: {why}", NOBODY, False)
    _settle(turn, gather, nobody if why and not labels else None)
    turn.agenda.append(FillWindow(token.id))


def _names(slots: Sequence[Any]) -> bool:
    """Texts name their slots, in the log too: nothing stands in for them, however long they are."""
    return all(isinstance(slot, str) for slot in slots)


def _too_few(gather: Gather) -> bool:
    """Somebody who is not there leaves the count; somebody who was never found was not in it."""
    counts = gather.rule.mode in ("quorum", "best_of")
    return counts and 0 < len(gather.labels) < gather.rule.k


def fill_window(turn: Turn, item: FillWindow) -> None:
    token = turn.state.tokens.get(item.token)
    gather = turn.state.gathers.get(token.gather) if token is not None else None
    if token is None or gather is None or gather.verdict != "open" or token.doomed:
        return
    fan = turn.net.steps[token.step].fan
    window = fan.window if fan is not None else None
    while gather.verdict == "open" and gather.next_slot < len(gather.labels):
        out = gather.next_slot - len(gather.filled) - len(gather.lost)  # of this round
        if window and out - turn.slots_to_take_over.get(token.id, 0) >= window:
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
    gather = turn.state.gathers.get(job.gather)
    if gather is None or gather.verdict != "open":
        if job.answer is not None and job.answer.status == "ok":
            turn.emit(e.DeliveryLate(job.gather, job.id, job.answer.outcome))
        turn.emit(e.JobDischarged(job.id, "reported" if job.answer is not None else "lost"))
        return
    if job.answer is not None and job.answer.status == "cancel_run":
        why = job.answer.fault.message if job.answer.fault is not None else "asked by its work"
        turn.agenda.append(EndRun(why))
    fault = item.fault or (job.answer.fault if job.answer is not None else None)
    _take(turn, gather, job, fault)
    _settle(turn, gather, fault)
    turn.agenda.append(FillWindow(job.token))


def _take(turn: Turn, gather: Gather, job: Job, fault: Fault | None) -> None:
    if fault is not None or job.answer is None or job.answer.status != "ok":
        kind = fault.kind if fault is not None else "aborted"
        turn.emit(e.SlotLost(gather.id, job.slot, job.id, kind, kind == "unreachable"))
        return
    try:
        unusable, score = _judge(turn, job)
    except ExpressionError as error:
        turn.emit(e.SlotLost(gather.id, job.slot, job.id, f"not scored: {error}"))
        return
    if unusable:
        turn.emit(e.SlotLost(gather.id, job.slot, job.id, unusable))
    else:
        turn.emit(e.Delivered(gather.id, job.slot, job.id, job.answer.outcome, score))


def _judge(turn: Turn, job: Job) -> tuple[str, float | None]:
    """Why the answer does not count, or nothing; and its score."""
    fan = turn.net.steps[job.step].fan
    assert fan is not None, "a slot belongs to a fan"
    assert job.answer is not None, "judged after an answer"
    names = turn.values.view({"answer": job.answer.result, "outcome": job.answer.outcome})
    if fan.usable is not None and not fan.usable.evaluate(names):
        return _said_no(names["answer"]), None
    outside = _outside(turn, job, fan, names["answer"])
    if outside or fan.score is None:
        return outside, None
    score = fan.score.evaluate(names)
    if not is_number(score):
        return "no score" if fan.rule.select == "score" else "", None
    return "", float(score)


def _outside(turn: Turn, job: Job, fan: Fan, answer: Any) -> str:
    """Why the answer lies outside the bounds of the fan, or nothing."""
    if fan.bounds is None:
        return ""
    names = names_for(turn.state, turn.state.tokens[job.token], turn.values)
    return str(fan.bounds.evaluate({**names, "answer": answer}))


def _said_no(answer: Any) -> str:
    """With the code of the reason, where the answer gives one."""
    error = answer.get("error") if isinstance(answer, Mapping) else None
    code = error.get("code") if isinstance(error, Mapping) else None
    return f"negative: {code[:40]}" if isinstance(code, str) and code else "negative"


def _settle(turn: Turn, gather: Gather, last: Fault | None = None) -> None:
    verdict = weigh(gather, open_slots(gather))
    if verdict is not None:
        close(turn, gather, verdict, last)


def close(turn: Turn, gather: Gather, verdict: Verdict, last: Fault | None = None) -> None:
    """Record the verdict, stop the losers, let the token go on."""
    token = turn.state.tokens[gather.token]
    turn.emit(e.GatherSettled(gather.id, verdict.verdict, verdict.selected, verdict.reason))
    drains = ("running", "parked") if gather.rule.losers == "drain" else ()
    for job in jobs_of(turn, token):
        if job.phase != "answered" and job.phase not in drains:
            cancel(turn, job, f"the gather at {token.step} is {verdict.verdict}")
    fault = None
    if verdict.verdict != "closed":
        code, why = _why_not(gather, verdict)
        if code == UNREACHED and last is not None:
            why += f"; the last of them: {last.message}"
        fault = Fault(f"gather_{verdict.verdict}", why, code, retryable=False)
        if last is not None and (len(gather.labels) <= 1 or last.kind in FINAL):
            fault = last  # one was asked, or nobody could be: its reason is the reason
    turn.agenda.append(Conclude(token.id, fault))


def _why_not(gather: Gather, verdict: Verdict) -> tuple[str, str]:
    """The code and the words for a fan that came to nothing."""
    asked = len(gather.labels)
    if not asked:
        return NOBODY, "there is nobody to ask"
    if _too_few(gather):
        need = gather.rule.k
        return TOO_FEW, f"min_responses is {need}, and there are only {asked} to ask"
    if gather.excluded == asked:
        return UNREACHED, f"none of the {asked} asked could be reached"
    if not gather.filled and len(gather.lost) == asked:
        reasons = ", ".join(dict.fromkeys(gather.lost.values()))
        return "no_usable_response", f"none of the {asked} answers can be used ({reasons})"
    return "not_enough_responses", verdict.reason


def closing_time(state: State, fan: Fan | None) -> int:
    """When a fan that waits for the best goes on with what it has, before the deadline comes.

    A hundredth of the time of the run, a second at most, is left for what follows.
    """
    if fan is None or not fan.rule.partial_on_expiry or not state.deadline:
        return 0
    return state.deadline - min((state.deadline - state.started_at) // 100, LEFT_MS_MAX)


def close_with_candidates(turn: Turn) -> bool:
    """The deadline is here: every fan that waits for the best goes on, if it has any."""
    waiting = [
        gather
        for gather in turn.state.gathers.values()
        if gather.kind == "fan" and gather.verdict == "open" and gather.rule.partial_on_expiry
    ]
    found = False
    for gather in waiting:
        verdict = expire(gather)
        token = turn.state.tokens.get(gather.token)
        if verdict.verdict == "closed" and token is not None and not token.doomed:
            close(turn, gather, verdict)
            found = True
    return found


def has_candidates(turn: Turn, token: Token) -> bool:
    gather = turn.state.gathers.get(token.gather)
    return gather is not None and enough_when_time_is_up(gather)


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

"""Fulfilment: the work is done; is the task?

    work done ─▶ judged by a rule (over the answer, or over what a declared source replies)
              ─▶ or by somebody at a gate
              ─▶ fulfilled: the step ends  |  not fulfilled, or no verdict: as the decision says

Only what the definition names can judge: the rule, its source, the actors of the gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import ExpressionError
from anabranch.kernel import events as e
from anabranch.kernel.ending import gate_id
from anabranch.kernel.jobs import JUDGE_SLOT, id_of_job, schedule, try_again
from anabranch.kernel.rounds import begin_again, delay_before_next_try
from anabranch.kernel.routing import names_for
from anabranch.kernel.state import Job, Token
from anabranch.kernel.turn import Conclude, SlotOver, Turn
from anabranch.kernel.values import DECISION_TIMEOUT, Fault
from anabranch.net.net import Decision

ENGINE = "engine"
QUESTION_MAX = 4_000  # letters: people read it


class Said(msgspec.Struct, frozen=True):
    """A verdict and its grounds. `fulfilled` is None where it is left to somebody."""

    fulfilled: bool | None
    actor: str = ENGINE
    reason: str = ""
    evidence: Any = None
    override: bool = False


def open_decision(turn: Turn, token: Token) -> bool:
    """Ask, if the step has something to ask; false when it may simply end."""
    decision = turn.net.steps[token.step].decision
    if decision is None or token.decided:
        return False
    if decision.policy:
        turn.emit(e.TokenAnswered(token.id))
        _stop_the_clock(turn, token)
    if decision.source is not None:
        schedule(turn, token, JUDGE_SLOT)
        return True
    return not _settles(turn, token, decision, _by_rule(turn, token, decision, None))


def _settles(turn: Turn, token: Token, decision: Decision, said: Said | Fault) -> bool:
    """Act on what was said; true when the task is fulfilled and the step may end."""
    if isinstance(said, Fault):
        _no_verdict(turn, token, decision, said)
        return False
    if said.fulfilled is None:
        open_gate(turn, token, decision)
        return False
    judge(turn, token, decision, said)
    return said.fulfilled


def _stop_the_clock(turn: Turn, token: Token) -> None:
    """The time limit of a step is for its work, not for people."""
    if token.until:
        turn.emit(e.TokenTimed(token.id, 0))


def judged(turn: Turn, item: SlotOver) -> None:
    """The declared source has replied, or could not be asked."""
    job = turn.state.jobs[item.job]
    token = turn.state.tokens.get(job.token)
    if token is None or token.doomed:
        turn.emit(e.JobDischarged(job.id, "reported" if job.answer is not None else "lost"))
        return
    decision = turn.net.steps[token.step].decision
    assert decision is not None, "a judge was asked for a decision"
    said = _reply(turn, token, decision, job, item.fault)
    if isinstance(said, Fault) and _ask_source_again(turn, decision, job):
        return
    turn.emit(e.JobDischarged(job.id, "reported"))
    if item.fault is not None and item.fault.kind == "timeout" and decision.on_timeout:
        turn.agenda.append(Conclude(token.id, decision_timeout(token, item.fault.message)))
        return
    if _settles(turn, token, decision, said):
        turn.agenda.append(Conclude(token.id))


def _reply(
    turn: Turn, token: Token, decision: Decision, job: Job, fault: Fault | None
) -> Said | Fault:
    if fault is not None or job.answer is None or job.answer.status != "ok":
        fault = fault or (job.answer.fault if job.answer is not None else None)
        why = fault.message if fault is not None else "it gave no answer"
        return Fault("decision", f"{decision.ask or 'the decision source'}: {why}")
    return _by_rule(turn, token, decision, job.answer.result)


def _ask_source_again(turn: Turn, decision: Decision, job: Job) -> bool:
    """A reply nobody can read is an error like any other: the source's own tries bound it."""
    source = decision.source
    if source is None or job.answer is None or job.answer.status != "ok":
        return False  # it gave no reply, and has been asked again for that as often as it may
    tried = job.failures + 1  # executions that were lost cost none
    if tried >= source.retry.attempts:
        return False
    try_again(turn, job, source.retry.delay_before(tried))
    return True


def _by_rule(turn: Turn, token: Token, decision: Decision, reply: Any) -> Said | Fault:
    if decision.when is None:
        return Said(None)
    names = names_for(turn.state, token, turn.values)
    answer = token.answer.result if token.answer is not None else None
    try:
        names["answer"], names["reply"] = turn.values.whole(answer), turn.values.whole(reply)
        said = decision.when.evaluate(names)
    except ExpressionError as error:
        message = f"the decision of step {token.step}: {error}"
        return Fault("expression", message, retryable=False)
    actor = decision.ask if decision.source is not None and decision.ask else ENGINE
    if isinstance(said, Mapping):
        reason = str(said.get("reason") or "")
        return Said(said.get("fulfilled"), actor, reason, said.get("evidence"))
    return Said(said if isinstance(said, bool) else None, actor)


def judge(turn: Turn, token: Token, decision: Decision, said: Said) -> None:
    """Record the verdict; where it is no, do what the decision says about that."""
    goes_on = said.fulfilled is False and decision.on_reject == "continue"
    record(turn, token, decision, said, goes_on)
    if said.fulfilled is not False:
        return
    if goes_on:
        turn.agenda.append(Conclude(token.id))
        return
    by = f"the rule of step {token.step}" if said.actor == ENGINE else said.actor
    why = f"rejected by {by or 'somebody'}"
    fault = Fault("rejected", f"{why}: {said.reason}" if said.reason else why, "REJECTED")
    delay = delay_before_next_try(turn, token)
    if decision.on_reject == "pause":
        ask_again(turn, token, decision, said.actor, fault.message)
    elif decision.on_reject == "retry" and delay is not None:
        begin_again(turn, token, delay, fault.message, counted=True)
    else:
        turn.agenda.append(Conclude(token.id, fault))


def record(turn: Turn, token: Token, decision: Decision, said: Said, goes_on: bool = False) -> None:
    if decision.policy:
        turn.emit(
            e.TaskJudged(
                token.id,
                bool(said.fulfilled),
                decision.policy,
                said.actor,
                said.reason,
                said.evidence,
                goes_on,
                said.override,
            )
        )


def _no_verdict(turn: Turn, token: Token, decision: Decision, fault: Fault) -> None:
    """Neither yes nor no could be had."""
    delay = delay_before_next_try(turn, token)
    if decision.on_error == "pause":
        ask_again(turn, token, decision, ENGINE, fault.message)
    elif decision.on_error == "retry" and decision.source is None and delay is not None:
        begin_again(turn, token, delay, fault.message, counted=True)
    else:
        turn.agenda.append(Conclude(token.id, fault))


def open_gate(turn: Turn, token: Token, decision: Decision) -> None:
    asked = _question(turn, token, decision)
    turn.emit(e.GateOpened(gate_id(token), token.id, asked, decision.actors))
    if decision.timeout_ms is not None and not decided_by_source(decision):
        turn.emit(e.TokenTimed(token.id, turn.at + decision.timeout_ms))


def _question(turn: Turn, token: Token, decision: Decision) -> str:
    """What the gate asks. A template that fails is asked as it stands, with the reason: whoever
    decides can see that, and a run does not fail for its words."""
    if decision.question is None:
        return decision.ask
    try:
        found = decision.question.evaluate(names_for(turn.state, token, turn.values))
    except ExpressionError as error:
        return _shortened(f"{decision.ask} ({error})")
    return _shortened(found if isinstance(found, str) else str(msgspec.json.encode(found), "utf-8"))


def _shortened(text: str) -> str:
    return text if len(text) <= QUESTION_MAX else f"{text[:QUESTION_MAX]}…"


def decided_by_source(decision: Decision) -> bool:
    """What a declared source says is the answer; nobody at a gate gives another one."""
    return decision.source is not None and decision.when is not None


def asks_somebody(decision: Decision) -> bool:
    """Whether people decide, or a declared source, and not the definition alone."""
    return decision.when is None or decision.source is not None


def decision_timeout(token: Token, why: str) -> Fault:
    return Fault("timeout", f"the decision of step {token.step}: {why}", DECISION_TIMEOUT)


def ask_source_again(turn: Turn, token: Token, actor: str, reason: str) -> None:
    """The gate goes, and the source is asked as if for the first time."""
    asked = token.source_asked + 1
    turn.emit(e.GateAskedAgain(gate_id(token), token.id, asked, actor, reason))
    turn.emit(e.JobScheduled(id_of_job(token, JUDGE_SLOT), token.id, JUDGE_SLOT, 1))


def ask_again(turn: Turn, token: Token, decision: Decision, actor: str, why: str) -> None:
    """The gate stays, and the run stands still until somebody has looked at it."""
    open_gate(turn, token, decision)
    if not turn.state.paused:
        turn.emit(e.RunPaused(actor, why, gate_id(token)))


def ask_whether_to_try_again(turn: Turn, token: Token, fault: Fault) -> None:
    """The work failed for good: somebody has it tried again, or gives it up."""
    ask = f"step {token.step} failed: {fault.message}; fulfil to try again, reject to give up"
    _stop_the_clock(turn, token)
    turn.emit(e.GateOpened(gate_id(token), token.id, ask, (), True))
    if not turn.state.paused:
        turn.emit(e.RunPaused(ENGINE, ask, gate_id(token)))

"""Beginning a step anew: everybody is asked again, or the work is done once more.

A job that fails is tried again by itself (`kernel.jobs`). This is for what a single job cannot
mend: a fan whose answers came to nothing, and work that was done and not accepted.
"""

from __future__ import annotations

from anabranch.kernel import events as e
from anabranch.kernel.jobs import PLAIN_SLOT, has_two_budgets, id_of_job
from anabranch.kernel.state import Token
from anabranch.kernel.turn import Activate, Turn
from anabranch.kernel.values import Fault
from anabranch.net.net import Work

NOBODY = "no_targets"  # there is nobody to ask
TOO_FEW = "quorum_unreachable"  # there are fewer than must answer
#: Asking again does not mend these: the definition is wrong, or somebody said no.
FINAL = frozenset({"expression", "collection", "config", "rejected", "not_fulfilled"})


def begin_again(
    turn: Turn, token: Token, delay_ms: int, reason: str, *, counted: bool = False
) -> None:
    due = turn.at + delay_ms
    turn.emit(e.TokenRetrying(token.id, token.round + 1, due, reason, counted))
    turn.agenda.append(Activate(token.id))


def ask_everybody_again(turn: Turn, token: Token, fault: Fault) -> bool:
    """A fan came to nothing: the next round, if there is one."""
    fan = turn.net.steps[token.step].fan
    if fan is None or fault.kind in FINAL or turn.state.ending:
        return False
    if fault.code == TOO_FEW and fan.targets is None:
        return False  # nobody searches: there will not be more of them
    if fan.keeps_targets and fault.code != NOBODY:
        return False  # whom it asks is settled, and its job has had its own tries
    asked = token.round + 1
    if asked >= fan.rounds.attempts:
        return False
    begin_again(turn, token, fan.rounds.delay_before(asked), fault.message)
    return True


def count_tries(turn: Turn, token: Token, work: Work) -> int:
    """Tries of its work that failed or were not accepted, in this round and in those before."""
    job = turn.state.jobs.get(id_of_job(token, PLAIN_SLOT))
    failures, timeouts = token.failures, token.timeouts
    if job is not None:
        failures, timeouts = failures + job.failures, timeouts + job.timeouts
    return failures - timeouts if has_two_budgets(work) else failures


def delay_before_next_try(turn: Turn, token: Token) -> int | None:
    """How long to wait before the work is done once more; None when it may not be."""
    step = turn.net.steps[token.step]
    if step.work is None or step.loop is not None:
        return None
    if step.fan is not None and not step.fan.keeps_targets:
        retry, tried = step.fan.rounds, token.round + 1
    else:
        retry, tried = step.work.retry, count_tries(turn, token, step.work) + 1
    return retry.delay_before(tried) if tried < retry.attempts else None

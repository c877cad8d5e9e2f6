"""Beginning a step anew: everybody is asked again, or the work is done once more.

A job that fails is tried again by itself (`kernel.jobs`). This is for what a single job cannot
mend: a fan whose answers came to nothing, and work that was done and not accepted.
"""

from __future__ import annotations

from anabranch.kernel import events as e
from anabranch.kernel.state import Token
from anabranch.kernel.turn import Activate, Turn
from anabranch.kernel.values import Fault

NOBODY = "no_targets"  # there is nobody to ask
TOO_FEW = "quorum_unreachable"  # there are fewer than must answer
#: Asking again does not mend these: the definition is wrong, or somebody said no.
FINAL = frozenset({"expression", "collection", "config", "rejected", "not_fulfilled"})


def begin_again(turn: Turn, token: Token, delay_ms: int, reason: str) -> None:
    due = turn.at + delay_ms
    turn.emit(e.TokenRetrying(token.id, token.round + 1, due, reason))
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


def delay_before_next_try(turn: Turn, token: Token) -> int | None:
    """How long to wait before the work is done once more; None when it may not be."""
    step = turn.net.steps[token.step]
    if step.work is None or step.loop is not None:
        return None
    of_fan = step.fan is not None and not step.fan.keeps_targets
    retry = step.fan.rounds if step.fan is not None and of_fan else step.work.retry
    tried = token.round + 1
    return retry.delay_before(tried) if tried < retry.attempts else None

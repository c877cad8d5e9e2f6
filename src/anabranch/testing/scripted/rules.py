"""Rules inside a play: evaluated for real where that stays inside the process, else judged."""

from __future__ import annotations

from random import Random

import msgspec

from anabranch.clock import Clock
from anabranch.dialects.xrc137.document import RuleProgram
from anabranch.dialects.xrc137.read import read_rule
from anabranch.kernel.values import Answer, aborted, succeeded
from anabranch.testing.scripted.answers import Planned
from anabranch.testing.scripted.backstage import backstage
from anabranch.work.port import Parked, Task
from anabranch.work.rule.performer import rule_performer

RULE = "rule"


class RulesInside:
    """Evaluates rules that reach for nothing outside: no API, no chain."""

    def __init__(self, clock: Clock) -> None:
        self._performer = rule_performer(clock=clock)
        self._stays_inside: dict[str, bool] = {}

    def perform(self, task: Task) -> Answer | None:
        """The answer of the rule; None where it is not at hand, or would reach outside."""
        program = task.program
        if not isinstance(program, RuleProgram) or program.text is None:
            return None
        inside = self._stays_inside.get(program.text)
        if inside is None:
            inside = self._stays_inside[program.text] = _stays_inside(program.text)
        answer = backstage(self._performer.perform(task)) if inside else None
        return None if isinstance(answer, Parked) else answer  # rules do not park


def _stays_inside(text: str) -> bool:
    document, _ = read_rule(text)
    return document is not None and not document.reads and not document.calls


def judged(task: Task, plan: Planned) -> Planned:
    """A plain answer of a rule, such as `{"n": 3}`, is that of one that holds."""
    answer = plan.answer
    if task.kind != RULE or answer is None or answer.status != "ok":
        return plan
    if answer.outcome not in ("", "ok"):
        return plan
    return plan._replace(answer=msgspec.structs.replace(answer, outcome="valid"))


def random_verdict(dice: Random, *, calm: bool) -> Answer:
    """What a rule that nobody scripted comes to in a simulation."""
    roll = dice.random()
    if roll < 0.05 and not calm:
        return aborted("simulated", "simulated hard error")
    wait_ms = dice.choice((0, 0, 0, dice.randint(1, 20_000)))
    outcome = "valid" if roll < 0.7 else "invalid"
    return succeeded(
        {f"n{dice.randint(1, 3)}": dice.randint(0, 9)}, outcome=outcome, wait_ms=wait_ms
    )

"""Waits in random nets, and the signals that people send to them.

Which steps wait, and for what, is drawn apart from the rest: a seed gives the net that it gave
before, with waits in it.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Wait
from anabranch.net.net import Step, WaitRule, Work
from anabranch.testing.random.steps import Names, PythonExpression
from anabranch.work.port import Parked

EVENTS = ("e1", "e2")
_LABEL = "w"
_EVEN = PythonExpression("even(signal.payload.n)", lambda names: _n_of(names) % 2 == 0)
#: Fails for every signal: a wait with it ends by its time.
_BROKEN = PythonExpression("signal.none", lambda names: names["signal"]["none"])
_FILTERS = (None, None, _EVEN, _EVEN, _EVEN, _BROKEN)


def _n_of(names: Names) -> int:
    n: int = names["signal"]["payload"]["n"]
    return n


def waiting(seed: int, step: Step) -> Step:
    """The step, perhaps with a rule for waits in its work."""
    dice = Random(f"wait {seed} {step.name}")
    plain = step.work is not None and step.fan is None and step.loop is None
    if not plain or step.work is None or dice.random() >= 0.3:
        return step
    rule = WaitRule(dice.choice(EVENTS), dice.choice(_FILTERS))
    return replace(step, work=replace(step.work, label=_LABEL, wait=rule))


def random_wait(dice: Random, work: Work, unit_ms: int = 1_000) -> Parked:
    """How a job of such a step waits: for time, or for its signal, perhaps not for ever."""
    rule = work.wait
    assert rule is not None, "it is a step that waits"
    limit_ms = dice.choice((0, 1, 5, 40)) * unit_ms
    if dice.random() < 0.3:
        return Parked("", limit_ms=limit_ms, wait=Wait())
    for_ever = rule.filter is not _BROKEN and dice.random() < 0.6
    limit_ms = 0 if for_ever else max(limit_ms, unit_ms)
    return Parked("", limit_ms=limit_ms, wait=Wait(rule.event, _LABEL))


def signal_for(dice: Random, wait: Wait, number: int) -> s.Signal:
    """One that the wait takes sooner or later. Some are sent twice, some are kept for a while."""
    item = wait.seen.get("iter", {})
    n = item["x"] if "x" in item else dice.randrange(4)
    sent = s.Signal(f"s{number}", wait.event, {"n": n}, "a sender")
    return replace(sent, ttl_ms=dice.choice((0, 0, 1, 30_000)))

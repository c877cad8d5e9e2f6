"""What Arca definitions bring, in random nets: searches, rounds, judgements, budgets, room.

It has dice of its own, so that the nets of known seeds keep their shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from msgspec.structs import replace

from anabranch.expressions.port import Constant
from anabranch.net.net import Decision, Fan, Retry, RunPolicy, Step, Work
from anabranch.testing.random.steps import Names, PythonExpression

POLICIES = ("auto", "output_match", "external_decision", "requester_confirmation", "never")


def soliciting(seed: int, step: Step, unit_ms: int = 1_000) -> Step:
    """The step, perhaps with some of it; `unit_ms` is the order of its delays."""
    dice = Random(f"solicit {seed} {step.name}")
    work = step.work
    if work is None or step.loop is not None:
        return step
    if dice.random() < 0.2:
        budget = Random(f"budget {seed} {step.name}").random() < 0.5
        work = replace(work, retry_timeouts=_retry(dice, unit_ms), one_budget=budget)
    fan = step.fan
    if fan is not None and dice.random() < 0.6:
        fan = _ordering(Random(f"offer {seed} {step.name}"), _fan(dice, fan, work, unit_ms))
    decision = step.decision
    if dice.random() < 0.2:
        decision = _timed(Random(f"decision {seed} {step.name}"), _decision(dice, work), unit_ms)
    on_failure = step.on_failure
    if dice.random() < 0.2:
        on_failure = dice.choice(("skip", "pause", "abort_run"))
    return replace(step, work=work, fan=fan, decision=decision, on_failure=on_failure)


def with_room(seed: int, policy: RunPolicy) -> RunPolicy:
    """The policy, perhaps with a limit of how many steps run at once."""
    dice = Random(f"room {seed}")
    return replace(policy, parallel_max=dice.choice((1, 2, 3)) if dice.random() < 0.2 else None)


def _retry(dice: Random, unit_ms: int) -> Retry:
    return Retry(
        attempts=dice.randint(1, 3),
        delay_ms=dice.choice((0, 0, unit_ms, 3 * unit_ms)),
        backoff=dice.choice(("constant", "exponential")),
        multiplier=dice.choice((1.0, 2.0)),
    )


def _fan(dice: Random, fan: Fan, work: Work, unit_ms: int) -> Fan:
    search = dice.random() < 0.5
    return replace(
        fan,
        over=PythonExpression("found", _found) if search else fan.over,
        targets=replace(work, inputs=None, retry=_retry(dice, unit_ms)) if search else None,
        rounds=_retry(dice, unit_ms) if dice.random() < 0.7 else Retry(),
        keeps_targets=dice.random() < 0.3,
    )


def _ordering(dice: Random, fan: Fan) -> Fan:
    """Perhaps what the search looks for is read from the run, as an offer is; or is not there."""
    if fan.targets is None or dice.random() < 0.6:
        return fan
    return replace(fan, targets=replace(fan.targets, inputs=dice.choice((_OFFER, _NO_OFFER))))


def _found(names: Names) -> Any:
    """Nobody to four, by what the search answered; now and then no list at all."""
    found = names["found"]
    count = found["n" if "n" in found else "score"] if isinstance(found, Mapping) else 0
    return [f"found-{number}" for number in range(int(count or 0) % 5)]


def _decision(dice: Random, work: Work) -> Decision:
    asks = dice.random() < 0.4
    rules = (None, Constant(True), Constant(False), Constant({"fulfilled": True, "reason": "so"}))
    broken = PythonExpression("reply.missing", lambda names: names["reply"]["missing"])
    when = dice.choice((*rules, PythonExpression("answer.n % 2", _is_odd), broken))
    return Decision(
        ask="is it done?",
        actors=dice.choice(((), (), ("ann",))),
        on_reject=dice.choice(("fail", "retry", "pause", "continue")),
        on_error=dice.choice(("fail", "retry", "pause")),
        when=when,
        source=replace(work, inputs=None, retry=Retry(dice.randint(1, 2))) if asks else None,
        policy=dice.choice(POLICIES),
    )


def _timed(dice: Random, decision: Decision, unit_ms: int) -> Decision:
    """Perhaps with a time limit for whoever decides."""
    if dice.random() < 0.6:
        return decision
    return replace(
        decision,
        timeout_ms=dice.randint(1, 20) * unit_ms,
        on_timeout=dice.choice(("", "fail", "skip", "abort_run")),
    )


_OFFER = PythonExpression("the offer", lambda names: {"offer": dict(names["workload"])})
_NO_OFFER = PythonExpression("no offer", lambda names: {"offer": names["results"]["nowhere"]})


def _is_odd(names: Names) -> Any:
    return bool(names["answer"]["n"] % 2)

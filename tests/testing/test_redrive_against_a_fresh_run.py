"""A redriven run comes to what a run without the failures comes to, and does no more than it must.

The oracle is plain: the same playbook, from the beginning, with nothing failing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.provenance import Provenance
from anabranch.kernel.redrive import plan_redrive
from anabranch.kernel.state import State
from anabranch.runtime.live_run import history
from anabranch.testing import ok
from anabranch.testing.play import RUN, Theatre
from anabranch.testing.scripted.definitions import compiled
from anabranch.testing.scripted.participants import prepared
from anabranch.testing.scripted.script import Script, Scripts
from random_redrives import RandomRedrive
from seeds import part

SEEDS, PARTS = 800, 8  # `tests/seeds.py` says how many of them are tried


@dataclass
class Ended:
    state: State
    did: list[str]  # work that was carried out: steps, and items as `step/item`
    asked: list[str]  # steps at which somebody decided
    turned_away: set[str]  # steps that waited in vain
    history: list[tuple[int, e.Event]]


def perform(
    made: RandomRedrive, origin: Ended | None = None, *, mended: bool, from_step: str = ""
) -> Ended:
    net = compiled(made.text)
    did: list[str] = []
    answers = Script(net, prepared(net, made.script(did, mended=mended)))
    decisions = Script(net, {name: ok() for name in made.decisions}, "decisions")
    theatre = Theatre(net, Scripts(answers, decisions))
    start = s.Start(run=RUN, step=made.entry or None)
    if origin is not None:
        plan = plan_redrive(net, origin.history, from_step)
        start = s.Start(run=RUN, origin="origin", **plan.start_fields)
    theatre.begin(start)
    state = theatre.perform(100_000).state
    happened = history(theatre.store.read(RUN))
    steps = {event.token: event.step for _, event in happened if isinstance(event, e.TokenCreated)}
    asked = [steps[event.token] for _, event in happened if isinstance(event, e.GateOpened)]
    turned_away = {
        steps[event.token]
        for _, event in happened
        if isinstance(event, e.TokenFinished) and event.ending == "discarded"
    }
    return Ended(state, did, asked, turned_away, happened)


def compare(seed: int) -> tuple[int, int]:
    """How much was done again, and how much a fresh run does."""
    made = RandomRedrive(seed)
    origin = perform(made, mended=False)
    fresh = perform(made, mended=True)
    before = {name.partition("/")[0] for name in (*origin.did, *origin.asked)}
    wanted = made.wanted if made.wanted in before else ""
    redriven = perform(made, origin, mended=True, from_step=wanted)
    assert redriven.state.status == fresh.state.status
    assert redriven.state.results == fresh.state.results
    assert redriven.state.ctx == fresh.state.ctx
    failed = {name.partition("/")[0] for name in origin.did if name in made.broken}
    failed |= origin.turned_away | ({wanted} if wanted else set())
    allowed = made.below(failed) | (set(made.steps) - before)
    for name in redriven.did:
        step = name.partition("/")[0]
        items_of_its_own = step in failed and name not in made.broken and step in made.loops
        upstream = made.below(failed - {step}) if step not in made.depends[step] else allowed
        assert step in allowed, f"{name} does not depend on what failed: {failed}"
        if items_of_its_own and step not in upstream and step != wanted:
            assert name not in origin.did, f"{name} had succeeded, and nothing before it failed"
    for step in redriven.asked:
        assert step in allowed, f"{step} was approved, and does not depend on what failed"
    for ended in (fresh.did, fresh.asked):
        own = {name for name in ended if wanted and name.partition("/")[0] == wanted}
        assert own <= {*redriven.did, *redriven.asked}, f"all of {wanted} was wanted again"
    return len(redriven.did), len(fresh.did)


@cache
def compared(seed: int) -> tuple[int, int]:
    """Once for all tests."""
    return compare(seed)


@pytest.mark.parametrize("number", range(PARTS))
def test_a_redriven_run_comes_to_what_a_run_without_the_failures_comes_to(number: int) -> None:
    for seed in part(number, PARTS, SEEDS):
        compared(seed)


def test_a_redriven_run_does_less_than_a_fresh_one() -> None:
    """Otherwise the test above would be content with a redrive that reuses nothing."""
    counts = [compared(seed) for seed in range(50)]
    assert sum(again for again, _ in counts) < 0.75 * sum(fresh for _, fresh in counts)


def test_a_redrive_that_does_not_look_at_what_steps_read_is_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Provenance, "cause_for", lambda *_: None)
    with pytest.raises(AssertionError):
        list(map(compare, range(300)))

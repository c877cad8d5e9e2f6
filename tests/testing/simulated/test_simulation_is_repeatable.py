"""A seed fixes everything; faults can be chosen; the sums add up."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.kernel.stimuli import Start
from anabranch.net.net import Decision, Retry, Step
from anabranch.testing import Faults, Simulation, after, error, ok, simulate
from anabranch.testing.random.nets import RANDOM_PATCHES, random_net
from anabranch.testing.scripted.script import Script, Scripts
from anabranch.testing.simulated.chaos import Chaos
from anabranch.testing.simulated.parties import RUN

from ..support import calls, chain, net, to


def _log(seed: int) -> list[Any]:
    flow = random_net(seed)
    scripts = Scripts(Script(flow, {}), Script(flow, {}))
    dice = Random(f"world {seed}")
    world = Chaos(flow, scripts, dice=dice, faults=Faults(), patches=RANDOM_PATCHES)
    world.run_to_the_end(Start(run=RUN), 20_000, None)
    return [*world.store.read(RUN), dict(world.tally)]


def test_the_same_seed_gives_the_same_log_to_the_byte() -> None:
    logs = [_log(seed) for seed in range(30)]
    assert [_log(seed) for seed in range(30)] == logs
    assert len({repr(log) for log in logs}) == 30


def test_sums_are_the_same_whatever_was_simulated_before() -> None:
    one_by_one = [simulate(random_net, [seed], patches=RANDOM_PATCHES) for seed in (5, 6, 7)]
    together = simulate(random_net, (5, 6, 7), patches=RANDOM_PATCHES)
    assert together.events == sum(each.events for each in one_by_one)
    assert together.faults == sum(
        (each.faults for each in one_by_one), start=type(together.faults)()
    )


def test_without_faults_only_the_order_is_random() -> None:
    script = {"a": after(5, ok(1)), "b": [error("x"), ok(2)], "c": ok(3)}
    sums = simulate(chain(3, Retry(attempts=2)), 30, script=script, faults=Faults.none())
    assert (sums.seeds, sums.statuses, sums.crashes) == (30, {"completed": 30}, 0)
    assert sums.virtual_seconds == 30 * 5


def test_a_script_is_kept_across_crashes() -> None:
    """The answer of a lost execution is given again, so a script means the same under faults."""
    faults = Faults.only("crash", "restart", "slow_disk", "lost_job", "duplicate", "stale", "evict")
    script = {"a": [error("x"), error("x"), ok(1)], "b": after(3, ok(2)), "c": ok(3)}
    sums = simulate(chain(3, Retry(attempts=3)), 150, script=script, faults=faults)
    assert sums.statuses == {"completed": 150}
    assert sums.crashes > 50


def test_decisions_survive_crashes_too() -> None:
    flow = net(Step("ask", decision=Decision(), branches=to("do")), calls("do"))
    sums = simulate(
        flow, 100, script={"ask": after(9, ok()), "do": ok()}, faults=Faults.only("crash")
    )
    assert sums.statuses == {"completed": 100}


def test_open_gates_are_decided_at_random() -> None:
    flow = net(Step("ask", decision=Decision(), branches=to("do")), calls("do"))
    sums = simulate(flow, 100)
    assert {"completed", "failed", "waiting"} <= sums.statuses.keys()


def test_until_cuts_a_run_short() -> None:
    flow = chain(3)
    script = {name: after(3600, ok()) for name in "abc"}
    sums = simulate(flow, 10, script=script, until=4000, faults=Faults.none())
    assert sums.statuses == {"running": 10}


def test_the_summary_reads_well() -> None:
    sums = simulate(random_net, 20, patches=RANDOM_PATCHES)
    text = str(sums)
    assert text.startswith(f"20 seeds, {sums.events:,} events checked")
    assert "simulated hours" in text
    assert "  ended: " in text
    assert "  faults: " in text
    assert str(Simulation()).splitlines()[1:] == ["  ended: none", "  faults: none"]


def test_progress_is_told_after_every_seed() -> None:
    seen: list[tuple[int, int]] = []
    simulate(chain(), (4, 9), on_seed=lambda seed, sums: seen.append((seed, sums.seeds)))
    assert seen == [(4, 1), (9, 2)]


def test_faults_are_checked() -> None:
    with pytest.raises(InputError, match="crash is a probability"):
        Faults(crash=2)
    with pytest.raises(InputError, match="no fault 'crahs': did you mean 'crash'"):
        Faults.only("crahs")
    for wrong in (0, -1, True):
        with pytest.raises(InputError, match="seeds"):
            simulate(chain(), wrong)

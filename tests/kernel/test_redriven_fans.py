"""A fan-out that is done again comes to what it would have come to, had nobody failed.

Kept answers count in the order in which they came, and take no room of the window. The oracle is a
fresh run without a window: of those who are out, whoever was heard in the origin answers first, in
that order, and then the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.kernel import events as e
from anabranch.kernel.redrive import plan_redrive
from anabranch.net.net import Net
from seeds import part

from .driver import Run
from .nets import Fn, fan_net

SEEDS, PARTS = 2_000, 2


def random_fan(dice: Random) -> tuple[Net, dict[str, dict[str, Any]], set[str]]:
    """A fan-out, what each of its parties answers, and who fails at first."""
    slots = [f"p{number}" for number in range(dice.randint(3, 6))]
    net = fan_net(
        slots,
        dice.choice(["any", "quorum", "all", "best_of"]),
        k=dice.randint(2, len(slots)),
        select=dice.choice(["slot", "arrival", "score"]),
        combine=dice.choice(["one", "list", "merge"]),
        losers=dice.choice(["kill", "drain"]),
        tolerate=dice.randint(0, 1),
        window=dice.choice([None, 1, 2]),
        score=Fn(lambda names: names["answer"]["score"]),
    )
    answers = {each: {"score": dice.randint(0, 2), "by": each} for each in slots}
    return net, answers, set(dice.sample(slots, dice.randint(1, 2)))


def party(run: Run, job: str) -> str:
    return f"p{run.state.jobs[job].slot}"


def out(run: Run, window: int | None = None, heard: Sequence[str] = ()) -> list[str]:
    """The jobs that somebody is asked to do, by slot; whoever was heard takes no room."""
    asked = [job for job in run.state.jobs.values() if job.phase == "scheduled"]
    jobs: list[str] = []
    room = len(asked) if window is None else window
    for job in sorted(asked, key=lambda job: job.slot):
        if not room:
            break
        jobs.append(job.id)
        room -= f"p{job.slot}" not in heard
    return jobs


def first_run(dice: Random, net: Net, answers: dict[str, Any], failing: set[str]) -> Run:
    run = Run(net)
    while not run.state.finished and (jobs := out(run)):
        job = dice.choice(jobs)
        if party(run, job) in failing:
            run.fails(job, retryable=False)
        else:
            run.done(job, answers[party(run, job)])
    return run


def finish(
    run: Run, answers: dict[str, Any], heard: Sequence[str] = (), window: int | None = None
) -> Run:
    places = {each: place for place, each in enumerate(heard)}
    while not run.state.finished and (jobs := out(run, window, heard)):
        job = min(jobs, key=lambda job: places.get(party(run, job), len(places)))
        run.done(job, answers[party(run, job)])
    return run


def compare(seed: int) -> bool:
    dice = Random(seed)
    net, answers, failing = random_fan(dice)
    origin = first_run(dice, net, answers, failing)
    if origin.status != "failed":
        return False
    heard = [f"p{event.slot}" for event in origin.of_kind(e.Delivered)]
    plan = plan_redrive(net, origin.history)
    assert [fate.answers for fate in plan.again] == [len(heard)]
    redriven = finish(Run(net, origin="run", reuse=plan.reuse), answers)
    ask = net.steps["ask"]
    assert ask.fan is not None
    unlimited = replace(net, steps={"ask": replace(ask, fan=replace(ask.fan, window=None))})
    fresh = finish(Run(unlimited), answers, heard, ask.fan.window)
    assert redriven.status == fresh.status == "completed"
    assert redriven.result == fresh.result
    assert redriven.verdict("ask")[:2] == fresh.verdict("ask")[:2]
    asked = {event.slot for event in redriven.of_kind(e.JobScheduled)}
    assert not asked & {int(each[1:]) for each in heard}, "who was heard is not asked again"
    return len(heard) > 1


@pytest.mark.parametrize("number", range(PARTS))
def test_kept_answers_count_in_the_order_in_which_they_came(number: int) -> None:
    told = [compare(seed) for seed in part(number, PARTS, SEEDS)]
    assert sum(told) > len(told) / 20, "enough of them kept several answers"

"""A redrive of a session in which nothing failed repeats nothing, and comes to the same."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from anabranch.kernel import events as e
from anabranch.kernel.redrive import plan_redrive
from seeds import part

from .documents import document
from .kernel_run import KernelRun
from .lower import compiled
from .oracle import Session
from .schedules import Walk

SEEDS = 1_000
BLOCKS = 4


def played(seed: int) -> tuple[KernelRun, str, dict[str, str]]:
    """A session without failures, to its end. It does not sleep: what sleeps does so again, while
    others are there at once."""
    rng = Random(f"redriven {seed}")
    orchestration, start = document(rng)
    payload = {"p": "start"}
    session = Session(orchestration, start, payload)
    kernel = KernelRun(compiled(orchestration), start, payload)
    walk = Walk(rng, session)
    walk.troubled = walk.sleepy = 0.0
    while (action := walk.next()) is not None:
        session.act(action)
        kernel.act(action)
    return kernel, start, payload


def redriven(origin: KernelRun, start: str, payload: dict[str, str]) -> KernelRun | None:
    """None where something is to be done again."""
    plan = plan_redrive(origin.net, [(at, event) for at, row in origin.rows for event in row])
    if plan.again or not origin.state.finished:
        return None
    return KernelRun(origin.net, start, payload, origin="origin", reuse=plan.reuse)


def joins(run: KernelRun) -> Counter[tuple[str, ...]]:
    """Where they stand, how they ended and whom they took, as often as they did."""
    steps: dict[int, str] = {}
    opened: dict[str, str] = {}
    found: Counter[tuple[str, ...]] = Counter()
    for event in (event for _, row in run.rows for event in row):
        if isinstance(event, e.TokenCreated):
            steps[event.token] = event.step
        elif isinstance(event, e.GatherOpened):
            opened[event.gather] = steps[event.token]
        elif isinstance(event, e.GatherSettled):
            chosen = [steps[token] for token in run.selected.get(int(event.gather[1:]), [])]
            found[opened[event.gather], event.verdict, *chosen] += 1
    return found


def endings(run: KernelRun) -> Counter[tuple[str, str]]:
    """How the processes ended that no join killed."""
    steps: dict[int, str] = {}
    found: Counter[tuple[str, str]] = Counter()
    for event in (event for _, row in run.rows for event in row):
        if isinstance(event, e.TokenCreated):
            steps[event.token] = event.step
        elif isinstance(event, e.TokenFinished) and event.end != "killed":
            found[steps[event.token], event.ending] += 1
    return found


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_join_takes_whom_it_took(block: int) -> None:
    for seed in part(block, BLOCKS, SEEDS):
        origin, start, payload = played(seed)
        again = redriven(origin, start, payload)
        if again is not None:
            assert again.state.finished, f"seed {seed}: {again.state.jobs}"
            assert joins(again) == joins(origin), f"seed {seed}"
            assert endings(again) == endings(origin), f"seed {seed}"


def test_many_sessions_have_a_join_that_is_taken_over() -> None:
    """Otherwise the test above looks at nothing."""
    several = 0
    for seed in range(200):
        origin, start, payload = played(seed)
        if redriven(origin, start, payload) is not None:
            several += any(len(one) > 2 for one in joins(origin))
    assert several > 20

"""Workflows come to what the plain oracle comes to: everything inline, no crash, nothing redriven.

The workflows are random (`arca_features.py`): searches, every policy, time limits, decision sources
and people, with inputs that read other outputs. Each seed is run in several ways.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from anabranch.kernel import stimuli as s
from anabranch.kernel.redrive import plan_redrive
from anabranch.runtime.live_run import history
from anabranch.testing.play import RUN
from seeds import part, seeds
from testing.support import AFTER, AMID, BEFORE

from .arca_features import Flowing, Stage, flowing, outcome, staged
from .fan_in_cases import timeless

SEEDS, PARTS = 500, 4  # `tests/seeds.py` says how many of them are tried
LIMITS = (1, 40, 400)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_the_size_of_values_changes_nothing_of_a_workflow(number: int) -> None:
    """Down to the instant at which each was asked, and to what they were told."""
    for seed in part(number, PARTS, SEEDS):
        flow, limit = flowing(seed), Random(seed).choice(LIMITS)
        wanted = outcome(staged(flow))
        assert outcome(staged(flow, inline_bytes=limit)) == wanted, f"seed {seed}: inline {limit}"


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_where_the_engine_dies_changes_nothing_of_a_workflow(number: int) -> None:
    """Who fails first may depend on when the engine died; what is chosen may not."""
    for seed in part(number, PARTS, SEEDS):
        flow, dice = flowing(seed, calm=True), Random(seed)
        plain, limit = staged(flow), dice.choice(LIMITS)
        dies_at = dice.randint(1, max(1, plain.commits))
        place = dice.choice((BEFORE, AFTER, AMID))
        died = staged(flow, inline_bytes=limit, dies_at=dies_at, place=place)
        same(outcome(died), outcome(plain), f"seed {seed}: died {place} {dies_at}, inline {limit}")


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_a_redriven_workflow_comes_to_what_one_without_the_failure_comes_to(number: int) -> None:
    for seed in part(number, PARTS, SEEDS):
        flow, dice = flowing(seed, calm=True), Random(f"redrive {seed}")
        wanted = outcome(staged(flow))
        steps = [spec["step_id"] for spec in flow.case.definition["plan"]["steps"]]
        broken, limit = dice.choice(steps), dice.choice((*LIMITS, 10_000_000))
        first = staged(flow, inline_bytes=limit, broken=broken)
        ended = outcome(first)
        if ended["status"] != "failed" or ended["steps"][broken][0] not in ("failed", "skipped"):
            continue  # nothing is amiss, or it is not for what was broken
        found = outcome(redriven(flow, first, limit))
        why = f"seed {seed}: {broken} failed, inline {limit}"
        assert found["status"] == wanted["status"], why
        if wanted["status"] == "completed":
            assert found["steps"] == wanted["steps"], why


def redriven(flow: Flowing, before: Stage, inline_bytes: int) -> Stage:
    """The run once more, with what may be reused of the first."""
    reuse = plan_redrive(flow.net, history(before.store.read(RUN))).reuse
    start = s.Start(run=RUN, input=flow.given, origin="before", reuse=reuse)
    payloads = before.store._payloads
    return staged(flow, inline_bytes=inline_bytes, start=start, payloads=payloads)


def same(found: dict[str, Any], wanted: dict[str, Any], why: str) -> None:
    assert found["status"] == wanted["status"], why
    if wanted["status"] == "completed":
        assert timeless(found) == timeless(wanted), why


def test_the_workflows_reach_every_corner() -> None:
    """Or the tests above would compare little."""
    tally: Counter[str] = Counter()
    for seed in seeds(1_000):
        flow = flowing(seed, calm=bool(seed % 2))
        stage = staged(flow, inline_bytes=1)
        found = outcome(stage)
        tally[found["status"]] += 1
        tally["aside"] += bool(stage.store._payloads)
        tally["asked a source"] += bool(flow.sources)
        tally["asked people"] += bool(flow.decisions)
        tally["read an output"] += "whole-" in str(found["dispatches"])
    assert tally.keys() >= {"completed", "failed", "step_timeout", "paused"}
    for corner in ("aside", "asked a source", "asked people", "read an output"):
        assert tally[corner] > len(seeds(1_000)) / 20, (corner, tally)

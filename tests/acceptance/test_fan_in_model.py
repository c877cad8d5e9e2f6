"""A model written from the words of proposal 033 agrees with the engine, case after case."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from seeds import SHARE, part, seeds

from .fan_in_cases import case_of, expected, played, stormy, timeless

BLOCKS, CASES = 10, 10_000
EVERY = 1 if SHARE == 1 else 3  # of the cases of a block: each takes long
STORMS = seeds(320)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_random_workflows_come_to_what_the_model_says(block: int) -> None:
    for seed in part(block, BLOCKS, CASES)[::EVERY]:
        case = case_of(seed)
        assert played(case) == expected(case), f"case {seed}: {case.definition}"


def test_faults_of_the_world_change_nothing_of_what_the_model_says() -> None:
    """Who fails first may depend on the weather; what is chosen may not."""
    tally: Counter[str] = Counter()
    for seed in STORMS:
        case = case_of(seed, calm=True)
        want = expected(case)
        got, world = stormy(case, seed)
        tally.update(world.tally)
        if got["status"] == "paused":  # the resume of an operator was lost in a crash
            assert world.tally["pause"], f"storm {seed}"
            tally["left paused"] += 1
            continue
        assert got["status"] == want["status"], f"storm {seed}"
        if want["status"] == "completed":
            assert timeless(got) == timeless(want), f"storm {seed}"
    assert (
        sum(count for fault, count in tally.items() if fault.startswith("crash")) > len(STORMS) / 8
    )
    assert tally["duplicate"] > len(STORMS) / 8
    assert tally["left paused"] < len(STORMS) / 16
    assert tally["lost_job"] >= len(STORMS) / 32


def test_the_cases_reach_every_way_a_step_and_a_request_can_end() -> None:
    statuses: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    requests: Counter[tuple[str, str]] = Counter()
    for seed in range(400):
        want = expected(case_of(seed))
        runs[want["status"]] += 1
        statuses.update(step[0] for step in want["steps"].values())
        requests.update((dispatch[4], dispatch[5]) for dispatch in want["dispatches"])
    assert runs.keys() == {
        *("completed", "failed", "step_timeout", "deadline_exceeded", "paused", "running")
    }
    assert statuses.keys() >= {
        *("completed", "failed", "skipped", "cancelled", "step_timeout", "deadline_exceeded")
    }
    assert requests.keys() >= {
        ("responded", "usable"),
        ("responded", "negative"),
        ("cancelled", "unreachable"),
        ("cancelled", ""),
        ("timeout", ""),
        ("pending", ""),
    }


def test_the_model_knows_nothing_of_the_engine() -> None:
    for name in ("fan_in_model.py", "fan_in_parts.py"):
        tree = ast.parse((Path(__file__).parent / name).read_text(encoding="utf-8"))
        imported = [
            alias.name if isinstance(node, ast.Import) else (node.module or "")
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        ]
        assert not [module for module in imported if "anabranch" in module]

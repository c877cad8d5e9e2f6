"""Twice the definition is about twice the check, counted in lines of ours that run."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.dialects.registry import compile_source
from dialects.arca.definitions import definition, step

DEPENDS: dict[str, Callable[[int], list[int]]] = {
    "chain": lambda n: [n - 1] if n else [],
    "all at once": lambda n: [],  # noqa: ARG005
    "star": lambda n: [0] if n else [],
    "window": lambda n: list(range(max(0, n - 5), n)),
    "diamonds": lambda n: [n - 1, n - 2] if n % 3 == 0 and n else [n - n % 3] if n % 3 else [],
}


def workflow(shape: str, count: int) -> str:
    steps = [
        step(f"s{n}", depends_on=[f"s{other}" for other in DEPENDS[shape](n)]) for n in range(count)
    ]
    return json.dumps(definition(*steps))


def misspelt(count: int) -> str:
    steps = [
        {"step": f"step_{n}", "tool": {"kind": "noop"}, "next": {"arcs": [{"step": f"stap_{n}"}]}}
        for n in range(count)
    ]
    head = {"apiVersion": "noetl.io/v10", "kind": "Playbook", "metadata": {"name": "typos"}}
    return json.dumps({**head, "workflow": steps})


def lines(work: Callable[[], Any]) -> int:
    count = 0

    def local(_frame: Any, event: str, _arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return local

    def called(frame: Any, _event: str, _arg: Any) -> Any:
        ours = "anabranch" in frame.f_code.co_filename or "difflib" in frame.f_code.co_filename
        return local if ours else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("shape", sorted(DEPENDS))
def test_twice_the_workflow_is_about_twice_the_check(shape: str) -> None:
    small, large = workflow(shape, 80), workflow(shape, 160)
    assert compile_source(small).net is not None
    assert lines(lambda: compile_source(large)) < 2.3 * lines(lambda: compile_source(small))


def test_every_misspelt_name_is_compared_with_a_limited_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.net.problems.HINTS_MAX", 10)
    small, large = misspelt(60), misspelt(120)
    compile_source(small)
    assert lines(lambda: compile_source(large)) < 2.3 * lines(lambda: compile_source(small))

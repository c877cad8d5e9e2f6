"""`pool`: whose workers do a step."""

from __future__ import annotations

import pytest

from anabranch.dialects.registry import compile_source
from anabranch.net.net import Net

from ..support import HEAD


def net_of(text: str) -> Net:
    compiled = compile_source(HEAD + text)
    assert compiled.net is not None, compiled.problems
    return compiled.net


def pools_of(text: str) -> dict[str, str]:
    return {name: "" if step.work is None else step.work.pool for name, step in net_of(text).steps.items()}  # fmt: skip  # noqa: E501


def test_the_pool_of_a_step_goes_before_that_of_the_executor() -> None:
    assert pools_of("""
executor: {spec: {pool: eu}}
workflow:
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}
  - {step: b, spec: {pool: gpu}, tool: {kind: noop}, next: {arcs: [{step: c}]}}
  - {step: c, spec: {pool: default}, tool: {kind: noop}, next: {arcs: [{step: d}]}}
  - {step: d, loop: {in: [1]}, tool: [{kind: noop}, {kind: noop}], next: {arcs: [{step: e}]}}
  - {step: e, next: {arcs: [{step: f}]}}
  - {step: f, tool: {kind: decision, ask: Sure?}}
""") == {"a": "eu", "b": "gpu", "c": "", "d": "eu", "e": "", "f": ""}


def test_without_a_pool_the_engine_does_it() -> None:
    assert pools_of("workflow:\n  - {step: a, tool: {kind: noop}}\n") == {"a": ""}


def test_only_the_steps_of_a_pool_may_use_tools_that_are_not_here() -> None:
    pooled = "workflow:\n  - {step: a, spec: {pool: gpu}, tool: {kind: resize, width: 5}}\n"
    work = net_of(pooled).steps["a"].work
    assert work is not None
    assert work.kind == "resize"
    near = compile_source(HEAD + pooled.replace("spec: {pool: gpu}, ", ""))
    assert [problem.code for problem in near.errors] == ["unknown-kind"]
    foreign = compile_source(HEAD + pooled.replace("resize", "mcp"))
    assert [problem.code for problem in foreign.errors] == ["unknown-kind"]


@pytest.mark.parametrize("name", ["", "a b", "-x", "ä", "x" * 101, "a/b"])
def test_a_name_that_would_need_quotes_is_refused(name: str) -> None:
    text = f"workflow:\n  - {{step: a, spec: {{pool: '{name}'}}, tool: {{kind: noop}}}}\n"
    compiled = compile_source(HEAD + text)
    assert [problem.code for problem in compiled.errors] == ["bad-name"]

"""A rejection goes on only where the definition says so; items have names of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Literal

import pytest

import anabranch
from anabranch.operations.definitions.prepare import check
from hangs import HANG_SECONDS

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: x}\nworkflow:\n"
ASKS = (
    HEAD
    + """
  - step: may_i
    tool: {kind: decision, ask: "Send?"}
    next: {arcs: ARCS}
  - {step: send, tool: {kind: noop, result: sent}}
  - {step: keep, tool: {kind: noop, result: kept}}
"""
)


def decided(arcs: str, verdict: Literal["fulfil", "reject"]) -> anabranch.RunResult:
    async def scenario() -> anabranch.RunResult:
        async with asyncio.timeout(HANG_SECONDS), anabranch.Engine(":memory:") as engine:
            run = await engine.start(ASKS.replace("ARCS", arcs))
            await engine.decide(run, "may_i", verdict, actor="kim", reason="too late")
            return await engine.wait(run)

    return asyncio.run(scenario())


def test_an_arc_without_a_condition_is_followed_after_approval_only() -> None:
    assert decided("[{step: send}]", "fulfil").result == "sent"
    rejected = decided("[{step: send}]", "reject")
    assert rejected.status == "failed"
    assert "send" not in rejected.steps
    assert rejected.problem is not None
    assert rejected.problem["message"] == "rejected by kim: too late"


def test_a_rejection_follows_the_arc_that_asks_for_it() -> None:
    arcs = """[{step: send}, {step: keep, when: "{{ outcome.status == 'error' }}"}]"""
    assert "send" not in decided(arcs, "reject").steps
    assert decided(arcs, "reject").steps["keep"]["result"] == "kept"


def test_check_warns_where_an_arc_of_a_decision_may_be_meant_for_a_rejection(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(ASKS.replace("ARCS", """[{step: send, when: "{{ true }}"}, {step: keep}]"""))
    found = [(problem.code, problem.severity) for problem in check(path).problems]
    assert found == [("decision-arc", "warning")]


@pytest.mark.parametrize(
    "name", ["index", "iter_index", "iter_key", "loop_id", "shard_id", "parent", "_first"]
)
def test_an_item_cannot_have_a_name_that_every_item_has(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    loop = f"  - step: a\n    loop: {{in: [1], iterator: {name}}}\n    tool: {{kind: noop}}\n"
    path.write_text(HEAD + loop)
    assert [problem.code for problem in check(path).errors] == ["bad-name"]


def asked(ask: str, workload: str = "{}", secret: str = "") -> str:
    """What the gate of a decision asks."""
    head = HEAD.replace("workflow:", f"workload: {workload}\n{secret}workflow:")

    async def scenario() -> str:
        async with asyncio.timeout(HANG_SECONDS), anabranch.Engine(":memory:") as engine:
            run = await engine.start(
                head + f"  - {{step: find, tool: {{kind: noop, result: {{sum: 7}}}}, "
                "next: {arcs: [{step: may_i}]}}\n"
                f"  - {{step: may_i, tool: {{kind: decision, ask: {ask!r}}}}}\n"
            )
            async for event in engine.events(run):
                if event.kind == "gate.opened":
                    return str(event.fields["ask"])
        raise AssertionError("nothing was asked")

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        ("Send it?", "Send it?"),
        ("Refund {{ workload.amount }} to {{ workload.who }}?", "Refund 250 to Kim?"),
        ("Pay {{ find.sum }}?", "Pay 7?"),
        ("{{ workload.who }}", "Kim"),
        ("{{ workload.amount }}", "250"),
        ("{{ find }}", '{"sum":7}'),
    ],
)
def test_a_question_is_asked_with_the_values_that_it_is_about(ask: str, words: str) -> None:
    assert asked(ask, "{amount: 250, who: Kim}") == words


def test_a_question_that_cannot_be_evaluated_is_asked_as_it_stands_with_the_reason() -> None:
    words = asked("Pay {{ workload.nothing.at_all }}?")
    assert words.startswith("Pay {{ workload.nothing.at_all }}? (")
    assert "undefined" in words


def test_a_question_without_an_end_is_cut() -> None:
    words = asked("{{ 'x' * 100000 }}")
    assert len(words) < 5_000
    assert words.endswith(("…", ")"))

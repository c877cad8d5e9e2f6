"""The engine dies at every commit of a run, in every way; the run ends as if it had not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from anabranch.expressions.port import Constant
from anabranch.net.net import (
    Admission,
    AdmitRule,
    Arc,
    Barrier,
    Branch,
    Decision,
    GatherRule,
    Net,
    Patch,
    Retry,
    RunPolicy,
    Step,
)
from anabranch.testing import Played, after, error, never, ok

from .support import AFTER, AMID, BEFORE, asks, calls, chain, joins, net, play_and_die, to, when


@dataclass(frozen=True)
class Sample:
    name: str
    net: Net
    script: Mapping[str, Any]
    patches: Mapping[float, Mapping[str, Any]] = field(default_factory=dict)


def _looping() -> Net:
    again = when("ctx.rounds < 3", lambda names: names["ctx"]["rounds"] < 3)
    return net(
        calls("body", branches=to("test")),
        calls(
            "test",
            patches=(Patch("rounds", Constant(1), "sum"),),
            branches=(Branch(arcs=(Arc("body", again), Arc("end"))),),
        ),
        calls("end"),
    )


def _nested() -> Net:
    """The inner join, two of three, is one of the two that the outer join waits for."""
    inner = GatherRule(mode="quorum", k=2, combine="merge", losers="kill")
    outer = GatherRule(mode="all", combine="merge", losers="drain")
    halves = ("left", "meet")
    return net(
        calls("start", branches=joins("left", "right", target="end", rule=outer, slots_at=halves)),
        calls("left"),
        calls("right", branches=joins("x", "y", "z", target="meet", rule=inner)),
        calls("x"),
        calls("y"),
        calls("z"),
        calls("meet"),
        calls("end"),
    )


def _gated() -> Net:
    gate = Admission((AdmitRule(when("ctx.go", lambda names: names["ctx"].get("go")), True),))
    return net(
        calls("a", admission=gate, branches=to("b")),
        Step("b", decision=Decision(actors=("kim",)), branches=to("c")),
        calls("c", timeout_ms=60_000, on_timeout="skip", branches=to("d")),
        calls("d"),
        calls("last"),
        final="last",
        policy=RunPolicy(on_failure="partial"),
    )


def _barrier() -> Net:
    return net(
        calls("start", branches=to("a", "b", "c")),
        calls("a", branches=to("meet")),
        calls("b", retry=Retry(attempts=2, delay_ms=500), branches=to("meet")),
        calls("c", branches=to("meet")),
        calls("meet", barrier=Barrier()),
    )


SAMPLES = [
    Sample("chain with retries", chain(3, Retry(attempts=3, delay_ms=1000)),
           {"a": [error("x"), ok(1)], "b": [error("x"), error("x"), ok(2)], "c": after(5, ok(3))}),
    Sample("a loop", _looping(), {"body": [ok(1), ok(2), ok(3)], "end": ok("out")}),
    Sample("a barrier", _barrier(),
           {"a": after(1, 0), "b": [error("x"), after(1, 0)], "c": after(3, 0), "meet": 1}),
    Sample("a quorum that kills",
           net(asks("ask", ["p", "q", "r", "s"], GatherRule(mode="quorum", k=2, losers="kill",
                                                            select="arrival"), branches=to("end")),
               calls("end")),
           {"p": after(1, ok("p")), "q": after(2, ok("q")), "r": after(30, ok("r")), "s": never(),
            "end": ok("done")}),
    Sample("nested joins", _nested(),
           {"left": {"left": 1}, "right": after(1, {"right": 1}), "x": after(1, {"x": 1}),
            "y": after(2, {"y": 1}), "z": after(60, {"z": 1}), "meet": {"met": 1}, "end": "end"}),
    Sample("gates, a timeout and a final step", _gated(),
           {"b": after(5, ok({"why": "because"})), "c": never(), "last": ok("end")},
           {10: {"go": True}}),
]  # fmt: skip


def _outcome(played: Played) -> dict[str, Any]:
    joins = [{**join, "late": 0} for join in played.joins]
    return {
        "status": played.status,
        "result": played.result,
        "steps": played.steps,
        "joins": joins,
        "ctx": played.state.ctx,
        "problem": played.problem,
    }


@pytest.mark.parametrize("place", [BEFORE, AFTER, AMID])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_wherever_the_engine_dies_the_run_ends_the_same(sample: Sample, place: str) -> None:
    whole, commits = play_and_die(sample.net, sample.script, 0, place, sample.patches)
    assert whole.status in ("completed", "partial")
    assert commits >= 4
    for dies_at in range(1, commits + 1):
        played, _ = play_and_die(sample.net, sample.script, dies_at, place, sample.patches)
        assert _outcome(played) == _outcome(whole), f"died at commit {dies_at}"


def test_a_crash_is_seen_in_the_log_and_nowhere_else() -> None:
    played, _ = play_and_die(chain(1), {"a": after(5, ok(1))}, 1, AMID)
    assert [event["reason"] for event in played.events_of("job.lost")] == ["the engine restarted"]
    assert (played.status, played.step("a").runs) == ("completed", 1)

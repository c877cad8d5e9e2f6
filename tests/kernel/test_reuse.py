"""Redrive: a linked run takes over what succeeded and does only the rest again."""

from __future__ import annotations

from typing import Any

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.redrive import plan_redrive, reusable
from anabranch.kernel.reuse import SETTLED
from anabranch.kernel.values import ContextPatch, succeeded
from anabranch.net.net import Arc, Branch, Decision, GatherRule, Join, Net, Slot

from .driver import Run
from .nets import Fn, arcs, exclusive, fan_net, inclusive, net, router, step


def redriven(run: Run, **start: Any) -> Run:
    return Run(run.net, origin="run", reuse=reusable(run.net, run.history), **start)


def scheduled(run: Run) -> list[str]:
    steps = {event.token: event.step for event in run.of_kind(e.TokenCreated)}
    return [steps[event.token] for event in run.of_kind(e.JobScheduled)]


def line() -> Net:
    return net(step("a", "b"), step("b", "c"), step("c"))


def test_only_what_failed_is_done_again() -> None:
    first = Run(line())
    first.done("a", {"n": 1}, patches=(ContextPatch("k", 1, "sum"),))
    first.fails("b")
    again = redriven(first)
    assert scheduled(again) == ["b"]
    assert again.state.results == {"a": {"n": 1}}
    assert again.state.ctx == {"k": 1}, "the patches are applied again"
    again.done("b")
    again.done("c")
    assert again.status == "completed"
    assert again.state.reuse == {}


def test_nothing_to_take_over_means_everything_again() -> None:
    first = Run(line())
    first.fails("a")
    assert reusable(first.net, first.history) == {}
    assert scheduled(redriven(first)) == ["a"]


def test_a_redriven_run_can_be_redriven() -> None:
    first = Run(line())
    first.done("a", 1)
    first.fails("b")
    second = redriven(first)
    second.done("b", 2)
    second.fails("c")
    third = redriven(second)
    assert scheduled(third) == ["c"]
    assert third.state.results == {"a": 1, "b": 2}


def test_a_different_question_is_asked_anew() -> None:
    """The same step with other arguments is another step run."""
    branch = exclusive(Arc("b", None, Fn(lambda names: {"x": names["event"]["result"]})))
    first = Run(net(step("a", branch), step("b", "c"), step("c")))
    first.done("a", 1)
    first.done("b", "for 1")
    first.fails("c")
    answers = {
        key: found for key, found in reusable(first.net, first.history).items() if key[0] != "a"
    }
    again = Run(first.net, reuse=answers)
    again.done("a", 2)
    assert [job.step for job in again.state.jobs.values()] == ["b"]


def test_the_payload_belongs_to_the_question() -> None:
    carry = Branch(None, "inclusive", arcs("b"), carry_payload=True)
    first = Run(net(step("a", carry), step("b", "c"), step("c"), carries_payload=True))
    first.done("a", {"x": 1})
    first.done("b")
    first.fails("c")
    answers = {
        key: found for key, found in reusable(first.net, first.history).items() if key[0] != "a"
    }
    again = Run(first.net, reuse=answers)
    again.done("a", {"x": 2})
    assert [job.step for job in again.state.jobs.values()] == ["b"]


def test_several_runs_of_a_step_take_over_their_answers_in_order() -> None:
    first = Run(net(router("a", inclusive("b", "b", "c")), step("b"), step("c")))
    first.done("b", 1, nth=0)
    first.done("b", 2, nth=0)
    first.fails("c")
    again = redriven(first)
    assert scheduled(again) == ["c"]
    assert [event.answer.result for event in again.of_kind(e.JobReused)] == [1, 2]


def test_what_leaves_nothing_to_do_again_is_told_from_what_does() -> None:
    first = Run(line())
    for name in ("a", "b", "c"):
        first.done(name)
    assert first.status == "completed"
    assert plan_redrive(first.net, first.history).idle
    fan = Run(fan_net(["ann", "bob"], "any"))
    fan.fails("1.0")
    fan.done("1.1", "b")
    assert fan.status == "completed"
    assert plan_redrive(fan.net, fan.history).idle, "it has what it asked for"
    cancelled = Run(line())
    cancelled.done("a")
    cancelled.fails("b")
    assert not plan_redrive(cancelled.net, cancelled.history).idle


def test_a_fan_out_asks_only_those_who_failed() -> None:
    first = Run(fan_net(["ann", "bob", "cy"], "all"))
    first.done("1.0", "a")
    first.done("1.2", "c")
    first.fails("1.1")
    again = redriven(first)
    assert list(again.state.jobs) == ["1.1"]
    again.done("1.1", "b")
    assert again.result == {"responses": ["a", "b", "c"]}


def test_a_fan_out_asks_those_again_who_said_no_although_their_no_counted() -> None:
    first = Run(fan_net(["ann", "bob", "cy"], "all"))
    first.done("1.0", "a")
    first.begin("1.1")
    first.send(s.JobReport("1.1", 1, succeeded("no", outcome="negative")))
    first.fails("1.2")
    again = redriven(first)
    assert list(again.state.jobs) == ["1.1", "1.2"]


def test_a_slot_with_another_value_is_asked_anew() -> None:
    slots: list[list[Any]] = [[{"n": 1}, {"n": 2}], [{"n": 1}, {"n": 3}]]
    first = Run(fan_net([*slots[0], {"n": 9}], "all", "next"))
    first.done("1.0", "one")
    first.done("1.1", "two")
    first.fails("1.2")
    again = Run(fan_net(slots[1], "all", "next"), reuse=reusable(first.net, first.history))
    assert list(again.state.jobs) == ["1.1"]


def test_a_reused_window_keeps_its_size() -> None:
    first = Run(fan_net([f"p{i}" for i in range(6)], "all", window=2))
    for slot in range(4):
        first.done(f"1.{slot}")
    first.fails("1.4")
    again = redriven(first)
    assert list(again.state.jobs) == ["1.4", "1.5"]


def test_a_fulfilled_decision_is_not_asked_again() -> None:
    decided = step("a", "b", work=None, decision=Decision("go?"))
    worked = step("b", "c", decision=Decision("good?"))
    first = Run(net(decided, worked, step("c")))
    first.send(s.Decide("a", "fulfil", "alice"))
    first.done("b", "draft")
    first.send(s.Decide("b", "fulfil", "bob"))
    first.fails("c")
    again = redriven(first)
    assert again.state.gates == {}
    assert scheduled(again) == ["c"]
    assert again.state.results["a"]["actor"] == "alice"
    assert again.state.results["b"] == "draft"


def test_a_rejected_decision_is_asked_again() -> None:
    first = Run(net(router("r", "x", "a"), step("x"), step("a", work=None, decision=Decision())))
    first.done("x")
    first.send(s.Decide("a", "reject", "alice"))
    again = redriven(first)
    assert list(again.state.gates) == ["gate-3"]
    assert again.state.jobs == {}, "asking takes no job"
    again.send(s.Decide("a", "fulfil", "bob"))
    assert again.state.results["a"]["actor"] == "bob"


def test_a_killed_loser_is_not_taken_over() -> None:
    join = Join("j", GatherRule("any", combine="merge", losers="kill"), (Slot("g"), Slot("h")))
    branch = Branch(None, "inclusive", arcs("g", "h"), join)
    first = Run(net(router("a", branch), step("g"), step("h"), step("j")))
    first.begin("h")
    first.done("g", {"won": "g"})
    first.done("h", {"won": "h"})
    first.fails("j")
    assert [key.split("|")[0] for key in reusable(first.net, first.history)] == ["g"]


def test_an_answer_that_came_too_late_for_its_fan_out_is_not_taken_over() -> None:
    first = Run(fan_net(["ann", "bob"], "any", "next", losers="drain"))
    first.begin("1.0")
    first.begin("1.1")
    first.done("1.0", "won")
    first.done("1.1", "late")
    found = reusable(first.net, first.history)
    kept = [answer[0].result for key, answer in found.items() if SETTLED not in key]
    assert kept == [{"responses": ["won"]}]


def test_the_final_step_is_always_done_again() -> None:
    """What it is told about the run is never twice the same."""
    first = Run(net(router("r", "a", "b"), step("a"), step("b"), step("end"), final="end"))
    first.done("a")
    first.fails("b")
    first.done("end", "first")
    again = redriven(first)
    again.done("b")
    assert [job.step for job in again.state.jobs.values()] == ["end"]


def test_a_wait_that_an_answer_asked_for_is_kept() -> None:
    first = Run(net(step("a", "b"), step("b")))
    first.done("a", wait_ms=1_000)
    first.tick(first.at + 1_000)
    first.fails("b")
    again = redriven(first)
    assert again.token("b").phase == "sleeping"

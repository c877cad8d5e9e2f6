"""What failing work wants written is written once, when its step run fails; its arcs see it."""

from __future__ import annotations

from typing import Any

from anabranch.expressions.port import Constant
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.tracker import ItemFailure, ShardReport
from anabranch.kernel.values import Answer, ContextPatch, Fault
from anabranch.net.net import Arc, Loop, Patch

from .driver import Run
from .nets import const, ctx, exclusive, net, retrying, step


def failing(*patches: ContextPatch) -> Answer:
    fault = Fault("boom", "it went wrong")
    return Answer(status="error", outcome="error", fault=fault, patches=patches)


WHY = ContextPatch("why", "boom")


def test_they_are_recorded_with_the_failure_and_decide_its_routes() -> None:
    arcs = exclusive(Arc("mend", guard=ctx("why")), "never")
    run = Run(net(step("a", arcs), step("mend"), step("never")))
    run.answer("a", failing(WHY))
    assert run.state.ctx == {"why": "boom"}
    assert (run.statuses("a"), run.job("mend").step) == (["failed"], "mend")
    run.done("mend")
    assert run.statuses("never") == []


def test_what_the_step_itself_writes_when_it_ends_well_stays_unwritten() -> None:
    run = Run(net(step("a", patches=(Patch("done", const(True)),))))
    run.answer("a", failing(WHY))
    assert run.state.ctx == {"why": "boom"}


def test_an_attempt_that_is_tried_again_writes_nothing() -> None:
    count = ContextPatch("failures", 1, "sum")
    run = Run(net(step("a", work=retrying(3))))
    run.answer("a", failing(count))
    assert run.state.ctx == {}
    run.answer("a", failing(count))
    run.answer("a", failing(count))
    assert run.state.ctx == {"failures": 1}
    assert run.status == "failed"


def test_those_that_do_not_fit_fail_the_step_and_say_so() -> None:
    run = Run(net(step("a")), begin=False)
    run.send(s.Start(run="run"))
    run.patch(why="a text")
    run.answer("a", failing(ContextPatch("why", 1, "sum")))
    assert run.state.ctx == {"why": "a text"}
    assert run.state.problem is not None
    assert "why" in run.state.problem.message


def test_what_a_loop_reduced_is_not_written_when_it_fails() -> None:
    loop = Loop(Constant([1, 2]), shard_size=2, reducers={"total": "sum"})
    run = Run(net(step("each", loop=loop)))
    bad = (ItemFailure(1, "", "boom", "it failed"),)
    report: Any = ShardReport(1, bad, 1, {"total": 5})
    answer = Answer(status="ok", outcome="ok", result=[1, None], patches=(WHY,), shard=report)
    run.answer("each", answer)
    assert run.status == "failed"
    assert run.state.ctx == {"why": "boom"}
    assert [list(event.patches) for event in run.of_kind(e.ContextPatched)] == [[WHY]]

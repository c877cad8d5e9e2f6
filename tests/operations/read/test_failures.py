"""What went wrong in a run: from its state, with the attempts and instants of its log."""

from __future__ import annotations

from anabranch.kernel.values import Fault
from anabranch.operations.read.failures import Failures, add_attempts, failures_of
from anabranch.operations.read.timeline import Timeline
from kernel.driver import Run
from kernel.nets import inclusive, net, retrying, router, step


def failures(run: Run) -> Failures:
    timeline = Timeline()
    for at, event in run.history:
        timeline.see(at, event)
    found = failures_of(run.net, run.state)
    add_attempts(found, timeline)
    return found


def test_a_run_without_failures_has_none_to_show() -> None:
    assert failures(Run(net(step("a")))) == Failures()


def test_what_the_run_failed_of_comes_first_with_its_attempts() -> None:
    run = Run(net(router("a", inclusive("b", "c")), step("b"), step("c", work=retrying(2))))
    run.fails("c", "first")
    run.fails("b", "other", retryable=False)
    run.fails("c", "last")
    found = failures(run)
    assert isinstance(run.state.problem, Fault)
    assert found.shown[0].message == run.state.problem.message
    assert {one.step: (one.tries, one.most) for one in found.shown if one.step} == {
        "b": (1, 1),
        "c": (2, 2),
    }

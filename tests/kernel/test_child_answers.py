"""A finished child run answers its parent with its result, or with that of the step asked for."""

from __future__ import annotations

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.summary import child_answer
from anabranch.net.net import Arc, RunPolicy

from .driver import Run
from .nets import ctx, exclusive, net, step

TWO = net(step("gross", "label"), step("label"))


def test_it_answers_with_the_step_that_was_named() -> None:
    run = Run(TWO, returns="gross")
    run.done("gross", 123)
    run.done("label", "PLN 123")
    assert child_answer(run.state).result == {"run": "run", "status": "completed", "result": 123}
    assert run.of_kind(e.RunStarted)[0].returns == "gross"


def test_a_step_that_gave_nothing_is_an_answer_too() -> None:
    run = Run(TWO, returns="gross")
    run.done("gross")
    run.done("label", 1)
    answer = child_answer(run.state)
    assert (answer.status, answer.result["result"]) == ("ok", None)


def test_a_step_that_does_not_exist_is_refused_before_anything_begins() -> None:
    run = Run(TWO, begin=False)
    error = run.refuses(s.Start(run="run", returns="gros"), "unknown_step")
    assert error.message == (
        "there is no step 'gros' whose result it could answer with; did you mean 'gross'?"
    )


def test_a_step_that_did_not_run_is_a_failure_of_the_child() -> None:
    routes = exclusive(Arc("dear", guard=ctx("rich")), "cheap")
    run = Run(net(step("a", routes), step("dear"), step("cheap")), returns="dear")
    run.done("a", 1)
    run.done("cheap", 2)
    answer = child_answer(run.state)
    assert answer.fault is not None
    assert (answer.status, answer.fault.kind) == ("error", "child")
    assert answer.fault.message == "child run run ended completed, but its step dear did not run"


def test_a_step_that_failed_in_a_child_that_ended_well_is_one_too() -> None:
    policy = RunPolicy(on_failure="handled")
    run = Run(net(step("a", "b"), step("b"), policy=policy), returns="a")
    run.fails("a")
    run.done("b", 2)
    fault = child_answer(run.state).fault
    assert fault is not None
    assert fault.message == "child run run ended completed, but its step a was failed"


def test_a_child_that_failed_answers_so_whatever_its_step_gave() -> None:
    run = Run(TWO, returns="gross")
    run.done("gross", 123)
    run.fails("label")
    fault = child_answer(run.state).fault
    assert fault is not None
    assert fault.message == "child run run ended failed: label went wrong"

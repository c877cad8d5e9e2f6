"""Work that is let come to its end though its token was killed, and what aborted work leaves."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer, ContextPatch, aborted, cancels_run, succeeded
from anabranch.net.net import Net, Work

from .driver import Run
from .nets import forks, orchestration

GAS = (ContextPatch("gas", 5, "sum"),)


def patient(net: Net) -> Net:
    work = Work(kind="test", error_aborts=True, finishes_when_killed=True)
    steps = {name: replace(step, work=work) for name, step in net.steps.items()}
    return replace(net, steps=steps)


def race() -> Net:
    return patient(
        orchestration(
            A1=forks(["G1", "H1", "I1"], "J1", wait="kill", froms=["G1:any", "H1:any", "I1:any"]),
            G1=None, H1=forks(["K1"]), I1=None, K1=None, J1=None,
        )
    )  # fmt: skip


def killed_while_running() -> Run:
    run = Run(race())
    run.valid("A1")
    run.begin("H1")
    run.valid("G1")
    return run


def test_a_kill_ends_what_waits_and_tells_nobody_to_stop() -> None:
    run = killed_while_running()
    assert run.statuses("I1") == ["aborted"]
    assert run.token("H1").doomed
    assert run.job("H1").phase == "running"
    assert run.of_kind(e.JobCancelling) == []


def test_what_runs_finishes_as_done_and_creates_nothing() -> None:
    run = killed_while_running()
    run.valid("H1", h=1)
    assert run.statuses("H1") == ["done"]
    assert run.statuses("K1") == []
    assert run.verdict("J1") == ("closed", ["G1"], 1)
    run.valid("J1")
    assert run.status == "completed"
    assert "H1" not in run.state.results


def test_one_that_waits_for_an_answer_from_outside_ends_with_the_run() -> None:
    run = killed_while_running()
    run.send(s.JobPark(run.job("H1").id, 1, "order"))
    run.send(s.Cancel("me", "enough"))
    assert run.status == "cancelled"


def test_its_costs_count_and_its_other_writes_do_not() -> None:
    run = killed_while_running()
    patches = (*GAS, ContextPatch("note", "x"))
    run.answer("H1", succeeded({}, outcome="valid", patches=patches))
    assert run.state.ctx == {"gas": 5}


def test_a_killed_one_that_is_lost_is_not_tried_again() -> None:
    run = killed_while_running()
    job = run.job("H1")
    run.send(s.JobLose(job.id, job.attempt, "crash"))
    assert run.statuses("H1") == ["aborted"]


def test_the_end_of_the_run_lets_it_finish_too_and_then_aborts_it() -> None:
    run = Run(race())
    run.valid("A1")
    run.begin("G1")
    run.send(s.Cancel("me", "enough"))
    assert run.statuses("H1") == ["aborted"]
    assert run.status == "running", "somebody still works for it"
    run.answer("G1", succeeded({"g": 1}, outcome="valid", patches=GAS))
    assert run.statuses("G1") == ["aborted"]
    assert run.status == "cancelled"
    assert run.state.ctx == {"gas": 5}


def with_patches(answer: Answer) -> Answer:
    return msgspec.structs.replace(answer, patches=GAS)


def test_what_an_aborting_step_wrote_counts() -> None:
    run = Run(race())
    run.answer("A1", with_patches(aborted("gas", "used up")))
    assert run.state.ctx == {"gas": 5}
    assert run.statuses("A1") == ["aborted"]
    assert run.status == "completed"


def test_what_a_step_wrote_that_ends_the_run_counts() -> None:
    run = Run(race())
    run.answer("A1", with_patches(cancels_run("cancel_session", "over")))
    assert run.state.ctx == {"gas": 5}
    assert run.status == "cancelled"


def test_a_write_that_does_not_fit_is_left_out_and_the_step_aborts_all_the_same() -> None:
    run = Run(race())
    run.patch(gas="text")
    run.answer("A1", with_patches(aborted("gas", "used up")))
    assert run.state.ctx == {"gas": "text"}
    assert run.statuses("A1") == ["aborted"]

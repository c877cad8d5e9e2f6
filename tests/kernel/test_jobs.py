"""Jobs: attempts, retries, leases, parking, cancelling, and reports that do not fit."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.idempotency import idempotency_key
from anabranch.kernel.values import Answer, aborted, cancels_run, failed, postponed, succeeded
from anabranch.net.net import Retry, RunPolicy, Work

from .driver import Run
from .nets import chain, exclusive, net, retrying, router, step


def one(work: Work | None = None, **more: Any) -> Run:
    """A run of a single step."""
    return Run(net(step("a", work=work or Work("test"), **more)))


# -- the plain way -------------------------------------------------------------------------------


def test_a_step_is_scheduled_started_reported_and_done() -> None:
    run = Run(chain(2))
    run.done("s0", {"n": 1})
    run.done("s1", {"n": 2})
    assert run.status == "completed"
    assert run.kinds() == [
        "run.started", "token.created", "job.scheduled", "job.started", "job.reported",
        "token.created", "token.finished", "job.scheduled", "job.started", "job.reported",
        "token.finished", "run.finished",
    ]  # fmt: skip
    assert run.state.jobs == {}


def test_ids_follow_from_parent_and_position() -> None:
    run = Run(chain(2))
    assert list(run.state.jobs) == ["1.0"]
    run.done("s0")
    assert list(run.state.jobs) == ["2.0"]


def test_the_idempotency_key_is_the_same_over_all_attempts() -> None:
    run = one(retrying(2))
    first = idempotency_key("run", run.job("a").id)
    run.fails("a")
    assert run.job("a").attempt == 2
    assert idempotency_key("run", run.job("a").id) == first


# -- retries -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retry", "delays"),
    [
        (Retry(4, 100), [100, 100, 100]),
        (Retry(4, 100, "linear"), [100, 200, 300]),
        (Retry(4, 100, "exponential"), [100, 200, 400]),
        (Retry(4, 100, "exponential", multiplier=3.0), [100, 300, 900]),
        (Retry(4, 100, "exponential", delay_ms_max=250), [100, 200, 250]),
        (Retry(4, 100, "linear", delay_ms_max=150), [100, 150, 150]),
        (Retry(4, 100, delay_ms_max=0), [0, 0, 0]),
    ],
)
def test_retries_wait_as_the_policy_says(retry: Retry, delays: list[int]) -> None:
    run = one(Work("test", retry=retry))
    waited = []
    for attempt in (1, 2, 3):
        assert run.job("a").attempt == attempt
        run.fails("a")
        due = run.next_wake()
        waited.append(due - run.at if due is not None else 0)
        if due is not None:
            run.tick(due)
    assert waited == delays
    run.fails("a")
    assert run.status == "failed"
    assert len(run.of_kind(e.JobScheduled)) == 4


def test_work_that_is_put_off_is_tried_again_and_costs_no_try() -> None:
    run = one()
    for times, later in enumerate((1_000, 2_000, 4_000), 1):
        job = run.begin("a")
        away = postponed("away", "the node is away", later)
        run.send(s.JobReport(job.id, job.attempt, away), run.at + 50)
        job = run.job("a")
        assert (job.phase, job.due, job.failures) == ("backoff", run.at + later, 0)
        assert job.postponed == times
        assert run.state.status == ""
        run.tick(job.due)
    assert run.job("a").postponed_ms == 7_150, "the waits and the attempts"
    run.done("a", 5)
    assert run.status == "completed"


def test_work_that_is_put_off_still_has_the_tries_of_its_policy() -> None:
    run = one(retrying(2, 100))
    run.answer("a", postponed("away", "the node is away", 10))
    run.tick(run.at + 10)
    run.fails("a")
    assert run.job("a").phase == "backoff"
    run.tick(run.at + 100)
    run.fails("a")
    assert run.status == "failed"


def test_a_cancelled_run_does_not_wait_for_work_that_was_put_off() -> None:
    run = one()
    run.answer("a", postponed("away", "the node is away", 60_000))
    run.send(s.Cancel("me", "enough"))
    assert run.status == "cancelled"


def test_a_retry_that_succeeds_ends_the_step_well() -> None:
    run = one(retrying(3))
    run.fails("a")
    run.fails("a")
    run.done("a", "third time")
    assert run.status == "completed"
    assert run.result == "third time"


def test_what_cannot_be_retried_is_not() -> None:
    run = one(retrying(5))
    run.fails("a", retryable=False)
    assert run.status == "failed"


def test_an_error_without_a_reason_counts_as_a_failure() -> None:
    run = one(retrying(2))
    run.answer("a", Answer(status="error"))
    assert run.job("a").attempt == 2
    run.answer("a", Answer(status="error"))
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.kind == "unknown"


def test_a_timed_out_attempt_is_retried_and_its_late_report_refused() -> None:
    run = one(Work("test", timeout_ms=100, retry=Retry(2, 50)))
    run.begin("a")
    run.tick(run.at + 100)
    assert run.job("a").phase == "backoff"
    run.refuses(s.JobReport("1.0", 1, succeeded()), "job_not_running")
    run.tick(run.at + 50)
    run.refuses(s.JobReport("1.0", 1, succeeded()), "stale_attempt")
    run.begin("a")
    run.tick(run.at + 100)
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "no answer within 0.1 s"


# -- losses and leases ---------------------------------------------------------------------------


def test_a_lost_job_goes_out_again_and_costs_no_attempt_of_the_policy() -> None:
    run = one(retrying(1))
    run.begin("a")
    run.send(s.JobLose("1.0", 1, "crash"))
    assert (run.job("a").phase, run.job("a").attempt) == ("scheduled", 2)
    run.done("a")
    assert run.status == "completed"


def test_a_job_lost_too_often_fails() -> None:
    run = one(Work("test", losses_max=2))
    for attempt in (1, 2, 3):
        run.begin("a")
        run.send(s.JobLose("1.0", attempt, "crash"))
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "lost 3 times, the last time by: crash"


def test_lost_workers_have_a_limit_of_their_own_and_restarts_do_not_count_for_it() -> None:
    run = one(Work("test", workers_lost_max=1))
    for attempt in (1, 2, 3):
        run.begin("a")
        run.send(s.JobLose("1.0", attempt, "the engine restarted"))
    for _ in (1, 2):
        run.begin("a", lease_until=run.at + 100)
        run.tick(run.at + 100)
    assert run.status == "failed"
    assert run.state.problem is not None
    message = "2 workers were lost with it, the last one by: its lease ran out; "
    message += "the limit max_job_retries is 1"
    assert run.state.problem.message == message


def test_the_time_of_a_queued_job_runs_from_when_it_has_begun() -> None:
    run = one(Work("test", timeout_ms=100))
    run.send(s.JobStart("1.0", 1, "w", run.at + 1000, queued=True))
    run.tick(run.at + 500)
    assert run.job("a").phase == "running"
    run.send(s.JobExtend("1.0", 1, run.job("a").lease, began=True))
    assert run.job("a").until == run.at + 100
    run.send(s.JobExtend("1.0", 1, run.job("a").lease, began=True))  # said twice
    assert len(run.of_kind(e.JobExtended)) == 1
    run.tick(run.at + 100)
    assert run.of_kind(e.JobTimedOut)


def test_a_job_without_a_limit_of_time_costs_no_event_when_it_begins() -> None:
    run = one()
    run.send(s.JobStart("1.0", 1, "w", run.at + 1000, queued=True))
    run.send(s.JobExtend("1.0", 1, run.job("a").lease, began=True))
    assert run.of_kind(e.JobExtended) == []


def test_a_late_result_of_a_lost_attempt_is_recorded_and_changes_nothing_else() -> None:
    run = Run(chain(2))
    run.begin("s0")
    run.send(s.JobLose("1.0", 1, "crash"))
    before = run.job("s0").attempt, run.job("s0").phase, run.state.busy
    run.send(s.JobLate("1.0", 1, "w1", "ok"))
    assert (run.job("s0").attempt, run.job("s0").phase, run.state.busy) == before
    run.done("s0")
    run.send(s.JobLate("1.0", 1, "w1", "error"))
    assert run.of_kind(e.JobLate) == [
        e.JobLate("1.0", 1, "w1", "ok"),
        e.JobLate("1.0", 1, "w1", "error"),
    ]
    run.done("s1")
    assert run.status == "completed"
    run.refuses(s.JobLate("1.0", 1), "run_finished")


def test_a_late_result_of_an_attempt_that_timed_out_is_recorded() -> None:
    run = one(Work("test", timeout_ms=100, retry=Retry(2, 50)))
    run.begin("a")
    run.tick(run.at + 100)
    run.send(s.JobLate("1.0", 1, "w1", "ok"))
    assert run.job("a").phase == "backoff"


def test_what_is_not_late_is_not_recorded_as_late() -> None:
    run = Run(chain(2))
    run.refuses(s.JobLate("1.0", 1), "not_late")  # it has not begun
    run.begin("s0")
    run.refuses(s.JobLate("1.0", 1), "not_late")
    run.refuses(s.JobLate("1.0", 2), "unknown_attempt")
    run.refuses(s.JobLate("1.0", 0), "unknown_attempt")
    run.refuses(s.JobLate("7.0", 1), "unknown_job")
    run.refuses(s.JobLate("", 1), "unknown_job")
    run.refuses(s.JobLate("x.0", 1), "unknown_job")


def test_a_lease_that_runs_out_loses_the_job() -> None:
    run = one()
    run.begin("a", lease_until=run.at + 100)
    assert run.next_wake() == run.at + 100
    run.tick(run.at + 100)
    assert run.of_kind(e.JobLost)[0].reason == "its lease ran out"
    assert run.job("a").attempt == 2


def test_a_lease_can_be_extended_but_not_shortened() -> None:
    run = one()
    job = run.begin("a", lease_until=1_100)
    run.send(s.JobExtend(job.id, 1, 1_500))
    assert run.send(s.JobExtend(job.id, 1, 1_200)) == []
    assert run.tick(1_100) == []
    assert run.next_wake() == 1_500


def test_a_job_without_a_lease_has_none_to_extend() -> None:
    run = one()
    run.refuses(s.JobExtend("1.0", 1, 5_000), "no_lease")
    run.begin("a")
    run.refuses(s.JobExtend("1.0", 1, 5_000), "no_lease")


def test_progress_is_kept_over_a_loss_and_forgotten_with_the_answer() -> None:
    run = one()
    run.refuses(s.JobProgress("1.0", 1, 5), "job_not_running")
    job = run.begin("a", lease_until=run.at + 100)
    run.send(s.JobProgress(job.id, 1, {"done": 3}))
    assert run.send(s.JobProgress(job.id, 1, {"done": 3})) == []  # nothing new
    run.refuses(s.JobProgress(job.id, 2, 5), "stale_attempt")
    run.tick(run.at + 100)
    assert (run.job("a").attempt, run.job("a").progress) == (2, {"done": 3})


# -- parked --------------------------------------------------------------------------------------


def test_a_parked_job_holds_no_lease_and_waits_for_its_answer() -> None:
    run = one()
    run.begin("a", lease_until=1_100)
    run.send(s.JobPark("1.0", 1, "child-7"))
    assert run.next_wake() is None
    assert run.status == "waiting"
    run.refuses(s.JobLose("1.0", 1), "job_not_running")
    run.send(s.JobReport("1.0", 1, succeeded("later")), at=900_000)
    assert run.result == "later"


def test_a_parked_job_has_a_time_limit_of_its_own() -> None:
    run = one()
    run.park("a", until=run.at + 2_000)
    run.tick(run.at + 2_000)
    assert run.status == "failed"
    assert run.state.problem is not None
    assert run.state.problem.message == "no answer within 2 s"


def test_a_parked_job_keeps_the_time_limit_of_its_work() -> None:
    run = one(Work("test", timeout_ms=300))
    run.park("a")
    assert run.next_wake() == run.at + 300


def test_only_a_running_job_parks() -> None:
    run = one()
    run.refuses(s.JobPark("1.0", 1), "not_running")


def test_cancelling_a_parked_job_says_what_it_waited_for() -> None:
    run = one()
    run.park("a", "order-3")
    events = run.send(s.Cancel("me"))
    intent = next(event for event in events if isinstance(event, e.JobCancelling))
    assert (intent.ticket, intent.attempt) == ("order-3", 1)
    assert run.status == "cancelled", "nobody of ours works on it, so nobody is waited for"


# -- cancelling ----------------------------------------------------------------------------------


def test_intent_and_discharge_are_two_events() -> None:
    run = one()
    run.begin("a")
    run.send(s.Cancel("me"))
    assert run.kinds()[-2:] == ["token.doomed", "job.cancelling"]
    assert run.status == "running"
    events = run.discharge("1.0")
    assert [e.kind_of(event) for event in events] == [
        "job.discharged", "token.finished", "run.finished",
    ]  # fmt: skip
    assert run.statuses("a") == ["aborted"]


def test_a_job_nobody_has_started_is_discharged_at_once() -> None:
    run = one()
    run.send(s.Cancel("me"))
    assert [event.how for event in run.of_kind(e.JobDischarged)] == ["unstarted"]
    assert run.of_kind(e.JobCancelling) == []
    assert run.status == "cancelled"


def test_a_worker_that_never_says_it_stopped_is_forgotten_with_its_lease() -> None:
    run = one()
    run.begin("a", lease_until=run.at + 500)
    run.send(s.Cancel("me"))
    assert run.next_wake() == run.at + 500
    run.tick(run.at + 500)
    assert run.status == "cancelled"
    assert [event.how for event in run.of_kind(e.JobDischarged)] == ["lost"]


def test_a_job_lost_while_it_is_told_to_stop_is_over() -> None:
    run = one()
    run.begin("a")
    run.send(s.Cancel("me"))
    run.send(s.JobLose("1.0", 1))
    assert run.status == "cancelled"


def test_only_a_job_that_was_told_to_stop_can_be_discharged() -> None:
    run = one()
    run.refuses(s.JobDischarge("1.0"), "not_cancelling")
    run.begin("a")
    run.refuses(s.JobDischarge("1.0"), "not_cancelling")
    run.refuses(s.JobDischarge("9.9"), "not_cancelling")


@pytest.mark.parametrize("on_timeout", ["fail", "skip", "abort_run"])
@pytest.mark.parametrize("ending", ["report", "failure", "discharge", "lost"])
def test_a_job_whose_step_has_gone_on_without_it_never_keeps_the_run_open(
    ending: str, on_timeout: str
) -> None:
    """The step ran out of time while its job was out; however the job ends, the run ends."""
    run = Run(net(step("a", "b", timeout_ms=100, on_timeout=on_timeout), router("b")))
    run.begin("a")
    run.tick(run.at + 100)
    assert run.state.jobs["1.0"].phase == "cancelling"
    last: dict[str, s.Stimulus] = {
        "report": s.JobReport("1.0", 1, succeeded("too late")),
        "failure": s.JobReport("1.0", 1, failed("boom", "too late")),
        "discharge": s.JobDischarge("1.0"),
        "lost": s.JobLose("1.0", 1),
    }
    run.send(last[ending])
    expected = {"fail": "step_timeout", "skip": "completed", "abort_run": "step_timeout"}
    assert run.status == expected[on_timeout]
    assert run.state.results.get("a") is None


# -- what work may answer ------------------------------------------------------------------------


def test_aborted_work_ends_its_step_without_a_branch_and_without_failing_the_run() -> None:
    run = Run(net(step("a", "b"), step("b")))
    run.answer("a", aborted("rule", "no"))
    assert run.statuses("a") == ["aborted"]
    assert run.statuses("b") == []
    assert run.status == "completed"


def test_an_error_aborts_where_the_work_says_so() -> None:
    run = Run(net(step("a", "b", work=Work("test", error_aborts=True)), step("b")))
    run.fails("a")
    assert run.statuses("a") == ["aborted"]
    assert run.status == "completed"
    assert run.state.faults[0][1].kind == "boom"


def test_work_can_ask_for_the_end_of_the_whole_run() -> None:
    run = Run(net(router("a", "b", "c"), step("b"), step("c")))
    run.answer("b", cancels_run("budget", "nothing left"))
    assert run.status == "cancelled"
    assert run.statuses("c") == ["aborted"]
    assert run.state.problem is not None
    assert run.state.problem.message == "nothing left"


# -- reports that do not fit ---------------------------------------------------------------------


def test_reports_for_unknown_finished_or_unstarted_jobs_change_nothing() -> None:
    run = Run(chain(2))
    run.refuses(s.JobReport("1.0", 1, succeeded()), "job_not_running")
    run.refuses(s.JobReport("7.0", 1, succeeded()), "unknown_job")
    run.begin("s0")
    run.refuses(s.JobReport("1.0", 2, succeeded()), "stale_attempt")
    run.refuses(s.JobStart("1.0", 1), "job_not_scheduled")
    run.done("s0")
    for late in (s.JobReport("1.0", 1, succeeded("again")), s.JobLose("1.0", 1)):
        assert "already over" in run.refuses(late, "unknown_job").message
    assert run.statuses("s0") == ["done"]


def test_a_report_after_the_end_of_the_run_is_refused() -> None:
    run = one()
    run.done("a")
    for stimulus in (s.JobReport("1.0", 1, succeeded()), s.Tick(), s.Cancel(), s.Start(run="x")):
        run.refuses(stimulus, "run_finished")


def test_nothing_is_taken_before_the_start_and_a_run_starts_once() -> None:
    run = Run(chain(1), begin=False)
    run.refuses(s.Tick(), "not_started")
    run.refuses(s.Start(run=""), "run_id")
    run.refuses(s.Start(run="run", step="nowhere"), "unknown_step")
    run.send(s.Start(run="run"))
    run.refuses(s.Start(run="run"), "already_started")


def test_a_stale_answer_of_an_earlier_attempt_is_not_kept() -> None:
    """The first attempt failed with a result of its own; the second ran out of time."""
    work = Work("test", timeout_ms=100, retry=Retry(2))
    failure = failed("boom", "first")
    answer = Answer(status="error", fault=failure.fault, result={"part": 1})
    policy = RunPolicy(on_failure="handled")
    run = Run(net(step("a", exclusive("b"), work=work), router("b"), policy=policy))
    run.answer("a", answer)
    run.begin("a")
    run.tick(run.at + 100)
    assert run.state.results == {"b": None}
    assert run.status == "completed"

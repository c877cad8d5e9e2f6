"""Explain: for everything unfinished, what it waits for, since when, until when, who moves it."""

from __future__ import annotations

from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import Mover, Unfinished, explain
from anabranch.kernel.values import postponed
from anabranch.net.net import (
    Admission,
    AdmitRule,
    Barrier,
    Branch,
    Decision,
    GatherRule,
    Join,
    RunPolicy,
    Slot,
    Work,
)

from .driver import Run
from .nets import Fn, arcs, ctx, fan_net, net, retrying, router, step

START = 1_000


def explained(run: Run) -> list[Unfinished]:
    return explain(run.net, run.state)


def named(*names: str) -> tuple[Mover, ...]:
    return tuple(Mover("", name) for name in names)


#: Before another try.
TRIED = (*named("time"), Mover("retry", "run", ("a",)))


def only(run: Run) -> Unfinished:
    (waiting,) = explained(run)
    return waiting


def test_a_finished_or_unstarted_run_waits_for_nothing() -> None:
    assert explain(net(router("a")), Run(net(router("a")), begin=False).state) == []
    assert explained(Run(net(router("a")))) == []


def test_a_scheduled_job_waits_for_a_worker() -> None:
    run = Run(net(step("a")))
    assert only(run) == Unfinished(
        "job",
        "1.0",
        "a",
        "a free worker (attempt 1)",
        START,
        None,
        named("the engine"),
        queued=True,
    )


def test_a_scheduled_job_of_a_paused_run_waits_for_the_resume() -> None:
    run = Run(net(step("a")))
    run.at = 2_000
    run.send(s.Pause("me", "night"))
    run.at = 3_000
    run.patch(x=1)
    paused, job = explained(run)
    assert paused == Unfinished(
        "run",
        "run",
        "",
        "an operator to resume it (paused: night)",
        2_000,
        None,
        (Mover("resume", "run"),),
    )
    assert job.waits_for == "the run to be resumed (attempt 1)"
    assert job.movers == (Mover("resume", "run"),), "a worker would get nothing"


def test_a_running_job_waits_for_its_work_until_its_first_limit() -> None:
    run = Run(net(step("a", work=Work("test", timeout_ms=500))))
    run.at = 1_200
    run.begin("a", worker="w7", lease_until=1_300)
    assert only(run) == Unfinished(
        "job", "1.0", "a", "its work (attempt 1)", 1_200, 1_300, named("w7"), at_work=True
    )


def test_a_parked_job_waits_for_somebody_outside() -> None:
    run = Run(net(step("a")))
    run.park("a", "order-3", until=9_000)
    assert only(run) == Unfinished(
        "job", "1.0", "a", "an answer from outside (order-3)", START, 9_000, named("order-3")
    )
    unnamed = Run(net(step("a")))
    unnamed.park("a", "")
    assert only(unnamed).movers == named("the party that was asked")


def test_a_failed_attempt_waits_for_its_next_try() -> None:
    run = Run(net(step("a", work=retrying(2, 700))))
    run.fails("a")
    assert only(run) == Unfinished(
        "job", "1.0", "a", "its next try (attempt 2)", START, START + 700, TRIED
    )


def test_work_that_was_put_off_says_why_and_until_when() -> None:
    run = Run(net(step("a")))
    for _ in range(2):
        run.answer("a", postponed("away", "the node is away", 700))
        told = only(run)
        run.tick(run.at + 700)
    words = "its next try (attempt 3), put off 2 times: the node is away"
    assert (told.waits_for, told.until, told.movers) == (words, run.at, TRIED)


def test_a_cancelled_run_waits_for_its_workers_to_stop() -> None:
    run = Run(net(step("a")))
    run.begin("a", lease_until=5_000)
    run.send(s.Cancel("me", "enough"), 2_000)
    ending, job = explained(run)
    assert ending == Unfinished(
        "run", "run", "", "its last work to end (enough)", 2_000, None, named("the engine")
    )
    assert (job.waits_for, job.until, job.movers) == (
        "its worker to stop: enough", 5_000, named("worker"),
    )  # fmt: skip


def test_a_job_left_behind_by_its_step_is_shown_too() -> None:
    run = Run(net(step("a", "b", timeout_ms=100, on_timeout="skip"), step("b")))
    run.begin("a")
    run.tick(START + 100)
    steps = [(waiting.step, waiting.what) for waiting in explained(run)]
    assert steps == [("b", "job"), ("a", "job")]


def test_a_held_token_waits_for_its_admission() -> None:
    gate = Admission((AdmitRule(ctx("open"), True), AdmitRule(None, False)))
    run = Run(net(step("a", admission=gate)))
    assert only(run) == Unfinished(
        "token", "1", "a", "admission (rules: ctx.open)", START, None,
        (Mover("patch", "run"), Mover("decide", "run", ("gate-1", "fulfil"))),
    )  # fmt: skip


def test_a_deciding_token_waits_for_whom_it_asked() -> None:
    decision = Decision("ship it?", ("alice", "bob"))
    run = Run(net(step("a", work=None, decision=decision, timeout_ms=400)))
    assert only(run) == Unfinished(
        "token", "1", "a", "a decision by alice, bob: ship it?", START, START + 400,
        (
            Mover("decide", "run", ("gate-1", "fulfil")),
            Mover("decide", "run", ("gate-1", "reject")),
        ),
    )  # fmt: skip


def test_a_sleeping_token_waits_for_its_time() -> None:
    run = Run(net(step("a", "b"), step("b")))
    run.done("a", wait_ms=300)
    assert only(run) == Unfinished(
        "token",
        "2",
        "b",
        "its wake time",
        START,
        START + 300,
        (*named("time"), Mover("wake", "run", ("2",))),
    )


def test_an_open_join_says_which_slots_are_filled_and_who_can_fill_the_others() -> None:
    join = Join(
        "j",
        GatherRule("quorum", k=2, combine="merge"),
        (Slot("g", "valid"), Slot("h", "valid"), Slot("i")),
    )
    branch = Branch(None, "inclusive", arcs("g", "u", "i"), join)
    run = Run(net(router("a", branch), step("g"), step("u", "h"), step("h"), step("i"), step("j")))
    run.done("g", outcome="valid")
    waiting = explained(run)[0]
    assert waiting.waits_for == ("a join: 1 of 2 delivered (g); open: h (valid), i (any)")
    assert waiting.movers == named("step u", "step i")
    run.fails("u")
    run2 = explained(run)[0]
    assert "h (valid)" in run2.waits_for, "its route is followed even after a failure"
    run.fails("h")
    assert "h (can no longer come)" in explained(run)[0].waits_for
    assert explained(run)[0].movers == named("step i")


def test_an_open_barrier_says_who_can_still_come() -> None:
    run = Run(
        net(router("a", "b", "c"), step("b", "d"), step("c", "d"), step("d", barrier=Barrier()))
    )
    run.done("b")
    waiting = next(one for one in explained(run) if one.step == "d")
    assert waiting.waits_for == "the branches that can still reach it: 1 arrived"
    assert waiting.movers == named("step c")


def test_an_open_fan_counts_its_answers_and_lists_its_jobs() -> None:
    run = Run(fan_net(["x", "y", "z"], "quorum", k=2, timeout_ms=900))
    run.done("1.0")
    fan, *jobs = explained(run)
    assert fan == Unfinished(
        "gather", "f1", "ask", "answers: 1 of 3 in (x), 2 needed, 0 lost, 2 open (y, z)",
        START, START + 900,
        named("y", "z"),
    )  # fmt: skip
    assert [job.id for job in jobs] == ["1.1", "1.2"]


def test_a_deadline_is_named() -> None:
    run = Run(net(step("a"), policy=RunPolicy(deadline_ms=4_000)))
    assert explained(run)[0] == Unfinished(
        "run", "run", "", "its end, before the deadline", START, START + 4_000, named("time"),
        at_work=True,
    )  # fmt: skip


def test_an_open_fan_says_who_answered_who_was_lost_and_why_and_who_is_out() -> None:
    usable = Fn(lambda names: names["outcome"] != "negative")
    run = Run(fan_net(["ann", "bob", "cy", "dee"], "best_of", usable=usable, score=Fn(lambda _: 1)))
    for number in range(4):
        run.begin(f"1.{number}")
    run.at = 2_000
    run.done("1.2", {"price": 1})
    run.done("1.1", {"error": {"code": "http_500"}}, outcome="negative")
    run.fails("1.0", kind="unreachable", retryable=False)
    fan, job = explained(run)
    assert fan.waits_for == (
        "answers: 1 of 4 in (cy), 1 needed, 2 lost (bob: negative: http_500, ann: unreachable), "
        "1 open (dee)"
    )
    assert job == Unfinished(
        "job", "1.3", "ask", "the answer of dee (attempt 1)", START, None, named("dee")
    )


def test_an_open_fan_of_many_names_a_few_and_counts_the_rest() -> None:
    run = Run(fan_net([f"p{n}" for n in range(1000)], "all"))
    fan, *jobs = explained(run)
    assert fan.waits_for == (
        "answers: 0 of 1000 in, 1000 needed, 0 lost, 1000 open (p0, p1, p2, p3, p4, 995 more)"
    )
    assert len(jobs) == 10
    assert jobs[0].waits_for == "a free worker (attempt 1), for p0"


def test_a_fan_over_values_counts_without_names() -> None:
    run = Run(fan_net([{"n": 1}, {"n": 2}], "all"))
    fan, *jobs = explained(run)
    assert fan.waits_for == "answers: 0 of 2 in, 2 needed, 0 lost, 2 open"
    assert [job.waits_for for job in jobs] == ["a free worker (attempt 1)"] * 2

"""Redrives of one run do the same under the same idempotency key, and other things under others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from anabranch.kernel import stimuli as s
from anabranch.kernel.idempotency import key_of
from anabranch.kernel.redrive import plan_redrive
from anabranch.kernel.tracker import loop_name
from anabranch.net.net import Work

from .driver import Run
from .nets import fan_net, inclusive, net, router, step
from .test_items_left_alone import stopping
from .test_loops import LOOP
from .test_redrive import QUIET, reads

SHOP = net(
    step("order", "pay", work=QUIET),
    step("pay", "ship", work=QUIET),
    step("ship", work=reads("steps.pay")),
)


def redriven(origin: Run, name: str, from_step: str = "") -> Run:
    plan = plan_redrive(origin.net, origin.history, from_step)
    again = Run(origin.net, begin=False)
    again.send(
        s.Start(
            run=name,
            origin=origin.state.run,
            reuse=plan.reuse,
            first_run=plan.first_run,
            known_keys=plan.known_keys,
        )
    )
    return again


def key(run: Run, step_name: str, nth: int = 0) -> str:
    return key_of(run.state, run.job(step_name, nth).id)


def unpaid() -> Run:
    run = Run(SHOP)
    run.done("order")
    run.fails("pay")
    run.fails("ship")  # an arc went on all the same
    return run


def test_what_failed_is_done_again_under_the_key_it_had() -> None:
    first = unpaid()
    for name in ("again", "and again"):
        assert key(redriven(first, name), "pay") == "run/2.0"


def test_what_only_redrives_came_to_has_one_key_while_it_is_given_the_same() -> None:
    first, keys = unpaid(), []
    for name, paid in (("one", 5), ("two", 5), ("three", 6)):
        again = redriven(first, name)
        again.done("pay", paid)
        keys.append(key(again, "ship"))
    assert keys[0] == keys[1] != keys[2]
    assert all(each.startswith("run/ship/") for each in keys)


def test_a_redrive_of_a_redrive_is_of_the_same_line() -> None:
    first = unpaid()
    second = redriven(first, "second")
    second.done("pay", 5)
    shipped = key(second, "ship")
    second.fails("ship")
    third = redriven(second, "third")  # the payment is taken over
    assert key(third, "ship") == shipped
    third.done("ship")
    fourth = redriven(third, "fourth", from_step="pay")
    assert key(fourth, "pay") == "run/2.0"
    fourth.done("pay", 5)
    assert key(fourth, "ship") == shipped


@pytest.mark.parametrize("work", [reads("run_id"), replace(QUIET, names_run=True)])
def test_what_names_its_run_is_never_given_the_same(work: Work) -> None:
    first = Run(net(step("tell", work=work)))
    first.fails("tell")
    keys = [key(redriven(first, name), "tell") for name in ("one", "two")]
    assert len({"run/1.0", *keys}) == 3


def test_a_job_keeps_its_key_over_its_attempts() -> None:
    again = redriven(unpaid(), "again")
    before = key(again, "pay")
    job = again.begin("pay")
    again.send(s.JobLose(job.id, job.attempt, "gone"))
    assert key(again, "pay") == before


def test_the_slots_of_a_fan_have_one_key_each() -> None:
    first = Run(fan_net(["a", "b", "c"], "quorum", k=2))
    first.done("ask", 1)
    first.fails("ask")
    first.fails("ask")
    again = redriven(first, "again")
    found = {key_of(again.state, job) for job in again.state.jobs}
    assert found == {"run/1.1", "run/1.2"}


def test_two_runs_of_one_step_have_two_keys() -> None:
    first = Run(net(router("fork", inclusive("a", "a")), step("a", work=QUIET)))
    first.fails("a")
    first.fails("a")
    again = redriven(first, "again")
    assert {key(again, "a", nth) for nth in range(2)} == {"run/2.0", "run/3.0"}


@pytest.mark.parametrize("bad", [{2: 1}, {}])
def test_the_items_of_a_loop_keep_the_names_under_which_they_were_done(bad: dict[int, int]) -> None:
    worker = stopping(bad, shard_size=3)
    worker.run()
    plan = plan_redrive(worker.net, worker.history, "" if bad else "each")
    again = stopping({}, shard_size=3)
    again.tell(s.Start(run="again", reuse=plan.reuse, first_run="r", known_keys=plan.known_keys))
    assert key_of(again.state, LOOP) == loop_name("r", LOOP)

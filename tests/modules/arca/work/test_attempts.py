"""Names of orders and requests follow from the run, the step and the attempt."""

from __future__ import annotations

import re
from itertools import combinations, product

from anabranch.kernel.jobs import job_id
from anabranch.market.documents import check
from anabranch.modules.arca.work.attempts import (
    Attempt,
    attempt_of,
    attempt_of_request,
    is_of_another_run,
)

from .support import task

ORDER_ID = re.compile(r"order:[A-Za-z0-9][A-Za-z0-9:-]*")
REQUEST_ID = re.compile(r"[A-Za-z0-9:_./-]{1,256}")
RUNS = ("a", "a-b", "b", "01hx3k9q", "under_score", "dotted.run", "x" * 128, "run:1", "run")
STEPS = ("b", "b-c", "c", "a1", "b-a1", "s.1", "s_1", "x:y", "1", "1:b", "y" * 128)
LABELS = ("a1", "a2", "a11", "r1a1", "r1a2", "r11a1")


def test_a_job_says_which_attempt_it_is_and_a_lost_execution_is_none() -> None:
    for again, tries in product(range(3), range(1, 4)):
        job = job_id(7, 0, again)
        label = f"r{again}a{tries}" if again else f"a{tries}"
        assert attempt_of(task("request", job=job, tries=tries)) == Attempt("run1", "s1", label)


def test_an_order_id_names_run_step_and_attempt() -> None:
    attempt = Attempt("01hx3k9q", "write-draft", "a2")
    assert attempt.order_id == "order:01hx3k9q-write-draft-a2"
    assert attempt.execution_id == "execution:01hx3k9q-write-draft-a2"
    assert attempt.request_id == "remote-execution:01hx3k9q:write-draft:a2"
    assert attempt.dispatch_id == "dispatch:01hx3k9q:write-draft:remote:a2"
    assert Attempt("run:01hx", "s1", "a1").order_id == "order:run:01hx-s1-a1"
    assert Attempt("run:01hx", "s1", "a1").request_id == "remote-execution:run:01hx:s1:a1"


def test_no_two_attempts_have_the_same_names_and_all_names_are_taken() -> None:
    attempts = [Attempt(*parts) for parts in product(RUNS, STEPS, LABELS)]
    for one in attempts:
        assert ORDER_ID.fullmatch(one.order_id), one
        assert len(one.order_id) <= 256, one
        assert REQUEST_ID.fullmatch(one.request_id), one
        assert REQUEST_ID.fullmatch(one.dispatch_id), one
    for name in ("order_id", "request_id", "dispatch_id"):
        found = {getattr(one, name) for one in attempts}
        assert len(found) == len(attempts), name


def test_a_request_is_traced_to_its_attempt_and_to_no_other() -> None:
    attempts = [Attempt(*parts) for parts in product(RUNS, STEPS[:5], LABELS[:2])]
    for one in attempts:
        assert attempt_of_request(one.request_id, one.run, one.step) == one
    for one, other in combinations(attempts, 2):
        if (one.run, one.step) != (other.run, other.step):
            assert attempt_of_request(one.request_id, other.run, other.step) is None
    for wrong in ("", "remote-execution:a:b", "remote-execution:a:b:a0", "remote-execution:a:b:x"):
        assert attempt_of_request(wrong, "a", "b") is None


def test_a_request_of_another_run_is_told_from_an_unknown_one() -> None:
    mine = Attempt("run1", "s1", "a1").request_id
    assert is_of_another_run(mine, "run2")
    assert is_of_another_run(Attempt("run:1", "s1", "a1").request_id, "run:2")
    assert not is_of_another_run(mine, "run1")
    assert not is_of_another_run("something:else", "run1")


def test_the_names_are_those_of_documents() -> None:
    for one in (Attempt("run.1", "s_1", "r1a1"), Attempt("run1", "s1", "a1")):
        problems = check({"schema/v": 1, "order/id": one.order_id}, kind="service-order.v1")
        assert not [each for each in problems if each.path == "/order~1id"]

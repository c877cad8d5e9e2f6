"""The state tables of the reference by name: runs, steps, executions as Arca sees them, classes."""

from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from anabranch.market.node.orders.ingress import CHECKS, RETRYABLE
from anabranch.market.node.orders.machine import STATES, TERMINAL
from modules.arca.work.stage import RUNS, Make, Stage, failed, step
from modules.arca.work.support import Work, offer, virtually
from modules.arca.work.test_orders import order

DONE = {"status": "completed", "output": 1}
CONFIRMED = {"policy": "requester_confirmation"}


def looked(stage: Stage, run: str = "run:one") -> tuple[str, dict[str, str]]:
    shown = stage.ask("GET", f"/v1/module/workflow/runs/{run}")
    return shown["status"], {one["step_id"]: one["status"] for one in shown["steps"]}


def seen(stage: Stage, seconds: int) -> list[tuple[str, dict[str, str]]]:
    """What the host shows, looked at every fifth of a second; each state once, in order."""
    found: list[tuple[str, dict[str, str]]] = []
    for _ in range(seconds * 5):
        now = looked(stage)
        if not found or found[-1] != now:
            found.append(now)
        stage.world.advance(0.2)
    return found


# -- 3.1 runs and steps ------------------------------------------------------------------------


def test_a_run_goes_from_running_to_paused_and_back_to_its_end(made: Make) -> None:
    stage = made({"anna": 0})
    stage.start([step("order", input={}, fulfillment=CONFIRMED)])
    stage.world.advance(10)
    assert looked(stage) == ("paused", {"order": "awaiting_fulfillment"})
    stage.ask("POST", f"{RUNS}/run:one/steps/order/confirm", {"fulfilled": True})
    assert stage.ended()["status"] == "completed"
    stage.world.advance(5)
    assert looked(stage) == ("completed", {"order": "completed"})


def test_an_ordinary_step_goes_through_its_states_in_order(made: Make) -> None:
    stage = made({"anna": 100})
    answers = [failed(), {"status": "completed", "output": 1}]
    stage.sold["anna"].answers = lambda _request: answers.pop(0)
    stage.start([step("order", input={}, max_retries=1, retry_delay_ms=5_000,
                      fulfillment=CONFIRMED)])  # fmt: skip
    shown = [states["order"] for _, states in seen(stage, 90)]
    stage.ask("POST", f"{RUNS}/run:one/steps/order/confirm", {"fulfilled": True})
    shown += [states["order"] for _, states in seen(stage, 5)]
    path = [one for one, after in pairwise([*shown, ""]) if one != after and one != "resolving"]
    assert path == [
        "awaiting_execution", "retry_wait", "awaiting_execution", "awaiting_fulfillment",
        "completed",
    ]  # fmt: skip


def test_a_fan_out_goes_through_its_states_in_order(made: Make) -> None:
    stage = made({"anna": 100})
    stage.sold["anna"].silent = True
    asked = step(
        "offers", target={"resolve": "static", "participants": [stage.providers["anna"]]},
        fan_in={}, timing={"timeout": "PT60S"}, fulfillment=CONFIRMED,
    )  # fmt: skip
    stage.start([asked])
    stage.world.advance(3)
    assert looked(stage) == ("running", {"offers": "awaiting_fan_out"})
    stage.sold["anna"].silent = False
    stage.world.advance(30)
    assert looked(stage) == ("paused", {"offers": "awaiting_fulfillment"})
    stage.ask("POST", f"{RUNS}/run:one/steps/offers/confirm", {"fulfilled": True})
    stage.world.advance(3)
    assert looked(stage) == ("completed", {"offers": "completed"})


ENDS: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "completed": ({}, {}, "completed", "completed"),
    "failed": ({"answer": failed()}, {}, "failed", "failed"),
    "skipped": ({"answer": failed()}, {"fail_policy": "skip"}, "skipped", "completed"),
    "step_timeout": ({"answer": None}, {"timing": {"timeout": "PT10S"}}, "step_timeout",
                     "step_timeout"),
    "deadline_exceeded": ({"answer": None, "deadline": "PT10S"}, {}, "deadline_exceeded",
                          "deadline_exceeded"),
    "cancelled": ({"answer": None, "cancel": True}, {}, "cancelled", "cancelled"),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_a_step_comes_to_every_end(made: Make, end: str) -> None:
    world, fields, step_is, run_is = ENDS[end]
    stage = made({"anna": 0})
    stage.sold["anna"].answers = lambda request: (
        world.get("answer", DONE) if request["workflow/phase-id"] == "order" else DONE
    )
    more = {"deadline": world["deadline"]} if "deadline" in world else {}
    stage.start([step("order", input={}, **fields), step("next", input={}, depends_on=["order"])],
                **more)  # fmt: skip
    stage.world.advance(3)
    if world.get("cancel"):
        stage.ask("POST", f"{RUNS}/run:one/cancel", {"actor": "kim"})
    run = stage.ended()
    stage.world.advance(5)
    status, states = looked(stage)
    assert (status, states["order"]) == (run_is, step_is)
    assert run["status"] == run_is
    if run_is == "completed":
        assert stage.sold["anna"].requests[-1] == "remote-execution:run:one:next:a1"
    else:
        assert states["next"] in ("cancelled", "deadline_exceeded"), "it was not begun"
        assert len(stage.executions()) == 1


@pytest.mark.parametrize(
    ("on_timeout", "run_is", "late_is", "other_is"),
    [("fail", "step_timeout", "step_timeout", "completed"),
     ("abort_workflow", "step_timeout", "step_timeout", "cancelled"),
     ("skip", "completed", "skipped", "completed")],
)  # fmt: skip
def test_a_step_that_runs_out_of_time_ends_as_on_timeout_says(
    made: Make, on_timeout: str, run_is: str, late_is: str, other_is: str
) -> None:
    """`fail` lets branches that run come to their end; `abort_workflow` does not."""
    stage = made({"anna": 100})
    stage.sold["anna"].answers = lambda request: (
        None if request["workflow/phase-id"] == "late" else {"status": "completed", "output": 1}
    )
    late = step("late", input={}, timing={"timeout": "PT10S", "on_timeout": on_timeout})
    stage.start([late, step("other", input={})], max_parallel_steps=2)
    run = stage.ended()
    stage.world.advance(5)
    assert looked(stage) == (run_is, {"late": late_is, "other": other_is})
    if run_is == "step_timeout":
        assert run["error"]["step_id"] == "late"


def test_retries_back_off_up_to_their_cap(made: Make) -> None:
    stage = made({"anna": 0})
    stage.sold["anna"].answers = lambda _request: None
    retry = {"max_attempts": 2, "backoff": "PT10S", "backoff_multiplier": 2}
    stage.start([step("order", input={}, timing={"timeout": "PT20S", "retry": retry})])
    run = stage.ended()
    assert run["status"] == "step_timeout"
    orders = stage.executions()
    assert [one["order_id"][-2:] for one in orders] == ["a1", "a2", "a3"], "two further ones"
    opened = [datetime.fromisoformat(one["opened_at"]).timestamp() for one in orders]
    first, second = (after - before for before, after in pairwise(opened))
    assert 30 <= first < 32, "the time limit, then the backoff"
    assert 40 <= second < 42, "and twice the backoff"


# -- 3.2 executions, as Arca sees them ----------------------------------------------------------

SELF, REVIEW = "self-confirmed", "manual-review-only"
REJECTED = {**failed("no"), "status": "rejected"}
#: By what happens: mode of the offer, answer of the provider, what people do one after the other;
#: then execution, hold, outcome of the receipt, and the step.
EXECUTIONS: dict[str, tuple[str, Any, list[tuple[str, Any]], str, str, str, str]] = {
    "no answer yet": (SELF, None, [], "dispatched", "active", "", "awaiting_execution"),
    "completed, self-confirmed": (
        SELF, DONE, [], "awaiting_acceptance", "active", "", "awaiting_execution"),
    "completed, manual review": (
        REVIEW, DONE, [], "awaiting_manual_release", "active", "", "awaiting_execution"),
    "the payer accepts": (
        SELF, DONE, [("accept", {})], "released", "released", "settled", "completed"),
    "the operator releases": (
        REVIEW, DONE, [("release", {})], "released", "released", "settled", "completed"),
    "time releases": (
        SELF, DONE, [("wait", 120)], "released", "released", "settled", "completed"),
    "time releases no manual review": (
        REVIEW, DONE, [("wait", 120)], "awaiting_manual_release", "active", "",
        "awaiting_execution"),
    "result failed": (SELF, failed(), [], "failed", "refunded", "rejected", "failed"),
    "result rejected": (SELF, REJECTED, [], "rejected", "refunded", "rejected", "failed"),
    "the work-by passes": (
        SELF, None, [("wait", 120)], "expired", "refunded", "expired", "failed"),
    "a dispute": (
        SELF, DONE, [("dispute", {"reason": "no"})], "disputed", "disputed", "",
        "awaiting_execution"),
    "resolved for the payer": (
        SELF, DONE, [("dispute", {"reason": "no"}), ("resolve", {"for": "payer"})], "rejected",
        "refunded", "rejected", "failed"),
    "resolved for the payee": (
        SELF, DONE, [("dispute", {"reason": "no"}), ("resolve", {"for": "payee"})], "released",
        "released", "settled", "completed"),
}  # fmt: skip


@pytest.mark.parametrize("what", EXECUTIONS)
def test_the_table_of_executions_as_arca_sees_it(made: Make, what: str) -> None:
    mode, answer, actions, state, hold, outcome, step_is = EXECUTIONS[what]
    stage = made({"anna": None})
    stage.offer("anna", 100, confirmation__mode=mode)
    stage.sold["anna"].answers = lambda _request: answer
    stage.world.advance(10)  # Arca hears of the offer
    stage.start([step("order", input={})])
    stage.world.advance(3)
    name = "execution:run:one-order-a1"
    for action, given in actions:
        if action == "wait":
            stage.world.advance(given)
        else:
            stage.ask("POST", f"/v1/executions/{name}/{action}", given)
            stage.world.advance(6)  # Arca asks every five seconds at least
    found = stage.ask("GET", f"/v1/executions/{name}")
    assert found["state"] == state
    assert stage.ask("GET", f"/v1/ledger/holds/{found['hold_id']}")["status"] == hold
    assert looked(stage)[1] == {"order": step_is}
    if outcome:
        receipt = stage.ask("GET", f"/v1/receipts/{found['receipt_id']}")
        assert receipt["outcome"] == outcome
    else:
        assert found["receipt_id"] is None
    assert found["terminal"] is bool(outcome)


def test_the_table_has_every_state_that_lasts() -> None:
    shown = {row[3] for row in EXECUTIONS.values()}
    assert shown == set(STATES) - {"opened", "dispatch_prepared"}, "the host goes on from these"
    ends = {row[3] for row in EXECUTIONS.values() if row[5]}
    assert ends == set(TERMINAL)


# -- 3.3 classes ----------------------------------------------------------------------------------

CLASSES = {
    "offer-not-found": False, "offer-expired": True, "offer-seq-mismatch": True,
    "provider-mismatch": False, "service-type-mismatch": False, "currency-mismatch": False,
    "price-exceeded": False, "queue-saturated": True, "custodian-mismatch": False,
    "settlement-blocked": True, "other-reason": False,
}  # fmt: skip


def test_the_classes_of_rejections_are_checked_in_their_order() -> None:
    names = [name for name, _ in CHECKS if name != "other-reason"]
    assert names == [name for name in CLASSES if name != "other-reason"]
    assert set(RETRYABLE) == {name for name, again in CLASSES.items() if again}


@pytest.mark.parametrize(("classifier", "again"), CLASSES.items())
@virtually
async def test_a_class_says_whether_the_next_attempt_may_be_made(
    classifier: str, again: bool
) -> None:
    work = Work(offer())
    work.fake.rejections = [{"classifier": classifier, "retryable": classifier in RETRYABLE}]
    answer = await work.perform(order())
    assert (answer.fault.code, answer.fault.retryable) == (classifier, again)
    assert work.fake.executions == {}, "nothing was opened"
    refreshes = classifier in ("offer-expired", "offer-seq-mismatch")
    assert work.offers.refreshed == refreshes, "the catalog is asked to look again"

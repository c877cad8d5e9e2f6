"""Hosted runs in a market of whole nodes: fan-out, orders, results, retries, time limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.testing.market import check_laws

from .stage import RUNS, Make, Stage, failed, outputs, step

ANYBODY = {"resolve": "capability", "capability_id": "offer-catalog"}
CHEAPEST = {"policy": "best_of", "score_field": "/offer/pricing~1amount", "score_order": "asc"}
SOLICIT = step(
    "solicit", input={"text": "long"}, target=ANYBODY, fan_in=CHEAPEST, timing={"timeout": "PT30S"}
)
ORDER = step(
    "order", input={"text": "long"}, depends_on=["solicit"],
    offer_ref={"from": "/steps/solicit/output/offer"},
)  # fmt: skip


def states(stage: Stage) -> list[tuple[str, str]]:
    return [(one["order_id"], one["state"]) for one in stage.executions()]


def step_of(run: Mapping[str, Any], name: str) -> Any:
    return next(one for one in run["steps"] if one["step_id"] == name)


def test_the_best_offer_is_ordered_and_paid_and_its_result_is_the_output(
    made: Make,
) -> None:
    stage = made({"anna": 100, "bert": 70, "carl": None})
    stage.start([SOLICIT, ORDER])
    run = stage.ended()
    assert run["status"] == "completed"
    assert outputs(run)["order"] == {"made_of": {"text": "long"}}
    assert states(stage) == [("order:run:one-order-a1", "released")]
    assert stage.executions()[0]["offer_id"] == "offer:bert"
    assert stage.movements() == ["hold", "release"]
    assert stage.sold["bert"].requests == ["remote-execution:run:one:order:a1"]
    asked = {one["target"]: one for one in step_of(run, "solicit")["dispatches"]}
    assert asked[stage.providers["carl"]]["outcome"] == "negative", "it has no offer"
    assert all(one["status"] == "responded" for one in asked.values())
    assert str(run).count("pricing/amount") == 1, "losing answers are shown nowhere"
    shown = stage.ask("GET", "/v1/module/workflow/runs/run:one")
    kept = step_of(shown, "order")
    assert kept["order_id"] == "order:run:one-order-a1"
    assert kept["receipt_id"] == "receipt:run:one-order-a1"
    assert kept["delivery"]["audit_ref"].startswith("delivery:")
    assert check_laws(stage.world) == []


def test_a_provider_whose_node_is_down_leaves_the_count(made: Make) -> None:
    stage = made({"anna": 100, "bert": 70})
    stage.world["bert"].kill()
    everybody = {**SOLICIT, "fan_in": {"policy": "all"}}
    stage.start([everybody])
    run = stage.ended()
    assert run["status"] == "completed"
    outcomes = {one["target"]: one["outcome"] for one in step_of(run, "solicit")["dispatches"]}
    assert outcomes == {
        stage.providers["anna"]: "usable", stage.providers["bert"]: "unreachable",
    }  # fmt: skip


def test_a_fan_out_that_everybody_is_silent_to_runs_out_of_time(made: Make) -> None:
    stage = made({"anna": 100, "bert": 70})
    for sold in stage.sold.values():
        sold.silent = True
    stage.start([SOLICIT])
    run = stage.ended()
    assert run["status"] == "step_timeout"
    assert {one["status"] for one in step_of(run, "solicit")["dispatches"]} == {"timeout"}
    heard = stage.sold["anna"].asked
    assert len(heard) > 1
    assert len({one["dispatch_id"] for one in heard}) == 1, "the same request is sent again"


def test_a_link_that_is_cut_is_silence_and_the_others_are_enough(made: Make) -> None:
    stage = made({"anna": 100, "bert": 70})
    stage.world.drop("buyer", "bert")
    stage.start([SOLICIT, ORDER])
    run = stage.ended()
    assert run["status"] == "completed"
    assert stage.executions()[0]["offer_id"] == "offer:anna"


def test_a_retry_is_another_order_at_the_same_provider(made: Make) -> None:
    stage = made({"anna": 100, "bert": 70})
    answers = [failed(), {"status": "completed", "output": "done"}]
    stage.sold["bert"].answers = lambda _request: answers.pop(0)
    stage.start([step("order", input={"text": "x"}, max_retries=1, retry_delay_ms=60_000)])
    stage.world.advance(10)
    assert states(stage) == [("order:run:one-order-a1", "failed")]
    stage.offer("anna", 1, "offer:cheaper")
    run = stage.ended()
    assert stage.sold["anna"].requests == []
    assert run["status"] == "completed"
    assert outputs(run) == {"order": "done"}
    assert states(stage) == [
        ("order:run:one-order-a1", "failed"), ("order:run:one-order-a2", "released"),
    ]  # fmt: skip
    assert {one["offer_id"] for one in stage.executions()} == {"offer:bert"}
    assert stage.movements() == ["hold", "hold", "refund", "release"]
    assert check_laws(stage.world) == []


def test_retries_that_are_spent_fail_the_step_with_the_error_of_the_provider(made: Make) -> None:
    stage = made({"anna": 100})
    stage.sold["anna"].answers = lambda _request: failed("no_paper")
    stage.start([step("order", input={"text": "x"}, max_retries=2)])
    run = stage.ended()
    assert run["status"] == "failed"
    assert step_of(run, "order")["error"]["code"] == "no_paper"
    assert [state for _, state in states(stage)] == ["failed"] * 3
    assert stage.movements() == ["hold"] * 3 + ["refund"] * 3


def test_a_provider_that_stalls_runs_out_of_time_and_its_order_is_refunded(made: Make) -> None:
    stage = made({"anna": 100, "bert": 200})
    stage.sold["anna"].answers = lambda _request: None
    stage.start([step("order", input={"text": "x"}, timing={"timeout": "PT20S"})])
    run = stage.ended()
    assert run["status"] == "step_timeout"
    stage.world.advance(60)
    assert states(stage) == [("order:run:one-order-a1", "expired")]
    assert stage.movements() == ["hold", "refund"]
    assert stage.sold["bert"].requests == [], "nobody else is asked instead"


def test_a_budget_that_is_short_is_told_by_its_class_and_nothing_is_ordered(made: Make) -> None:
    stage = made({"anna": 20_000})
    stage.start([SOLICIT, ORDER])
    run = stage.ended()
    assert run["status"] == "failed"
    assert step_of(run, "order")["error"]["code"] == "settlement-blocked"
    assert stage.executions() == []
    stage.start([SOLICIT, {**ORDER, "max_amount": 5}], run="run:two")
    run = stage.ended("run:two")
    assert step_of(run, "order")["error"]["code"] == "price-exceeded"
    assert stage.movements() == []


def records(stage: Stage, run: str = "run:one") -> list[tuple[str, str]]:
    """How the requests of a run ended, in their order."""
    found = stage.ask("GET", f"{RUNS}/{run}/dispatches")["items"]
    return [(one["status"], one["outcome"]) for one in found]


def test_a_request_that_was_not_sent_is_no_answer_of_the_provider(made: Make) -> None:
    stage = made({"anna": 100})
    stage.start([step("order", input={"text": "x"}, max_amount=5)])
    assert step_of(stage.ended(), "order")["error"]["code"] == "price-exceeded"
    assert records(stage) == [("cancelled", "")]


def test_an_order_that_nobody_answers_ends_in_time_and_is_tried_again(made: Make) -> None:
    stage = made({"anna": 100})
    answers = [None, {"status": "completed", "output": 1}]
    stage.sold["anna"].answers = lambda _request: answers.pop(0)
    stage.start([step("order", input={"text": "x"}, max_retries=1)])
    assert stage.ended()["status"] == "completed"
    assert records(stage) == [("timeout", ""), ("responded", "usable")]
    assert [state for _, state in states(stage)] == ["expired", "released"]


def test_a_provider_that_is_away_for_longer_than_a_delivery_waits_fails_by_name(
    made: Make,
) -> None:
    """The delivery ends after 15 minutes, long before the work of the order is due."""
    stage = made({"anna": 100}, work_seconds=86_400)
    stage.world["anna"].kill()
    stage.start([step("order", input={"text": "x"}, max_retries=1)])
    run = stage.ended(seconds=3600)
    assert run["status"] == "failed"
    assert step_of(run, "order")["error"]["code"] == "adapter-transient"
    assert records(stage) == [("cancelled", "unreachable")] * 2
    assert [state for _, state in states(stage)] == ["failed"] * 2
    assert stage.movements() == ["hold"] * 2 + ["refund"] * 2


def test_a_provider_that_comes_back_within_15_minutes_gets_its_order_once(made: Make) -> None:
    stage = made({"anna": 100}, work_seconds=86_400)
    stage.world["anna"].kill()
    stage.start([step("order", input={"text": "x"})])
    stage.world.advance(600)
    stage.world["anna"].start()
    stage.world.advance(120)
    assert [state for _, state in states(stage)] == ["awaiting_acceptance"]
    stage.ask("POST", "/v1/executions/execution:run:one-order-a1/accept", {})
    assert stage.ended()["status"] == "completed"
    assert len(stage.sold["anna"].requests) == 1


def test_a_cancelled_run_leaves_its_order_to_the_host(made: Make) -> None:
    stage = made({"anna": 100})
    stage.sold["anna"].answers = lambda _request: None
    stage.start([step("order", input={"text": "x"})])
    stage.world.advance(3)
    stage.ask("POST", f"{RUNS}/run:one/cancel", {})
    assert stage.ended()["status"] == "cancelled"
    assert states(stage) == [("order:run:one-order-a1", "dispatched")]
    stage.world.advance(120)
    assert states(stage) == [("order:run:one-order-a1", "expired")]
    assert stage.movements() == ["hold", "refund"]


def test_a_result_that_comes_after_its_step_was_closed_still_settles_the_order(made: Make) -> None:
    stage = made({"anna": 100})
    stage.sold["anna"].answers = lambda _request: None
    stage.start([step("order", input={"text": "x"})])
    stage.world.advance(3)
    stage.ask("POST", f"{RUNS}/run:one/cancel", {})
    assert stage.ended()["status"] == "cancelled"
    sold = stage.sold["anna"]
    (request_id,) = sold.requests
    shop = stage.world["anna"].modules["shop"]
    order = stage.ask("GET", "/v1/executions/execution:run:one-order-a1")["order"]
    request = {
        "request_id": request_id, "workflow/run-id": "run:one", "workflow/phase-id": "order",
        "correlation/id": "run:one", "service_type": "text/summarise", "order": order,
        "reply/target": {"node/id": stage.buyer.node_id}, "request/input": {},
    }  # fmt: skip
    module: Any = shop.module
    envelope = module._result(request, {"status": "completed", "output": 1})
    task = shop.loop.create_task(module._host.deliver(envelope))
    stage.world.run_until(task.done, 60)
    stage.world.advance(5)
    (execution,) = stage.executions()
    assert execution["state"] == "awaiting_acceptance"
    admissions = stage.ask("GET", "/v1/artifact-delivery/admissions")["items"]
    assert [one["reason"] for one in admissions] == ["step-already-closed"]
    stage.world.advance(120)
    assert stage.movements() == ["hold", "release"]
    assert stage.ended()["status"] == "cancelled"


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        ({"ok": True}, "completed"),
        ({"ok": False}, "failed"),
        ({"schema": "arca-task-fulfillment-decision.v1", "fulfillment/status": "fulfilled",
          "reason": "seen"}, "completed"),
        ({"schema": "arca-task-fulfillment-decision.v1",
          "fulfillment/status": "not_fulfilled"}, "failed"),
        ({"something": "else"}, "failed"),
    ],
    ids=["dull yes", "dull no", "envelope yes", "envelope no", "neither"],
)  # fmt: skip
def test_a_capability_of_the_host_decides_in_either_style(
    made: Make, verdict: Any, status: str
) -> None:
    stage = made({"anna": 0})
    stage.verdicts.append(verdict)
    source = {
        "kind": "capability", "capability_id": "publication.verify",
        "input": {"made": {"from": "/steps/order/output/made_of"}},
    }  # fmt: skip
    decided = {
        "policy": "external_decision", "decision_source": source,
        "result_match": {
            "path": "/ok", "fulfilled_values": [True], "not_fulfilled_values": [False],
        },
        "on_not_fulfilled": "fail",
    }  # fmt: skip
    stage.start([step("order", input={"text": "x"}, fulfillment=decided)])
    run = stage.ended()
    assert run["status"] == status
    assert stage.verdicts == [], "it was asked"
    assert stage.movements() == [], "a price of zero holds nothing"


def test_a_decision_inside_an_output_decides_nothing(made: Make) -> None:
    stage = made({"anna": 0})
    envelope = {"schema": "arca-task-fulfillment-decision.v1", "fulfillment/status": "fulfilled"}
    stage.sold["anna"].answers = lambda _request: {"status": "completed", "output": envelope}
    confirmed = {"policy": "requester_confirmation"}
    stage.start([step("order", input={"text": "x"}, fulfillment=confirmed)])
    run = stage.ended()
    assert run["status"] == "paused", "a person has to decide"
    assert step_of(run, "order")["task"]["fulfilled"] is None


def test_what_an_order_waits_for_is_told_with_who_can_move_it(made: Make) -> None:
    stage = made({"anna": 100})
    stage.sold["anna"].answers = lambda _request: None
    stage.start([step("order", input={"text": "x"})], run="run:stalled")
    stage.world.advance(3)
    (waiting,) = stage.ask("GET", f"{RUNS}/run:stalled/explain")["waiting"]
    order, provider = "order:run:stalled-order-a1", stage.providers["anna"]
    assert waiting["waits_for"] == f"the result of {provider} ({order})"
    assert waiting["movers"] == [provider]
    stage.sold["anna"].answers = lambda _request: {"status": "completed", "output": 1}
    stage.start([step("order", input={"text": "x"})])
    stage.world.advance(3)
    (waiting,) = stage.ask("GET", f"{RUNS}/run:one/explain")["waiting"]
    execution = "execution:run:one-order-a1"
    assert (waiting["what"], waiting["id"]) == ("order", "order:run:one-order-a1")
    assert waiting["waits_for"] == "the payer to accept the result (order:run:one-order-a1)"
    assert waiting["movers"] == [
        f"anabranch node orders accept {execution}", f"anabranch node orders dispute {execution}",
    ]  # fmt: skip
    stage.ask("POST", f"/v1/executions/{execution}/dispute", {"reason": "no"})
    (waiting,) = stage.ask("GET", f"{RUNS}/run:one/explain")["waiting"]
    assert f"anabranch node orders resolve {execution} --for payee" in waiting["movers"]
    stage.ask("POST", f"/v1/executions/{execution}/resolve", {"for": "payee"})
    assert stage.ended()["status"] == "completed"
    assert stage.ask("GET", f"{RUNS}/run:one/explain")["waiting"] == []

"""May: fan-out, aggregation, targets by type of task, and answers to peers that fan out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch.dialects.arca.normal import normal_form
from modules.arca.work.stage import RUNS, SERVICE, Make, Stage, outputs, step

HOLDERS = {"resolve": "capability", "capability_id": "offer-catalog"}
CHEAPEST = {"policy": "best_of", "score_field": "/offer/pricing~1amount", "score_order": "asc"}
LIMIT = {"timeout": "PT30S"}


def asked(stage: Stage) -> dict[str, int]:
    """How often each provider was asked for an offer, by distinct requests."""
    return {
        name: len({one["dispatch_id"] for one in sold.asked}) for name, sold in stage.sold.items()
    }


def test_target_fan_in_and_timing_stay_in_the_normal_plan(made: Make) -> None:
    fields = {"target": HOLDERS, "fan_in": CHEAPEST, "timing": LIMIT}
    definition = {"workflow_id": "w", "plan": {"steps": {"offers": {"service_type": SERVICE,
                                                                    **fields}}}}  # fmt: skip
    (normal,) = normal_form(json.dumps(definition))["plan"]["steps"]
    assert {name: normal[name] for name in fields} == fields
    stage = made({"anna": 100})
    stage.ask("POST", RUNS, {"definition": definition, "run_id": "run:one"})
    assert stage.ended()["status"] == "completed"
    assert asked(stage) == {"anna": 1}


@pytest.mark.parametrize("resolve", ["static", "capability", "task_type"])
def test_requests_go_to_the_targets_of_each_kind(made: Make, resolve: str) -> None:
    stage = made({"anna": 100, "bert": 70, "carl": None})
    targets: dict[str, Any] = {
        "static": {"participants": [stage.providers["anna"], stage.providers["carl"]]},
        "capability": {"capability_id": "offer-catalog"},
        "task_type": {"task_type": SERVICE},
    }
    stage.start([step("offers", target={"resolve": resolve, **targets[resolve]},
                      fan_in={"policy": "all"}, timing=LIMIT)])  # fmt: skip
    run = stage.ended()
    assert run["status"] == "completed"
    assert (
        asked(stage)
        == {
            "static": {"anna": 1, "bert": 0, "carl": 1},
            "capability": {"anna": 1, "bert": 1, "carl": 1},
            "task_type": {"anna": 1, "bert": 1, "carl": 0},
        }[resolve]
    )
    (request, *_) = [one for sold in stage.sold.values() for one in sold.asked]
    assert (request["run_id"], request["step_id"]) == ("run:one", "offers")
    assert request["service_type"] == SERVICE
    assert stage.executions() == [], "a fan-out orders nothing"


@pytest.mark.parametrize(
    ("fan_in", "prices"),
    [
        ({"policy": "any_one"}, None),
        ({"policy": "all"}, [None, 70, 100]),
        ({"policy": "quorum", "min_responses": 2}, [70, 100]),
        (CHEAPEST, 70),
    ],
    ids=["any_one", "all", "quorum", "best_of"],
)
def test_each_policy_waits_for_the_answers_it_needs(made: Make, fan_in: Any, prices: Any) -> None:
    stage = made({"anna": 100, "bert": 70, "carl": None})
    stage.start([step("offers", target=HOLDERS, fan_in=fan_in, timing=LIMIT)])
    run = stage.ended()
    assert run["status"] == "completed"
    output = run["steps"][0]["selected_output"]

    def price(answer: Any) -> Any:
        return answer["offer"]["pricing/amount"] if answer["status"] == "offer" else None

    if isinstance(prices, list):
        found = [price(one) for one in output["responses"]]
        assert sorted(found, key=lambda one: one or 0) == prices
    else:
        assert price(output) in ((70, 100) if prices is None else (prices,))


def test_the_selected_output_is_there_for_later_steps(made: Make) -> None:
    stage = made({"anna": 100, "bert": 0})
    stage.start(
        [
            step("offers", target=HOLDERS, fan_in=CHEAPEST, timing=LIMIT),
            step("order", input_from=["offers"], input={"text": "x"},
                 offer_ref={"from": "/steps/offers/output/offer"}),
        ]
    )  # fmt: skip
    run = stage.ended()
    assert run["status"] == "completed"
    given = outputs(run)["order"]["made_of"]
    chosen = run["steps"][0]["selected_output"]
    assert given["offer"] == chosen["offer"], "its keys are those of the input"
    assert given["upstream"] == {"offers": chosen}
    assert stage.executions()[0]["offer_id"] == "offer:bert"


def test_dispatches_are_inspected_without_raw_answers(made: Make) -> None:
    stage = made({"anna": 100, "bert": 70})
    stage.start([step("offers", target=HOLDERS, fan_in=CHEAPEST, timing=LIMIT)])
    run = stage.ended()
    for shown in (run, stage.ask("GET", "/v1/module/workflow/runs/run:one")):
        dispatches = shown["steps"][0]["dispatches"]
        assert {one["target"] for one in dispatches} == set(stage.providers.values())
        assert all(one["status"] == "responded" for one in dispatches)
        assert not any("response" in one for one in dispatches)
        assert "offer:anna" not in str(shown), "the one that lost is nowhere"
        assert str(shown).count("offer:bert") == 1
    inspected = stage.ask("GET", f"{RUNS}/run:one/dispatches")
    assert "offer:anna" not in str(inspected)


def test_a_task_type_orders_from_one_provider_and_never_fans_out(made: Make) -> None:
    stage = made({"anna": 0, "bert": 0})
    by_type = {"step_id": "order", "target": {"resolve": "task_type", "task_type": SERVICE},
               "input": {}}  # fmt: skip
    stage.start([by_type])
    assert stage.ended()["status"] == "completed"
    assert asked(stage) == {"anna": 0, "bert": 0}, "nobody was asked for an offer"
    (execution,) = stage.executions()
    assert (execution["offer_id"], execution["service_type"]) == ("offer:anna", SERVICE)


def test_the_provider_is_looked_up_when_the_step_runs(made: Make) -> None:
    stage = made({"anna": 100, "bert": None})
    by_type = step("order", input={}, target={"resolve": "task_type", "task_type": SERVICE})
    wait = step("wait", input={}, target={"resolve": "static", "participants":
                                          [stage.providers["anna"]]})  # fmt: skip
    stage.start([wait, {**by_type, "depends_on": ["wait"]}])
    stage.world.advance(10)
    stage.offer("bert", 1)  # cheaper, while the run is under way
    assert stage.ended()["status"] == "completed"
    assert [one["offer_id"] for one in stage.executions()] == ["offer:anna", "offer:bert"]


def test_a_peer_that_asks_is_answered_from_the_local_offers(made: Make) -> None:
    """Arca at the other end: it answers with an offer of its node, and executes nothing."""
    stage = made({"anna": 100})
    node = stage.world["anna"].node
    assert node is not None

    def answer(service: str) -> Any:
        payload = {
            "schema_version": "v1", "dispatch_id": f"dispatch:{len(service)}", "run_id": "run:x",
            "step_id": "s", "service_type": service, "input": {},
            "respond_by": "2026-06-11T08:00:00Z",
        }  # fmt: skip
        work = node.context.peers.request(
            stage.buyer.node_id, "workflow.fanout.request", payload, correlation_id="d", seconds=30
        )
        return stage.world["anna"].run(work)

    draft = {"offer/id": "offer:own", "service/type": "own/service", "pricing/amount": 3}
    stage.ask("POST", "/v1/service-offers", draft)
    found = answer("own/service")
    assert (found["status"], found["offer"]["offer/id"]) == ("offer", "offer:own")
    assert answer(SERVICE)["status"] == "no_offer_available", "offers of others are not its own"
    assert stage.executions() == []

"""Must: orders at other nodes by artifact delivery, closed by their results alone."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market.documents import check
from anabranch.testing.market import check_laws
from modules.arca.work.stage import Make, Stage, outputs, step

DELIVERIES = "/v1/artifact-delivery/deliveries"
DONE = {"status": "completed", "output": {"summary": "short"}}


def stalled(made: Make, price: int = 0) -> tuple[Stage, list[Any]]:
    """A run whose provider has the request and has not answered; the requests it got."""
    stage, requests = made({"anna": price}), list[Any]()
    stage.sold["anna"].answers = requests.append
    stage.start([step("order", input={"text": "long"})])
    stage.world.advance(3)
    return stage, requests


def enveloped(stage: Stage, request: Any, answer: Any) -> dict[str, Any]:
    """As the shop sends a result of this request."""
    module: Any = stage.world["anna"].modules["shop"].module
    found: dict[str, Any] = module._result(request, answer)
    return found


def sent(stage: Stage, envelope: dict[str, Any], key: str = "first") -> str:
    """What becomes of the delivery; under another key the same artifact is sent again."""
    shop = stage.world["anna"].modules["shop"]
    module: Any = shop.module
    task = shop.loop.create_task(module._host.deliver({**envelope, "idempotency/key": key}))
    stage.world.run_until(task.done, 60)
    stage.world.advance(5)
    found = stage._ask("anna", "GET", f"{DELIVERIES}/{task.result()['audit/outcome-ref']}")
    return str(found["status"])


def the_step(stage: Stage) -> Any:
    return stage.ask("GET", "/v1/module/workflow/runs/run:one")["steps"][0]


def test_the_request_carries_order_lineage_deadline_and_reply(made: Make) -> None:
    stage, (request,) = stalled(made)
    assert not check(request, kind="service-order.dispatch.request.v1")
    execution = stage.ask("GET", "/v1/executions/execution:run:one-order-a1")
    assert request["order"] == execution["order"], "the one that the host has signed"
    assert request["request/input"] == {"text": "long"}
    assert request["request_id"] == "remote-execution:run:one:order:a1"
    assert (request["workflow/run-id"], request["workflow/phase-id"]) == ("run:one", "order")
    assert request["correlation/id"] == "run:one"
    assert request["delivery_deadline"] == execution["deadlines"]["work_by"]
    assert request["reply/target"] == {"selector/kind": "node", "node/id": stage.buyer.node_id}
    payload = request["dispatch_payload"]
    assert payload["capability_id"] == "service_dispatch_execute"
    assert payload["dispatch"]["execution_ref"] == "execution:run:one-order-a1"


def test_the_request_is_sent_as_a_deferred_delivery(made: Make) -> None:
    stage, _ = stalled(made)
    paths = [path for _, path, _ in stage.calls]
    assert paths.count("/v1/host/capabilities/artifact.delivery.send") == 1
    (operation,) = stage.ask("GET", "/v1/deferred-operations")["items"]
    assert operation["operation/kind"] == "artifact-delivery.submit"
    (delivery,) = stage.ask("GET", DELIVERIES)["items"]
    assert delivery["status"] == "succeeded"
    messages = [body["msg"] for _, path, body in stage.calls if "peer.message" in path]
    assert set(messages) <= {"offer-catalog.fetch.request"}, "no order goes as a message"


def test_the_references_are_kept_and_the_step_waits_for_the_result_alone(made: Make) -> None:
    stage, (request,) = stalled(made)
    shown = the_step(stage)
    (operation,) = stage.ask("GET", "/v1/deferred-operations")["items"]
    (delivery,) = stage.ask("GET", DELIVERIES)["items"]
    assert shown["delivery"] == {
        "operation_id": operation["operation/id"],
        "status_href": f"{DELIVERIES}/{delivery['delivery/id']}/operation-status",
        "audit_ref": delivery["delivery/id"],
    }
    assert delivery["status"] == "succeeded", "which is not the end of the step"
    stage.world.advance(30)
    assert the_step(stage)["status"] == "awaiting_execution"
    assert sent(stage, enveloped(stage, request, DONE)) == "succeeded"
    assert outputs(stage.ended()) == {"order": {"summary": "short"}}


def test_there_is_one_acceptor_for_results(made: Make) -> None:
    stage, (request,) = stalled(made)
    sent(stage, enveloped(stage, request, DONE))
    modules = stage.ask("GET", "/v1/modules")["items"]
    acceptors = [name for one in modules for name in one["acceptors"]]
    assert acceptors == ["arca-results"]
    (admission,) = stage.ask("GET", "/v1/artifact-delivery/admissions")["items"]
    assert (admission["acceptor/id"], admission["status"]) == ("arca-results", "accepted")


@pytest.mark.parametrize("price", [0, 100])
def test_a_result_closes_its_step_once_and_another_content_is_refused(
    made: Make, price: int
) -> None:
    stage, (request,) = stalled(made, price)
    foreign = {**request, "workflow/run-id": "run:other", "correlation/id": "run:other"}
    unknown = {**request, "request_id": "remote-execution:run:one:order:a7"}
    for wrong in (foreign, unknown):
        assert sent(stage, enveloped(stage, wrong, DONE)) == "failed-permanent"
    assert the_step(stage)["status"] == "awaiting_execution"
    first = enveloped(stage, request, DONE)
    other = enveloped(stage, request, {"status": "completed", "output": {"summary": "another"}})
    assert sent(stage, first) == "succeeded"
    assert sent(stage, other) == "failed-permanent"
    assert sent(stage, first, "again") == "succeeded", "it is present already"
    run = stage.ended()
    assert (run["status"], outputs(run)) == ("completed", {"order": {"summary": "short"}})
    assert sent(stage, other, "later") == "failed-permanent", "a closed one stays closed"
    assert outputs(stage.ended()) == {"order": {"summary": "short"}}
    (execution,) = stage.executions()
    assert execution["state"] == "released"
    assert stage.movements() == (["hold", "release"] if price else [])
    assert check_laws(stage.world) == []


def test_a_legacy_response_of_a_peer_is_ignored(made: Make) -> None:
    stage, (request,) = stalled(made)
    legacy = {"request_id": request["request_id"], "status": "completed", "output": {"x": 1}}
    node = stage.world["anna"].node
    assert node is not None
    work = node.context.peers.request(
        stage.buyer.node_id, "service-order.dispatch.response", legacy, correlation_id="run:one",
        seconds=10,
    )  # fmt: skip
    assert stage.world["anna"].run(work) is None, "it is dropped, without an answer"
    stage.world.advance(5)
    assert the_step(stage)["status"] == "awaiting_execution"
    sent(stage, enveloped(stage, request, DONE))
    assert outputs(stage.ended()) == {"order": {"summary": "short"}}

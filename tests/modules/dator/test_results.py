"""Results: kept before they are sent, sent with the same bytes, and given up in time."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from anabranch.market.documents import check
from anabranch.market.node.api import Answer
from anabranch.market.node.modules.api.records import PAYLOAD_BYTES
from in_loop import in_loop
from modules.dator.requests_of import BUYER_NODE, invoke_of, order_of, request_of
from modules.dator.stage import NOW, OFFER_ID, Stage, until


def documents(stage: Stage) -> list[dict[str, Any]]:
    """The results that were handed to the host."""
    return [
        json.loads(b64decode(one["artifact"]["bytes/base64"]))
        for one in stage.host.delivered.values()
    ]


def digests(stage: Stage) -> set[str]:
    return {one["artifact"]["digest"] for one in stage.host.delivered.values()}


async def taken(**more: Any) -> Stage:
    stage = await Stage(**more).open()
    stage.free.set()
    assert await stage.accept(request_of(order_of(OFFER_ID))) == ("accepted", "")
    return stage


@in_loop
async def test_a_result_is_a_good_document_for_the_target_of_the_request() -> None:
    stage = await taken()
    await stage.done()
    (result,) = documents(stage)
    assert check(result, kind="service-order.result.v1") == []
    assert result["output"] == {"summary": "a lon"}
    (envelope,) = stage.host.delivered.values()
    assert check(envelope, kind="artifact-delivery-envelope.v1") == []
    assert envelope["component/id"] == "dator"
    (target,) = envelope["delivery/plan"]["stages"][0]["targets"]
    assert target == {"selector/kind": "node", "node/id": BUYER_NODE}
    (step,) = stage.host.steps
    assert (step["status"], step["dispatch/id"]) == ("completed", stage.calls[0])
    await stage.module.close()


@in_loop
async def test_a_reply_plan_wins_over_the_target_and_is_brought_into_the_form_of_plans() -> None:
    stage = await Stage().open()
    stage.free.set()
    targets = [{"selector/kind": "node", "node/id": BUYER_NODE}] * 2
    plan = {
        "mode": "sequence",
        "stages": [
            {"stage/id": "s", "mode": "sequence", "targets": targets, "success/policy": "any"}
        ],
    }
    request = request_of(order_of(OFFER_ID), **{"reply/delivery_plan": plan})
    assert await stage.accept(request) == ("accepted", "")
    await stage.done()
    (envelope,) = stage.host.delivered.values()
    assert [one["stage/id"] for one in envelope["delivery/plan"]["stages"]] == ["s.1", "s.2"]
    await stage.module.close()


@pytest.mark.parametrize("output", [1.5, [0.1], "text", None, {"a": [True, "ü"]}, 0])
@in_loop
async def test_an_output_arrives_as_the_role_gave_it(output: Any) -> None:
    stage = await Stage().open()
    stage.output = output
    stage.free.set()
    await stage.accept(request_of(order_of(OFFER_ID)))
    await stage.done()
    assert documents(stage)[0]["output"] == output
    await stage.module.close()


@pytest.mark.parametrize(
    "output", [2**60, "x" * 900_000, {"a": "\ud800"}], ids=["number", "large", "half"]
)
@in_loop
async def test_an_output_that_no_result_can_have_is_a_failure(output: Any) -> None:
    stage = await Stage().open()
    stage.output = output
    stage.free.set()
    await stage.accept(request_of(order_of(OFFER_ID)))
    await stage.done()
    (result,) = documents(stage)
    assert check(result, kind="service-order.result.v1") == []
    assert result["status"] == "failed"
    await stage.module.close()


@in_loop
async def test_a_result_that_the_buyer_refuses_for_good_is_not_sent_again() -> None:
    stage = await Stage().open()
    stage.free.set()
    stage.host.delivery_status = {
        "status": "failed-permanent", "failure/class": "adapter-permanent",
        "diagnostic": "step-already-closed",
    }  # fmt: skip
    await stage.accept(request_of(order_of(OFFER_ID)))
    await stage.done()
    (done,) = stage.host.kind("dator-done")
    assert (done["state"], done["reason"]) == ("refused", "adapter-permanent: step-already-closed")
    assert len(stage.host.delivered) == 1
    assert any("was not delivered" in one for one in stage.host.notes.values())
    await stage.module.close()


@in_loop
async def test_a_result_that_expired_is_sent_again_with_the_same_bytes_up_to_a_limit() -> None:
    stage = await Stage().open()
    stage.free.set()
    stage.host.delivery_status = {"status": "expired"}
    await stage.accept(request_of(order_of(OFFER_ID)))
    await until(lambda: len(stage.host.delivered) == 2)
    assert len(digests(stage)) == 1
    stage.clock.advance_to(stage.clock.now() + 30 * 86_400_000)
    await stage.done()
    (done,) = stage.host.kind("dator-done")
    assert done["state"] == "undelivered"
    assert len(digests(stage)) == 1
    await stage.module.close()


@in_loop
async def test_a_result_that_the_host_may_not_send_is_told_to_the_operator() -> None:
    stage = await Stage().open()
    stage.free.set()
    denied = {"code": "outbound-denied", "detail": "no rule is about them"}
    stage.host.refuse = lambda _method, path: (
        Answer(status=403, body=denied) if path.endswith("artifact.delivery.send") else None
    )
    await stage.accept(request_of(order_of(OFFER_ID)))
    await stage.done()
    (done,) = stage.host.kind("dator-done")
    assert done["state"] == "undelivered"
    assert done["reason"].startswith("outbound-denied")
    assert len(stage.host.notes) == 1
    await stage.module.close()


@in_loop
async def test_a_host_that_goes_down_at_work_gets_everything_when_it_is_back() -> None:
    stage = await Stage().open()
    await stage.accept(request_of(order_of(OFFER_ID)))
    await until(lambda: stage.calls)
    stage.host.is_down = True
    calls = len(stage.host.calls)
    stage.free.set()
    await until(lambda: len(stage.host.calls) > calls)
    assert stage.host.delivered == {}
    stage.host.is_down = False
    await stage.done()
    assert [one["status"] for one in documents(stage)] == ["completed"]
    assert len(stage.calls) == 1
    await stage.module.close()


@in_loop
async def test_the_next_module_goes_on_with_the_result_that_was_kept_and_asks_no_role() -> None:
    stage = await Stage().open()
    stage.host.refuse = lambda _method, path: (
        Answer(status=503, body={}) if path.endswith("artifact.delivery.send") else None
    )
    stage.free.set()
    await stage.accept(request_of(order_of(OFFER_ID)))
    await until(lambda: [one["state"] for one in stage.host.kind("dator-request")] == ["result"])
    kept = stage.host.kind("dator-request")[0]["result"]
    await stage.module.close()
    stage.host.refuse = lambda _method, _path: None
    following = await Stage(stage.host).open()
    await following.done()
    assert following.calls == []
    (envelope,) = stage.host.delivered.values()
    assert b64decode(envelope["artifact"]["bytes/base64"]).decode() == kept
    answer = await following.module.accept(invoke_of(request_of(order_of(OFFER_ID))))
    assert answer["status"] == "already-present"
    await following.module.close()


@pytest.mark.parametrize("output", ['"' * 300_000, "\\" * 300_000])
@in_loop
async def test_an_output_that_no_record_can_hold_is_a_failure_and_frees_its_place(
    output: Any,
) -> None:
    """The text of a result is part of a record of the host, where quotes take more room."""
    stage = await Stage().open()
    limit_records(stage)
    stage.output = output
    assert await stage.accept(request_of(order_of(OFFER_ID))) == ("accepted", "")
    await stage.done()
    (result,) = documents(stage)
    assert (result["status"], result["error"]["code"]) == ("failed", "role-answer-invalid")
    await stage.module.close()


def limit_records(stage: Stage) -> None:
    record = stage.host._record

    def limited(verb: str, said: Any) -> Answer:
        if verb == "put" and len(msgspec.json.encode(said["payload"])) > PAYLOAD_BYTES:
            return Answer(status=413, body={"code": "too_large"})
        return record(verb, said)

    stage.host._record = limited  # type: ignore[method-assign]


@in_loop
async def test_a_request_ends_also_where_the_operator_was_told_another_reason_before() -> None:
    """Killed between the notification and the end; the host has the key with another text."""
    stage = await Stage().open()
    stage.host.delivery_status = {"status": "failed-permanent", "failure/class": "refused"}
    assert await stage.accept(request_of(order_of(OFFER_ID))) == ("accepted", "")
    notify = "/v1/module/notify"
    conflict = Answer(status=409, body={"code": "idempotency_conflict"})
    stage.host.refuse = lambda _method, path: conflict if path == notify else None
    await stage.done()
    (done,) = stage.host.kind("dator-done")
    assert done["state"] == "refused"
    await stage.module.close()


@in_loop
async def test_an_operator_who_cannot_be_notified_decides_all_the_same() -> None:
    stage = await Stage(offer={"queue_auto_accept": False}).open()
    refused = Answer(status=400, body={"code": "schema"})
    stage.host.refuse = lambda _method, path: refused if path == "/v1/module/notify" else None
    assert await stage.accept(request_of(order_of(OFFER_ID))) == ("accepted", "")
    (waiting,) = stage.host.kind("dator-request")
    body = {"request": waiting["request_id"]}
    status, _ = await stage.module.handle("POST", "/v1/dator/queue/accept", {}, body)
    assert status == 200
    await stage.done()
    assert len(stage.calls) == 1
    await stage.module.close()


@in_loop
async def test_a_deadline_that_passed_while_dator_was_down_is_told_as_that() -> None:
    stage = await Stage().open()
    assert await stage.accept(request_of(order_of(OFFER_ID))) == ("accepted", "")
    await until(lambda: stage.calls)
    await stage.module.close()
    after = Stage(stage.host)
    after.clock.advance_to(NOW + 2 * 3600_000)
    await after.open()
    await after.done()
    (result,) = documents(after)
    assert (result["status"], result["error"]["code"]) == ("failed", "deadline-passed")
    assert after.calls == []
    await after.module.close()

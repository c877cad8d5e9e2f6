"""Which results are taken: from the right peer, for a request that was sent, once."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from anabranch.errors import AnabranchError, InputError
from anabranch.market.node.delivery.envelope import read_document

from .support import (
    PROVIDER,
    START,
    STRANGER,
    Desk,
    digest,
    draft,
    ordered,
    request,
    result,
)

PATH = "/v1/executions/execution:r1-s1-a1"


@pytest.mark.parametrize(
    ("changes", "source", "reason"),
    [
        ({"request_id": "remote-execution:other"}, PROVIDER.node_id, "unknown-request"),
        ({"workflow/run-id": "run:r2"}, PROVIDER.node_id, "workflow-mismatch"),
        ({"workflow/phase-id": "s2"}, PROVIDER.node_id, "workflow-mismatch"),
        ({"correlation/id": "run:r2"}, PROVIDER.node_id, "correlation-mismatch"),
        ({"service_type": "text/translate"}, PROVIDER.node_id, "service-type-mismatch"),
        ({"provider/node-id": STRANGER.node_id}, STRANGER.node_id, "provider-mismatch"),
        (
            {"provider/participant-id": STRANGER.participant_id},
            PROVIDER.node_id,
            "provider-mismatch",
        ),
        ({}, STRANGER.node_id, "source-peer-mismatch"),
        ({}, "", "source-peer-mismatch"),
    ],
)
def test_a_result_that_does_not_match_its_request_is_rejected_by_its_class(
    changes: dict[str, Any], source: str, reason: str
) -> None:
    async def scenario() -> None:
        desk = await ordered()
        commits = desk.store.commits  # type: ignore[attr-defined]
        document = result(changes)
        assert await desk.deliver(document, source) == f"rejected {reason}"
        await desk.orders.result_accepted(document, source, digest(document))
        assert await desk.state() == "dispatched"
        assert desk.store.commits == commits  # type: ignore[attr-defined]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        None,
        result(status="done"),
        result({"error": {"code": "x", "message": "y"}}),
        result({"output": 1}, status="failed"),
        result({"more": 1}),
        {key: value for key, value in result().items() if key != "output"},
    ],
)
def test_what_is_no_result_is_refused_where_it_is_read(document: Any) -> None:
    with pytest.raises(InputError):
        read_document("service-order.result.v1", msgspec.json.encode(document))


def test_nothing_is_taken_before_the_request_was_sent() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        await desk.submit()
        assert await desk.deliver(result()) == "rejected unknown-request"
        assert await desk.state() == "opened"

    asyncio.run(scenario())


@pytest.mark.parametrize("status", ["completed", "failed", "rejected"])
def test_the_same_result_again_is_present_and_another_one_is_refused(status: str) -> None:
    async def scenario() -> None:
        desk = await ordered()
        assert await desk.deliver(result(status=status)) == "accepted"
        before = await desk.get(PATH)
        assert await desk.deliver(result(status=status)) == "already-present"
        assert await desk.get(PATH) == before
        other = result({"provider/metadata": {"n": 1}}, status=status)
        for _ in range(3):
            assert await desk.deliver(other) == "rejected result-conflict"
        desk = await desk.again()
        assert await desk.deliver(result(status=status)) == "already-present"
        assert await desk.deliver(other) == "rejected result-conflict"
        after = await desk.get(PATH)
        assert [one["digest"] for one in after.pop("refused_results")] == [digest(other)]
        assert {**after, "refused_results": []} == before
        assert await desk.broken_laws() == []

    asyncio.run(scenario())


def test_of_two_results_under_way_at_once_the_first_counts() -> None:
    async def scenario() -> None:
        desk = await ordered()
        one, two = result(), result(status="failed")
        for document in (one, two):  # both are offered to the acceptor
            assert desk.orders.check_result(document, PROVIDER.node_id, digest(document)) is None
        for document in (two, one):
            await desk.orders.result_accepted(document, PROVIDER.node_id, digest(document))
        seen = await desk.get(PATH)
        assert (seen["state"], seen["result"]["digest"]) == ("failed", digest(two))
        assert [each["reason"] for each in seen["refused_results"]] == ["result-conflict"]

    asyncio.run(scenario())


def test_a_result_after_the_end_is_kept_for_people_and_changes_no_money() -> None:
    async def scenario() -> None:
        desk = await ordered()
        await desk.pass_time(START + 3_600_000)
        for number in range(30):
            late = result({"output": number})
            assert await desk.deliver(late) == "rejected step-already-closed"
        seen = await desk.get(PATH)
        assert (seen["state"], len(seen["refused_results"])) == ("expired", 20)
        assert seen["result"] is None
        assert await desk.balance() == 1000
        assert await desk.broken_laws() == []

    asyncio.run(scenario())


def test_a_result_for_a_step_that_has_closed_still_settles_the_execution() -> None:
    """The workflow has given up waiting and its acceptor refuses; the work was done in time."""

    async def scenario() -> None:
        desk = await ordered()
        document = result()
        assert desk.orders.check_result(document, PROVIDER.node_id, digest(document)) is None
        await desk.orders.result_accepted(document, PROVIDER.node_id, digest(document))
        await desk.post(f"{PATH}/accept")
        assert await desk.balance(f"account:{PROVIDER.participant_id}") == 200

    asyncio.run(scenario())


def test_settlement_refs_of_a_result_are_no_authority() -> None:
    async def scenario() -> None:
        desk = await ordered()
        refs = {"hold/ref": "hold:other", "receipt/ref": "receipt:x", "settlement/refs": ["paid"]}
        assert await desk.deliver(result(refs)) == "accepted"
        assert await desk.state() == "awaiting_acceptance"
        assert await desk.balance() == 800

    asyncio.run(scenario())


def test_a_request_leaves_only_for_an_open_order_of_this_node() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        order = (await desk.submit()).body["order"]
        other = (await desk.submit(draft(order_id="order:r1-s1-a2"))).body["order"]
        prepare = desk.orders.dispatch_prepared

        async def refused(order_id: str, document: dict[str, Any], code: str) -> None:
            with pytest.raises(AnabranchError) as caught:
                await prepare(order_id, "delivery:1", document)
            assert caught.value.code == code

        await refused("order:none", request(order), "order_unknown")
        await refused("order:r1-s1-a1", request(other), "order_unknown")
        forged = {**order, "request/units": 1}
        await refused("order:r1-s1-a1", request(forged), "invalid_document")
        await refused("order:r1-s1-a1", {}, "invalid_document")
        await prepare("order:r1-s1-a1", "delivery:1", request(order))
        taken = request(other, {"request_id": request(order)["request_id"]})
        await refused("order:r1-s1-a2", taken, "request_conflict")
        another = request(order, {"request_id": "remote-execution:again"})
        await refused("order:r1-s1-a1", another, "request_conflict")
        await desk.pass_time(START + 3_600_000)
        await refused("order:r1-s1-a1", request(order), "execution_closed")

    asyncio.run(scenario())


def test_a_request_that_is_sent_again_changes_nothing_but_its_delivery() -> None:
    async def scenario() -> None:
        desk = await ordered()
        order = (await desk.get(PATH))["order"]
        commits = desk.store.commits  # type: ignore[attr-defined]
        await desk.dispatch(order)
        assert desk.store.commits == commits  # type: ignore[attr-defined]
        await desk.orders.dispatch_prepared("order:r1-s1-a1", "delivery:2", request(order))
        seen = await desk.get(PATH)
        assert (seen["state"], seen["delivery_id"]) == ("dispatched", "delivery:2")
        await desk.orders.dispatch_failed("order:r1-s1-a1", "too late to fail")
        await desk.orders.dispatched("order:none")
        assert await desk.state() == "dispatched"

    asyncio.run(scenario())

"""Which requests Dator takes, with a host in memory: once each, and none that does not fit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from anabranch.market.identities import canonical
from anabranch.market.node.api import Answer
from anabranch.modules.dator import module
from anabranch.modules.kit.host import HostUnavailable
from in_loop import in_loop
from modules.dator.fake_host import NODE
from modules.dator.requests_of import (
    BUYER_NODE,
    OTHER_NODE,
    order_of,
    request_of,
)
from modules.dator.stage import NOW, OFFER_ID, Stage, until


def with_stage(test: Callable[[Stage], Awaitable[None]]) -> Any:
    """A test with a Dator that is open."""

    async def run() -> None:
        stage = await Stage().open()
        try:
            await test(stage)
        finally:
            await stage.module.close()

    run.__name__ = test.__name__
    return in_loop(run)


@with_stage
async def test_a_request_is_written_down_before_anything_follows(stage: Stage) -> None:
    stage.host.refuse = lambda _method, path: (
        Answer(status=503, body={}) if path.endswith("records/put") else None
    )
    assert (await stage.accept(request_of(order_of(OFFER_ID))))[0] == "retryable"
    await asyncio.sleep(0)
    assert stage.calls == []
    assert stage.host.kind("dator-request") == []
    stage.host.refuse = lambda _method, _path: None
    assert await stage.accept(request_of(order_of(OFFER_ID))) == ("accepted", "")
    await stage.done()
    assert len(stage.calls) == 1


@with_stage
async def test_a_host_that_is_down_makes_dator_say_retryable_and_change_nothing(
    stage: Stage,
) -> None:
    stage.host.is_down = True
    assert await stage.accept(request_of(order_of(OFFER_ID))) == ("retryable", "host_unavailable")
    assert stage.calls == []


@with_stage
async def test_the_same_request_is_already_present_while_it_is_done_and_afterwards(
    stage: Stage,
) -> None:
    request = request_of(order_of(OFFER_ID))
    assert await stage.accept(request) == ("accepted", "")
    assert await stage.accept(request) == ("already-present", "")
    await stage.done()
    assert await stage.accept(request) == ("already-present", "")
    assert len(stage.calls) == len(stage.host.delivered) == 1


@with_stage
async def test_another_request_under_the_same_id_is_rejected_always(stage: Stage) -> None:
    first = request_of(order_of(OFFER_ID))
    other = request_of(order_of(OFFER_ID), **{"correlation/id": "another"})
    other["dispatch_payload"]["dispatch"]["correlation/id"] = "another"
    assert await stage.accept(first) == ("accepted", "")
    assert await stage.accept(other) == ("rejected", "request-conflict")
    await stage.done()
    assert await stage.accept(other) == ("rejected", "request-conflict")
    assert len(stage.calls) == 1


@with_stage
async def test_another_request_for_the_same_order_is_rejected_always(stage: Stage) -> None:
    order = order_of(OFFER_ID)
    again = request_of(order, request_id="another-id")
    assert await stage.accept(request_of(order)) == ("accepted", "")
    assert await stage.accept(again) == ("rejected", "order-conflict")
    await stage.done()
    assert await stage.accept(again) == ("rejected", "order-conflict")
    assert len(stage.calls) == 1


@with_stage
async def test_the_same_request_twice_at_once_is_admitted_once(stage: Stage) -> None:
    request = request_of(order_of(OFFER_ID))
    said = await asyncio.gather(*(stage.accept(request) for _ in range(5)))
    assert sorted(said)[0] == ("accepted", "")
    assert {one[0] for one in said} <= {"accepted", "retryable", "already-present"}
    assert [one[0] for one in said].count("accepted") == 1
    await stage.done()
    assert len(stage.calls) == 1


@in_loop
async def test_of_many_at_once_as_many_are_taken_as_the_queue_has_places() -> None:
    for auto, word in ((True, "retryable"), (False, "rejected")):
        offer = {"queue_max_depth": 3, "queue_auto_accept": auto}
        stage = await Stage(offer=offer).open()
        requests = [request_of(order_of(OFFER_ID, f"n{number}")) for number in range(9)]
        said = await asyncio.gather(*(stage.accept(request) for request in requests))
        assert said.count(("accepted", "")) == 3
        assert said.count((word, "queue-saturated")) == 6
        await stage.module.close()


@in_loop
async def test_dator_has_no_more_open_than_it_is_allowed_to() -> None:
    stage = await Stage(max_open=2).open()
    for number, expected in enumerate(["accepted", "accepted", "retryable"]):
        request = request_of(order_of(OFFER_ID, f"n{number}"))
        assert (await stage.accept(request))[0] == expected
    await stage.module.close()


@in_loop
async def test_before_it_knows_what_is_open_it_takes_nothing() -> None:
    stage = Stage()
    stage.host.is_down = True
    init = {"node_id": NODE, "module_id": "dator"}
    await stage.module.handle("POST", "/v1/middleware/init", {}, init)
    assert await stage.accept(request_of(order_of(OFFER_ID))) == ("retryable", "starting")
    stage.host.is_down = False
    await until(lambda: stage.module._loaded)
    assert await stage.accept(request_of(order_of(OFFER_ID))) == ("accepted", "")
    await stage.module.close()


@in_loop
async def test_a_caller_that_goes_away_leaves_no_request_half_admitted() -> None:
    stage = await Stage().open()
    request = request_of(order_of(OFFER_ID))
    for _ in range(20):
        call = asyncio.ensure_future(stage.accept(request))
        for _ in range(3):
            await asyncio.sleep(0)
        call.cancel()
    await until(lambda: stage.calls)
    assert await stage.accept(request) == ("already-present", "")
    await stage.done()
    assert len(stage.calls) == 1
    await stage.module.close()


# -- what does not fit -------------------------------------------------------------------------

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "no-json": (lambda: b"{", "envelope-invalid"),
    "deep": (lambda: b"[" * 100_000, "envelope-invalid"),
    "empty": (lambda: b"{}", "envelope-invalid"),
    "large": (lambda: b" " * 600_000, "request-too-large"),
    "forged": (
        lambda: request_of({**order_of(OFFER_ID), "pricing/max-amount": 5}),
        "envelope-invalid",
    ),
    "unknown-offer": (lambda: request_of(order_of("offer:none")), "offer-not-found"),
    "later-version": (
        lambda: request_of(order_of(OFFER_ID, **{"offer/seq": 2})),
        "offer-seq-mismatch",
    ),
    "earlier-version": (
        lambda: request_of(order_of(OFFER_ID, **{"offer/seq": 0})),
        "offer-seq-mismatch",
    ),
    "other-service": (
        lambda: request_of(order_of(OFFER_ID, **{"service/type": "text/other"})),
        "service-type-mismatch",
    ),
    "too-cheap": (
        lambda: request_of(order_of(OFFER_ID, **{"pricing/max-amount": 99})),
        "price-exceeded",
    ),
    "too-cheap-for-two": (
        lambda: request_of(order_of(OFFER_ID, **{"request/units": 2})),
        "price-exceeded",
    ),
    "other-money": (
        lambda: request_of(order_of(OFFER_ID, **{"pricing/currency": "EUR"})),
        "currency-mismatch",
    ),
    "from-the-future": (
        lambda: request_of(order_of(OFFER_ID, **{"created-at": "2026-06-10T09:00:00Z"})),
        "other-reason",
    ),
    "expired": (
        lambda: request_of(order_of(OFFER_ID), "2026-06-10T08:00:05Z"),
        "deadline-passed",
    ),
    "other-input": (
        lambda: request_of(order_of(OFFER_ID), **{"request/input": {"text": "another"}}),
        "input-mismatch",
    ),
    "other-dispatch": (lambda: _dispatch({"service_type": "text/other"}), "dispatch-mismatch"),
    "no-dispatch": (lambda: _dispatch("text"), "dispatch-mismatch"),
    "parallel-reply": (lambda: _reply_in_parallel(), "reply-not-supported"),
}


def _dispatch(given: Any) -> dict[str, Any]:
    request = request_of(order_of(OFFER_ID))
    payload = {**request["dispatch_payload"], "dispatch": given}
    return {**request, "dispatch_payload": payload}


def _reply_in_parallel() -> dict[str, Any]:
    target = {"selector/kind": "node", "node/id": BUYER_NODE}
    stage = {"mode": "parallel", "targets": [target], "success/policy": "any"}
    stages = [{"stage/id": name, **stage} for name in ("a", "b")]
    plan = {"mode": "parallel", "stages": stages}
    return request_of(order_of(OFFER_ID), **{"reply/delivery_plan": plan})


@pytest.mark.parametrize("name", WRONG)
@in_loop
async def test_a_request_that_does_not_fit_is_rejected_with_its_class_and_leaves_nothing(
    name: str,
) -> None:
    stage = await Stage().open()
    before = dict(stage.host.records)
    make, reason = WRONG[name]
    assert await stage.accept(make()) == ("rejected", reason)
    assert stage.host.records == before
    assert stage.calls == []
    await stage.module.close()


@with_stage
async def test_a_request_that_another_node_hands_in_is_rejected(stage: Stage) -> None:
    said = await stage.accept(request_of(order_of(OFFER_ID)), OTHER_NODE)
    assert said == ("rejected", "buyer-mismatch")


@with_stage
async def test_what_is_no_artifact_of_this_kind_is_rejected(stage: Stage) -> None:
    bodies: list[Any] = [{}, {"artifact": {}}, {"artifact": {"schema": "x"}}, [], None]
    for body in bodies:
        path = "/v1/artifact-delivery/accept"
        status, said = await stage.module.handle("POST", path, {}, body)
        assert (status, said["status"]) == (200, "rejected")


@with_stage
async def test_two_buyers_that_use_the_same_ids_do_not_meet(stage: Stage) -> None:
    """Not even at the role: it is given ids of Dator."""
    mine = order_of(OFFER_ID)
    theirs = order_of(OFFER_ID, **{"buyer/node-id": OTHER_NODE})
    assert await stage.accept(request_of(mine)) == ("accepted", "")
    assert await stage.accept(request_of(theirs), OTHER_NODE) == ("accepted", "")
    await until(lambda: len(stage.calls) == 2)
    assert len(set(stage.calls)) == 2


# -- at once, and after failures -----------------------------------------------------------------


@with_stage
async def test_of_two_requests_for_one_order_that_come_at_once_one_is_taken(stage: Stage) -> None:
    order = order_of(OFFER_ID)
    requests = [request_of(order), request_of(order, request_id="another-id")]
    said = await asyncio.gather(*(stage.accept(request) for request in requests))
    assert sorted(status for status, _ in said) == ["accepted", "retryable"]
    late = requests[said.index(("retryable", "being-admitted"))]
    assert await stage.accept(late) == ("rejected", "order-conflict")
    await stage.done()
    assert len(stage.calls) == len(stage.host.delivered) == 1


@in_loop
async def test_a_request_that_was_written_down_unheard_has_its_place_when_it_comes_again() -> None:
    """The host kept the record, and its answer was lost."""
    stage = await Stage(offer={"queue_max_depth": 1, "queue_auto_accept": False}).open()
    first, other = (request_of(order_of(OFFER_ID, name)) for name in ("first", "other"))
    lose_answer_to_put(stage, "dator-request")
    assert (await stage.accept(first))[0] == "retryable"
    assert await stage.accept(other) == ("accepted", "")
    assert await stage.accept(first) == ("accepted", "")
    await stage.module.close()


def lose_answer_to_put(stage: Stage, kind: str) -> None:
    """Once."""
    record = stage.host._record
    left = [kind]

    def lost(verb: str, said: Any) -> Answer:
        answer = record(verb, said)
        if verb == "put" and said["record_kind"] in left:
            left.clear()
            return Answer(status=503, body={"code": "lost"})
        return answer

    stage.host._record = lost  # type: ignore[method-assign]


@with_stage
async def test_the_same_request_is_already_present_also_when_its_time_has_passed(
    stage: Stage,
) -> None:
    request = request_of(order_of(OFFER_ID))
    assert await stage.accept(request) == ("accepted", "")
    await stage.done()
    stage.clock.advance_to(NOW + 2 * 3600_000)
    assert await stage.accept(request) == ("already-present", "")
    other = request_of(order_of(OFFER_ID, "other"))
    assert await stage.accept(other) == ("rejected", "deadline-passed")


@in_loop
async def test_a_request_that_no_record_can_hold_is_rejected_and_leaves_nothing() -> None:
    """Numbers may take more room than the buyer has written."""
    stage = await Stage(max_request_bytes=768 * 1024).open()
    before = dict(stage.host.records)
    request = canonical(request_of(order_of(OFFER_ID)))
    numbers = b",".join([b"1e15"] * 19_500)
    text = b"x" * 664 * 1024
    long = b'"dispatch_payload":{"text":"' + text + b'","padding":[' + numbers + b"],"
    data = request.replace(b'"dispatch_payload":{', long)
    assert len(data) < 768 * 1024
    assert await stage.accept(data) == ("rejected", "request-too-large")
    assert stage.host.records == before
    await stage.module.close()


# -- buyers that take much -----------------------------------------------------------------------


@in_loop
async def test_a_buyer_that_orders_much_leaves_room_for_others() -> None:
    stage = await Stage(max_open=8, offer={"queue_max_depth": 100}).open()
    flood = [request_of(order_of(OFFER_ID, f"n{number}")) for number in range(20)]
    said = await asyncio.gather(*(stage.accept(request) for request in flood))
    assert said.count(("accepted", "")) == 6
    assert said.count(("retryable", "dator-full")) == 14
    theirs = request_of(order_of(OFFER_ID, **{"buyer/node-id": OTHER_NODE}))
    assert await stage.accept(theirs, OTHER_NODE, trusted=True) == ("accepted", "")
    await stage.module.close()


@pytest.mark.parametrize(
    ("limits", "full"),
    [
        ({"max_open": 8, "offer": {"queue_max_depth": 100}}, ("retryable", "dator-full")),
        (
            {"offer": {"queue_max_depth": 8, "queue_auto_accept": False}},
            ("rejected", "queue-saturated"),
        ),
    ],
)
@in_loop
async def test_strangers_leave_places_to_buyers_whom_the_host_trusts(
    limits: dict[str, Any], full: tuple[str, str]
) -> None:
    """Two keys had all of them, with deadlines of their own choice: for good."""
    stage = await Stage(**limits).open()
    far = "9999-01-01T00:00:00Z"

    def request(buyer: str, number: int) -> Any:
        return request_of(order_of(OFFER_ID, f"n{number}", **{"buyer/node-id": buyer}), far)

    buyers = [BUYER_NODE, OTHER_NODE] * 4
    said = [await stage.accept(request(buyer, n), buyer) for n, buyer in enumerate(buyers)]
    assert said == [("accepted", "")] * 6 + [full] * 2
    for number in (6, 7):
        again = request(buyers[number], number)
        assert await stage.accept(again, buyers[number], trusted=True) == ("accepted", "")
    assert await stage.accept(request(BUYER_NODE, 8), trusted=True) == full
    least = NOW + 3_600_000  # as long as the offer gives
    for row in stage.host.kind("dator-request"):
        assert least <= row["deadline"] <= least + 600_000
    await stage.module.close()


@in_loop
async def test_orders_are_forgotten_after_a_while_and_not_taken_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "FORGET_EVERY_SECONDS", 0.001)
    stage = await Stage(remember_sec=86_400).open()
    far = "9999-01-01T00:00:00Z"
    assert await stage.accept(request_of(order_of(OFFER_ID), far)) == ("accepted", "")
    await stage.done()
    await asyncio.sleep(0.01)
    assert len(stage.host.kind("dator-order")) == len(stage.host.kind("dator-done")) == 1
    stage.clock.advance_to(NOW + 2 * 86_400_000)
    await until(lambda: not stage.host.kind("dator-order") + stage.host.kind("dator-done"))
    again = {**request_of(order_of(OFFER_ID), far), "request_id": "another"}
    assert await stage.accept(again) == ("rejected", "order-too-old")
    await stage.module.close()


@in_loop
async def test_results_that_nobody_takes_leave_when_room_is_needed_whatever_their_deadline() -> (
    None
):
    stage = await Stage(max_open=2, resend_sec=60).open()
    stage.free.set()
    stage.host.delivery_status = {"status": "expired"}
    far = "9999-01-01T00:00:00Z"
    for name in ("one", "two"):
        assert await stage.accept(request_of(order_of(OFFER_ID, name), far)) == ("accepted", "")
    await until(lambda: len(stage.host.delivered) == 2)
    other = request_of(order_of(OFFER_ID, "other"))
    assert await stage.accept(other) == ("retryable", "dator-full")
    stage.clock.advance_to(NOW + 61_000)
    await until(lambda: len(stage.module._book) == 1)
    assert len(stage.host.kind("dator-done")) == 1
    assert await stage.accept(other) == ("accepted", "")
    await stage.module.close()


@in_loop
async def test_no_more_results_leave_at_once_than_room_is_needed() -> None:
    """Both would be given up; while the first one leaves, slowly, the other is looked at."""
    stage = await Stage(max_open=2, resend_sec=60).open()
    host = stage.host
    stage.free.set()
    host.delivery_status = {"status": "expired"}
    for name in ("one", "two"):
        request = request_of(order_of(OFFER_ID, name), "9999-01-01T00:00:00Z")
        assert await stage.accept(request) == ("accepted", "")
    await until(lambda: len(host.delivered) == 2)

    def tells_nobody(_method: str, path: str) -> None:
        if path == "/v1/module/notify":
            raise HostUnavailable("the host takes its time")

    host.refuse = tells_nobody
    calls = len(host.calls)
    stage.clock.advance_to(NOW + 61_000)

    def looked_at() -> set[str]:
        return {path for _, path in host.calls[calls:] if "/artifact-delivery/" in path}

    await until(lambda: len(looked_at()) == 2)
    sent = len(host.delivered)
    host.refuse = lambda _method, _path: None
    await until(lambda: len(host.kind("dator-done")) + len(host.delivered) - sent == 2)
    assert len(host.kind("dator-done")) == 1
    await stage.module.close()


@in_loop
async def test_a_queue_of_large_requests_can_be_listed_and_each_be_looked_at() -> None:
    stage = await Stage(max_open=40, offer={"queue_max_depth": 100}).open()
    text = {"text": "x" * 150_000}
    for number in range(3):
        order = order_of(OFFER_ID, f"n{number}", **{"request/input": text})
        assert await stage.accept(request_of(order)) == ("accepted", "")
    _, shown = await stage.module.handle("GET", "/v1/dator/queue", {}, None)
    assert len(msgspec.json.encode(shown)) < 10_000
    (one, *_) = shown["items"]
    assert one["input_bytes"] > 150_000
    _, whole = await stage.module.handle("GET", f"/v1/dator/requests/{one['id']}", {}, None)
    assert whole["request/input"] == text
    status, _ = await stage.module.handle("GET", "/v1/dator/requests/none", {}, None)
    assert status == 404
    await stage.module.close()

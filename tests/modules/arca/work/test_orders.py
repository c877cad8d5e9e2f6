"""How an ordinary step orders, and what it makes of what becomes of the order."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import Any

import msgspec
import pytest

from anabranch.market.documents import check
from anabranch.market.node.orders.ingress import RETRYABLE
from anabranch.market.node.orders.machine import AWAITING, STATES, TERMINAL, WORKING
from anabranch.work.participants.performers import rfc3339

from .support import ANNA, BERT, BUYER, START, Work, offer, task, virtually

ORDERS = "POST /v1/service-orders"
SEND = "/v1/host/capabilities/artifact.delivery.send"
PROVIDER = "provider/participant-id"
CLASSIFIERS = (
    "offer-not-found", "offer-expired", "offer-seq-mismatch", "provider-mismatch",
    "service-type-mismatch", "currency-mismatch", "price-exceeded", "queue-saturated",
    "custodian-mismatch", "settlement-blocked", "other-reason",
)  # fmt: skip


def order(**inputs: Any) -> Any:
    given = {"target": ANNA.name, "input": {"text": "long"}, **inputs}
    more = {key: given.pop(key) for key in ("job", "tries") if key in given}
    return task("request", **more, **given)


async def ended(work: Work, asked: Any, state: str = "released", **how: Any) -> Any:
    """What the step comes to where its order ends like this a little later."""
    doing = asyncio.ensure_future(work.perform(asked))
    await asyncio.sleep(60)
    assert not doing.done()
    work.fake.end(state, **how)
    return await doing


@virtually
async def test_a_step_orders_and_its_output_is_that_of_the_admitted_result() -> None:
    work = Work(offer())
    answer = await ended(work, order(), output={"summary": "short"})
    assert (answer.status, answer.result) == ("ok", {"summary": "short"})
    (draft,) = work.fake.drafts
    assert draft == {
        "schema/v": 1, "order/id": "order:run1-s1-a1", "created-at": rfc3339(START),
        "provider/node-id": ANNA.node, PROVIDER: ANNA.name, "offer/id": "offer:summaries",
        "offer/seq": 1, "service/type": "text/summarise", "request/units": 1,
        "request/input": {"text": "long"}, "pricing/max-amount": 100, "pricing/currency": "ORC",
        "workflow/run-id": "run1", "workflow/phase-id": "s1",
    }  # fmt: skip
    assert check(draft, kind="service-order.v1", draft=True) == []
    assert "signature" not in draft, "the host signs"


@virtually
async def test_the_order_has_what_the_step_says_of_units_price_time_and_upstream() -> None:
    work = Work(offer())
    given = {"text": "long", "upstream": {"fetch": {"a": 1}, "clean": None}}
    asked = order(input=given, request_units=3, max_amount=500, currency="ORC", timeout_ms=90_000)
    await ended(work, asked)
    (draft,) = work.fake.drafts
    assert (draft["request/units"], draft["pricing/max-amount"]) == (3, 500)
    assert draft["delivery/requested-by"] == rfc3339(START + 90_000)
    assert draft["lineage/upstream-refs"] == ["run1:fetch", "run1:clean"]
    assert check(draft, kind="service-order.v1", draft=True) == []


@pytest.mark.parametrize(("kind", "total"), [("per-item", 300), ("flat", 100)])
@virtually
async def test_a_step_that_says_no_amount_pays_what_the_offer_asks(kind: str, total: int) -> None:
    work = Work(offer(pricing__unit_kind=kind))
    await ended(work, order(request_units=3))
    assert work.fake.drafts[0]["pricing/max-amount"] == total


@virtually
async def test_the_request_follows_from_the_order_and_is_delivered_to_the_provider() -> None:
    fallback = {"stage/id": "later", "targets": [{"selector/kind": "group", "group/id": "g"}]}
    plan = {"mode": "sequence", "stages": [{
        "stage/id": "home", "mode": "parallel", "success/policy": "any",
        "targets": [{"selector/kind": "node", "node/id": BUYER.node}],
    }]}  # fmt: skip
    work = Work(offer(), fallback_stages=[fallback], reply_plan=plan)
    await ended(work, order())
    (envelope,) = work.fake.delivered
    assert check(envelope, kind="artifact-delivery-envelope.v1") == []
    assert envelope["component/id"] == "arca"
    direct, second = envelope["delivery/plan"]["stages"]
    assert direct["targets"] == [{"selector/kind": "node", "node/id": ANNA.node}]
    assert second == fallback
    request = msgspec.json.decode(b64decode(envelope["artifact"]["bytes/base64"]))
    assert request["request_id"] == "remote-execution:run1:s1:a1"
    assert request["dispatch_payload"]["dispatch"]["dispatch/id"] == "dispatch:run1:s1:remote:a1"
    assert (request["workflow/run-id"], request["workflow/phase-id"]) == ("run1", "s1")
    assert request["correlation/id"] == "run1"
    assert request["reply/target"] == {"selector/kind": "node", "node/id": BUYER.node}
    assert request["reply/delivery_plan"] == plan
    assert request["delivery_deadline"] == rfc3339(START + 60_000)


@virtually
async def test_the_trace_of_the_delivery_and_of_the_order_is_kept_on_the_step() -> None:
    work = Work(offer())
    doing = asyncio.ensure_future(work.perform(order()))
    await asyncio.sleep(1)
    known = work.details.of("run1", "s1")
    assert known["status"] == "awaiting_execution"
    assert known["order_id"] == "order:run1-s1-a1"
    assert known["execution_id"] == "execution:run1-s1-a1"
    assert known["contract_id"] == "contract:run1-s1-a1"
    assert known["delivery"]["operation_id"].startswith("deferred:artifact-delivery.submit:")
    assert known["delivery"]["status_href"].endswith("/delivery:1/operation-status")
    assert known["delivery"]["audit_ref"] == "delivery:1"
    work.fake.end("released")
    await doing
    assert work.details.of("run1", "s1")["receipt_id"] == "receipt:run1-s1-a1"


# -- state tables of the reference, 3.2 and 3.3 ------------------------------------------------


@pytest.mark.parametrize("state", [one for one in STATES if one not in TERMINAL])
@virtually
async def test_an_open_execution_is_waited_for(state: str) -> None:
    assert state in (*WORKING, *AWAITING, "disputed")
    work = Work(offer())
    doing = asyncio.ensure_future(work.perform(order()))
    await asyncio.sleep(1)
    (execution,) = work.fake.executions.values()
    execution["state"] = state
    await asyncio.sleep(3600)
    assert not doing.done()
    assert work.details.of("run1", "s1")["status"] == "awaiting_execution"
    work.fake.end("released", output=1)
    assert (await doing).result == 1


@pytest.mark.parametrize("state", TERMINAL)
@virtually
async def test_a_terminal_execution_closes_the_step(state: str) -> None:
    answer = await ended(Work(offer()), order(), state, output=1, reason="so it is")
    if state == "released":
        assert answer.result == 1
        return
    assert answer.status == "error"
    assert answer.fault.retryable, "the retries of the step apply"
    assert "so it is" in answer.fault.message


@pytest.mark.parametrize(("state", "code"), [("failed", "role_failed"), ("rejected", "busy")])
@virtually
async def test_the_error_of_the_provider_is_that_of_the_step(state: str, code: str) -> None:
    error = {"code": code, "message": "no"}
    answer = await ended(Work(offer()), order(), state, reason=f"{code}: no", error=error)
    assert (answer.fault.kind, answer.fault.code, answer.fault.details) == ("order", code, error)


@virtually
async def test_a_request_that_cannot_be_delivered_is_a_fault_with_its_class() -> None:
    reason = "adapter-permanent: the node takes no deliveries"
    answer = await ended(Work(offer()), order(), "failed", reason=reason)
    assert (answer.fault.kind, answer.fault.code) == ("unreachable", "adapter-permanent")
    answer = await ended(Work(offer()), order(), "expired", reason="not done in time")
    assert (answer.fault.kind, answer.fault.code) == ("order_expired", "expired")


@pytest.mark.parametrize("classifier", CLASSIFIERS)
@virtually
async def test_a_rejected_order_is_a_fault_with_its_class(classifier: str) -> None:
    work = Work(offer())
    retryable = classifier in RETRYABLE
    work.fake.rejections = [{"classifier": classifier, "retryable": retryable}]
    answer = await work.perform(order())
    assert (answer.fault.code, answer.fault.retryable) == (classifier, retryable)
    assert work.offers.refreshed == (classifier in ("offer-expired", "offer-seq-mismatch"))
    assert work.fake.delivered == []


# -- offers and providers ----------------------------------------------------------------------


@virtually
async def test_the_cheapest_offer_of_the_chosen_provider_is_ordered_and_no_other_provider() -> None:
    cheap = offer(BERT, offer__id="offer:bert", pricing__amount=1)
    work = Work(cheap, offer(ANNA, offer__id="offer:b", pricing__amount=50), offer(ANNA))
    await ended(work, order())
    assert work.fake.drafts[0]["offer/id"] == "offer:b"
    await ended(work, order(tries=2))
    assert {draft[PROVIDER] for draft in work.fake.drafts} == {ANNA.name}
    assert [draft["order/id"] for draft in work.fake.drafts] == [
        "order:run1-s1-a1", "order:run1-s1-a2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"max_amount": 99}, "price-exceeded"),
        ({"currency": "EUR"}, "currency-mismatch"),
        ({"target": BERT.name}, "offer-not-found"),
    ],
)
@virtually
async def test_what_cannot_be_ordered_is_said_before_an_order(wish: Any, code: str) -> None:
    work = Work(offer())
    answer = await work.perform(order(**wish))
    assert (answer.fault.code, answer.fault.retryable) == (code, False)
    assert work.fake.drafts == []
    assert work.offers.refreshed == 1, "the catalog was asked to look again"


@virtually
async def test_a_named_offer_is_ordered_exactly_and_not_at_a_higher_price() -> None:
    named = offer(ANNA, offer__id="offer:named", pricing__amount=70)
    work = Work(offer(ANNA, offer__id="offer:cheap", pricing__amount=1))
    await ended(work, order(offer=named))
    assert work.fake.drafts[0]["offer/id"] == "offer:named", "also where the catalog has it not"
    newer = offer(ANNA, offer__id="offer:named", pricing__amount=80, sequence__no=2)
    work.offers.heard = [newer]
    work.fake.rejections = [{"classifier": "offer-seq-mismatch", "retryable": True}]
    answer = await work.perform(order(offer=named, tries=2))
    assert answer.fault.retryable
    await ended(work, order(offer=named, tries=3))
    last = work.fake.drafts[-1]
    assert (last["offer/id"], last["offer/seq"]) == ("offer:named", 2)
    assert last["pricing/max-amount"] == 70, "that is what was chosen; the host says price-exceeded"


# -- doing it again ----------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
@virtually
async def test_a_step_that_is_done_again_goes_on_with_its_execution(state: str) -> None:
    work = Work(offer())
    first = asyncio.ensure_future(work.perform(order()))
    await asyncio.sleep(1)
    first.cancel()  # as the engine does, or a crash
    await asyncio.wait([first])
    (execution,) = work.fake.executions.values()
    execution["state"] = state
    if state in TERMINAL:
        execution["state"] = "dispatched"
        work.fake.end(state, output="x")
    second = asyncio.ensure_future(work.perform(order()))
    await asyncio.sleep(1)
    work.fake.end("released", output="x")
    answer = await second
    assert answer.status == ("error" if state in ("failed", "rejected", "expired") else "ok")
    assert len(work.fake.drafts) == 1, "there is one order for an attempt"
    sent = 2 if state in ("opened", "dispatch_prepared") else 1
    assert len(work.fake.delivered) == sent
    assert all(one == work.fake.delivered[0] for one in work.fake.delivered), "the same delivery"


@virtually
async def test_an_order_that_is_there_is_not_compared_with_what_would_be_ordered_now() -> None:
    work = Work(offer())
    first = asyncio.ensure_future(work.perform(order()))
    await asyncio.sleep(1)
    first.cancel()
    await asyncio.wait([first])
    work.offers.known = [offer(pricing__amount=999, sequence__no=9)]
    answer = await ended(work, order(), output="x")
    assert (answer.result, len(work.fake.drafts)) == ("x", 1)


@virtually
async def test_a_host_that_is_away_is_waited_for_at_every_call() -> None:
    for calls in range(8):
        work = Work(offer())
        doing = asyncio.ensure_future(work.perform(order()))
        while len(work.fake.calls) < calls:
            await asyncio.sleep(0.01)
        work.fake.away = 5
        await asyncio.sleep(120)
        work.fake.end("released", output=calls)
        assert (await doing).result == calls
        assert len(work.fake.executions) == 1


@virtually
async def test_an_order_opened_by_who_was_taken_for_lost_is_found() -> None:
    work = Work(offer())

    async def conflict(method: str, path: str, body: Any, query: Any) -> Any:
        if path == "/v1/service-orders" and not work.fake.executions:
            await original(method, path, body, query)
            work.fake.refusals[path] = 409, "order_conflict"
        return await original(method, path, body, query)

    original = work.fake.call
    work.performers["request"]._host._call = conflict  # type: ignore[attr-defined]
    assert (await ended(work, order(), output=1)).result == 1


@virtually
async def test_an_execution_of_something_else_is_not_taken() -> None:
    work = Work(offer())
    await ended(work, order())
    (execution,) = work.fake.executions.values()
    execution["workflow"] = {"run_id": "run9", "phase_id": "s1"}
    answer = await work.perform(order())
    assert (answer.fault.code, answer.fault.retryable) == ("order_conflict", False)


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/service-orders", 403, "host_capability_forbidden"),
        ("/v1/service-orders", 400, "schema"),
        (SEND, 403, "outbound-denied"),
        (SEND, 409, "request_conflict"),
    ],
)
@virtually
async def test_what_the_host_refuses_ends_the_step(path: str, status: int, code: str) -> None:
    work = Work(offer())
    work.fake.refusals[path] = status, code
    answer = await work.perform(order())
    assert (answer.fault.code, answer.fault.retryable) == (code, False)


@virtually
async def test_an_execution_that_closes_before_its_request_leaves_is_read_again() -> None:
    work = Work(offer())
    work.fake.refusals[SEND] = 409, "execution_closed"
    doing = asyncio.ensure_future(work.perform(order()))
    while not work.fake.executions:
        await asyncio.sleep(0)
    work.fake.end("expired", reason="the work was not done in time")
    assert (await doing).fault.code == "expired"


@pytest.mark.parametrize("given", [None, [1], "text"])
@virtually
async def test_an_input_that_no_order_takes_is_refused(given: Any) -> None:
    work = Work(offer())
    answer = await work.perform(order(input=given))
    assert (answer.fault.kind, answer.fault.code) == ("config", "input")
    answer = await work.perform(order(input={"text": "x" * 1_100_000}))
    assert "more than the 1,048,576" in answer.fault.message
    assert work.fake.drafts == []


@virtually
async def test_a_result_wakes_the_step_and_polls_grow_without_one() -> None:
    work = Work(offer())
    doing = asyncio.ensure_future(work.perform(order()))
    await asyncio.sleep(3600)
    looks = len(work.fake.calls)
    assert looks < 3600 / 5 + 20, "they grow to five seconds"
    (waiting,) = work.results._waiting.values()
    before = work.clock.now()
    waiting[1].set()
    await asyncio.sleep(0.005)
    work.fake.end("released", output=1)
    assert (await doing).result == 1
    assert work.clock.now() - before < 100, "virtual milliseconds"

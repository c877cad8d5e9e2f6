"""The table of executions: states, what happens, what becomes of hold and receipt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.market.documents import check
from anabranch.market.identities import is_signed_by
from anabranch.market.node.api import Caller
from anabranch.market.node.orders.machine import STATES, TERMINAL, TRANSITIONS

from .support import (
    ARCA,
    BUYER,
    DAY,
    PROVIDER,
    START,
    Desk,
    draft,
    offer,
    ordered,
    request,
    result,
)

HOUR = 3_600_000
WORK_BY = START + HOUR
ACCEPT_BY, DISPUTE_BY = WORK_BY + DAY, WORK_BY + 2 * DAY
AUTO_RELEASE = WORK_BY + 3 * DAY
PATH = "/v1/executions/execution:r1-s1-a1"
PAYEE = f"account:{PROVIDER.participant_id}"

MODES = {
    "awaiting_acceptance": "self-confirmed",
    "awaiting_manual_release": "manual-review-only",
    "disputed": "arbiter-confirmed",
}


async def execution_in(state: str) -> Desk:
    """A desk whose one execution has come to this state by what leads there."""
    desk = await Desk(offer({"confirmation/mode": MODES.get(state, "self-confirmed")})).opened()
    await desk.top_up()
    order = (await desk.submit()).body["order"]
    if state == "opened":
        return desk
    if state == "expired":
        await desk.pass_time(WORK_BY)
        return desk
    await desk.orders.dispatch_prepared("order:r1-s1-a1", "delivery:1", request(order))
    if state == "dispatch_prepared":
        return desk
    await desk.orders.dispatched("order:r1-s1-a1")
    if state == "dispatched":
        return desk
    await desk.deliver(result(status=state if state in ("failed", "rejected") else "completed"))
    if state == "released":
        await desk.post(f"{PATH}/accept")
    if state == "disputed":
        await desk.post(f"{PATH}/dispute", {"reason": "too long"})
    return desk


async def happen(desk: Desk, event: str) -> int:
    """Let something happen; the status of the answer, 200 where none is given."""
    match event:
        case "accept" | "release" | "dispute":
            return (await desk.post(f"{PATH}/{event}", {"reason": "so it is"})).status
        case "for payer" | "for payee":
            party = event.removeprefix("for ")
            return (await desk.post(f"{PATH}/resolve", {"for": party})).status
        case "completed" | "failed" | "rejected":
            await desk.deliver(result(status=event))
        case "dispatched":
            await desk.orders.dispatched("order:r1-s1-a1")
        case "dispatch failed":
            await desk.orders.dispatch_failed("order:r1-s1-a1", "no route")
        case "work-by":
            await desk.pass_time(WORK_BY)
        case "accept-by":
            await desk.pass_time(ACCEPT_BY)
        case "auto-release":
            await desk.pass_time(AUTO_RELEASE)
    return 200


ACTIONS = ("accept", "release", "dispute", "for payer", "for payee")
EVENTS = (
    *ACTIONS,
    *("completed", "failed", "rejected", "dispatched", "dispatch failed"),
    *("work-by", "accept-by", "auto-release"),
)

#: (state, event) → (state, hold, receipt). All other pairs change nothing.
TABLE: dict[tuple[str, str], tuple[str, str, str]] = {
    ("dispatch_prepared", "dispatched"): ("dispatched", "active", ""),
    ("dispatch_prepared", "dispatch failed"): ("failed", "refunded", "rejected"),
    # The answer may be here before the receipt of the request is.
    ("dispatch_prepared", "completed"): ("awaiting_acceptance", "active", ""),
    ("dispatch_prepared", "failed"): ("failed", "refunded", "rejected"),
    ("dispatch_prepared", "rejected"): ("rejected", "refunded", "rejected"),
    ("dispatched", "completed"): ("awaiting_acceptance", "active", ""),
    ("dispatched", "failed"): ("failed", "refunded", "rejected"),
    ("dispatched", "rejected"): ("rejected", "refunded", "rejected"),
    ("awaiting_acceptance", "accept"): ("released", "released", "settled"),
    ("awaiting_acceptance", "release"): ("released", "released", "settled"),
    ("awaiting_acceptance", "auto-release"): ("released", "released", "settled"),
    ("awaiting_acceptance", "dispute"): ("disputed", "disputed", ""),
    ("awaiting_manual_release", "accept"): ("released", "released", "settled"),
    ("awaiting_manual_release", "release"): ("released", "released", "settled"),
    ("disputed", "for payer"): ("rejected", "refunded", "rejected"),
    ("disputed", "for payee"): ("released", "released", "settled"),
    **{
        (state, time): ("expired", "refunded", "expired")
        for state in ("opened", "dispatch_prepared", "dispatched")
        for time in ("work-by", "accept-by", "auto-release")
    },
}
STANDS = {
    **dict.fromkeys(STATES, ("active", "")),
    "disputed": ("disputed", ""),
    "released": ("released", "settled"),
    "failed": ("refunded", "rejected"),
    "rejected": ("refunded", "rejected"),
    "expired": ("refunded", "expired"),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_what_happens_to_an_execution_is_in_the_table_and_nothing_else(
    state: str, event: str
) -> None:
    async def scenario() -> None:
        desk = await execution_in(state)
        assert await desk.state() == state
        status = await happen(desk, event)
        expected = TABLE.get((state, event), (state, *STANDS[state]))
        if event in ACTIONS:
            assert status == (200 if (state, event) in TABLE else 409)
        assert await standing(desk) == expected
        assert await standing(await desk.again()) == expected
        assert await desk.broken_laws() == []
        paid = {"released": (800, 200), "refunded": (1000, 0)}.get(expected[1], (800, 0))
        assert (await desk.balance(), await desk.balance(PAYEE)) == paid

    asyncio.run(scenario())


async def standing(desk: Desk) -> tuple[str, str, str]:
    seen = await desk.get(PATH)
    assert seen["terminal"] is (seen["state"] in TERMINAL)
    hold = await desk.get(f"/v1/ledger/holds/{seen['hold_id']}")
    assert check(hold, kind="ledger-hold.v1") == []
    receipt = await desk.call("GET", "/v1/receipts/receipt:r1-s1-a1")
    assert (receipt.status == 200) is (seen["receipt_id"] is not None)
    return seen["state"], hold["status"], receipt.body["outcome"] if receipt.status == 200 else ""


def test_every_state_can_be_reached_and_every_end_is_final() -> None:
    reached = {"opened", *(step.to for step in TRANSITIONS.values())}
    assert reached == set(STATES)
    assert not any(state in TERMINAL for state, _ in TRANSITIONS)


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"confirmation/mode": "self-confirmed"}, "awaiting_acceptance"),
        ({"confirmation/mode": "arbiter-confirmed"}, "awaiting_acceptance"),
        ({"confirmation/mode": "manual-review-only"}, "awaiting_manual_release"),
        ({"confirmation/mode": None}, "released"),
        ({"confirmation/mode": "self-confirmed", "pricing/amount": 0}, "released"),
        ({"confirmation/mode": "manual-review-only", "pricing/amount": 0}, "released"),
        ({"confirmation/mode": None, "pricing/amount": 0}, "released"),
    ],
)
def test_a_completed_result_waits_for_whom_the_offer_names(
    changes: dict[str, Any], state: str
) -> None:
    async def scenario() -> None:
        desk = await ordered(offer(changes))
        assert await desk.deliver(result()) == "accepted"
        assert await desk.state() == state
        seen = await desk.get(PATH)
        assert (seen["hold_id"] is None) is (state == "released")
        assert (await desk.get("/v1/contracts/contract:r1-s1-a1"))["status"] == (
            "settled" if state == "released" else "pending"
        )
        if state == "released":
            assert await desk.balance() == 1000
            assert (await desk.get(f"/v1/receipts/{seen['receipt_id']}"))["outcome"] == "settled"
        assert await desk.broken_laws() == []

    asyncio.run(scenario())


def test_a_review_by_people_has_no_end_by_time() -> None:
    async def scenario() -> None:
        desk = await ordered(offer({"confirmation/mode": "manual-review-only"}))
        await desk.deliver(result())
        await desk.pass_time(AUTO_RELEASE + 365 * DAY)
        seen = await desk.get(PATH)
        assert (seen["state"], seen["acceptance_overdue"]) == ("awaiting_manual_release", True)
        assert desk.entities.next_wake() is None

    asyncio.run(scenario())


def test_time_is_told_at_its_instant_and_not_before() -> None:
    async def scenario() -> None:
        desk = await ordered()
        await desk.pass_time(WORK_BY - 1)
        assert await desk.state() == "dispatched"
        await desk.deliver(result())
        await desk.pass_time(ACCEPT_BY - 1)
        assert (await desk.get(PATH))["acceptance_overdue"] is False
        assert desk.entities.next_wake() == ACCEPT_BY
        await desk.pass_time(ACCEPT_BY)
        assert (await desk.get(PATH))["acceptance_overdue"] is True
        await desk.pass_time(AUTO_RELEASE - 1)
        assert await desk.state() == "awaiting_acceptance"
        assert desk.entities.next_wake() == AUTO_RELEASE
        await desk.pass_time(AUTO_RELEASE)
        assert await desk.state() == "released"

    asyncio.run(scenario())


def test_a_node_that_was_away_does_everything_that_is_due_when_it_is_back() -> None:
    async def scenario() -> None:
        desk = await ordered()
        await desk.deliver(result())
        desk.clock.advance_to(AUTO_RELEASE + DAY)
        desk = await desk.again()
        await desk.pass_time(AUTO_RELEASE + DAY)
        seen = await desk.get(PATH)
        assert (seen["state"], seen["acceptance_overdue"]) == ("released", True)

    asyncio.run(scenario())


@pytest.mark.parametrize(("late", "status"), [(0, 200), (1, 409)])
def test_a_dispute_is_in_time_or_refused(late: int, status: int) -> None:
    async def scenario() -> None:
        desk = await ordered()
        await desk.deliver(result())
        await desk.pass_time(DISPUTE_BY + late)
        answer = await desk.post(f"{PATH}/dispute")
        assert answer.status == status
        assert answer.body.get("code") == ("dispute_late" if late else None)

    asyncio.run(scenario())


def test_a_dispute_stops_the_clock() -> None:
    async def scenario() -> None:
        desk = await ordered()
        await desk.deliver(result())
        await desk.post(f"{PATH}/dispute", {"reason": "empty"})
        await desk.pass_time(AUTO_RELEASE + DAY)
        seen = await desk.get(PATH)
        assert (seen["state"], seen["reason"], seen["actor"]) == ("disputed", "empty", "operator")

    asyncio.run(scenario())


def test_work_is_due_earlier_where_the_order_asks_for_it() -> None:
    async def scenario() -> None:
        desk = await ordered(changes={"delivery/requested-by": "2026-06-10T08:10:00Z"})
        seen = await desk.get(PATH)
        assert seen["deadlines"] == {
            "work_by": "2026-06-10T08:10:00.000Z",
            "accept_by": "2026-06-11T08:10:00.000Z",
            "dispute_by": "2026-06-12T08:10:00.000Z",
            "auto_release": "2026-06-13T08:10:00.000Z",
        }

    asyncio.run(scenario())


def test_the_longest_promise_is_still_a_date() -> None:
    async def scenario() -> None:
        desk = await ordered(offer({"delivery/max-duration-sec": 2**53 - 1}))
        assert (await desk.get(PATH))["deadlines"]["work_by"] == "2027-06-11T08:00:00.000Z"

    asyncio.run(scenario())


@pytest.mark.parametrize("action", ["accept", "release", "dispute", "resolve"])
@pytest.mark.parametrize("caller", [ARCA, Caller("peer"), Caller("open")])
def test_only_the_operator_decides(action: str, caller: Caller) -> None:
    async def scenario() -> None:
        desk = await ordered()
        await desk.deliver(result())
        answer = await desk.post(f"{PATH}/{action}", {"for": "payer"}, caller)
        assert answer.status in (401, 403)
        assert await desk.state() == "awaiting_acceptance"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/executions/execution:other/accept", None, 404),
        ("/v1/executions/order:r1-s1-a1/accept", None, 404),
        ("/v1/executions/execution:/accept", None, 404),
        (f"{PATH}/accept", {"reason": 7}, 400),
        (f"{PATH}/accept", {"why": "so"}, 400),
        (f"{PATH}/accept", {"reason": "x" * 1025}, 400),
        (f"{PATH}/resolve", None, 400),
        (f"{PATH}/resolve", {"for": "both"}, 400),
        (f"{PATH}/resolve", {"party": "payer"}, 400),
    ],
)
def test_a_decision_that_cannot_be_read_changes_nothing(path: str, body: Any, status: int) -> None:
    async def scenario() -> None:
        desk = await ordered()
        await desk.deliver(result())
        assert (await desk.post(path, body)).status == status
        assert await desk.state() == "awaiting_acceptance"

    asyncio.run(scenario())


def test_executions_are_listed_by_run_and_by_what_is_open_in_pages() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up(10_000)
        for number in range(5):
            run = {"workflow/run-id": f"run:{number % 2}"}
            answer = await desk.submit(draft(run, order_id=f"order:{number}"))
            desk.clock.advance_to(desk.clock.now() + 1)
        await desk.orders.dispatch_prepared("order:4", "delivery:4", request(answer.body["order"]))
        await desk.orders.dispatch_failed("order:4", "no route")

        async def names(query: str) -> list[str]:
            found = await desk.get(f"/v1/executions?{query}")
            return [one["order_id"].removeprefix("order:") for one in found["items"]]

        assert await names("") == ["4", "3", "2", "1", "0"]
        assert await names("run_id=run:0") == ["4", "2", "0"]
        assert await names("open=true") == ["3", "2", "1", "0"]
        assert await names("open=false") == ["4"]
        first = await desk.get("/v1/executions?limit=2")
        assert await names(f"limit=2&before={first['next']}") == ["2", "1"]
        for query in ("limit=0", "limit=x", "open=yes", "before=%"):
            assert (await desk.call("GET", f"/v1/executions?{query}")).status == 400

    asyncio.run(scenario())


def test_the_contract_and_the_receipt_are_whole_documents() -> None:
    async def scenario() -> None:
        for mode in ("self-confirmed", "arbiter-confirmed", "manual-review-only", None):
            desk = await ordered(offer({"confirmation/mode": mode}))
            contract = await desk.get("/v1/contracts/contract:r1-s1-a1")
            assert check(contract, kind="procurement-contract.v1", at=START) == []
            assert contract["settlement/rail"] == ("host-ledger" if mode else "external-invoice")
            await desk.deliver(result())
            await desk.post(f"{PATH}/release")
            receipt = await desk.get("/v1/receipts/receipt:r1-s1-a1")
            assert check(receipt, kind="procurement-receipt.v1", at=START) == []
            assert receipt["outcome"] == "settled"
            assert receipt["payee/signed-by"] == BUYER.node_id
            for name in ("accept", "release", "dispute"):
                assert (await desk.post(f"{PATH}/{name}")).status == 409
            assert await desk.get("/v1/receipts/receipt:r1-s1-a1") == receipt

    asyncio.run(scenario())


def test_the_signatures_of_a_receipt_hold() -> None:
    async def scenario() -> None:
        desk = await ordered()
        await desk.deliver(result())
        await desk.post(f"{PATH}/accept")
        receipt = await desk.get("/v1/receipts/receipt:r1-s1-a1")
        unsigned = {key: receipt[key] for key in receipt if not key.endswith("/signature")}
        for who, signer in (("payer", BUYER.participant_id), ("payee", BUYER.node_id)):
            assert is_signed_by({**unsigned, "signature": receipt[f"{who}/signature"]}, signer)

    asyncio.run(scenario())


def test_a_node_that_buys_from_itself_signs_for_both_and_loses_nothing() -> None:
    async def scenario() -> None:
        own = {
            "provider/node-id": BUYER.node_id,
            "provider/participant-id": BUYER.participant_id,
        }
        desk = await ordered(offer(keys=BUYER), changes=own)
        assert await desk.deliver(result(own), BUYER.node_id) == "accepted"
        await desk.post(f"{PATH}/accept")
        receipt = await desk.get("/v1/receipts/receipt:r1-s1-a1")
        assert receipt["payee/signed-by"] == BUYER.participant_id
        account = await desk.get("/v1/ledger/account")
        assert (account["balance"], account["held"]) == (1000, 0)
        assert await desk.broken_laws() == []

    asyncio.run(scenario())

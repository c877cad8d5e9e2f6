"""Orders from the offers of Dator: done by a role, answered, refused, put off, decided about."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.modules.dator.role import RejectTask
from anabranch.modules.dator.roles import RoleUnavailable
from in_loop import in_loop
from modules.dator.support import OFFER, ROLE, Market, config_of

ACCEPT, REJECT = "/v1/enact/dator/queue/accept", "/v1/enact/dator/queue/reject"


@in_loop
async def test_an_order_is_done_by_the_role_and_its_result_closes_it() -> None:
    market = Market()
    await market.open()
    await market.order()
    await market.world.advance(5)
    assert (await market.execution())["state"] == "awaiting_acceptance"
    result = await market.result()
    assert (result["status"], result["output"]) == ("completed", {"summary": "a lon"})
    assert result["provider/metadata"]["answer/format"] == "json"
    assert len(market.role.calls) == 1
    queue = await market.queue()
    assert (queue["items"], [one["state"] for one in queue["ended"]]) == ([], ["delivered"])
    await market.close()


@in_loop
async def test_the_executing_node_has_a_record_of_the_completed_step() -> None:
    market = Market()
    await market.open()
    await market.order()
    await market.world.advance(5)
    result = await market.result()
    run = result["workflow/run-id"]
    steps = await market.ask("provider", "GET", f"/v1/workflows/runs/{run}/steps/completed")
    (item,) = steps["items"]
    assert (item["step_id"], item["module_id"]) == ("order", "dator")
    assert item["record"]["dispatch/id"] == market.role.calls[0]
    await market.close()


@pytest.mark.parametrize(
    ("error", "state", "code"),
    [
        (ValueError("no idea"), "failed", "role-failed"),
        (RejectTask("no text"), "rejected", "rejected-invalid-request"),
    ],
)
@in_loop
async def test_what_the_role_says_no_to_is_refunded(
    error: Exception, state: str, code: str
) -> None:
    def role(_given: Any) -> Any:
        raise error

    market = Market(role=role)
    await market.open()
    await market.order()
    await market.world.advance(5)
    assert (await market.execution())["state"] == state
    assert (await market.result())["error"]["code"] == code
    account = await market.ask("buyer", "GET", "/v1/ledger/account")
    assert (account["balance"], account["held"]) == (1000, 0)
    run = (await market.result())["workflow/run-id"]
    steps = await market.ask("provider", "GET", f"/v1/workflows/runs/{run}/steps/completed")
    assert steps["items"] == []
    await market.close()


@in_loop
async def test_a_role_that_is_away_is_asked_until_it_is_there() -> None:
    market = Market()
    away = 5

    def before(_task: Mapping[str, Any]) -> None:
        nonlocal away
        away -= 1
        if away > 0:
            raise RoleUnavailable("it is being started")

    market.role.before = before
    await market.open()
    await market.order()
    await market.world.advance(60)
    assert (await market.result())["status"] == "completed"
    await market.close()


@in_loop
async def test_a_request_that_is_sent_again_is_already_present_and_not_done_again() -> None:
    market = Market()
    await market.open()
    await market.order()
    await market.world.advance(5)
    await market.ask("buyer", "POST", "/v1/executions/execution:one/accept")
    (invoke,) = market.invokes
    answer = market.provider.run(market.modules[-1].accept(invoke))
    assert answer == {"status": "already-present"}
    await market.world.advance(5)
    assert len(market.role.calls) == 1
    await market.close()


@in_loop
async def test_two_buyers_race_for_a_queue_of_one_and_the_second_is_told_and_done_later() -> None:
    market = Market(config_of({**OFFER, "queue_max_depth": 1}), buyers=("buyer", "other"))
    free = asyncio.Event()
    market.role.before = lambda _task: free.wait()
    await market.open("buyer")
    await market.open("other")
    await market.order("one", "buyer")
    await market.order("two", "other")
    await market.world.advance(3)
    assert len((await market.queue())["items"]) == 1
    states = {
        name: (await market.execution(name, buyer))["state"]
        for name, buyer in (("one", "buyer"), ("two", "other"))
    }
    assert sorted(states.values()) == ["dispatch_prepared", "dispatched"]
    late = min(states, key=lambda name: states[name])
    reasons = await told(market, "buyer" if late == "one" else "other")
    assert any("queue-saturated" in one for one in reasons)
    free.set()
    await market.world.advance(60)
    for name, buyer in (("one", "buyer"), ("two", "other")):
        assert (await market.result(name, buyer))["status"] == "completed"
    assert len(set(market.role.calls)) == len(market.role.calls) == 2
    await market.close()


async def told(market: Market, buyer: str) -> list[str]:
    """What the deliveries of a buyer were told."""
    items = (await market.ask(buyer, "GET", "/v1/artifact-delivery/deliveries"))["items"]
    return [str(one.get("diagnostic", "")) for one in items]


@in_loop
async def test_a_full_queue_that_an_operator_decides_about_rejects_at_once() -> None:
    offer = {**OFFER, "queue_max_depth": 1, "queue_auto_accept": False}
    market = Market(config_of(offer), buyers=("buyer", "other"))
    await market.open("buyer")
    await market.open("other")
    await market.order("one", "buyer")
    await market.order("two", "other")
    await market.world.advance(5)
    states = {
        (await market.execution("one", "buyer"))["state"],
        (await market.execution("two", "other"))["state"],
    }
    assert states == {"dispatched", "failed"}
    assert len((await market.queue())["items"]) == 1
    await market.close()


@in_loop
async def test_an_operator_takes_an_order_or_rejects_it_and_decides_once() -> None:
    market = Market(config_of({**OFFER, "queue_auto_accept": False}))
    await market.open()
    for name in ("one", "two"):
        await market.order(name)
    await market.world.advance(5)
    assert market.role.calls == []
    items = {one["order/id"]: one for one in (await market.queue())["items"]}
    assert {one["state"] for one in items.values()} == {"waiting"}
    notes = (await market.ask("provider", "GET", "/v1/notifications"))["items"]
    assert len(notes) == 2
    one, two = items["order:one"], items["order:two"]
    await market.ask("provider", "POST", ACCEPT, {"request": one["request_id"]})
    await market.ask("provider", "POST", REJECT, {"request": two["id"], "reason": "too busy"})
    again = await market.ask("provider", "POST", REJECT, {"request": two["id"]}, good=False)
    other = await market.ask("provider", "POST", ACCEPT, {"request": two["id"]}, good=False)
    assert (again.status, other.status) == (200, 409)
    await market.world.advance(5)
    assert (await market.result("one"))["status"] == "completed"
    assert (await market.result("two"))["error"] == {
        "code": "rejected-by-provider", "message": "too busy",
    }  # fmt: skip
    assert (await market.execution("two"))["state"] == "rejected"
    gone = await market.ask("provider", "POST", ACCEPT, {"request": one["id"]}, good=False)
    assert (gone.status, gone.body["code"]) == (404, "unknown_request")
    await market.close()


@in_loop
async def test_an_order_that_nobody_decides_about_fails_at_its_deadline() -> None:
    offer = {**OFFER, "queue_auto_accept": False, "delivery_max_duration_sec": 60}
    market = Market(config_of(offer))
    await market.open()
    await market.order()
    await market.world.advance(120)
    queue = await market.queue()
    assert queue["items"] == []
    assert [(one["result"], one["code"]) for one in queue["ended"]] == [
        ("failed", "deadline-passed")
    ]
    assert (await market.execution())["state"] == "expired"
    await market.close()


@in_loop
async def test_a_role_that_takes_too_long_fails_the_order() -> None:
    config = config_of(OFFER, roles={ROLE: {"timeout_sec": 10}})
    market = Market(config)
    market.role.before = lambda _task: asyncio.sleep(1000)
    await market.open()
    await market.order()
    await market.world.advance(30)
    assert (await market.result())["error"]["code"] == "role-timeout"
    await market.close()


@in_loop
async def test_a_role_does_so_much_at_once_and_the_rest_in_turn() -> None:
    market = Market(config_of(OFFER, roles={ROLE: {"max_concurrent": 2}}))
    busy: list[int] = [0, 0]

    async def work() -> None:
        busy[0] += 1
        busy[1] = max(busy)
        await asyncio.sleep(1)
        busy[0] -= 1

    market.role.before = lambda _task: work()
    await market.open()
    for number in range(6):
        await market.order(f"n{number}")
    await market.world.advance(30)
    for number in range(6):
        assert (await market.result(f"n{number}"))["status"] == "completed"
    assert busy == [0, 2]
    await market.close()


@in_loop
async def test_a_result_that_cannot_be_delivered_for_long_is_sent_again_with_the_same_bytes() -> (
    None
):
    market = Market()
    free = asyncio.Event()
    market.role.before = lambda _task: free.wait()
    await market.open()
    await market.order()
    await market.world.advance(5)
    await market.world.drop("buyer", "provider")
    free.set()
    await market.world.advance(1000)  # a delivery is tried for 900 seconds
    await market.world.heal("buyer", "provider")
    await market.world.advance(120)
    assert (await market.result())["status"] == "completed"
    items = (await market.ask("provider", "GET", "/v1/artifact-delivery/deliveries"))["items"]
    assert sorted(one["status"] for one in items) == ["expired", "succeeded"]
    assert len({one["artifact"]["digest"] for one in items}) == 1
    assert len(market.role.calls) == 1
    await market.close()


@in_loop
async def test_an_order_from_an_older_version_gets_what_that_version_said() -> None:
    market = Market()
    await market.open()
    market.provider.kill()
    market.config = config_of({**OFFER, "pricing_amount": 150})
    market.provider.start()
    await market.world.advance(5)
    await market.order()  # the buyer knows version 1, at 100
    await market.world.advance(10)
    assert (await market.result())["status"] == "completed"
    assert (await market.execution())["payment"]["amount"] == 100
    await market.close()


@in_loop
async def test_an_order_from_a_version_that_was_replaced_long_ago_is_rejected() -> None:
    market = Market(config_of(OFFER, superseded_grace_sec=60))
    await market.open()
    market.provider.kill()
    offer = {**OFFER, "pricing_amount": 150}
    market.config = config_of(offer, superseded_grace_sec=60)
    market.provider.start()
    await market.world.advance(120)
    await market.order()
    await market.world.advance(10)
    assert (await market.execution())["state"] == "failed"
    assert any("offer-seq-mismatch" in one for one in await told(market, "buyer"))
    assert market.role.calls == []
    await market.close()

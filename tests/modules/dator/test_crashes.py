"""A provider that dies around any commit: no order is lost, and none is done twice."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from anabranch.testing.market.disk import Died
from in_loop import in_loop
from modules.dator.support import OFFER, ROLE, Market, config_of

KILLS = 18  # more than the commits of an order


def moments(*more: str) -> list[Any]:
    """Every commit, before it and after it. After one is nearly before the next: `make test` takes
    one of the two, in turn, and the other one with each other value of `more`."""
    rows = []
    for number, (odd, each) in product(range(1, KILLS), enumerate(more or ("",))):
        for at, when in enumerate(("before", "after")):
            marks = pytest.mark.soak if (number + odd + at) % 2 else ()
            rows.append(pytest.param(number, when, *((each,) if each else ()), marks=marks))
    return rows


async def story(market: Market) -> None:
    """One order, until it is answered and the provider has nothing left to do."""
    await market.open()
    await market.order()
    for _ in range(40):
        market.revive()
        await market.world.advance(5)
        await accept_all(market)
        state = (await market.execution())["state"]
        if state == "awaiting_acceptance" and not (await market.queue())["items"]:
            return
    raise AssertionError("the order does not come to an end")


async def accept_all(market: Market) -> None:
    for one in (await market.queue())["items"]:
        if one["state"] == "waiting":
            path = "/v1/enact/dator/queue/accept"
            said = await market.ask("provider", "POST", path, {"request": one["id"]}, good=False)
            assert said.status in (200, 404)  # asked again after a death, it may be done already


def kill_at(market: Market, when: str, *numbers: int) -> list[int]:
    """The provider dies at its commits with these numbers, the first counted from now and each
    other one from the death before; returns the list of deaths."""
    deaths: list[int] = []
    left = list(numbers)
    begun = [market.provider.commits]

    def die(at: str, commit: int) -> None:
        if left and (at, commit) == (when, begun[0] + left[0]):
            deaths.append(left.pop(0))
            begun[0] = commit
            raise Died(9)

    market.provider.on_commit = die
    return deaths


async def require_done_once(market: Market, *, calls: int = 2) -> None:
    """Whatever was killed."""
    result = await market.result()
    assert (result["status"], result["output"]) == ("completed", {"summary": "a lon"})
    assert len(market.role.done) == 1
    assert len(market.role.calls) <= calls
    queue = await market.queue()
    assert (queue["items"], [one["state"] for one in queue["ended"]]) == ([], ["delivered"])
    run = result["workflow/run-id"]
    steps = await market.ask("provider", "GET", f"/v1/workflows/runs/{run}/steps/completed")
    assert len(steps["items"]) == 1
    (offer,) = await market.offers()
    assert (offer["offer/id"], offer["pricing/amount"]) == (market.offer_id, 100)
    account = await market.ask("buyer", "GET", "/v1/ledger/account")
    assert (account["balance"], account["held"]) == (900, 100)
    await market.close()


@pytest.mark.parametrize("decided", ["auto", "manual"])
@in_loop
async def test_the_kills_below_are_more_than_an_order_has_commits(decided: str) -> None:
    market = market_of(decided)
    before = market.provider.commits
    await story(market)
    assert 8 <= market.provider.commits - before < KILLS
    await require_done_once(market, calls=1)


@pytest.mark.parametrize(("number", "when", "decided"), moments("auto", "manual"))
@in_loop
async def test_an_order_is_done_once_whenever_the_provider_dies(
    number: int, when: str, decided: str
) -> None:
    market = market_of(decided)
    deaths = kill_at(market, when, number)
    await story(market)
    assert number > 8 or deaths == [number]
    await require_done_once(market)


@pytest.mark.parametrize("first", range(4, KILLS - 4, 2))
@in_loop
async def test_an_order_is_done_once_where_the_provider_dies_again_while_it_takes_up_its_work(
    first: int,
) -> None:
    for second in (1, 2, 3, 5):
        market = market_of("auto")
        kill_at(market, "after", first, second)
        await story(market)
        await require_done_once(market, calls=3)


@pytest.mark.parametrize(("number", "when"), moments())
@in_loop
async def test_an_order_is_done_once_whenever_the_process_of_dator_alone_is_killed(
    number: int, when: str
) -> None:
    market = market_of("auto")
    begun, dator = market.provider.commits, market.provider.modules["dator"]

    def kill(at: str, commit: int) -> None:
        if (at, commit) == (when, begun + number):
            dator.kill()

    market.provider.on_commit = kill
    await story(market)
    assert number > 8 or dator.lives == 2
    await require_done_once(market)


@in_loop
async def test_work_that_a_crash_interrupted_is_asked_for_again_under_the_same_dispatch_id() -> (
    None
):
    market = market_of("auto")
    die_at_work(market, times=2)
    await story(market)
    assert len(market.role.calls) == 3
    assert len(set(market.role.calls)) == 1
    await require_done_once(market, calls=3)


@in_loop
async def test_a_role_that_does_not_repeat_its_work_is_not_asked_again_after_a_crash() -> None:
    market = Market(config_of(OFFER, roles={ROLE: {"repeat_interrupted": False}}))
    die_at_work(market, times=1)
    await market.open()
    await market.order()
    await market.world.advance(5)
    market.revive()
    await market.world.advance(30)
    result = await market.result()
    assert (result["status"], result["error"]["code"]) == ("failed", "interrupted")
    assert (await market.execution())["state"] == "failed"
    assert len(market.role.calls) == 1
    await market.close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 8))
@in_loop
async def test_an_offer_is_changed_once_whenever_the_provider_dies(number: int, when: str) -> None:
    market = market_of("auto")
    await market.world.advance(5)
    market.provider.kill()
    market.config = config_of({**OFFER, "pricing_amount": 90})
    kill_at(market, when, number)
    for _ in range(3):
        market.revive()
        await market.world.advance(5)
    (offer,) = await market.offers()
    assert (offer["sequence/no"], offer["pricing/amount"]) == (2, 90)
    market.provider.on_commit = lambda _when, _number: None
    await market.open()
    assert (await market.order())["status"] == "opened-execution"
    await market.world.advance(10)
    assert (await market.result())["status"] == "completed"
    await market.close()


def market_of(decided: str) -> Market:
    return Market(config_of({**OFFER, "queue_auto_accept": decided == "auto"}))


def die_at_work(market: Market, times: int) -> None:
    """The provider dies while the role works, so often."""
    left = [None] * times

    def die(_task: Mapping[str, Any]) -> None:
        if left:
            left.pop()
            raise Died(9)

    market.role.before = die

"""Money that comes in, is held and moves: nothing is lost, made twice or spent twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.errors import InputError, LawBroken
from anabranch.market.node.api import Caller
from anabranch.market.node.entities import Change
from anabranch.market.node.ledger import book
from anabranch.market.node.ledger.accounts import (
    ACCOUNTS,
    AMOUNT_MAX,
    ESCROW,
    EXTERNAL,
    MOVEMENTS,
    Posted,
    account_of,
    require_account,
)
from anabranch.market.node.ledger.holds import FOLLOWING, HOLDS, Changed, Deadlines, Hold

from ..orders.support import ARCA, BUYER, PROVIDER, START, Desk, ordered, result

OWN = account_of(BUYER.participant_id)
POOL = "account:community-pool"


def test_an_account_that_never_had_money_has_none() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        for name in ("", OWN, POOL, account_of(PROVIDER.participant_id)):
            query = f"?account={name}" if name else ""
            expected = {"account_id": name or OWN, "unit": "ORC", "balance": 0, "held": 0}
            assert await desk.get(f"/v1/ledger/account{query}", ARCA) == expected

    asyncio.run(scenario())


def test_what_comes_in_is_on_the_account_and_comes_from_outside() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        answer = await desk.top_up(700, note="first", idempotency_key="a")
        assert answer.status == 201
        assert answer.body["kind"] == "top-up"
        assert answer.body["account"]["balance"] == 700
        assert sorted((one["account"], one["amount"]) for one in answer.body["entries"]) == [
            (EXTERNAL, -700),
            (OWN, 700),
        ]
        assert (await desk.top_up(5, account=POOL)).body["account"]["balance"] == 5
        assert await desk.balance(EXTERNAL) == -705
        assert await desk.broken_laws() == []

    asyncio.run(scenario())


def test_the_same_key_is_the_same_top_up_and_other_content_a_conflict() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        first = await desk.top_up(700, idempotency_key="a")
        for one in (desk, await desk.again()):
            again = await one.top_up(700, idempotency_key="a")
            assert (again.status, again.body) == (200, first.body)
            for other in ({"amount": 701}, {"amount": 700, "note": "x"}, {"account": POOL}):
                answer = await one.top_up(**{"amount": 700, "idempotency_key": "a", **other})  # type: ignore[arg-type]
                assert (answer.status, answer.body["code"]) == (409, "idempotency_conflict")
        assert await desk.balance() == 700

    asyncio.run(scenario())


def test_without_a_key_every_call_is_a_top_up_of_its_own() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up(1)
        desk = await desk.again()
        await desk.top_up(1)
        assert await desk.balance() == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"amount": 0},
        {"amount": -5},
        {"amount": 1.5},
        {"amount": True},
        {"amount": "5"},
        {"amount": AMOUNT_MAX + 1},
        {"amount": 5, "unit": "EUR"},
        {"amount": 5, "account": "account:"},
        {"amount": 5, "account": "account:participant:did:key:zz"},
        {"amount": 5, "account": BUYER.participant_id},
        {"amount": 5, "account": account_of(BUYER.node_id)},
        {"amount": 5, "account": ESCROW},
        {"amount": 5, "account": EXTERNAL},
        {"amount": 5, "idempotency_key": "x" * 257},
        {"amount": 5, "idempotency_key": "\ud800"},
        {"amount": 5, "more": 1},
    ],
)
def test_a_top_up_that_cannot_be_read_changes_nothing(body: Any) -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        answer = await desk.post("/v1/ledger/top-up", body)
        assert answer.status == 400
        assert desk.store.commits == 0  # type: ignore[attr-defined]

    asyncio.run(scenario())


def test_all_money_together_stays_a_number_that_json_has() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        assert (await desk.top_up(AMOUNT_MAX - 1)).status == 201
        assert (await desk.top_up(1, account=POOL)).status == 201
        answer = await desk.top_up(1)
        assert (answer.status, answer.body["code"]) == (409, "ledger_full")

    asyncio.run(scenario())


@pytest.mark.parametrize("caller", [ARCA, Caller("peer"), Caller("open")])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "top-up"),
        ("GET", "movements"),
        ("GET", "accounts"),
    ],
)
def test_only_the_operator_puts_money_in_and_sees_all_of_it(
    method: str, path: str, caller: Caller
) -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        answer = await desk.call(method, f"/v1/ledger/{path}", {"amount": 5}, caller)
        assert answer.status in (401, 403)
        assert await desk.balance() == 0

    asyncio.run(scenario())


def test_movements_are_listed_by_account_in_pages() -> None:
    async def scenario() -> None:
        desk = await ordered()
        desk.clock.advance_to(START + 1)
        await desk.deliver(result())
        await desk.post("/v1/executions/execution:r1-s1-a1/accept")
        await desk.top_up(1, account=POOL)

        async def kinds(query: str = "") -> list[str]:
            found = await desk.get(f"/v1/ledger/movements{query}")
            return sorted(one["kind"] for one in found["items"])

        payee = account_of(PROVIDER.participant_id)
        assert await kinds() == ["hold", "release", "top-up", "top-up"]
        assert await kinds(f"?account={OWN}") == ["hold", "top-up"]
        assert await kinds(f"?account={payee}") == ["release"]
        assert await kinds(f"?account={POOL}") == ["top-up"]
        first = await desk.get("/v1/ledger/movements?limit=3")
        rest = await desk.get(f"/v1/ledger/movements?limit=3&before={first['next']}")
        assert (len(first["items"]), len(rest["items"])) == (3, 1)
        accounts = (await desk.get("/v1/ledger/accounts"))["items"]
        assert sum(one["balance"] for one in accounts) == 0
        for query in (f"?account={ESCROW}", "?account=x", "?limit=9999"):
            assert (await desk.call("GET", f"/v1/ledger/movements{query}")).status == 400

    asyncio.run(scenario())


def test_what_is_on_hold_is_shown_and_cannot_be_spent_again() -> None:
    async def scenario() -> None:
        desk = await ordered(money=200)
        account = await desk.get("/v1/ledger/account")
        assert (account["balance"], account["held"]) == (0, 200)
        assert await desk.balance(ESCROW) == 200
        assert (await desk.call("GET", "/v1/ledger/holds/hold:none")).status == 404

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("first", "second"),
    [(one, two) for one in ("released", "refunded", "voided") for two in FOLLOWING["active"]],
)
def test_a_hold_has_at_most_one_outcome(first: str, second: str) -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        with desk.entities.change() as change:
            book.create_hold(change, hold())
        with desk.entities.change() as change:
            book.settle(change, "hold:x", first)
        with pytest.raises(LawBroken), desk.entities.change() as change:
            outcome(change, second)
        await desk.entities.durable()
        paid = 100 if first == "released" else 0
        assert await desk.balance() == 1000 - paid
        assert await desk.balance(account_of(PROVIDER.participant_id)) == paid

    asyncio.run(scenario())


def test_a_frozen_hold_cannot_be_voided_and_none_is_made_twice() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        with desk.entities.change() as change:
            book.create_hold(change, hold())
            book.freeze(change, "hold:x")
        with pytest.raises(LawBroken), desk.entities.change() as change:
            book.settle(change, "hold:x", "voided")
        with pytest.raises(LawBroken), desk.entities.change() as change:
            book.create_hold(change, hold())
        with pytest.raises(LawBroken), desk.entities.change() as change:
            change.add(HOLDS, "hold:none", Changed("released", START))

    asyncio.run(scenario())


def test_no_account_of_a_holder_goes_below_zero() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up(99)
        with pytest.raises(LawBroken, match="below zero"), desk.entities.change() as change:
            book.create_hold(change, hold())
        with pytest.raises(LawBroken, match="below zero"), desk.entities.change() as change:
            change.add(ACCOUNTS, OWN, Posted(OWN, "m", 0, held=-1))
        await desk.entities.durable()
        assert await desk.balance() == 99
        assert desk.entities.get(MOVEMENTS, "transfer:x:hold") is None

    asyncio.run(scenario())


def test_laws_that_are_broken_are_told() -> None:
    async def scenario() -> None:
        desk = await ordered()
        with desk.entities.change() as change:
            change.add(ACCOUNTS, OWN, Posted(OWN, "none", 5, held=1))
            change.add(HOLDS, "hold:r1-s1-a1", Changed("released", START))
        told = "\n".join(await desk.broken_laws())
        for words in (
            "do not add up to zero",
            "its movements say",
            "its holds",
            "its hold released",
        ):
            assert words in told

    asyncio.run(scenario())


@pytest.mark.parametrize("name", [OWN, POOL, ESCROW, EXTERNAL, account_of(BUYER.org_id)])
def test_accounts_have_a_holder_or_are_the_nodes_own(name: str) -> None:
    assert require_account(name) == name


@pytest.mark.parametrize("name", ["", "account:", "account:other", "x", account_of("did:key:z1")])
def test_other_names_are_no_accounts(name: str) -> None:
    with pytest.raises(InputError):
        require_account(name)


def outcome(change: Change, status: str) -> None:
    if status == "frozen":
        book.freeze(change, "hold:x")
    else:
        book.settle(change, "hold:x", status)


def hold() -> Hold:
    deadlines = Deadlines(work_by=1, accept_by=2, dispute_by=3, auto_release=4)
    return Hold(
        id="hold:x",
        contract_id="contract:x",
        payer=OWN,
        payee=account_of(PROVIDER.participant_id),
        amount=100,
        escrow_node=BUYER.node_id,
        escrow_policy="escrow-policy:host-ledger",
        deadlines=deadlines,
        created_at=0,
    )


def test_a_balance_has_no_money_that_came_while_the_answer_waited_for_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        durable, account = desk.entities.durable, f"account:{BUYER.participant_id}"

        async def busy() -> None:
            await durable()
            with desk.entities.change() as change:
                name = f"transfer:{change.after}"
                book.top_up(change, name, account, 7, "operator", "")

        monkeypatch.setattr(desk.entities, "durable", busy)
        assert await desk.balance() == 0
        assert (await desk.top_up(100)).body["account"]["balance"] == 107

    asyncio.run(scenario())


@pytest.mark.parametrize("path", ["/v1/ledger/account", "/v1/ledger/holds/hold:r1-s1-a1"])
def test_a_module_sees_money_with_the_grant_for_orders_alone(path: str) -> None:
    async def scenario() -> None:
        desk = await ordered()
        assert (await desk.call("GET", path, caller=ARCA)).status == 200
        answer = await desk.call("GET", path, caller=Caller("module", module="other"))
        assert (answer.status, answer.body["code"]) == (403, "host_capability_forbidden")

    asyncio.run(scenario())

"""What becomes of an order that is handed in: opened, rejected by its class, or refused."""

from __future__ import annotations

import asyncio
from itertools import combinations
from typing import Any

import msgspec
import pytest

from anabranch.market.documents import check, sign
from anabranch.market.identities import is_signed_by
from anabranch.market.node.api import Caller
from anabranch.work.participants.performers import rfc3339

from .support import (
    ARCA,
    BUYER,
    OPERATOR,
    PROVIDER,
    START,
    STRANGER,
    Desk,
    Keys,
    draft,
    offer,
    request,
)

HELD = ("order:r1-s1-a1", "execution:r1-s1-a1", "contract:r1-s1-a1", "hold:r1-s1-a1")


class Wrong(msgspec.Struct, frozen=True):
    """Something wrong with an order or its offer."""

    classifier: str
    offer: dict[str, Any] = {}
    order: dict[str, Any] = {}
    known: bool = True
    retryable: bool = False


ANOTHER_ORG = {
    "buyer/subject-kind": "org",
    "buyer/subject-id": STRANGER.org_id,
    "buyer/operator-participant-id": BUYER.participant_id,
}
ANOTHER_CUSTODIAN = {
    "buyer/subject-kind": "org",
    "buyer/subject-id": BUYER.org_id,
    "buyer/operator-participant-id": STRANGER.participant_id,
}

#: In the order of the checks.
WRONG = (
    Wrong("other-reason", order={"buyer/node-id": STRANGER.node_id}),
    Wrong("offer-not-found", known=False),
    Wrong("offer-expired", offer={"expires-at": rfc3339(START)}, retryable=True),
    Wrong("offer-seq-mismatch", order={"offer/seq": 2}, retryable=True),
    Wrong("provider-mismatch", order={"provider/participant-id": STRANGER.participant_id}),
    Wrong("service-type-mismatch", order={"service/type": "text/translate"}),
    Wrong("other-reason", offer={"constraints/input": {"required": ["language"]}}),
    Wrong("currency-mismatch", order={"pricing/currency": "EUR"}),
    Wrong("price-exceeded", order={"pricing/max-amount": 199}),
    Wrong("queue-saturated", offer={"queue/max-depth": 0}, retryable=True),
    Wrong("custodian-mismatch", order=ANOTHER_ORG),
    Wrong("settlement-blocked", offer={"pricing/amount": 200}, retryable=True),  # 400 of 300
)
ALSO_WRONG = (
    Wrong("other-reason", order={"buyer/subject-id": STRANGER.participant_id}),
    Wrong("other-reason", order={"created-at": rfc3339(START + 3_600_000)}),
    Wrong("other-reason", order={"delivery/requested-by": rfc3339(START)}),
    Wrong("offer-expired", offer={"offer/status": "withdrawn"}, retryable=True),
    Wrong("offer-seq-mismatch", order={"offer/seq": 4}, retryable=True),
    Wrong("provider-mismatch", order={"provider/node-id": STRANGER.node_id}),
    Wrong(
        "other-reason",
        offer={"constraints/output": {"format": ["json", "text"]}},
        order={"request/output-constraints": {"format": "pdf"}},
    ),
    Wrong(
        "queue-saturated", offer={"queue/max-depth": 4, "queue/current-depth": 4}, retryable=True
    ),
    Wrong("custodian-mismatch", order=ANOTHER_CUSTODIAN),
    Wrong(
        "settlement-blocked",
        offer={"pricing/currency": "EUR"},
        order={"pricing/currency": "EUR"},
        retryable=True,
    ),
)


async def desk_with(*wrong: Wrong, money: int = 300) -> tuple[Desk, dict[str, Any]]:
    changed = offer({key: value for one in wrong for key, value in one.offer.items()})
    desk = await Desk(changed).opened()
    if not all(one.known for one in wrong):
        desk.offers.known.clear()
    for name in (BUYER.participant_id, BUYER.org_id, STRANGER.org_id):
        await desk.top_up(money, account=f"account:{name}")
    return desk, draft({key: value for one in reversed(wrong) for key, value in one.order.items()})


async def changed_nothing(desk: Desk, commits: int) -> None:
    assert desk.store.commits == commits  # type: ignore[attr-defined]
    assert (await desk.get("/v1/executions"))["items"] == []
    for path in ("executions/execution", "contracts/contract", "ledger/holds/hold"):
        assert (await desk.call("GET", f"/v1/{path}:r1-s1-a1")).status == 404
    assert await desk.broken_laws() == []


@pytest.mark.parametrize("wrong", [*WRONG, *ALSO_WRONG], ids=lambda one: one.classifier)
def test_an_order_is_rejected_by_its_class_before_anything_exists(wrong: Wrong) -> None:
    async def scenario() -> None:
        desk, order = await desk_with(wrong)
        commits = desk.store.commits  # type: ignore[attr-defined]
        answer = await desk.submit(order)
        assert answer.status == 200
        assert set(answer.body) == {"status", "classifier", "rejected-reason", "retryable"}
        assert answer.body["status"] == "rejected"
        assert answer.body["classifier"] == wrong.classifier
        assert answer.body["retryable"] is wrong.retryable
        assert 0 < len(answer.body["rejected-reason"]) <= 1024
        await changed_nothing(desk, commits)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("first", "second"), list(combinations(WRONG, 2)), ids=lambda one: one.classifier
)
def test_the_first_check_that_fails_names_the_class(first: Wrong, second: Wrong) -> None:
    async def scenario() -> None:
        desk, order = await desk_with(first, second)
        answer = await desk.submit(order)
        assert (answer.body["status"], answer.body["classifier"]) == ("rejected", first.classifier)

    asyncio.run(scenario())


def test_what_is_rejected_for_now_may_be_opened_later_under_the_same_id() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        assert (await desk.submit()).body["classifier"] == "settlement-blocked"
        await desk.top_up(200)
        assert (await desk.submit()).status == 201
        assert await desk.balance() == 0

    asyncio.run(scenario())


@pytest.mark.parametrize(("money", "status"), [(199, 200), (200, 201)])
def test_the_whole_price_must_be_there(money: int, status: int) -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up(money)
        assert (await desk.submit()).status == status

    asyncio.run(scenario())


def test_a_draft_gets_its_buyer_and_the_signature_of_the_participant() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        answer = await desk.submit()
        assert answer.status == 201
        order = answer.body["order"]
        assert answer.body["status"] == "opened-execution"
        assert (
            answer.body["order_id"],
            answer.body["execution_id"],
            answer.body["contract_id"],
            answer.body["hold_id"],
        ) == HELD
        assert order["buyer/node-id"] == BUYER.node_id
        assert order["buyer/subject-kind"] == "participant"
        assert order["buyer/subject-id"] == BUYER.participant_id
        assert is_signed_by(order, BUYER.participant_id)
        assert check(order, kind="service-order.v1", at=START) == []
        assert {key: order[key] for key in draft()} == draft()
        assert await desk.state() == "opened"
        assert await desk.balance() == 800
        assert await desk.broken_laws() == []

    asyncio.run(scenario())


def test_the_order_of_an_org_is_signed_by_its_custodian_and_paid_from_its_account() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up(account=f"account:{BUYER.org_id}")
        answer = await desk.submit(draft({"buyer/subject-kind": "org"}))
        assert answer.status == 201
        order = answer.body["order"]
        assert order["buyer/subject-id"] == BUYER.org_id
        assert order["buyer/operator-participant-id"] == BUYER.participant_id
        assert check(order, kind="service-order.v1", at=START) == []
        assert await desk.balance(f"account:{BUYER.org_id}") == 800
        contract = await desk.get(f"/v1/contracts/{answer.body['contract_id']}")
        assert contract["payer/account-ref"] == BUYER.org_id
        assert contract["asker/participant-id"] == BUYER.participant_id
        assert await desk.broken_laws() == []

    asyncio.run(scenario())


@pytest.mark.parametrize("named", [{}, {"buyer/subject-id": STRANGER.org_id}])
def test_a_node_without_an_org_orders_for_none(named: dict[str, str]) -> None:
    async def scenario() -> None:
        desk = await Desk(keys=Keys(1, org=False)).opened()
        answer = await desk.submit(draft({"buyer/subject-kind": "org", **named}))
        assert (answer.status, answer.body["classifier"]) == (200, "custodian-mismatch")

    asyncio.run(scenario())


def signed(keys: Keys = BUYER, **changes: Any) -> dict[str, Any]:
    buyer = {
        "buyer/node-id": BUYER.node_id,
        "buyer/subject-kind": "participant",
        "buyer/subject-id": keys.participant_id,
    }
    return sign("service-order.v1", {**draft(), **buyer, **changes}, keys.participant)


def test_a_given_signature_is_kept_as_it_is() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        answer = await desk.submit(signed())
        assert answer.status == 201
        assert answer.body["order"] == signed()

    asyncio.run(scenario())


def _forged() -> dict[str, Any]:
    return {**signed(), "pricing/max-amount": 499}


def _of_the_node() -> dict[str, Any]:
    unsigned = {key: value for key, value in signed().items() if key != "signature"}
    return BUYER.node.sign(unsigned)


@pytest.mark.parametrize("order", [_forged(), _of_the_node(), signed(STRANGER)])
def test_a_signature_that_does_not_hold_is_never_replaced(order: dict[str, Any]) -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        commits = desk.store.commits  # type: ignore[attr-defined]
        answer = await desk.submit(order)
        assert answer.body["status"] == "rejected"
        assert answer.body["classifier"] == "other-reason"
        assert answer.body["retryable"] is False
        await changed_nothing(desk, commits)

    asyncio.run(scenario())


BUYER_FIELDS = ("buyer/node-id", "buyer/subject-kind", "buyer/subject-id")


@pytest.mark.parametrize("missing", [BUYER_FIELDS[1:], *((name,) for name in BUYER_FIELDS)])
def test_a_signed_order_without_its_buyer_is_refused_as_no_key_could_verify_it(
    missing: tuple[str, ...],
) -> None:
    async def scenario() -> None:
        desk = await Desk(offer({"pricing/amount": 0})).opened()
        order = {key: value for key, value in _forged().items() if key not in missing}
        answer = await desk.submit(order)
        assert (answer.status, answer.body["code"]) == (400, "schema")
        assert all(f"`{name}` is missing" in answer.body["detail"] for name in missing)
        await changed_nothing(desk, 0)

    asyncio.run(scenario())


MALFORMED: list[Any] = [
    None,
    [],
    "order",
    *(
        {key: value for key, value in draft().items() if key != left_out}
        for left_out in draft()
        if not left_out.startswith("workflow/")
    ),
    draft(order_id="order:"),
    draft(order_id="offer:1"),
    draft(order_id="order:" + "a" * 5000),
    draft(order_id="order:" + "a" * 995),
    draft({"schema/v": 2}),
    draft({"created-at": "yesterday"}),
    draft({"request/units": 0}),
    draft({"request/units": True}),
    draft({"request/units": 1.5}),
    draft({"request/input": []}),
    draft({"request/input": {"temperature": 0.5}}),  # nothing that can be signed
    draft({"request/input": {"n": 2**53}}),
    draft({"pricing/max-amount": -1}),
    draft({"pricing/max-amount": 10.0}),
    draft({"buyer/subject-kind": "pod-user"}),
    draft({"buyer/subject-id": BUYER.node_id}),
    draft({"provider/node-id": PROVIDER.participant_id}),
    draft({"signature": {"alg": "ed25519", "value": "base64url:placeholder"}}),
]


@pytest.mark.parametrize("order", MALFORMED)
def test_what_is_no_order_is_refused_and_named(order: Any) -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        commits = desk.store.commits  # type: ignore[attr-defined]
        answer = await desk.post("/v1/service-orders", order, ARCA)
        assert answer.status == 400
        assert answer.body["code"] == "schema"
        await changed_nothing(desk, commits)

    asyncio.run(scenario())


def test_the_same_order_again_is_the_same_execution_whatever_became_of_the_offer() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up(200)
        first = await desk.submit()
        commits = desk.store.commits  # type: ignore[attr-defined]
        desk.offers.known.clear()
        for again in (draft(), first.body["order"]):
            for one in (desk, await desk.again()):
                answer = await one.submit(again)
                assert (answer.status, answer.body) == (200, first.body)
        assert desk.store.commits == commits  # type: ignore[attr-defined]
        assert len((await desk.get("/v1/executions"))["items"]) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "changes",
    [{"request/units": 1}, {"request/input": {}}, {"policy_annotations": {}}, ANOTHER_ORG],
)
def test_the_same_id_with_other_content_is_a_conflict(changes: dict[str, Any]) -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        await desk.submit()
        answer = await desk.submit(draft(changes))
        assert (answer.status, answer.body["code"]) == (409, "order_conflict")
        assert await desk.balance() == 800

    asyncio.run(scenario())


def test_own_orders_that_wait_fill_the_queue_of_the_provider() -> None:
    async def scenario() -> None:
        desk = await Desk(offer({"queue/max-depth": 3, "queue/current-depth": 1})).opened()
        await desk.top_up(10_000)
        orders = [
            (await desk.submit(draft(order_id=f"order:{n}"))).body.get("order") for n in (1, 2)
        ]
        assert (await desk.submit(draft(order_id="order:3"))).body[
            "classifier"
        ] == "queue-saturated"
        desk = await desk.again()  # what waits is known after a restart, too
        assert (await desk.submit(draft(order_id="order:3"))).body[
            "classifier"
        ] == "queue-saturated"
        await desk.orders.dispatch_prepared("order:1", "delivery:1", request(orders[0]))
        await desk.orders.dispatch_failed("order:1", "no route")
        assert (await desk.submit(draft(order_id="order:3"))).status == 201

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("changes", "units", "total"),
    [
        ({"pricing/unit-kind": "per-item"}, 3, 300),
        ({"pricing/unit-kind": "per-character-block"}, 3, 300),
        ({"pricing/unit-kind": "per-request"}, 3, 300),
        ({"pricing/unit-kind": "per-task"}, 3, 300),
        ({"pricing/unit-kind": "flat"}, 3, 100),
        ({"pricing/amount": 0}, 3, 0),
    ],
)
def test_the_price_is_that_of_the_units_except_where_it_is_flat(
    changes: dict[str, Any], units: int, total: int
) -> None:
    async def scenario() -> None:
        desk = await Desk(offer(changes)).opened()
        await desk.top_up(300)
        order = draft({"request/units": units, "pricing/max-amount": total})
        answer = await desk.submit(order)
        assert answer.status == 201
        assert ("hold_id" in answer.body) is (total > 0)
        assert await desk.balance() == 300 - total
        contract = await desk.get(f"/v1/contracts/{answer.body['contract_id']}")
        assert contract["payment/amount"] == total

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("caller", "status", "code"),
    [
        (ARCA, 201, None),
        (OPERATOR, 201, None),
        (Caller("module", module="dator"), 403, "host_capability_forbidden"),
        (Caller("peer"), 403, "forbidden"),
        (Caller("open"), 401, "unauthorized"),
    ],
)
def test_only_the_operator_and_modules_with_the_grant_place_orders(
    caller: Caller, status: int, code: str | None
) -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        answer = await desk.submit(caller=caller)
        assert (answer.status, answer.body.get("code")) == (status, code)

    asyncio.run(scenario())


def test_nothing_that_costs_is_ordered_while_settlement_is_off() -> None:
    async def scenario() -> None:
        free = offer({"offer/id": "offer:free", "pricing/amount": 0})
        desk = await Desk(offer(), free, config={"settlement": False}).opened()
        await desk.top_up()
        assert (await desk.submit()).body["classifier"] == "settlement-blocked"
        answer = await desk.submit(draft({"offer/id": "offer:free"}, order_id="order:free"))
        assert answer.status == 201

    asyncio.run(scenario())


def test_an_order_that_cannot_be_signed_leaves_a_voided_hold_and_no_execution() -> None:
    async def scenario() -> None:
        keys = Keys(1)
        desk = await Desk(keys=keys).opened()
        await desk.top_up()
        keys.broken = True
        answer = await desk.submit()
        assert answer.body["classifier"] == "other-reason"
        assert (await desk.get("/v1/ledger/holds/hold:r1-s1-a1"))["status"] == "refunded"
        assert await desk.balance() == 1000
        keys.broken = False
        answer = await desk.submit()
        assert (answer.status, answer.body["hold_id"]) == (201, "hold:r1-s1-a1:2")
        assert await desk.broken_laws() == []

    asyncio.run(scenario())


def test_the_longest_order_has_whole_documents() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        assert (await desk.submit(draft(order_id="order:" + "a" * 994))).status == 201
        await desk.pass_time(START + 3_600_000)
        assert await desk.broken_laws() == []

    asyncio.run(scenario())


def test_ingress_is_one_commit() -> None:
    async def scenario() -> None:
        desk = await Desk().opened()
        await desk.top_up()
        commits = desk.store.commits  # type: ignore[attr-defined]
        await desk.submit()
        assert desk.store.commits == commits + 1  # type: ignore[attr-defined]

    asyncio.run(scenario())


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(Exception, match=r"section `orders`.*accept_seconds"):
        Desk(config={"accept_seconds": 0})

"""Whom a hosted step asks."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market.node.api import Answer

from .support import ANNA, BERT, Work, holder, offer, task, virtually


async def search(work: Work, **inputs: Any) -> Any:
    return await work.perform(task("targets", **inputs))


@virtually
async def test_static_participants_stay_in_their_order_each_once() -> None:
    named = [BERT.name, ANNA.name, BERT.name]
    answer = await search(Work(), resolve="static", participants=named)
    assert answer.result == {"targets": [BERT.name, ANNA.name]}


@virtually
async def test_holders_of_a_passport_are_found_in_the_cache_each_once_before_the_limit() -> None:
    work = Work()
    second = {**holder(ANNA), "node_id": BERT.node}  # another node of the same participant
    work.fake.holders["offer-catalog"] = [holder(BERT), holder(ANNA), second]
    found = [BERT.name, ANNA.name]  # the order of the host, which they cannot choose
    answer = await search(work, resolve="capability", capability_id="offer-catalog")
    assert answer.result == {"targets": found}
    answer = await search(work, resolve="capability", capability_id="offer-catalog", limit=1)
    assert answer.result == {"targets": found[:1]}
    assert work.fake.paths() == ["POST /v1/host/capabilities/seed.directory.query"] * 2


@virtually
async def test_holders_that_the_host_trusts_come_before_all_others() -> None:
    work = Work()
    first, last = sorted((ANNA, BERT), key=lambda party: party.name)
    work.fake.holders["offer-catalog"] = [holder(first), holder(last, trusted=True)]
    query = {"resolve": "capability", "capability_id": "offer-catalog"}
    for more in ({"limit": 1}, {"one": True}):
        answer = await search(work, **query, **more)
        assert answer.result == {"targets": [last.name]}


@virtually
async def test_a_filter_is_compared_with_the_row_and_services_with_known_offers() -> None:
    work = Work(offer(ANNA, service__type="text/translate"))
    rows = [holder(ANNA), holder(BERT, passport={"scope": {"region": "us"}})]
    work.fake.holders["offer-catalog"] = rows
    query = {"resolve": "capability", "capability_id": "offer-catalog"}
    answer = await search(work, **query, filter={"scope.region": "eu"})
    assert answer.result == {"targets": [ANNA.name]}
    answer = await search(work, **query, filter={"service_type": "text/summarise"})
    assert answer.result == {"targets": [BERT.name]}, "who has no offer here may have any"
    answer = await search(work, **query, filter={"service/type": "text/translate"})
    assert answer.result["targets"] == sorted([ANNA.name, BERT.name])
    answer = await search(work, **query, filter={"scope.region": "mars"})
    assert answer.result["targets"] == []
    assert "2 valid passports for 'offer-catalog'" in answer.result["why"]


@virtually
async def test_one_holder_is_the_one_with_the_cheapest_offer() -> None:
    work = Work(offer(ANNA, pricing__amount=9), offer(BERT, offer__id="offer:b", pricing__amount=5))
    work.fake.holders["offer-catalog"] = [holder(ANNA), holder(BERT)]
    answer = await search(work, resolve="capability", capability_id="offer-catalog", one=True)
    assert answer.result == {"targets": [BERT.name]}


@virtually
async def test_a_task_type_is_the_cheapest_offer_then_the_first_by_its_id() -> None:
    work = Work(
        offer(ANNA, offer__id="offer:b"), offer(BERT, offer__id="offer:a"),
        offer(BERT, offer__id="offer:other", service__type="x/y", pricing__amount=1),
    )  # fmt: skip
    query = {"resolve": "task_type", "task_type": "text/summarise"}
    assert (await search(work, **query, one=True)).result == {"targets": [BERT.name]}
    assert (await search(work, **query)).result == {"targets": [BERT.name, ANNA.name]}
    work = Work()
    answer = await search(work, **query)
    assert answer.result["why"] == "no active offer for 'text/summarise' is known to this node"


@virtually
async def test_other_catalogs_are_asked_only_where_no_offer_is_known() -> None:
    work = Work(offer(ANNA))
    query = {"resolve": "task_type", "task_type": "text/summarise"}
    assert (await search(work, **query)).result == {"targets": [ANNA.name]}
    assert work.offers.refreshed == 0
    work = Work()
    work.offers.heard = [offer(BERT)]
    assert (await search(work, **query)).result == {"targets": [BERT.name]}
    assert work.offers.refreshed == 1


@virtually
async def test_an_offer_is_ordered_from_its_provider() -> None:
    answer = await search(Work(), resolve="offer", offer=offer(BERT), one=True)
    assert answer.result == {"targets": [BERT.name]}


@virtually
async def test_whose_turn_it_is_changes_with_every_search() -> None:
    query: dict[str, Any] = {"resolve": "static", "participants": [ANNA.name, BERT.name]}
    query |= {"order": "least_recently_asked", "limit": 1}
    work = Work()
    found = [(await search(work, **query)).result["targets"] for _ in range(3)]
    assert found == [[ANNA.name], [BERT.name], [ANNA.name]]


@pytest.mark.parametrize("unread", ["", "the seed directory cannot be read: away"])
@virtually
async def test_nobody_is_known_only_where_the_directory_was_read(unread: str) -> None:
    work = Work()
    work.fake.unread = unread
    answer = await search(work, resolve="capability", capability_id="offer-catalog")
    if unread:
        assert (answer.status, answer.fault.kind, answer.fault.retryable) == (
            "error", "directory", True,
        )  # fmt: skip
        assert answer.fault.code == "directory_unread"
    else:
        assert answer.result["targets"] == []
        assert "no valid passport for 'offer-catalog'" in answer.result["why"]


@virtually
async def test_a_host_that_is_away_or_refuses_is_a_fault_of_the_search() -> None:
    work = Work()
    work.fake.away = 1
    query = {"resolve": "capability", "capability_id": "offer-catalog"}
    answer = await search(work, **query)
    assert (answer.fault.kind, answer.fault.retryable) == ("directory", True)
    work.fake.refusals["/v1/host/capabilities/seed.directory.query"] = 403, "forbidden"
    answer = await search(work, **query)
    assert (answer.fault.code, answer.fault.retryable) == ("forbidden", False)
    assert (await search(work, resolve="magic")).fault.kind == "config"


@virtually
async def test_a_decision_is_what_the_capability_says_and_its_errors_are_faults() -> None:
    work = Work()
    asked = task("capability", capability_id="publication.verify", input={"commit": "c"})
    work.fake.capabilities["publication.verify"] = {"ok": True}
    assert (await work.perform(asked)).result == {"ok": True}
    assert work.fake.calls[-1][2] == {"commit": "c"}, "the source gets the input and nothing else"
    for status, kind, again in (
        (403, "auth", False), (404, "not_found", False), (400, "client_error", False),
        (503, "connection", True), (502, "connection", True),
    ):  # fmt: skip
        said = Answer(status=status, body={"code": "why", "detail": "because"})
        work.fake.capabilities["publication.verify"] = said
        answer = await work.perform(asked)
        assert (answer.fault.kind, answer.fault.code) == (kind, "why")
        assert answer.fault.retryable is again

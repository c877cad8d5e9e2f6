"""What an offer of this node said under a number that an order names."""

from __future__ import annotations

from typing import Any

from anabranch.market.node.offers.records import EARLIER_KEPT, GRACE_MS, LOCAL

from .support import Desk

NAME = "offer:own"


def publish(desk: Desk, price: int, **more: Any) -> None:
    draft = {"offer/id": NAME, "service/type": "text/summarise", "pricing/amount": price, **more}
    status, body = desk.ask("POST", "/v1/service-offers", draft)
    assert status == 201, body


def prices(desk: Desk, *numbers: int) -> list[int | None]:
    found = [desk.part.terms(NAME, number) for number in numbers]
    return [None if one is None else int(one["pricing/amount"]) for one in found]


def test_an_order_on_its_way_gets_the_terms_of_its_number_for_a_while() -> None:
    desk = Desk()
    publish(desk, 100)
    publish(desk, 100, **{"queue/current-depth": 3})  # the same terms
    publish(desk, 700)
    publish(desk, 300)
    assert prices(desk, 0, 1, 2, 3, 4, 5) == [None, 100, 100, 700, 300, 300]
    assert prices(desk.again(), 1, 3, 4) == [100, 700, 300]
    desk.pass_time(GRACE_MS + 1)
    assert prices(desk, 1, 2, 3, 4) == [None, None, None, 300]
    publish(desk, 500)
    found = desk.entities.get(LOCAL, NAME)
    assert found is not None
    assert [one.since for one in found.earlier] == [4], "what is over is not kept"
    assert desk.part.terms("offer:other", 1) is None


def test_few_earlier_versions_are_kept() -> None:
    desk = Desk()
    for price in range(EARLIER_KEPT + 5):
        publish(desk, price)
    found = desk.entities.get(LOCAL, NAME)
    assert found is not None
    assert len(found.earlier) == EARLIER_KEPT

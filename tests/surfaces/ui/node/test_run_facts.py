"""What the page of a run says about money, offers, dispatches and outputs."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.surfaces.ui.node import run_facts
from anabranch.surfaces.ui.node.catalog_rows import merged, rows_of, status_of

NOW = 1_781_078_400_000  # 2026-06-10T08:00:00Z


def execution(state: str, amount: int, currency: str = "ORC", hold: str | None = "hold:1") -> Any:
    return {
        "state": state,
        "payment": {"amount": amount, "currency": currency},
        "hold_id": hold,
    }


def offer(name: str, amount: Any = 5, **more: Any) -> dict[str, Any]:
    return {
        "offer/id": f"offer:{name}",
        "pricing/amount": amount,
        "provider/node-id": f"node:{name}",
        "provider/participant-id": f"participant:{name}",
        "expires-at": "2026-06-11T08:00:00Z",
        **more,
    }


def row(name: str, amount: Any = 5, **more: Any) -> dict[str, Any]:
    return {"offer": offer(name, amount, **more), "trust_level": "explicit", "source": "observed"}


def step(*targets: str, **more: Any) -> dict[str, Any]:
    asked = [
        {"target": one, "dispatched_at": "2026-06-10T08:00:00Z", "status": "pending"}
        for one in targets
    ]
    return {"step_id": "find", "dispatches": asked, **more}


def test_money_is_paid_held_or_came_back_by_the_state_of_its_order() -> None:
    found = run_facts.money_of(
        [
            execution("released", 100),
            execution("released", 7, "EUR", None),
            execution("awaiting_acceptance", 20),
            execution("disputed", 3),
            execution("expired", 1000),
            execution("failed", 2000, hold=None),  # nothing was on hold, so nothing came back
        ]
    )
    assert found == [run_facts.Money("EUR", 7, 0, 0), run_facts.Money("ORC", 100, 23, 1000)]


def test_offers_are_those_of_the_asked_the_chosen_first_and_then_by_price() -> None:
    rows = [row("a", 9), row("b", 3), row("c", 1), row("stranger", 0)]
    asked = step("node:a", "participant:b", "node:c", selected_output={"offer": offer("a", 9)})
    found = run_facts.compared(asked, rows, frozenset({"offer:b"}))
    names = [(one.offer["offer/id"], one.is_chosen, one.is_ordered) for one in found]
    assert names == [
        ("offer:a", True, False),
        ("offer:c", False, False),
        ("offer:b", False, True),
    ]


def test_the_chosen_offer_is_shown_where_no_catalog_has_it() -> None:
    asked = step("node:x", selected_output={"offer": offer("x")})
    (found,) = run_facts.compared(asked, [], frozenset())
    assert (found.is_chosen, found.is_known, found.trust) == (True, False, "")


def test_several_offers_in_an_output_are_no_choice() -> None:
    asked = step("node:x", selected_output=[offer("x"), offer("y")])
    found = run_facts.compared(asked, [], frozenset())
    assert [one.is_chosen for one in found] == [False, False]


@pytest.mark.parametrize("amount", [None, "much", 1.5, [], {}])
def test_an_offer_that_nobody_has_checked_is_shown_whatever_it_says(amount: Any) -> None:
    odd = {"offer/id": "offer:odd", "pricing/amount": amount, "delivery/max-duration-sec": amount}
    (found,) = run_facts.compared(step("x", selected_output=odd), [], frozenset())
    assert found.duration is None


def test_offers_are_looked_for_in_a_bounded_part_of_an_output() -> None:
    deep: Any = offer("deep")
    for _ in range(5000):
        deep = {"more": deep}
    assert list(run_facts.offers_in(deep)) == []
    assert len(list(run_facts.offers_in([offer(str(n)) for n in range(100_000)]))) <= 500


@pytest.mark.parametrize("value", [None, "x", 5, [], {"offer/id": 7}])
def test_an_output_of_any_shape_may_hold_no_offer(value: Any) -> None:
    assert list(run_facts.offers_in(value)) == []


def test_a_small_output_is_shown_whole_and_of_a_large_one_the_first_kibibyte() -> None:
    small = run_facts.preview({"a": "é"})
    assert (small.text, small.is_cut) == ('{\n  "a": "é"\n}', False)
    large = run_facts.preview("é" * 3_000_000)
    assert (len(large.text.encode()) <= 1024, large.size, large.is_cut) == (True, 6_000_002, True)


def test_a_dispatch_says_how_long_it_took_or_until_when_it_waits() -> None:
    asked = step("a", "b")
    asked["dispatches"][0] |= {"status": "responded", "responded_at": "2026-06-10T08:00:01.500Z"}
    asked["dispatches"][1] |= {"timeout_at": "2026-06-10T09:00:00Z", "attempt": 2}
    waits, done = run_facts.asked_of(asked)  # the newest attempt first
    assert (done.took, done.due) == (1500, "")
    assert (waits.took, waits.due) == (None, "2026-06-10T09:00:00Z")


def test_of_many_dispatches_the_first_hundred_are_shown() -> None:
    assert len(run_facts.asked_of(step(*map(str, range(5000))))) == 100


def test_a_code_is_said_in_plain_words_or_left_to_its_message() -> None:
    assert "too low" in run_facts.in_words({"code": "settlement-blocked", "message": ""})
    assert run_facts.in_words({"code": "odd", "message": "as it was"}) == ""
    assert run_facts.in_words(None) == ""


# -- the catalog -----------------------------------------------------------------------------


def test_an_offer_is_active_until_it_expires_unless_it_is_withdrawn() -> None:
    assert status_of(offer("a"), NOW) == "active"
    assert status_of(offer("a"), NOW + 86_400_000) == "expired"
    assert status_of(offer("a", **{"offer/status": "withdrawn"}), NOW) == "withdrawn"
    assert status_of({"expires-at": "never"}, NOW) == "expired"


def test_one_offer_is_one_row_and_local_comes_before_observed_before_a_module() -> None:
    own = [{**row("a", 9), "source": "local"}, row("b", 1)]
    rows = [
        *rows_of(own, NOW, frozenset(), hidden=False),
        *rows_of([row("a", 1), row("c", 2)], NOW, frozenset(), "arca", hidden=False),
    ]
    found = merged(rows, "active")
    assert [(one.offer["offer/id"], one.source, one.can_order) for one in found] == [
        ("offer:a", "local", True),
        ("offer:b", "observed", True),
        ("offer:c", "arca", False),
    ]


@pytest.mark.parametrize("given", [None, 5, {}, {"offer": None}, {"offer": {"offer/id": 5}}])
def test_a_row_without_an_offer_is_left_out(given: Any) -> None:
    assert rows_of([given], NOW, frozenset(), hidden=False) == []

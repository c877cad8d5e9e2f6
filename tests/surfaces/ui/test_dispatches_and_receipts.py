"""Who was asked and what became of it; receipts of orchestrations; snapshots."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .parties import Market, example, market, solicit
from .plain import PlainPage
from .support import OPINIONS, RULES, TWO_STEPS, Server, becomes, eventually


@pytest.fixture(scope="module")
def people() -> Iterator[Market]:
    with market() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, people: Market) -> Iterator[Server]:
    with Server(Path(tmp_path_factory.mktemp("asked")), people.book()) as running:
        yield running


def rows(page: Any) -> dict[str, str]:
    return {
        row.locator(".who-cell").inner_text(): " ".join(row.inner_text().split())
        for row in page.locator("#dispatches tbody tr").all()
    }


def test_requests_show_whom_they_went_to_until_when_and_what_became_of_them(
    page: Any, server: Server, people: Market
) -> None:
    people.open("north", "west")
    people.shut("south")
    run = server.start(
        example("best_of.json", timing={"timeout": "PT10M"}), {"text": "The river is wide."}
    )
    page.goto(f"/runs/{run}")
    page.get_by_role("link", name="Asked").click()
    assert eventually(lambda: "responded" in rows(page).get("north", ""))
    assert "pending" in rows(page)["south"]
    assert re.search(r"in (9|10) min", rows(page)["south"])  # its deadline
    assert "could not be reached" in rows(page)["away"]
    assert "said no: no_offer_available" in rows(page)["west"]
    card = page.locator("#dispatches article")
    assert "asks for text/summarise" in card.inner_text()
    card.locator("summary").click()
    assert "The river is wide." in card.locator("pre").inner_text()
    people.open("south")
    assert eventually(lambda: "chosen" in rows(page)["south"])  # it moves by itself
    becomes(page, "document.querySelector('#dispatches details').open")  # and stays open
    page.get_by_role("link", name="Answer of south").click()
    assert json.loads(page.locator("pre").inner_text()) == {"price": 4, "summary": "short"}


def test_an_answer_that_is_large_is_linked_and_not_shown(
    plain: PlainPage, server: Server, people: Market
) -> None:
    people.says("north", {"text": "long " * 50_000})
    people.open("north")
    run = server.run(solicit("north", policy="any_one"))
    plain.goto(f"/runs/{run}/dispatches")
    link = plain.get_by_role("link", name="Answer of north")
    assert link.inner_text() == "250,011 bytes"
    assert "long long" not in plain.content()
    answer = plain.request.get(link.get_attribute("href"))
    assert answer.json() == {"text": "long " * 50_000}
    people.says("north", {"price": 9, "summary": "long"})


def test_the_snapshot_is_a_link_away(plain: PlainPage, server: Server, people: Market) -> None:
    people.open("north")
    run = server.run(solicit("north", policy="any_one"))
    plain.goto(f"/runs/{run}/dispatches")
    plain.get_by_role("link", name="Snapshot").click()
    shown = json.loads(plain.locator("pre").inner_text())
    assert (shown["schema"], shown["status"]) == ("workflow-run-snapshot.v1", "completed")
    assert shown["steps"][0]["dispatches"][0]["target"] == "north"


def test_receipts_of_an_orchestration_say_what_each_step_came_to(
    plain: PlainPage, server: Server
) -> None:
    run = server.run(OPINIONS, {"amount": 5}, rules=RULES)
    plain.goto(f"/runs/{run}")
    plain.get_by_role("link", name="Receipts").click()
    cards = {
        card.locator("h3").inner_text().split()[0]: card
        for card in plain.locator("article.receipt").all()
    }
    assert set(cards) == {"ORDER", "A", "B", "C", "DONE"}
    assert "invalid" in cards["B"].inner_text()
    assert "gas" in cards["A"].inner_text()
    cards["A"].locator("summary").click()
    assert '"stepId": "A"' in cards["A"].locator("pre").inner_text()
    assert plain.get_by_role("link", name="As JSON").get_attribute("href").endswith("/receipts")


def test_pages_of_another_language_are_not_there(plain: PlainPage, server: Server) -> None:
    server.steps.open("any")
    run = server.run(TWO_STEPS, {"first": "any", "second": "any"})
    plain.goto(f"/runs/{run}")
    assert plain.get_by_role("link", name="Receipts").count() == 0
    assert plain.get_by_role("link", name="Asked").count() == 0
    for way in ("receipts", "receipts/panel", "snapshot.json", "dispatches/nothing"):
        assert plain.goto(f"/runs/{run}/{way}").status == 404
    plain.goto(f"/runs/{run}/dispatches")
    plain.get_by_text("This run has asked no participant").wait_for()


def test_what_a_source_decides_can_be_asked_again_or_overridden_by_name(
    plain: PlainPage, server: Server, people: Market
) -> None:
    people.says("publication.verify", {"ok": False})
    people.open("north", "publication.verify")
    rule = {
        "policy": "external_decision",
        "decision_source": {"kind": "capability", "capability_id": "publication.verify"},
        "result_match": {
            "path": "/ok",
            "fulfilled_values": [True],
            "not_fulfilled_values": [False],
        },
    }
    run = server.run(solicit("north", policy="any_one", fulfillment=rule))
    plain.goto("/approvals")
    card = plain.locator(f'article[data-gate="{run}"]')
    assert "decided by capability publication.verify alone" in card.inner_text()
    assert card.get_by_role("button", name="Approve", exact=True).count() == 0
    card.get_by_role("button", name="Ask capability publication.verify again").click()
    plain.get_by_text("Asked again.").wait_for()
    server.wait(run, standing=True)  # it says no once more
    plain.goto("/approvals")
    card = plain.locator(f'article[data-gate="{run}"]')
    card.get_by_role("button", name="Override: approve").click()
    plain.get_by_text("Approved.").wait_for()
    assert server.wait(run).status == "completed"

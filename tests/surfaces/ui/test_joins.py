"""Joins and fan-ins of real runs: who delivered, who is late, who lost and why, and it moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .parties import Market, example, market, solicit
from .plain import PlainPage
from .support import OPINIONS, RULES, Server, becomes, eventually


@pytest.fixture(scope="module")
def people() -> Iterator[Market]:
    with market() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, people: Market) -> Iterator[Server]:
    with Server(Path(tmp_path_factory.mktemp("joins")), people.book()) as running:
        yield running


@pytest.fixture(autouse=True)
def _shut(people: Market) -> None:
    people.shut("north", "south", "east", "west", "odd", "reviewer", "publication.verify")


def rows(page: Any) -> dict[str, str]:
    """Slot → its row as one line."""
    found = page.locator("#joins article").first.locator("tbody tr")
    return {
        row.locator(".who-cell").inner_text(): " ".join(row.inner_text().split())
        for row in found.all()
    }


def row_says(page: Any, who: str, *words: str) -> None:
    def says() -> bool:
        if all(word in rows(page).get(who, "") for word in words):
            return True
        if isinstance(page, PlainPage):  # the others move by themselves
            page.reload()
        return False

    assert eventually(says), (who, rows(page))


def badge(page: Any) -> str:
    text: str = page.locator("#joins article").first.locator("h3 .badge").inner_text()
    return text


def slow_best_of() -> str:
    return example(
        "best_of.json",
        target={"resolve": "static", "participants": ["north", "south", "east", "west", "away"]},
        timing={"timeout": "PT10M"},
    )


def test_a_best_of_fills_live_and_ends_as_a_table_of_scores(
    page: Any, server: Server, people: Market
) -> None:
    run = server.start(slow_best_of())
    page.goto(f"/runs/{run}/joins")
    row_says(page, "north", "late", "asked; no answer yet")
    row_says(page, "away", "could not be reached; not counted")
    card = page.locator("#joins article")
    assert "best of 5" in card.inner_text()
    assert "the lowest wins" in card.inner_text()
    assert "Why is it waiting?" in card.inner_text()
    assert "the answer of north" in card.inner_text()
    people.open("north")
    row_says(page, "north", "1", "9", "in")
    people.open("west")
    row_says(page, "west", "rejected", "said no")
    assert badge(page) == "open"
    people.open("south")
    row_says(page, "south", "1", "4", "in")
    people.open("east")
    row_says(page, "south", "winner", "the lowest score")
    row_says(page, "east", "as good as the winner, but later")
    row_says(page, "north", "lost", "9 is more than 4")
    assert badge(page) == "closed"
    assert list(rows(page)) == ["south", "east", "north", "west", "away"]
    assert "Why is it waiting?" not in card.inner_text()
    assert server.wait(run).status == "completed"


def test_an_answer_without_a_number_is_no_candidate(
    plain: PlainPage, server: Server, people: Market
) -> None:
    people.open("north", "odd")
    run = server.run(solicit("north", "odd", policy="best_of"))
    plain.goto(f"/runs/{run}/joins")
    row_says(plain, "odd", "–", "answered without a number to compare")
    row_says(plain, "north", "winner")


def test_with_any_one_the_first_wins_and_the_others_are_cancelled(
    plain: PlainPage, server: Server, people: Market
) -> None:
    run = server.start(solicit("north", "south", policy="any_one"))
    plain.goto(f"/runs/{run}/joins")
    row_says(plain, "south", "late")
    people.open("north")
    row_says(plain, "north", "winner", "the first usable answer")
    row_says(plain, "south", "cancelled", "before it answered")
    card = plain.locator("#joins article")
    assert "1 of 2" in card.locator("h3").inner_text()
    assert "the engine cancels the others" in card.inner_text()


def test_a_quorum_counts_those_who_can_be_reached(
    plain: PlainPage, server: Server, people: Market
) -> None:
    text = solicit("north", "south", "east", "away", policy="quorum")
    run = server.start(text)
    plain.goto(f"/runs/{run}/joins")
    row_says(plain, "away", "not counted")
    people.open("south")
    plain.locator(".tally", has_text="1 of 2 in").wait_for()
    assert "2 of 4" in plain.locator("#joins h3").inner_text()
    people.open("north")
    row_says(plain, "north", "counted")
    row_says(plain, "east", "cancelled")
    assert plain.locator(".tally").inner_text() == "2 of 2 in"


def test_whoever_was_asked_again_has_a_round_for_each_time(
    plain: PlainPage, server: Server, people: Market
) -> None:
    people.open("west")
    retry = {"timeout": "PT10M", "retry": {"max_attempts": 1, "backoff": "PT0.2S"}}
    run = server.run(solicit("west", policy="any_one", timing=retry))
    plain.goto(f"/runs/{run}/joins")
    card = plain.locator("#joins article")
    assert card.count() == 1
    assert "round 2 of up to 2" in card.locator("h3").inner_text()
    earlier = card.locator("details.earlier")
    earlier.locator("summary").click()
    assert "Asked again as round 2" in earlier.inner_text()
    assert "rejected" in earlier.inner_text()


def test_time_that_is_up_is_told_of_those_who_did_not_answer(
    plain: PlainPage, server: Server, people: Market
) -> None:
    people.open("north")
    run = server.run(solicit("north", "south", policy="best_of", timing={"timeout": "PT1S"}))
    plain.goto(f"/runs/{run}/joins")
    row_says(plain, "south", "too late", "did not answer in time; cancelled")
    row_says(plain, "north", "winner")
    assert "time is up" in plain.locator("#joins .facts").first.inner_text()


FULFILMENT = {
    "policy": "external_decision",
    "decision_source": {"kind": "capability", "capability_id": "publication.verify", "input": {}},
    "result_match": {"path": "/ok", "fulfilled_values": [True], "not_fulfilled_values": [False]},
    "on_not_fulfilled": "pause",
}


def test_the_judge_is_shown_while_it_is_asked_and_with_what_it_said(
    page: Any, server: Server, people: Market
) -> None:
    people.open("north")
    people.says("publication.verify", {"ok": False})
    run = server.start(solicit("north", policy="any_one", fulfillment=FULFILMENT))
    page.goto(f"/runs/{run}/joins")
    becomes(page, "document.querySelector('#joins h3 .badge').textContent === 'deciding'")
    people.open("publication.verify")
    card = page.locator("#joins article")
    card.get_by_text("not fulfilled", exact=True).wait_for()
    assert "capability publication.verify" in card.inner_text()
    becomes(page, "document.querySelector('#joins').textContent.includes('a decision')")
    page.goto("/approvals")
    page.get_by_role("button", name="Approve").first.click()
    assert server.wait(run).status == "completed"
    page.goto(f"/runs/{run}/joins")
    assert [one.inner_text() for one in page.locator(".judged > .badge").all()] == [
        "not fulfilled",
        "fulfilled",
    ]


def test_an_orchestration_joins_two_of_three_and_kills_who_is_not_needed(
    plain: PlainPage, server: Server
) -> None:
    slow = {**RULES, "B": {**RULES["B"], "rules": ["[amount] > 0"]}}
    run = server.run(OPINIONS, {"amount": 5}, rules=slow)
    plain.goto(f"/runs/{run}/joins")
    assert "2 of 3" in plain.locator("#joins h3").inner_text()
    found = rows(plain)
    assert sum("counted" in text for text in found.values()) == 2
    (loser,) = [text for text in found.values() if "counted" not in text]
    assert "killed" in loser


def test_a_slot_that_stayed_empty_says_what_came_instead(plain: PlainPage, server: Server) -> None:
    run = server.run(OPINIONS, {"amount": 5}, rules=RULES)
    plain.goto(f"/runs/{run}/joins")
    row_says(plain, "A", "valid", "counted")
    row_says(plain, "C", "counted")
    row_says(plain, "B", "not filled", "it came as invalid, and this slot takes valid")
    assert badge(plain) == "closed"


#: C waits before D, and D is what the join expects.
CHAINED = OPINIONS.replace(
    '"C": {"rule": "cm:xrc137:C"}',
    '"C": {"rule": "cm:xrc137:C", "onValid": {"spawns": ["D"]}}, "D": {"rule": "cm:xrc137:D"}',
).replace('{"node": "C"', '{"node": "D"')


def test_an_open_join_names_who_can_still_come(plain: PlainPage, server: Server) -> None:
    waits = {**RULES["C"], "onValid": {"waitSec": 600}}
    rules = {**RULES, "C": waits, "D": RULES["A"]}
    run = server.start(CHAINED, {"amount": 5}, rules=rules)
    plain.goto(f"/runs/{run}/joins")
    row_says(plain, "A", "in")
    row_says(plain, "D", "late", "can still come", "at D")
    card = plain.locator("#joins article")
    assert "a join: 1 of 2 delivered (A)" in card.inner_text()
    assert badge(plain) == "open"


MEETING = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: meeting}
workflow:
  - step: begin
    next: {spec: {mode: inclusive}, arcs: [{step: ada}, {step: bob}, {step: cyd}]}
  - step: ada
    tool: {kind: noop}
    next: {arcs: [{step: meet}]}
  - step: bob
    tool: {kind: wait_at, args: {door: bob}}
    next: {arcs: [{step: meet}]}
  - step: cyd
    tool: {kind: wait_at, args: {door: cyd}}
    next: {arcs: [{step: meet, when: "{{ false }}"}]}
  - step: meet
    spec: {join: all}
    tool: {kind: noop}
"""


def test_a_playbook_that_joins_counts_who_has_come_of_all_who_could(
    page: Any, server: Server
) -> None:
    run = server.start(MEETING)
    page.goto(f"/runs/{run}/joins")
    row_says(page, "ada", "in")
    row_says(page, "bob", "late")
    becomes(page, "document.querySelector('.tally').textContent === '1 of 3 in'")
    server.steps.open("bob")
    becomes(page, "document.querySelector('.tally').textContent === '2 of 3 in'")
    assert "branches that can still reach it" in page.locator("#joins article").inner_text()
    server.steps.open("cyd")
    row_says(page, "cyd", "not filled", "took another way")
    row_says(page, "bob", "counted")
    assert page.locator(".tally").inner_text() == "2 of 3 in"
    assert badge(page) == "closed"


def test_a_fan_of_a_thousand_is_counted_and_its_page_stays_small(
    plain: PlainPage, server: Server, people: Market
) -> None:
    people.open("south")
    names = [f"nobody{number}" for number in range(1000)]
    run = server.run(solicit("south", *names, policy="best_of", name="crowd"))
    plain.goto(f"/runs/{run}/joins")
    assert plain.locator("#joins tbody tr").count() == 200
    text = plain.locator("#joins article").inner_text()
    assert "1,000 away" in text or "1,001 away" in text  # south, too, on a very busy machine
    assert "The first 200 of 1,001 slots" in text
    assert "south" in plain.locator("#joins tbody tr").first.inner_text()
    plain.goto(f"/runs/{run}/dispatches")
    assert plain.locator("#dispatches tbody tr").count() == 200
    assert json.loads(plain.request.get(f"/runs/{run}/snapshot.json").text())["steps"]

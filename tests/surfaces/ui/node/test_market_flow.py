"""A run that is watched in a browser: the page follows it, the operator decides and orders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support import eventually
from . import scenes
from .conftest import OpenPage, signed_in
from .fake_arca import FakeArca
from .support import OFFER, TwoNodes, answer, trade

RUN = "run:watched"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, arca: FakeArca) -> Iterator[TwoNodes]:
    with TwoNodes(Path(tmp_path_factory.mktemp("nodes")), arca=arca) as running:
        trade(running, OFFER)
        yield running


def card(page: Any, step: str) -> Any:
    return page.locator(f"#step-{step}")


def test_a_run_is_watched_from_its_fan_out_to_its_receipt(
    open_page: OpenPage, nodes: TwoNodes, arca: FakeArca
) -> None:
    asked = scenes.fan_out(nodes, RUN)
    found = dict(asked)
    asked |= {"status": "awaiting_fan_out", "execution": {"completed": False}}
    for name in ("selected_output", "output_digest", "finished_at", "task"):
        del asked[name]
    scenes.write_run(nodes, RUN, [asked])
    page = open_page(nodes.buyer)
    page.goto(f"/runs/{RUN}")
    card(page, "find").locator("h2 .badge").get_by_text("awaiting fan out").wait_for()
    assert card(page, "find").get_by_text("chosen", exact=True).count() == 0

    execution = scenes.order(nodes, RUN, "buy")
    scenes.write_run(nodes, RUN, [found, scenes.bought(execution)], revision=1)
    card(page, "find").get_by_text("chosen", exact=True).wait_for()  # by itself
    trail = card(page, "buy").locator(".trail")
    trail.get_by_text("dispatched").wait_for()
    assert trail.locator("li.is-done").count() == 5

    answer(nodes, execution, {"status": "completed", "output": {"summary": "short"}})
    trail.get_by_role("link", name="decide").click()
    page.get_by_role("button", name="Accept").click()
    page.locator("h1 .badge").get_by_text("released").wait_for()
    page.get_by_role("link", name=RUN).click()
    trail.get_by_text("settled").wait_for()
    assert trail.locator("li.is-done").count() == 7
    page.get_by_text("250 ORC").first.wait_for()

    done = scenes.bought(execution, status="completed", finished_at=scenes.instant())
    scenes.write_run(
        nodes, RUN, [found, done, scenes.waiting()], revision=2, status="paused",
        pause_reason="a decision at check",
    )  # fmt: skip
    page.get_by_role("button", name="Reject check").wait_for()
    page.get_by_role("button", name="Reject check").click()
    assert arca.told == []  # a rejection needs its reason
    page.get_by_label("Is the task fulfilled?").fill("it is not short enough")
    page.get_by_role("button", name="Reject check").click()
    page.get_by_text("Rejected: the task is not fulfilled.").wait_for()
    said = {"fulfilled": False, "reason": "it is not short enough", "actor": "operator"}
    assert arca.told == [(f"/runs/{RUN}/steps/check/confirm", said)]

    page.get_by_role("button", name="Cancel", exact=True).click()
    page.locator("#confirm-why").fill("no use")
    page.get_by_role("button", name="Yes").click()
    page.get_by_text("The run is cancelled.").wait_for()
    assert arca.told[-1] == (f"/runs/{RUN}/cancel", {"reason": "no use", "actor": "operator"})


def test_what_a_person_types_stays_while_the_run_goes_on(
    open_page: OpenPage, nodes: TwoNodes
) -> None:
    scenes.write_run(nodes, "run:typed", [scenes.waiting(), scenes.bought("execution:none")])
    page = open_page(nodes.buyer)
    page.goto("/runs/run:typed")
    page.get_by_label("Is the task fulfilled?").fill("half a sen")
    page.locator("h1").click()  # the keyboard is elsewhere, so the page asks again
    other = scenes.bought("execution:none", status="completed", finished_at=scenes.instant())
    scenes.write_run(nodes, "run:typed", [scenes.waiting(), other], revision=1)
    card(page, "buy").locator("h2 .badge").get_by_text("completed").wait_for()
    assert page.get_by_label("Is the task fulfilled?").input_value() == "half a sen"


def test_an_order_begins_at_the_catalog(nodes: TwoNodes) -> None:
    page = signed_in(nodes.buyer)
    page.goto("/catalog")
    page.get_by_label("Service").fill("text/summarise")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Order offer:summaries").click()
    page.get_by_role("button", name="Place the order").click()
    page.get_by_text("The order is open, and sent to its provider.").wait_for()


def test_every_form_of_a_run_works_without_scripts(nodes: TwoNodes, arca: FakeArca) -> None:
    scenes.write_run(nodes, "run:plain", [scenes.waiting()])
    page = signed_in(nodes.buyer)
    page.goto("/runs/run:plain")
    arca.told.clear()
    page.get_by_role("button", name="Fulfil check").click()
    page.get_by_text("Confirmed: the task is fulfilled.").wait_for()
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("The run pauses").wait_for()
    assert [path for path, _ in arca.told] == [
        "/runs/run:plain/steps/check/confirm",
        "/runs/run:plain/pause",
    ]
    assert eventually(lambda: len(arca.told) == 2)

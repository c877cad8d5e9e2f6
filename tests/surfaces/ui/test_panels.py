"""Joins, requests, receipts, sessions, the editor and the entrance: they fit, and can be read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .parties import EXAMPLES, Market, market, solicit
from .support import OPINIONS, RULES, Server, becomes, eventually, picture
from .test_definitions import BROKEN, FORMS
from .test_joins import CHAINED, FULFILMENT, MEETING
from .test_pages import NAMELESS, OUTSIDE, OVERLAPS

SIZES = {"light": (1280, 900, "light"), "dark": (1280, 900, "dark"), "400": (400, 800, "light")}
PAGES = (
    *("best_of", "best_of_open", "rounds", "judged", "join", "join_open", "barrier"),
    *("nothing_joined", "asked", "asked_nobody", "receipts", "sessions_asleep", "sessions_none"),
    *("editor_empty", "editor_problems", "editor_form", "editor_template", "entrance"),
)


@pytest.fixture(scope="module")
def people() -> Iterator[Market]:
    with market() as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, people: Market) -> Iterator[Server]:
    with Server(Path(tmp_path_factory.mktemp("panels")), people.book()) as running:
        yield running


@pytest.fixture(scope="module")
def addresses(server: Server, people: Market) -> dict[str, str]:
    people.open("north", "south", "west", "odd", "publication.verify")
    names = ("north", "south", "west", "odd", "away")
    best = server.run(solicit(*names, policy="best_of", name="cheapest"))
    waiting = server.start(solicit("north", "east", "away", policy="best_of", name="still_asking"))
    retry = {"timeout": "PT10M", "retry": {"max_attempts": 2, "backoff": "PT0.1S"}}
    rounds = server.run(solicit("west", "away", policy="any_one", timing=retry))
    people.says("publication.verify", {"ok": False})
    judged = server.run(solicit("north", policy="any_one", fulfillment=FULFILMENT))
    join = server.run(OPINIONS, {"amount": 5}, rules=RULES, labels={"owner": "0xAda"})
    slow = {**RULES, "C": {**RULES["C"], "onValid": {"waitSec": 600}}, "D": RULES["A"]}
    join_open = server.start(CHAINED, {"amount": 5}, rules=slow, labels={"owner": "0x" + "a" * 40})
    barrier = server.start(MEETING)
    plain = server.run(FORMS)
    assert eventually(lambda: server.parts.engine.state(join_open).phases.get("sleeping"))
    assert eventually(lambda: server.parts.engine.state(barrier).gathers)
    assert eventually(lambda: len(server.parts.engine.state(waiting).jobs) == 1)
    kept = server.store.head(plain)
    assert kept is not None
    return {
        "best_of": f"/runs/{best}/joins",
        "best_of_open": f"/runs/{waiting}/joins",
        "rounds": f"/runs/{rounds}/joins",
        "judged": f"/runs/{judged}/joins",
        "join": f"/runs/{join}/joins",
        "join_open": f"/runs/{join_open}/joins",
        "barrier": f"/runs/{barrier}/joins",
        "nothing_joined": f"/runs/{plain}/joins",
        "asked": f"/runs/{best}/dispatches",
        "asked_nobody": f"/runs/{plain}/dispatches",
        "receipts": f"/runs/{join}/receipts",
        "sessions_asleep": "/sessions",
        "sessions_none": "/sessions?owner=nobody",
        "editor_empty": "/definitions?name=nothing",
        "editor_problems": "/definitions",
        "editor_form": f"/definitions?fingerprint={kept.definition}",
        "editor_template": "/definitions#template",
        "entrance": "/login?next=/sessions",
    }


def prepare(page: Any, name: str) -> None:
    """Bring a page to what it is about."""
    if name == "editor_problems":
        page.get_by_role("textbox", name="Text").fill(BROKEN)
        page.locator("#marks button").first.wait_for()
    elif name == "editor_template":
        text = (EXAMPLES / "arca" / "template.json").read_text()
        page.get_by_role("textbox", name="Text").fill(text)
        page.get_by_label("text needed").wait_for()
    elif name == "editor_form":
        page.get_by_label("list").fill("[1,")
        page.get_by_role("button", name="Start", exact=True).click()
        page.locator(".field-error").wait_for()
    elif name == "rounds":
        page.locator("details.earlier summary").first.click()
    elif name in ("asked", "receipts"):
        page.locator("#run .card summary").first.click()


#: Text that is hard to read on what lies under it: less than 4.5 to 1, or 3 to 1 when it is large.
FAINT = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgb = colour => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
  const under = one => {
    for (let node = one; node; node = node.parentElement) {
      const colour = rgb(getComputedStyle(node).backgroundColor);
      if (colour[3] > 250) return colour;
    }
    return [255, 255, 255, 255];
  };
  const found = [];
  const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const one = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !one.checkVisibility()) continue;
    if (one.closest('svg, script, .unseen, [disabled]')) continue;
    const style = getComputedStyle(one);
    const [a, b] = [light(rgb(style.color)), light(under(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const least = parseFloat(style.fontSize) >= 24 ? 3 : 4.5;
    if (ratio < least) found.push([one.outerHTML.slice(0, 100), Math.round(ratio * 100) / 100]);
  }
  return found.slice(0, 8);
}"""


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAGES)
def test_a_panel_fits_is_named_and_can_be_read(
    page: Any, addresses: dict[str, str], name: str, size: str
) -> None:
    width, height, scheme = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    page.goto(addresses[name])
    prepare(page, name)
    page.evaluate("() => new Promise(go => requestAnimationFrame(() => setTimeout(go, 50)))")
    picture(page, f"panel-{name}-{size}")
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(FAINT) == []
    assert page.locator("h1").count() == 1
    twice = "(ids => ids.filter((id, at) => ids.indexOf(id) !== at))"
    assert page.evaluate(f"{twice}([...document.querySelectorAll('[id]')].map(o => o.id))") == []


def test_a_fan_of_a_thousand_is_counted_and_its_page_stays_small(
    page: Any, server: Server, people: Market
) -> None:
    names = [f"nobody{number}" for number in range(1000)]
    run = server.run(solicit("south", *names, policy="best_of", name="crowd"))
    page.goto(f"/runs/{run}/joins")
    becomes(page, "document.querySelectorAll('#joins tbody tr').length === 200")
    text = page.locator("#joins article").inner_text()
    assert "1,000 away" in text
    assert "The first 200 of 1,001 slots" in text
    assert "south" in page.locator("#joins tbody tr").first.inner_text()
    page.goto(f"/runs/{run}/dispatches")
    assert page.locator("#dispatches tbody tr").count() == 200
    assert json.loads(page.request.get(f"/runs/{run}/snapshot.json").text())["steps"]

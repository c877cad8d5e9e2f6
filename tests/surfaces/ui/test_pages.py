"""Every page: it fits any width, and people without a mouse or without eyes can use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .scenes import FAILING, sleeping
from .support import (
    ASKED,
    HELD,
    LOOP,
    OPINIONS,
    RULES,
    TWO_FRAMES,
    TWO_STEPS,
    Server,
    becomes,
    long_net,
    picture,
)  # fmt: skip

SIZES = {
    "narrow": (320, 640, "dark"),
    "phone": (400, 844, "light"),
    "wide": (1280, 900, "light"),
    "dark": (1280, 900, "dark"),
}


def resize(page: Any, size: str) -> None:
    width, height, scheme = SIZES[size]
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)


PAGES = (
    *("runs", "run", "finished", "timeline", "events", "joins", "data", "definition", "loop"),
    *("approvals", "definitions", "definition_kept", "sessions", "login", "error", "long"),
    *("failed", "timeline_failed", "loop_failed", "sleeping", "runs_filtered", "runs_none"),
    "overview",
)


@pytest.fixture(scope="module")
def addresses(server: Server) -> dict[str, str]:
    done = server.run(OPINIONS, {"amount": 5}, rules=RULES, labels={"team": "blue"})
    server.steps.open("a")
    waiting = server.start(TWO_STEPS, {"first": "a", "second": "never"})
    for text in (ASKED, HELD):
        server.run(text)
    loop = server.run(LOOP)
    long = server.run(long_net(60))
    failed = server.run(FAILING, labels={"team": "a team with a rather long name", "env": "x" * 90})
    kept = server.store.head(loop)
    assert kept is not None
    return {
        "runs": "/runs",
        "run": f"/runs/{waiting}",
        "finished": f"/runs/{done}",
        "timeline": f"/runs/{waiting}/timeline",
        "events": f"/runs/{done}/events",
        "joins": f"/runs/{done}/joins",
        "data": f"/runs/{done}/data",
        "definition": f"/runs/{loop}/definition",
        "loop": f"/runs/{loop}/loops/each",
        "approvals": "/approvals",
        "definitions": "/definitions",
        "definition_kept": f"/definitions?fingerprint={kept.definition}",
        "sessions": "/sessions",
        "login": "/login",
        "error": "/nowhere",
        "long": f"/runs/{long}",
        "failed": f"/runs/{failed}",
        "timeline_failed": f"/runs/{failed}/timeline",
        "loop_failed": f"/runs/{loop}/loops/each?state=failed",
        "sleeping": f"/runs/{sleeping(server)}",
        "runs_filtered": "/runs?status=failed&status=waiting&dialect=noetl&from=2020-01-01T00:00",
        "runs_none": "/runs?name=nobody&label=team%3Dnobody",
        "overview": "/overview",
    }


NAMELESS = """() => [...document.querySelectorAll('input, select, textarea, button, a')]
  .filter(one => one.type !== 'hidden')
  .filter(one => !(one.labels?.length || one.getAttribute('aria-label') || one.textContent.trim()))
  .map(one => one.outerHTML.slice(0, 200))"""

OUTSIDE = """() => document.documentElement.scrollWidth > innerWidth + 1
  ? [...document.querySelectorAll('main *')]
      .filter(one => one.getBoundingClientRect().right > innerWidth + 1)
      .slice(0, 5).map(one => one.outerHTML.slice(0, 120)) : []"""

#: Neighbours in a row or column that lie on one another.
OVERLAPS = """() => {
  const found = [];
  const rows = 'main, #run, .head, .verbs, .filters, .actions, .card, section, .counters, .two,'
    + '.waits li, .row, .pages';
  for (const box of document.querySelectorAll(rows)) {
    const parts = [...box.children].filter(one => !one.hidden && one.checkVisibility()
      && !['absolute', 'sticky'].includes(getComputedStyle(one).position));
    const rects = parts.map(one => one.getBoundingClientRect());
    for (let a = 0; a < rects.length; a += 1) for (let b = a + 1; b < rects.length; b += 1) {
      const w = Math.min(rects[a].right, rects[b].right) - Math.max(rects[a].left, rects[b].left);
      const h = Math.min(rects[a].bottom, rects[b].bottom) - Math.max(rects[a].top, rects[b].top);
      if (w > 2 && h > 2) found.push([a, b].map(one => parts[one].outerHTML.slice(0, 80)));
    }
  }
  return found;
}"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_every_window_and_names_its_parts(
    page: Any, addresses: dict[str, str], name: str
) -> None:
    """One visit, in a window that changes its size."""
    resize(page, next(iter(SIZES)))
    page.goto(addresses[name])
    page.wait_for_load_state("load")
    for size in SIZES:
        resize(page, size)
        page.evaluate(TWO_FRAMES)
        picture(page, f"{name}-{size}", whole=name != "long")
        assert page.evaluate(OUTSIDE) == [], size
        assert page.evaluate(OVERLAPS) == [], size
    assert page.evaluate(NAMELESS) == []
    for landmark in ("main", "header.bar", "nav[aria-label]", "h1"):
        assert page.locator(landmark).count() >= 1, landmark
    assert page.locator("h1").count() == 1
    assert page.locator("html[lang]").count() == 1


#: What is read out of the control that has the focus.
NAME = """(document.activeElement.ariaLabel ?? document.activeElement.textContent)
  .trim().slice(0, 20)"""


def test_the_keyboard_reaches_the_content_first_and_every_verb(
    page: Any, addresses: dict[str, str]
) -> None:
    page.goto(addresses["run"])
    page.keyboard.press("Tab")
    becomes(page, "document.activeElement.textContent === 'Skip to the content'")
    page.keyboard.press("Enter")
    becomes(page, "document.activeElement.id === 'main'")
    reached = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(NAME))
    assert reached[0].startswith("Copy ")
    assert reached[1:4] == ["Pause", "Patch", "Cancel"]
    assert "Timeline" in reached


def test_the_graph_is_moved_and_zoomed_by_the_keyboard(
    page: Any, addresses: dict[str, str]
) -> None:
    page.goto(addresses["finished"])
    box = "document.querySelector('#graph svg').getAttribute('viewBox').split(' ').map(Number)"
    page.locator("#graph").focus()
    becomes(page, f"{box}[2] > 0")
    x, _, width, _ = page.evaluate(box)
    page.keyboard.press("ArrowRight")
    becomes(page, f"{box}[0] > {x}")
    page.keyboard.press("+")
    becomes(page, f"{box}[2] < {width}")
    page.keyboard.press("0")
    page.get_by_role("button", name="Zoom out").click()


def test_colours_follow_the_system_until_somebody_chooses(page: Any) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="dark")
    page.goto("/runs")
    dark = page.evaluate(paper)
    button = page.locator("#theme")
    button.click()
    light = page.evaluate(paper)
    assert light != dark
    assert button.get_attribute("aria-label") == "Colours: light"
    page.reload()
    assert page.evaluate(paper) == light  # it is remembered
    button.click()
    assert page.evaluate(paper) == dark


def test_everything_a_page_loads_comes_from_the_server_itself(
    page: Any, server: Server, addresses: dict[str, str]
) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for address in addresses.values():
        page.goto(address)
    assert len(asked) > 20
    assert [url for url in asked if not url.startswith(server.url)] == []


def test_the_static_files_name_no_other_place() -> None:
    folder = Path(__file__).parents[3] / "src/anabranch/surfaces/ui"
    files = [*folder.glob("static/*"), *folder.glob("templates/*")]
    for file in files:
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        inline = (" style=", "<style", " onclick") if file.suffix == ".html" else ()
        wrong = [word for word in ("http://", "https://", *inline) if word in text]
        assert wrong == [], file.name

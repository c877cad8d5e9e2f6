"""What holds for every page: keys, colours and files. `test_gallery.py` looks at each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .support import ASKED, HELD, OPINIONS, RULES, TWO_FRAMES, TWO_STEPS, Server, becomes


@pytest.fixture(scope="module")
def addresses(server: Server) -> dict[str, str]:
    server.steps.open("a")
    done = server.run(OPINIONS, {"amount": 5}, rules=RULES)
    waiting = server.start(TWO_STEPS, {"first": "a", "second": "never"})
    return {"run": f"/runs/{waiting}", "finished": f"/runs/{done}"}


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


def test_questions_fit_a_very_narrow_window(page: Any, server: Server) -> None:
    for text in (ASKED, HELD):
        server.run(text)
    page.set_viewport_size({"width": 320, "height": 640})
    page.goto("/approvals")
    page.evaluate(TWO_FRAMES)
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(OVERLAPS) == []


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


def test_the_static_files_name_no_other_place() -> None:
    folder = Path(__file__).parents[3] / "src/anabranch/surfaces/ui"
    files = [*folder.glob("static/*"), *folder.glob("templates/*")]
    for file in files:
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        inline = (" style=", "<style", " onclick") if file.suffix == ".html" else ()
        wrong = [word for word in ("http://", "https://", *inline) if word in text]
        assert wrong == [], file.name

"""Large runs stay quick: a hundred thousand items, a net of five hundred steps."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.request import urlopen

import pytest

from .support import ARTIFACTS, MANY_ITEMS, Server, becomes, long_net

pytestmark = pytest.mark.slow

#: Tasks of the page that kept it from answering, in milliseconds.
WATCH = """window.longest = 0;
new PerformanceObserver(list => {
  for (const one of list.getEntries()) window.longest = Math.max(window.longest, one.duration);
}).observe({type: 'longtask', buffered: true});"""


BUSY = """() => new Promise(go => setTimeout(() => {
  const until = performance.now() + 260;
  while (performance.now() < until);
  setTimeout(go, 50);
}, 0))"""


def longest_task(page: Any) -> float:
    """Since it was last asked; it is made sure that a long one would have been noticed."""
    longest = float(page.evaluate("window.longest"))
    page.evaluate(BUSY)
    becomes(page, "window.longest > 200")
    page.evaluate("window.longest = 0")
    return longest


def seconds_of(url: str) -> float:
    begun = time.perf_counter()
    with urlopen(url, timeout=30) as answer:
        assert answer.status == 200
        answer.read()
    return time.perf_counter() - begun


def note(name: str, value: Any) -> None:
    """Measurements are kept with the screenshots."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / f"{name}.json").write_text(json.dumps(value, indent=2))


def test_the_pages_of_a_run_over_100_000_items_come_within_a_second(server: Server) -> None:
    run = server.run(MANY_ITEMS)
    ways = ("", "/timeline", "/timeline.json", "/events", "/events?after=900", "/joins", "/data")
    loops = ("", "?state=failed", "?after=99000", "?state=succeeded")
    paths = [f"/runs/{run}{way}" for way in ways]
    paths += [f"/runs/{run}/loops/squares{way}" for way in loops]
    took = {path.replace(run, "RUN"): seconds_of(server.url + path) for path in (*paths, "/runs")}
    note("pages-of-100000-items", took)
    assert max(took.values()) < 1.0, took


def test_the_pages_of_a_net_of_500_steps_come_within_a_second(server: Server) -> None:
    run = server.run(long_net(500))
    took = {
        way: seconds_of(f"{server.url}/runs/{run}{way}")
        for way in ("", "/timeline", "/events", "/definition", "/data")
    }
    note("pages-of-500-steps", took)
    assert max(took.values()) < 1.0, took


def test_a_graph_of_500_steps_moves_without_a_long_task(page: Any, server: Server) -> None:
    text = long_net(500)
    for number in range(20, 500, 20):
        # A step in twenty stops for a moment, so that there are many updates and not one.
        text = text.replace(
            f"- step: s{number}\n    tool: {{kind: noop}}",
            f"- step: s{number}\n    tool: {{kind: wait_at, args: {{door: 'd{number}'}}}}",
        )
    run = server.start(text)
    page.add_init_script(WATCH)
    page.goto(f"/runs/{run}")
    becomes(page, "document.querySelectorAll('#graph g.anb-done').length >= 20")
    page.evaluate("window.longest = 0")  # from here on it is about updates
    for number in range(20, 500, 20):
        server.steps.open(f"d{number}")
        if number % 60 == 0:
            becomes(page, f"document.querySelectorAll('#graph g.anb-done').length > {number}")
    becomes(page, "document.querySelectorAll('#graph g.anb-done').length === 500")
    longest = longest_task(page)
    page.screenshot(path=str(ARTIFACTS / "graph-of-500.png"))
    note("longest-task-of-500-steps", longest)
    assert longest < 200
    for _ in range(10):
        page.get_by_role("button", name="Zoom out").click()
    page.get_by_role("button", name="Whole").click()
    page.locator("#graph").hover()
    for _ in range(20):
        page.keyboard.press("ArrowDown")
    assert longest_task(page) < 200


def test_a_loop_of_100_000_items_moves_without_a_long_task(page: Any, server: Server) -> None:
    page.add_init_script(WATCH)
    run = server.start(MANY_ITEMS, {"count": 100_000})
    page.goto(f"/runs/{run}/loops/squares")
    page.evaluate("window.longest = 0")
    done = "document.querySelector('[data-part=loop] [data-count=succeeded]').textContent"
    becomes(page, f"{done} === '100,000'", 60)
    longest = longest_task(page)
    note("longest-task-of-100000-items", longest)
    assert longest < 200

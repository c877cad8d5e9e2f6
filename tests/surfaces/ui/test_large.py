"""Large runs stay quick: a hundred thousand items, a net of five hundred steps."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from anabranch.kernel import events as e
from anabranch.store.ports import Batch, Commit, Head
from anabranch.surfaces.ui.pages import bulk
from hangs import HANG_SECONDS
from seeds import SHARE

from .support import ARTIFACTS, MANY_ITEMS, Server, becomes, long_net, picture

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


#: How many nodes have been made or changed, which does not depend on what else the machine does.
COUNT = """window.touched = 0;
new MutationObserver(list => {
  for (const one of list) window.touched += Math.max(1, one.addedNodes.length);
}).observe(document, {subtree: true, childList: true, attributes: true, characterData: true});"""
PER_STEP = 20  # nodes that a step may cost from its beginning to its end
STEPS = 150 if SHARE < 1 else 500  # of the graph that moves


def touched(page: Any) -> int:
    """Since it was last asked."""
    count = int(page.evaluate("window.touched"))
    page.evaluate("window.touched = 0")
    return count


def longest_task(page: Any) -> float:
    """Since it was last asked; it is made sure that a long one would have been noticed."""
    longest = float(page.evaluate("window.longest"))
    page.evaluate(BUSY)
    becomes(page, "window.longest > 200")
    page.evaluate("window.longest = 0")
    return longest


def seconds_of(url: str) -> float:
    """The processor time that it takes this process, the server included."""
    begun = time.process_time()
    with urlopen(url, timeout=HANG_SECONDS) as answer:
        assert answer.status == 200
        answer.read()
    return time.process_time() - begun


def note(name: str, value: Any) -> None:
    """Measurements are kept where pictures are."""
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    (ARTIFACTS / f"{name}.json").write_text(json.dumps(value, indent=2))


@pytest.fixture(scope="module")
def items(server: Server) -> str:
    """A run over a hundred thousand items that has begun: the first test follows it."""
    return server.start(MANY_ITEMS)


@pytest.fixture(scope="module")
def steps(server: Server) -> str:
    """A run of five hundred steps that has ended."""
    return server.run(long_net(500))


@pytest.mark.soak
def test_a_loop_of_100_000_items_is_followed_with_fifty_rows(
    new_page: Any, server: Server, items: str
) -> None:
    page = new_page
    page.add_init_script(WATCH)
    page.goto(f"/runs/{items}/loops/squares")
    page.evaluate("window.longest = 0")
    done = "document.querySelector('[data-part=loop] [data-count=succeeded]').textContent"
    becomes(page, f"{done} === '100,000'")
    note("longest-task-of-100000-items", longest_task(page))
    assert page.locator("table.items tbody tr").count() == 50  # never one for each item
    page.goto(f"/runs/{items}")
    page.wait_for_selector("#graph g.anb-done")
    assert page.locator("#graph g.anb-box").count() == 1  # one node


def test_the_pages_of_a_run_over_100_000_items_come(server: Server, items: str) -> None:
    run = items
    server.wait(run)
    ways = ("", "/timeline", "/timeline.json", "/events", "/events?after=900", "/joins", "/data")
    loops = ("", "?state=failed", "?after=99000", "?state=succeeded")
    paths = [f"/runs/{run}{way}" for way in ways]
    paths += [f"/runs/{run}/loops/squares{way}" for way in loops]
    took = {path.replace(run, "RUN"): seconds_of(server.url + path) for path in (*paths, "/runs")}
    note("pages-of-100000-items", took)
    assert max(took.values()) < 3.0, took  # of processor time


def test_the_pages_of_a_net_of_500_steps_come(server: Server, steps: str) -> None:
    took = {
        way: seconds_of(f"{server.url}/runs/{steps}{way}")
        for way in ("", "/timeline", "/events", "/definition", "/data")
    }
    note("pages-of-500-steps", took)
    assert max(took.values()) < 3.0, took  # of processor time


@pytest.mark.soak
def test_the_list_of_10_000_runs_comes_within_a_second(
    new_page: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = new_page
    # On a busy machine the page would otherwise end its look at them early, and say so.
    monkeypatch.setattr(bulk, "BUDGET_SECONDS", HANG_SECONDS)
    with Server(tmp_path) as server:
        fill(server, 10_000)
        ways = (
            *("", "?status=failed", "?label=team%3Dt7", "?name=job_3", "?dialect=arca", "?age=1h"),
            *("?from=2020-01-01T00:00", "?status=failed&label=team%3Dt7&dialect=noetl"),
        )
        took = {way: seconds_of(f"{server.url}/runs{way}") for way in ways}
        page.add_init_script(WATCH)
        page.goto(f"{server.url}/runs")
        assert page.locator('[data-count="*"]').inner_text() == "10,000"
        begun = time.process_time()
        for _ in range(3):
            page.get_by_role("link", name="Older").click()
            page.wait_for_load_state("load")
        took["three pages further, in the browser"] = time.process_time() - begun
        page.get_by_label("Tick all").check()
        page.get_by_label("every run of the store, not only this page").check()
        begun = time.process_time()
        page.get_by_role("button", name="Redrive…").click()
        page.get_by_role("heading", name="Redrive 10,000 runs?").wait_for()
        took["a dry run over all of them"] = time.process_time() - begun
        page.goto("about:blank")
    note("pages-of-10000-runs", took)
    assert max(took[way] for way in ways) < 1.0, took
    assert took["three pages further, in the browser"] < 6.0, took
    assert took["a dry run over all of them"] < 10.0, took


def fill(server: Server, count: int) -> None:
    """Runs as the list knows them: what they did does not matter here."""
    statuses = ("completed", "failed", "partial", "cancelled")
    for first in range(0, count, 1000):
        commits = []
        for number in range(first, min(first + 1000, count)):
            head = Head(
                run=f"r{number:06}",
                definition="",
                name=f"job_{number % 9}",
                dialect=("noetl", "xrc729", "arca")[number % 3],
                status=statuses[number % 4],
                seq=1,
                created_at=1_700_000_000_000 + 1000 * number,
                updated_at=1_700_000_000_500 + 1000 * number,
                labels={"team": f"t{number % 20}", "env": "production"},
                finished=True,
            )
            events = e.encode_events([e.RunFinished("completed")])
            commits.append(Commit(head=head, at=head.updated_at, events=events, count=1))
        server.store.commit(Batch(commits=commits))


@pytest.mark.soak
def test_large_pages_are_there_quickly_in_the_browser_too(
    new_page: Any, server: Server, items: str, steps: str
) -> None:
    page = new_page
    server.wait(items)
    page.add_init_script(WATCH)
    took: dict[str, dict[str, float]] = {}
    for name, way, there in (
        ("graph of 500", f"/runs/{steps}", "#graph g.anb-done"),
        ("timeline of 500", f"/runs/{steps}/timeline", "#timeline rect.seg"),
        ("panel of 100,000", f"/runs/{items}/loops/squares", "table.items tbody tr"),
        ("timeline of 100,000", f"/runs/{items}/timeline", "#timeline rect.seg-loop"),
    ):
        begun = time.process_time()
        page.goto(way)
        page.locator(there).first.wait_for(state="attached")
        took[name] = {
            "seconds": time.process_time() - begun,
            "longest_task_ms": longest_task(page),
        }
    note("large-pages-in-the-browser", took)
    assert max(one["seconds"] for one in took.values()) < 5.0, took


@pytest.mark.soak
def test_a_graph_of_many_steps_moves_without_being_drawn_again(
    new_page: Any, server: Server
) -> None:
    page = new_page
    text = long_net(STEPS)
    for number in range(10, STEPS, 10):
        # A step in ten stops for a moment, so that there are many updates and not one.
        text = text.replace(
            f"- step: s{number}\n    tool: {{kind: noop}}",
            f"- step: s{number}\n    tool: {{kind: wait_at, args: {{door: 'd{number}'}}}}",
        )
    run = server.start(text)
    page.add_init_script(WATCH + COUNT)
    page.goto(f"/runs/{run}")
    becomes(page, "document.querySelectorAll('#graph g.anb-done').length >= 10")
    page.evaluate("window.longest = 0")  # from here on it is about updates
    touched(page)
    for number in range(10, STEPS, 10):
        server.steps.open(f"d{number}")
        if number % 30 == 0:
            becomes(page, f"document.querySelectorAll('#graph g.anb-done').length > {number}")
    becomes(page, f"document.querySelectorAll('#graph g.anb-done').length === {STEPS}")
    updates = touched(page)
    note("longest-task-of-many-steps", longest_task(page))
    picture(page, "graph-of-many", whole=False)
    touched(page)
    for _ in range(10):
        page.get_by_role("button", name="Zoom out").click()
    page.get_by_role("button", name="Whole").click()
    page.locator("#graph").hover()
    for _ in range(20):
        page.keyboard.press("ArrowDown")
    moves = touched(page)
    page.goto(f"/runs/{run}/timeline")
    page.wait_for_selector("#timeline rect.seg")
    page.evaluate("window.longest = 0")
    touched(page)
    page.locator("#timeline").focus()
    keys = ("End", *["+"] * 6, *["ArrowRight"] * 6, *["ArrowUp"] * 20, "0")
    for key in keys:
        page.keyboard.press(key)
    drawn = touched(page)
    note("longest-task-of-a-timeline-of-many-steps", longest_task(page))
    note("nodes-touched-of-many-steps", {"updates": updates, "moves": moves, "timeline": drawn})
    assert updates < STEPS * PER_STEP, "an update changes what has changed"
    assert moves < 40 * PER_STEP, "moving the picture draws none of it again"
    assert drawn < len(keys) * STEPS * 2, "the timeline draws each of its bars once a key"

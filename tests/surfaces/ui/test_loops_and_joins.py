"""Loops are one panel however many items they have; its numbers move."""

from __future__ import annotations

from typing import Any

from anabranch.kernel import stimuli as s

from .plain import PlainPage
from .support import LOOP, Server, becomes, eventually


def confirm(page: Any) -> None:
    page.locator("#confirm").get_by_role("button", name="Yes").click()


def number(page: Any, name: str) -> int:
    return int(page.locator(f'[data-part=loop] [data-count="{name}"]').inner_text())


def test_the_panel_counts_lists_and_explains_the_items(plain: PlainPage, server: Server) -> None:
    run = server.run(LOOP, {"count": 120})
    plain.goto(f"/runs/{run}/loops/each")
    assert (number(plain, "succeeded"), number(plain, "failed")) == (117, 3)
    assert plain.locator(".counters .counter").inner_text().split() == ["3", "python"]
    assert plain.locator("table.items tbody tr").count() == 50
    plain.get_by_role("link", name="Next").click()
    assert plain.locator("table.items tbody td").first.inner_text() == "50"
    plain.get_by_role("link", name="failed", exact=True).click()
    texts = plain.locator("table.items tbody tr").all_inner_texts()
    assert [text.split()[0] for text in texts] == ["7", "57", "107"]
    assert "item 57 is bad" in texts[1]
    plain.locator(".counters .counter").click()
    assert "error=python" in plain.url
    assert plain.locator("table.items tbody tr").count() == 3


def test_a_loop_is_one_node_of_the_graph(page: Any, server: Server) -> None:
    run = server.run(LOOP, {"count": 120, "bad": -1})
    page.goto(f"/runs/{run}")
    page.wait_for_selector("#graph g.anb-done")
    assert page.locator("#graph g.anb-box").count() == 1
    page.goto(f"/runs/{run}/timeline")
    page.wait_for_selector("#timeline rect.seg-loop")
    assert page.locator("#timeline .lane-name").count() == 1


def test_what_failed_is_redriven_from_the_panel(page: Any, server: Server) -> None:
    run = server.run(LOOP, {"count": 60, "bad": 9})
    page.goto(f"/runs/{run}/loops/each")
    assert number(page, "failed") == 2
    server.steps.open("mended")
    page.get_by_role("button", name="Redrive what failed").click()
    confirm(page)
    page.get_by_text("redrives").wait_for()
    again = page.url.split("/runs/")[1].partition("?")[0]
    assert server.wait(again).status == "completed"
    page.goto(f"/runs/{again}/loops/each")
    assert (number(page, "succeeded"), number(page, "failed")) == (60, 0)
    done_by = page.locator("table.items tbody tr").first.inner_text()
    assert run in done_by  # not worked on again


def test_the_window_is_changed_and_new_items_are_stopped(page: Any, server: Server) -> None:
    run = server.start(LOOP, {"count": 400, "door": "tune", "bad": -1})
    assert eventually(lambda: server.parts.engine.state(run).loops)
    page.goto(f"/runs/{run}/loops/each")
    page.get_by_label("Shards at once").fill("5")
    page.get_by_role("button", name="Change").click()
    page.get_by_text("The loop has its new window.").wait_for()
    (tracker,) = server.parts.engine.state(run).loops.values()
    assert tracker.window == 5
    page.get_by_role("button", name="Take no new items").click()
    confirm(page)
    page.get_by_text("The loop starts no new items").wait_for()
    assert tracker.stopped
    server.steps.open("tune")
    state = server.wait(run)
    assert state.looped[tracker.id].succeeded < 400
    becomes(page, "document.querySelector('#status .badge').textContent !== 'running'")


def test_the_numbers_of_the_panel_move(page: Any, server: Server) -> None:
    run = server.start(LOOP, {"count": 40, "door": "count", "bad": -1})
    page.goto(f"/runs/{run}/loops/each")
    assert number(page, "succeeded") == 0
    server.steps.open("count")
    becomes(
        page,
        "document.querySelector('[data-part=loop] [data-count=succeeded]').textContent === '40'",
    )


def test_a_tick_of_a_paused_loop_reaches_the_panel(page: Any, server: Server) -> None:
    run = server.start(LOOP, {"count": 40, "door": "held", "bad": -1})
    page.goto(f"/runs/{run}/loops/each")
    server.call(server.parts.verbs.send(run, s.Pause("kim", "lunch")))
    becomes(page, "document.querySelector('#status .badge').textContent === 'paused'")
    becomes(page, "document.querySelector('[data-part=waits]').textContent.includes('lunch')")
    server.call(server.parts.verbs.send(run, s.Resume("kim")))
    server.steps.open("held")
    server.wait(run)

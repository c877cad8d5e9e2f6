"""The panel of a loop: numbers that move, failures that filter, and how a loop is steered."""

from __future__ import annotations

from typing import Any

from anabranch.kernel import events as e

from .plain import PlainPage
from .scenes import confirm, events_of, is_live, shot
from .support import LOOP, Server, becomes, eventually

COUNT = "document.querySelector('[data-part=loop] [data-count={name}]').textContent.trim()"

#: The first forty are held back until somebody opens the door, then each waits for its own.
STEADY = LOOP.replace("shard_size: 10", "shard_size: 1")


def shown(page: Any, name: str) -> str:
    text: str = page.locator(f"[data-part=loop] [data-count={name}]").inner_text()
    return text


def test_counts_rate_and_time_left_move_while_items_are_done(page: Any, server: Server) -> None:
    text = STEADY.replace('door: "{{ workload.door }}"', "door: \"{{ 'rate%d' % iter.n }}\"")
    run = server.start(text, {"count": 40, "bad": -1})
    assert eventually(lambda: server.parts.engine.state(run).loops)
    page.goto(f"/runs/{run}/loops/each")
    is_live(page)
    assert [shown(page, name) for name in ("succeeded", "total", "left")] == ["0", "40", "–"]
    becomes(page, f"{COUNT.format(name='running')} === '2'")
    for number in range(10):
        server.steps.open(f"rate{number}")
    becomes(page, f"{COUNT.format(name='succeeded')} === '10'")
    becomes(page, f"{COUNT.format(name='pending')} === '28'")
    becomes(page, f"/^[0-9.]+\\/s$/.test({COUNT.format(name='rate')})")
    becomes(page, f"/ (ms|s|min)$/.test({COUNT.format(name='left')})")
    bar = page.locator("[data-part=loop] svg.progress").get_attribute("aria-label")
    assert bar == "10 succeeded, 0 failed, 2 running of 40"
    becomes(page, "document.querySelectorAll('table.items .look-done').length === 10")  # items, too
    shot(page, "loop-moving")
    for number in range(10, 40):
        server.steps.open(f"rate{number}")
    becomes(page, f"{COUNT.format(name='succeeded')} === '40'")
    becomes(page, "document.querySelector('#status .badge').textContent === 'completed'")


def test_a_click_on_an_error_shows_the_items_that_failed_of_it(
    plain: PlainPage, server: Server
) -> None:
    run = server.run(LOOP, {"count": 120, "error": "the scale is broken"})
    plain.goto(f"/runs/{run}/loops/each")
    failures = plain.locator(".failures")
    assert failures.locator(".counter").inner_text().split() == ["3", "python"]
    assert "such as: ValueError: the scale is broken" in failures.inner_text()
    failures.locator(".counter").click()
    assert plain.url.endswith("?state=failed&error=python")
    assert failures.locator(".counter").get_attribute("aria-current") == "true"
    texts = plain.locator("table.items tbody tr").all_inner_texts()
    assert [text.split()[0] for text in texts] == ["7", "57", "107"]
    plain.goto(f"/runs/{run}/loops/each?state=failed&error=http")
    assert "No item is failed with the error http." in plain.locator(".empty").inner_text()


def test_failures_are_counted_while_the_loop_runs(page: Any, server: Server) -> None:
    text = STEADY.replace('door: "{{ workload.door }}"', "door: \"{{ 'bad%d' % iter.n }}\"")
    run = server.start(text, {"count": 20, "bad": 0})
    assert eventually(lambda: server.parts.engine.state(run).loops)
    page.goto(f"/runs/{run}/loops/each")
    is_live(page)
    assert page.locator(".failures").count() == 0
    server.steps.open("bad0")
    becomes(page, f"{COUNT.format(name='failed')} === '1'")
    becomes(page, "document.querySelector('.failures .counter')?.textContent.trim() === '1 python'")
    for number in range(20):
        server.steps.open(f"bad{number}")
    server.wait(run)


def test_items_that_are_being_read_are_not_taken_away(page: Any, server: Server) -> None:
    text = STEADY.replace('door: "{{ workload.door }}"', "door: \"{{ 'read%d' % iter.n }}\"")
    run = server.start(text, {"count": 20, "bad": -1})
    assert eventually(lambda: server.parts.engine.state(run).loops)
    page.goto(f"/runs/{run}/loops/each")
    is_live(page)
    page.locator("nav[aria-label='Items by state'] a").first.focus()
    page.evaluate("window.kept = document.activeElement")
    server.steps.open("read0")
    becomes(page, f"{COUNT.format(name='succeeded')} === '1'")
    page.wait_for_timeout(2500)  # longer than the table waits before it asks again
    assert page.evaluate("kept.isConnected && document.activeElement === kept")
    page.evaluate("document.activeElement.blur()")
    becomes(page, "document.querySelectorAll('table.items .look-done').length === 1")
    for number in range(20):
        server.steps.open(f"read{number}")
    server.wait(run)


def test_a_loop_is_stopped_with_a_reason_and_the_rest_is_redriven(
    page: Any, server: Server
) -> None:
    run = server.start(LOOP, {"count": 400, "door": "stop", "bad": -1})
    assert eventually(lambda: server.parts.engine.state(run).loops)
    page.goto(f"/runs/{run}/loops/each")
    assert page.get_by_role("button", name="Redrive").count() == 0  # it has not ended
    page.get_by_role("button", name="Take no new items").click()
    confirm(page, reason="the disk is full")
    page.get_by_text("The loop starts no new items").wait_for()
    assert "the disk is full" in page.locator("[data-stopped]").inner_text()
    assert page.get_by_role("button", name="Take no new items").count() == 0
    server.steps.open("stop")
    server.wait(run)
    page.get_by_role("button", name="Redrive what failed").click()
    confirm(page)
    page.get_by_text("redrives").wait_for()
    again = page.url.split("/runs/")[1].partition("?")[0]
    state = server.wait(again)
    assert [one.succeeded for one in state.looped.values()] == [400]


def test_a_window_that_makes_no_sense_is_refused_in_words(page: Any, server: Server) -> None:
    run = server.start(LOOP, {"count": 40, "door": "window", "bad": -1})
    assert eventually(lambda: server.parts.engine.state(run).loops)
    page.goto(f"/runs/{run}/loops/each")
    field = page.get_by_label("Shards at once")
    field.fill("0")
    page.get_by_role("button", name="Change").click()
    assert page.evaluate("document.querySelector('[name=window]').validity.rangeUnderflow")
    field.evaluate("one => one.form.noValidate = true")  # as another program might send it
    page.get_by_role("button", name="Change").click()
    assert "1 to 100,000" in page.locator("[role=alert]").inner_text()
    assert events_of(server, run, e.LoopTuned) == []
    server.steps.open("window")
    server.wait(run)

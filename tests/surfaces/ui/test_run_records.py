"""What a run leaves behind: its events, its timeline, input, output and definition."""

from __future__ import annotations

from typing import Any

from .plain import PlainPage
from .scenes import FAILING, is_live, shot
from .support import TWO_STEPS, Server, becomes, eventually, long_net

LANES = "document.querySelectorAll('#timeline .lane-name').length"
MARKS = "[...document.querySelectorAll('#timeline .axis-text')].map(one => one.textContent).join()"


def test_events_are_paged_filtered_and_appended_live(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "e1", "second": "e2"})
    page.goto(f"/runs/{run}/events")
    kinds = page.locator("#events tbody td:nth-child(3)")
    assert kinds.first.inner_text() == "run.started"
    server.steps.open("e1")
    server.steps.open("e2")
    becomes(page, "document.querySelector('#events tbody').textContent.includes('run.finished')")
    numbers = page.locator("#events tbody td:first-child").all_inner_texts()
    assert numbers == [str(number + 1) for number in range(len(numbers))]  # none twice, none lost
    page.get_by_label("Kind contains").fill("token.")
    page.get_by_role("button", name="Show").click()
    assert page.url.endswith("/events?kind=token.")
    assert {text.partition(".")[0] for text in kinds.all_inner_texts()} == {"token"}
    page.goto(f"/runs/{run}/events?after=3")
    assert page.locator("#events tbody td:first-child").first.inner_text() == "4"
    page.goto(f"/runs/{run}/events?kind=nothing")
    assert "No event of a kind with “nothing”" in page.locator(".empty").inner_text()


def test_a_filter_of_events_holds_for_those_that_are_appended(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "ef1", "second": "ef2"})
    page.goto(f"/runs/{run}/events?kind=token.finished")
    is_live(page)
    assert page.locator("#events tbody tr").count() == 0
    server.steps.open("ef1")
    server.steps.open("ef2")
    becomes(page, "document.querySelectorAll('#events tbody tr').length === 2")


def test_a_long_log_is_walked_forwards_backwards_and_from_its_end(
    plain: PlainPage, server: Server
) -> None:
    run = server.run(long_net(60))
    plain.goto(f"/runs/{run}/events")
    numbers = plain.locator("#events tbody td:first-child")
    assert numbers.count() == 100
    plain.get_by_role("link", name="Next").click()
    assert numbers.first.inner_text() == "101"
    plain.get_by_role("link", name="Previous").click()
    assert numbers.first.inner_text() == "1"
    plain.get_by_role("link", name="The last 100").click()
    last = server.parts.engine.state(run).seq
    assert numbers.last.inner_text() == str(last)


def test_the_timeline_draws_work_and_grows_while_it_goes_on(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "tl1", "second": "tl2"})
    page.goto(f"/runs/{run}/timeline")
    page.wait_for_selector("#timeline rect.seg-running")
    assert page.locator("#timeline .lane-name").all_text_contents()[0].startswith("dig")
    before = page.evaluate(MARKS)
    becomes(page, f"{MARKS} !== {before!r}")  # time goes on though nothing happens
    server.steps.open("tl1")
    becomes(page, f"{LANES} === 2")
    page.get_by_text("As a table").click()
    becomes(page, "document.querySelectorAll('#lanes tbody tr').length === 2")
    server.steps.open("tl2")
    becomes(page, "document.querySelectorAll('#timeline .lane-done').length === 2")
    becomes(page, "document.querySelectorAll('#lanes .look-done').length === 2")
    before = page.evaluate(MARKS)
    page.get_by_role("button", name="Zoom in").click()
    becomes(page, f"{MARKS} !== {before!r}")
    page.get_by_role("button", name="Whole").click()
    becomes(page, f"{MARKS} === {before!r}")


def test_tries_and_the_waits_between_them_are_bars_that_say_what_they_are(
    page: Any, server: Server
) -> None:
    run = server.run(FAILING.replace("delay: 1ms", "delay: 80ms"))
    page.goto(f"/runs/{run}/timeline")
    page.wait_for_selector("#timeline rect.seg-bad")
    assert page.locator("#timeline rect.seg-bad").count() == 3
    assert page.locator("#timeline rect.seg-retry").count() == 2
    assert page.locator("#timeline .lane-failed").text_content().startswith("✗ match")
    page.locator("#timeline rect.seg-bad").first.hover()
    becomes(page, "document.getElementById('picked').textContent.includes('statement is missing')")
    page.locator("#timeline").focus()
    page.keyboard.press("ArrowDown")
    becomes(page, "document.getElementById('picked').textContent.startsWith('fetch: done')")
    page.keyboard.press("ArrowDown")
    picked = page.locator("#picked")
    becomes(page, "document.getElementById('picked').textContent.startsWith('match: failed')")
    assert "3 tries" in picked.inner_text()
    assert "before a retry" in picked.inner_text()
    assert picked.get_attribute("role") == "status"  # a screen reader hears it
    becomes(page, "document.querySelectorAll('#timeline .picked-lane').length === 1")
    shot(page, "timeline-picked")


def test_a_long_timeline_is_scrolled_zoomed_and_moved_by_keys(page: Any, server: Server) -> None:
    run = server.run(long_net(260))
    page.goto(f"/runs/{run}/timeline")
    becomes(page, f"{LANES} > 5")
    drawn = page.evaluate(LANES)
    assert drawn < 60  # only what can be seen
    names = (
        "[...document.querySelectorAll('#timeline .lane-name')].map(x => x.firstChild.textContent)"
    )
    assert page.evaluate(f"{names}[0]") == "s60"  # the newest two hundred
    page.locator("#timeline").focus()
    page.keyboard.press("End")
    becomes(page, f"{names}.at(-1) === 's259'")
    for _ in range(4):
        page.keyboard.press("+")
    marks = page.evaluate(MARKS)
    page.keyboard.press("ArrowRight")
    becomes(page, f"{MARKS} !== {marks!r}")
    page.get_by_role("link", name="Older").click()
    becomes(page, f"{names}[0] === 's0'")


def test_input_output_and_context_are_shown_and_can_be_taken_whole(
    plain: PlainPage, server: Server
) -> None:
    server.steps.open("d")
    run = server.run(TWO_STEPS, {"first": "d", "second": "d"})
    plain.goto(f"/runs/{run}/data")
    assert '"first": "d"' in plain.locator("section[aria-labelledby=input] pre").inner_text()
    assert '"door": "d"' in plain.locator("section[aria-labelledby=output] pre").inner_text()
    plain.locator("details", has_text="dig").locator("summary").click()
    assert '"door": "d"' in plain.locator("details", has_text="dig").inner_text()
    whole = plain.request.get(f"/runs/{run}/data/result.json")
    assert whole.json() == {"door": "d"}
    assert "attachment" in whole.headers["content-disposition"]
    assert plain.locator("#patch").count() == 0  # it has ended


def test_the_definition_is_the_version_that_ran(plain: PlainPage, server: Server) -> None:
    server.steps.open("v")
    first = server.run(TWO_STEPS, {"first": "v", "second": "v"})
    second = server.run(
        TWO_STEPS.replace("Two steps that wait", "Two steps that still wait"),
        {"first": "v", "second": "v"},
    )
    for run, words in ((first, "steps that wait"), (second, "steps that still wait")):
        plain.goto(f"/runs/{run}/definition")
        assert words in plain.locator(".source tr#L4 td").inner_text()
    assert plain.locator(".source th").first.inner_text() == "1"


def test_large_values_are_cut_and_say_so(plain: PlainPage, server: Server) -> None:
    server.steps.open("big")
    text = TWO_STEPS.replace("workload: {", "workload: {more: '', ")
    run = server.run(text, {"first": "big", "second": "big", "more": "x" * 100_000})
    assert eventually(lambda: server.status(run) == "completed")
    plain.goto(f"/runs/{run}/data")
    section = plain.locator("section[aria-labelledby=input]")
    assert "The first 65,536 of 100," in section.inner_text()
    way = section.get_by_role("link", name="All of it").get_attribute("href")
    assert len(plain.request.get(way or "").json()["more"]) == 100_000

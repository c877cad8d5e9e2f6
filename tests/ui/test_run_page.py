"""One run in the browser: the graph moves, it says why it waits, and verbs do what they say."""

from __future__ import annotations

from typing import Any

from .support import ARTIFACTS, OPINIONS, RULES, TWO_STEPS, Server, becomes, eventually

LOOK = "document.querySelector('g.anb-box[data-step={step}]').classList.contains('anb-{look}')"


def looks(page: Any, step: str, look: str) -> None:
    becomes(page, LOOK.format(step=step, look=look))


def confirm(page: Any) -> None:
    page.locator("#confirm").get_by_role("button", name="Yes").click()


def test_the_graph_moves_while_the_run_runs_without_a_reload_or_a_new_layout(
    page: Any, server: Server
) -> None:
    run = server.start(TWO_STEPS, {"first": "g1", "second": "g2"})
    page.goto(f"/runs/{run}")
    looks(page, "dig", "active")
    looks(page, "fill", "plain")
    page.evaluate("window.stayed = document.querySelector('#graph g.anb-box[data-step=fill] rect')")
    place = page.evaluate("[stayed.getAttribute('x'), stayed.getAttribute('y')]")
    page.screenshot(path=str(_artifact("graph-1.png")))
    server.steps.open("g1")
    looks(page, "dig", "done")
    looks(page, "fill", "active")
    page.screenshot(path=str(_artifact("graph-2.png")))
    server.steps.open("g2")
    looks(page, "fill", "done")
    page.screenshot(path=str(_artifact("graph-3.png")))
    assert page.locator("#status .badge").inner_text() == "completed"
    assert page.locator("#said").inner_text() == "The run is completed."  # for screen readers
    assert page.locator("#steps tr[data-step=fill] .badge").inner_text() == "done"
    assert page.evaluate("stayed.isConnected")
    assert page.evaluate("[stayed.getAttribute('x'), stayed.getAttribute('y')]") == place
    assert page.locator("#why-section").is_hidden()
    assert page.get_by_role("button", name="Redrive").is_visible()


def _artifact(name: str) -> Any:
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    return ARTIFACTS / name


def test_a_join_is_drawn_with_its_rule_and_its_scope_and_says_when_it_closed(
    page: Any, server: Server
) -> None:
    run = server.run(OPINIONS, {"amount": 5}, rules=RULES)
    page.goto(f"/runs/{run}")
    becomes(page, "document.querySelector('.anb-join text').textContent.includes('✓')")
    assert "2 of 3" in page.locator(".anb-join").text_content()
    assert "ORDER: 2 of 3 · kill" in page.locator(".anb-frame").text_content()


def test_why_it_waits_is_on_every_page_of_an_unfinished_run(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "why", "second": "why"})
    for way in ("", "/timeline", "/events", "/joins", "/data", "/definition"):
        page.goto(f"/runs/{run}{way}")
        why = page.locator("[data-part=waits]")
        assert "dig" in why.inner_text()
        assert "waits for its work (attempt 1)" in why.inner_text()
    page.goto(f"/runs/{run}")
    page.get_by_role("button", name="Pause").click()
    confirm(page)
    becomes(page, "document.querySelector('[data-part=waits]').textContent.includes('paused')")
    server.steps.open("why")


def test_pause_resume_and_cancel_take_effect_and_say_so(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "v1", "second": "v2"})
    page.goto(f"/runs/{run}")
    page.get_by_role("button", name="Pause").click()
    confirm(page)
    page.get_by_text("Paused. Work that runs").wait_for()
    assert server.status(run) == "paused"
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("It goes on.").wait_for()
    assert server.status(run) == "running"
    page.get_by_role("button", name="Cancel").click()
    confirm(page)
    page.get_by_text("Cancelled.").first.wait_for()
    server.steps.open("v1")
    assert eventually(lambda: server.status(run) == "cancelled")
    becomes(page, "document.querySelector('#status .badge').textContent === 'cancelled'")
    server.steps.open("v2")
    page.get_by_role("button", name="Redrive").click()
    confirm(page)
    page.get_by_text("redrives").wait_for()
    again = page.url.split("/runs/")[1].partition("?")[0]
    assert again != run
    assert server.wait(again).status == "completed"


def test_a_verb_that_does_not_fit_says_why_and_changes_nothing(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "n", "second": "n"})
    page.goto(f"/runs/{run}")
    server.steps.open("n")
    server.wait(run)
    becomes(page, "document.querySelector('#status .badge').textContent === 'completed'")
    page.evaluate("document.querySelector('[data-when=unfinished]').hidden = false")  # too late
    page.get_by_role("button", name="Cancel").click()
    confirm(page)
    page.locator("[role=alert]").wait_for()
    assert "has ended" in page.locator("[role=alert]").inner_text()
    assert server.status(run) == "completed"


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
    assert {text.partition(".")[0] for text in kinds.all_inner_texts()} == {"token"}
    page.goto(f"/runs/{run}/events?after=3")
    assert page.locator("#events tbody td:first-child").first.inner_text() == "4"


def test_the_timeline_draws_work_and_grows_while_it_goes_on(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "tl1", "second": "tl2"})
    page.goto(f"/runs/{run}/timeline")
    page.wait_for_selector("#timeline rect.seg-running")
    assert page.locator("#timeline .lane-name").all_text_contents()[0].startswith("dig")
    server.steps.open("tl1")
    becomes(page, "document.querySelectorAll('#timeline .lane-name').length === 2")
    server.steps.open("tl2")
    becomes(page, "document.querySelectorAll('#timeline .lane-done').length === 2")
    marks = (
        "[...document.querySelectorAll('#timeline .axis-text')].map(one => one.textContent).join()"
    )
    before = page.evaluate(marks)
    page.get_by_role("button", name="Zoom in").click()
    becomes(page, f"{marks} !== {before!r}")
    page.get_by_text("As a table").click()
    becomes(page, "document.querySelectorAll('#lanes tbody tr').length === 2")


def test_input_output_and_the_definition_that_ran_are_shown(page: Any, server: Server) -> None:
    server.steps.open("d")
    run = server.run(TWO_STEPS, {"first": "d", "second": "d"})
    page.goto(f"/runs/{run}/data")
    assert '"first": "d"' in page.locator("section[aria-labelledby=input] pre").inner_text()
    assert '"door": "d"' in page.locator("section[aria-labelledby=output] pre").inner_text()
    whole = page.request.get(f"/runs/{run}/data/result.json")
    assert whole.json() == {"door": "d"}
    assert "attachment" in whole.headers["content-disposition"]
    page.goto(f"/runs/{run}/definition")
    assert page.locator(".source tr#L4 td").inner_text().startswith("metadata: {name: two_steps")
    assert page.locator(".source th").first.inner_text() == "1"

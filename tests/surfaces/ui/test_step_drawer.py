"""One step: a page of its own, a drawer beside the others, and what can be done there."""

from __future__ import annotations

from typing import Any

from anabranch.kernel import events as e

from .plain import PlainPage
from .scenes import FAILING, confirm, events_of, is_live, run_of, shot
from .support import ASKED, LOOP, TWO_FRAMES, TWO_STEPS, Server, becomes, eventually

#: Fails until it is mended, and waits an hour before it is tried again.
PATIENT = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: patient}
workload: {token: plain}
workflow:
  - step: fetch
    spec: {retry: {attempts: 5, delay: 1h}}
    tool: {kind: item, args: {n: 7, bad: 7, error: "the disk is full"}}
    next: {arcs: [{step: report}]}
  - step: report
    tool: {kind: noop, result: {fetched: "{{ fetch }}"}}
"""
#: The same, with nothing that mends it: it is skipped.
STUCK = PATIENT.replace("n: 7, bad: 7", "n: 8, bad: 8").replace("name: patient", "name: stuck")
LARGE = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: large}
workflow:
  - step: big
    tool: {kind: noop, result: "{{ 'x' * 90000 }}"}
"""
OPEN = "#drawer[open] #step-title"


def waits_for_retry(server: Server, text: str) -> str:
    run = server.start(text)
    assert eventually(lambda: events_of(server, run, e.JobRetrying))
    return run


def cards(page: Any) -> dict[str, str]:
    return {
        one.get_attribute("data-key"): one.inner_text()
        for one in page.locator(".step-page > [data-key], .drawer-cards > [data-key]").all()
    }


def test_the_page_of_a_step_says_everything_of_it_without_scripts(
    plain: PlainPage, server: Server
) -> None:
    page = plain
    run = server.run(FAILING)
    page.goto(f"/runs/{run}")
    page.locator("#steps tr[data-step=match] a").click()
    assert page.url.endswith(f"/runs/{run}/steps/match")
    found = cards(page)
    assert "Match payments with invoices" in found["head"]
    assert '"error": "the statement is missing"' in found["input"]
    assert "ended without a result" in found["output"]
    assert "ValueError: the statement is missing" in found["error"]
    assert "in item" in found["error"]  # the line of the user's code
    assert page.locator(".attempts tbody tr:not(.attempt-note)").count() == 3
    assert page.locator(".attempts").inner_text().count("engine") == 3
    marked = page.locator(".source tr.of-step td").all_inner_texts()
    assert marked[0].strip() == "- step: match"
    assert "report" in marked[-1]
    assert "  - step: report" in page.locator(".source").text_content()  # what is around it


def test_a_click_on_a_node_opens_its_step_and_escape_closes_it(page: Any, server: Server) -> None:
    run = server.run(FAILING)
    page.goto(f"/runs/{run}")
    page.locator("g.anb-box[data-step=match] rect").first.click()
    page.locator(OPEN).wait_for()
    assert page.locator(OPEN).inner_text().split()[0] == "match"
    becomes(page, "location.pathname.endsWith('/steps/match')")
    shot(page, "step-drawer")
    page.keyboard.press("Escape")
    becomes(page, "!document.getElementById('drawer').open")
    becomes(page, f"location.pathname.endsWith('/runs/{run}')")


def test_a_drag_of_the_graph_opens_nothing(page: Any, server: Server) -> None:
    run = server.run(FAILING)
    page.goto(f"/runs/{run}")
    box = page.locator("g.anb-box[data-step=match] rect").first.bounding_box()
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + 40, steps=4)
    page.mouse.up()
    page.evaluate(TWO_FRAMES)
    assert page.evaluate("document.getElementById('drawer').open") is False


def test_the_keyboard_opens_a_step_and_gets_its_place_back(page: Any, server: Server) -> None:
    run = server.run(FAILING)
    page.goto(f"/runs/{run}")
    for place in ("g.anb-box[data-step=match]", "#steps tr[data-step=match] a"):
        page.locator(place).focus()
        page.keyboard.press("Enter")
        page.locator(OPEN).wait_for()
        assert page.evaluate("document.getElementById('drawer').contains(document.activeElement)")
        page.keyboard.press("Escape")
        becomes(page, f"document.activeElement === document.querySelector('{place}')")


def test_a_step_that_is_opened_at_once_after_another_stays(page: Any, server: Server) -> None:
    """That the first was closed is told late on a busy machine."""
    run = server.run(FAILING)
    page.goto(f"/runs/{run}")
    page.locator("#steps tr[data-step=match] a").click()
    page.locator(OPEN).wait_for()
    page.evaluate("document.getElementById('drawer').dispatchEvent(new Event('close'))")
    assert page.locator(OPEN).inner_text() == "match failed"
    assert page.url.endswith("/steps/match")


def test_bars_and_rows_of_the_timeline_open_their_step(page: Any, server: Server) -> None:
    run = server.run(FAILING)
    page.goto(f"/runs/{run}/timeline")
    page.wait_for_selector("#timeline rect.seg")
    page.locator("#timeline").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator(OPEN).wait_for()
    assert "match" in page.locator(OPEN).inner_text()
    page.keyboard.press("Escape")
    page.locator("#timeline rect.seg-running").first.click()
    becomes(
        page, "document.querySelector('#drawer[open] #step-title')?.textContent.includes('fetch')"
    )
    page.keyboard.press("Escape")
    page.get_by_text("As a table").click()
    page.locator("#lanes a", has_text="match").click()
    becomes(
        page, "document.querySelector('#drawer[open] #step-title')?.textContent.includes('match')"
    )


def test_a_step_is_skipped_with_a_result_and_a_wrong_one_changes_nothing(
    page: Any, server: Server
) -> None:
    run = waits_for_retry(server, STUCK)
    page.goto(f"/runs/{run}/steps/fetch")
    page.get_by_text("Skip it", exact=True).click()
    page.locator("#skip-result").fill('{"rows": ')
    page.get_by_role("button", name="Skip", exact=True).click()
    confirm(page)
    page.get_by_text("the result is not JSON").wait_for()
    assert server.status(run) == "running"
    page.goto(f"/runs/{run}/steps/fetch")
    page.get_by_text("Skip it", exact=True).click()
    page.locator("#skip-result").fill('{"rows": 3}')
    page.locator("#skip-reason").fill("taken from the paper")
    page.get_by_role("button", name="Skip", exact=True).click()
    confirm(page)
    page.get_by_text("Skipped. Its work").wait_for()
    state = server.wait(run)
    assert (state.status, state.results["fetch"]) == ("completed", {"rows": 3})
    becomes(page, "document.body.textContent.includes('skipped with a result by local')")


def test_a_question_is_answered_where_it_is_asked(page: Any, server: Server) -> None:
    run = server.run(ASKED)
    page.goto(f"/runs/{run}")
    page.locator("#steps tr[data-step=approve] a").click()
    page.locator(OPEN).wait_for()
    assert "Pay the bill?" in cards(page)["can"]
    page.locator("#step-decide").get_by_role("button", name="Approve").click()
    page.get_by_text("Approved.").wait_for()
    assert server.wait(run).status == "completed"


def test_a_run_is_done_again_from_a_step(plain: PlainPage, server: Server) -> None:
    server.steps.open("again1")
    server.steps.open("again2")
    run = server.run(TWO_STEPS, {"first": "again1", "second": "again2"})
    plain.goto(f"/runs/{run}/steps/fill")
    plain.get_by_role("link", name="What would it redo?").click()
    assert "it was asked for" in plain.locator("#runs-again").inner_text()
    assert "dig" in plain.locator("#reused").inner_text()
    plain.goto(f"/runs/{run}/steps/fill")
    plain.get_by_role("button", name="Rerun from here").click()
    plain.get_by_text("redrives").wait_for()
    again = run_of(plain)
    server.wait(again)
    assert [one.token for one in events_of(server, again, e.JobReused)] == [1]
    assert len(events_of(server, again, e.JobScheduled)) == 1


def test_the_drawer_follows_the_run(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "follow", "second": "never2"})
    page.goto(f"/runs/{run}")
    is_live(page)
    page.locator("#steps tr[data-step=dig] a").click()
    page.locator(OPEN).wait_for()
    becomes(page, "document.querySelector('[data-key=waits]')?.textContent.includes('At work')")
    server.steps.open("follow")
    becomes(page, "document.querySelector('#step-title .badge').textContent === 'done'")
    becomes(page, "document.querySelector('[data-key=output]').textContent.includes('follow')")


def test_a_large_value_is_cut_and_the_whole_of_it_is_a_link_away(
    plain: PlainPage, server: Server
) -> None:
    run = server.run(LARGE)
    plain.goto(f"/runs/{run}/steps/big")
    card = plain.locator("[data-key=output]")
    assert len(card.locator("pre").inner_text()) < 70_000
    whole = plain.request.get(
        card.get_by_role("link", name="All of it").get_attribute("href") or ""
    )
    assert "attachment" in whole.headers["content-disposition"]
    assert len(whole.text()) == 90_002


def test_a_loop_leads_to_its_items(plain: PlainPage, server: Server) -> None:
    run = server.run(LOOP, {"count": 60})
    plain.goto(f"/runs/{run}/steps/each")
    plain.get_by_role("link", name="Items of its loop").click()
    assert "/loops/" in plain.url


def test_a_step_that_is_not_there_says_so(plain: PlainPage, server: Server) -> None:
    run = server.run(FAILING)
    answer = plain.goto(f"/runs/{run}/steps/mach")
    assert answer.status == 404
    assert "did you mean" in plain.content()
    assert plain.goto(f"/runs/{run}/steps/match?token=x").status == 422
    assert plain.goto(f"/runs/{run}/steps/match?token=999").status == 404


#: The last one: nothing fails any more on this server once its work is mended.
def test_retry_now_ends_the_wait_and_is_recorded_with_its_reason(page: Any, server: Server) -> None:
    run = waits_for_retry(server, PATIENT)
    page.goto(f"/runs/{run}")
    becomes(page, "document.querySelector('g[data-step=fetch]').dataset.status === 'retrying'")
    page.locator("#steps tr[data-step=fetch] a").click()
    page.locator(OPEN).wait_for()
    assert "its next try (attempt 2)" in cards(page)["waits"]
    server.steps.open("mended")
    page.get_by_role("button", name="Retry now").click()
    confirm(page, reason="there is room again")
    page.get_by_text("The next try starts now.").wait_for()
    assert server.wait(run).status == "completed"
    (said,) = events_of(server, run, e.TokenRetriedNow)
    assert (said.actor, said.reason) == ("local", "there is room again")
    page.goto(f"/runs/{run}/steps/fetch")
    assert "retried now by local: there is room again" in cards(page)["said"]
    assert page.get_by_role("button", name="Retry now").count() == 0


#: One of each kind that fails, each with details of its own.
FAILURES = {
    "artifact": "{kind: artifact, action: get, result_ref: 'anabranch:run:none/step/none'}",
    "duckdb": "{kind: duckdb, query: 'select * from nowhere'}",
    "http": "{kind: http, url: 'http://127.0.0.1:1/'}",
    "noop": "{kind: noop, result: '{{ nowhere.at_all }}'}",
    "playbook": "{kind: playbook, path: '{{ workload.path }}', return_step: end}",
    "postgres": "{kind: postgres, dsn: 'postgresql://127.0.0.1:1/x', query: 'select 1'}",
    "python": "{kind: python, code: 'raise ValueError(5)'}",
    "shell": "{kind: shell, command: 'echo said; echo no >&2; exit 3'}",
    "sqlite": "{kind: sqlite, database: ':memory:', query: 'select * from nowhere'}",
    "wait": "{kind: wait, event: never, timeout: 1ms}",
}


def test_every_page_shows_the_failure_of_every_kind(plain: PlainPage, server: Server) -> None:
    for kind, tool in FAILURES.items():
        head = "{apiVersion: noetl.io/v2, kind: Playbook, metadata: {name: failing}"
        head += ", workload: {path: no/such/playbook}"
        run = server.run(f"{head}, workflow: [{{step: fails, tool: {tool}}}]}}")
        for way in ("", "/steps/fails", "/timeline", "/events", "/data", "/definition"):
            assert plain.goto(f"/runs/{run}{way}").status == 200, (kind, way)
        plain.goto(f"/runs/{run}/steps/fails")
        assert plain.locator("[data-key=error] .said").inner_text(), kind

"""The overview, and what the list of runs says at a glance: searches, reasons, bars, views."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from anabranch.kernel import stimuli as s

from .plain import PlainPage
from .scenes import FAILING, is_live, shot
from .support import ASKED, HELD, TWO_STEPS, Server, becomes, eventually

POOLED = TWO_STEPS.replace("step: dig\n", "step: dig\n    spec: {pool: glance}\n")
LONG = "x" * 10_000
ESCAPES = "<script>alert(1)</script>"


def rows(page: Any) -> list[str]:
    if isinstance(page, PlainPage):
        return page.rows("table.runs tbody tr", "data-run")
    found: list[str] = page.locator("table.runs tbody tr").evaluate_all(
        "rows => rows.map(row => row.dataset.run)"
    )
    return found


def test_a_search_finds_runs_by_part_of_id_name_label_and_error(
    page: Any, plain: PlainPage, server: Server
) -> None:
    label = {"order": "glance-4711"}
    failed = server.run(FAILING, {"error": "the ledger of Basel is closed"}, labels=label)
    held = server.run(HELD, labels=label)
    page.goto("/runs?label=order%3Dglance-4711")
    page.get_by_label("Search").fill("LEDGER basel")
    page.get_by_role("button", name="Filter").click()
    assert "search=LEDGER+basel" in page.url
    assert rows(page) == [failed]
    for text, expected in (
        ("order=glance-47", [held, failed]),
        (f"{held[4:]}", [held]),
        ("glance-4711 failing", [failed]),
        ("glance-4711 100%", []),
        (f"glance-4711 {ESCAPES}", []),
    ):
        plain.goto(f"/runs?search={quote(text)}")
        assert rows(plain) == expected, text
        assert plain.get_by_label("Search").input_value() == text


def test_a_search_that_cannot_be_is_refused_with_its_reason(
    plain: PlainPage, server: Server
) -> None:
    for query in (LONG[:1000], "a " * 9, "a%00b", "%1b[31m"):
        plain.goto(f"/runs?search={query}")
        assert "a search" in plain.locator("[role=alert]").inner_text()
    assert server.status(server.run(HELD)) == "waiting"


def test_the_reason_stands_in_the_list_and_moves_with_the_run(page: Any, server: Server) -> None:
    label = {"why": "here"}
    failed = server.run(FAILING, {"error": "no such account"}, labels=label)
    asked = server.run(ASKED, labels=label)
    page.goto("/runs?label=why%3Dhere")
    reason = "tr[data-run='%s'] [data-label=Reason]"
    assert page.locator(reason % failed).inner_text() == "match: ValueError: no such account"
    assert "waits for a decision" in page.locator(reason % asked).inner_text()
    shot(page, "runs_reasons")
    is_live(page)
    server.call(server.parts.verbs.send(asked, s.Pause("kim", "lunch")))
    becomes(page, f"document.querySelector(\"{reason % asked}\").textContent.includes('resume')")


def test_bars_over_time_lead_to_the_runs_that_they_stand_for(
    plain: PlainPage, server: Server
) -> None:
    label = {"bars": "yes"}
    found = {server.run(FAILING, labels=label), server.run(HELD, labels=label)}
    plain.goto("/runs?label=bars%3Dyes&age=1h")
    words = " ".join(plain.rows(".histogram a", "aria-label"))
    assert "1 failed" in words
    assert "1 waiting" in words
    seen: set[str] = set()
    for way in plain.rows(".histogram a", "href"):
        plain.goto(way)
        assert "label=bars%3Dyes" in plain.url
        seen |= set(rows(plain))
    assert seen == found
    for odd in ("from=0001-01-01T00:00", "to=9999-12-31T23:59", "from=2030-01-01&to=2020-01-01"):
        plain.goto(f"/runs?{odd}")
        assert plain.locator("h1").inner_text() == "Runs"


def test_a_view_is_saved_opened_and_deleted(page: Any, server: Server) -> None:
    run = server.run(FAILING, labels={"view": "one"})
    page.goto("/runs")
    assert page.get_by_label("Save this view as").count() == 0  # there is nothing to save
    page.goto("/runs?status=failed&label=view%3Done")
    page.get_by_label("Save this view as").fill("Broken <b>ones</b>")
    page.get_by_role("button", name="Save", exact=True).click()
    assert "Saved" in page.locator(".note").first.inner_text()
    page.goto("/runs")
    page.get_by_role("link", name="Broken <b>ones</b>").click()
    page.wait_for_load_state("load")
    assert rows(page) == [run]
    assert page.locator(".views a[aria-current]").inner_text() == "Broken <b>ones</b>"
    shot(page, "runs_views")
    page.get_by_role("button", name="Delete the view Broken").click()
    page.get_by_role("button", name="Yes, delete").click()
    page.wait_for_load_state("load")
    becomes(page, "document.querySelectorAll('.views li').length === 0")
    assert server.status(run) == "failed"


def test_the_overview_is_the_first_page_and_counts_what_happened(
    plain: PlainPage, server: Server
) -> None:
    failed = server.run(FAILING)
    asked = server.run(ASKED)
    plain.goto("/")
    assert plain.url.endswith("/overview")
    row = plain.locator("[data-key=definitions] tr", has_text="failing").first
    assert "100.0 %" in row.inner_text()
    waits = plain.locator("[data-key=oldest]").inner_text()
    assert "waits for" in waits
    assert "checks" in plain.locator("[data-key=health]").inner_text()
    row.get_by_role("link").click()
    assert "name=failing" in plain.url
    assert failed in rows(plain)
    plain.goto("/overview?window=1h")
    assert plain.locator(".windows [aria-current]").inner_text() == "The last hour"
    tile = plain.locator("[data-key=tiles]").inner_text()
    assert re.search(r"Began\s+[\d,]+", tile)
    assert server.status(asked) == "waiting"


def test_the_overview_shows_pools_with_their_queues_and_moves(page: Any, server: Server) -> None:
    page.clock.install()
    page.goto("/overview")
    server.start(POOLED)

    def asks_again_and_shows(key: str, text: str) -> bool:
        """What takes a busy server long to count is kept for a while."""
        page.clock.run_for(11_000)
        return text in page.locator(f"[data-key={key}]").inner_text()

    assert eventually(lambda: asks_again_and_shows("pools", "glance"))
    row = page.locator("[data-key=pools] tr", has_text="glance")
    assert row.locator("[data-label=Waiting]").inner_text() == "1"
    assert eventually(lambda: asks_again_and_shows("oldest", "a worker of pool glance"))
    shot(page, "overview_pools")


def test_a_window_that_is_none_is_refused(plain: PlainPage) -> None:
    for window in ("2h", "24h%00", LONG[:500]):
        plain.goto(f"/overview?window={window}")
        said = plain.locator("[role=alert]").inner_text()
        assert "a window is one of 1h, 24h, 7d, 30d" in said, window


def test_the_list_still_moves_beside_its_bars(page: Any, server: Server) -> None:
    page.goto("/runs?label=moves%3Dyes")
    is_live(page)
    server.run(HELD, labels={"moves": "yes"})
    becomes(page, "!document.getElementById('newer').hidden")

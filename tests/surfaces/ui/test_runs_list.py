"""The list of runs: filters live in the address, counters and rows move, keys are enough."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .plain import PlainPage
from .scenes import is_live, shot
from .support import HELD, OPINIONS, RULES, TWO_STEPS, Server, becomes

#: How many is the matter of `test_live.py`: the start of one before it may be told after it.
NEW_RUNS = re.compile("new runs? (has|have) started: show")


def rows(page: Any) -> list[str]:
    if isinstance(page, PlainPage):
        return page.rows("table.runs tbody tr", "data-run")
    found: list[str] = page.locator("table.runs tbody tr").evaluate_all(
        "rows => rows.map(row => row.dataset.run)"
    )
    return found


def test_filters_stand_in_the_address_and_narrow_the_list(
    page: Any, plain: PlainPage, server: Server
) -> None:
    server.steps.open("f")
    red = server.run(TWO_STEPS, {"first": "f", "second": "f"}, labels={"team": "red"})
    blue = server.run(HELD, labels={"team": "blue"})
    page.goto("/runs")
    page.get_by_label("Label").fill("team=red")
    page.get_by_role("button", name="Filter").click()
    assert page.url.endswith("/runs?label=team%3Dred")  # what is empty does not stand there
    assert rows(page) == [red]
    plain.goto("/runs?status=waiting&label=team%3Dblue")
    assert rows(plain) == [blue]
    plain.goto("/runs?name=two_steps&dialect=noetl&from=2020-01-01T00:00&label=team%3Dred")
    assert rows(plain) == [red]
    plain.goto("/runs?age=1h&label=team%3Dred")
    assert rows(plain) == [red]
    plain.goto("/runs?label=nonsense")
    assert "KEY=VALUE" in plain.locator("[role=alert]").inner_text()
    plain.goto("/runs?age=soon")
    assert "1h, 24h" in plain.locator("[role=alert]").inner_text()


def test_the_form_shows_what_the_address_says_and_keeps_it(
    plain: PlainPage, server: Server
) -> None:
    session = server.run(OPINIONS, {"amount": 5}, rules=RULES, labels={"shape": "round"})
    server.run(HELD, labels={"shape": "round"})
    plain.goto("/runs?label=shape%3Dround&status=completed&dialect=xrc729&age=24h")
    assert plain.get_by_label("Dialect").input_value() == "xrc729"
    assert plain.get_by_label("Started").input_value() == "24h"
    assert (
        plain.get_by_label("Labels that are filtered by").inner_text().split()[0] == "shape=round"
    )
    plain.get_by_label("Name").fill("opinions")
    plain.get_by_role("button", name="Filter").click()
    for part in ("label=shape%3Dround", "status=completed", "age=24h", "name=opinions"):
        assert part in plain.url
    assert rows(plain) == [session]


def test_several_labels_are_added_and_taken_away_one_by_one(
    plain: PlainPage, server: Server
) -> None:
    both = server.run(HELD, labels={"a": "1", "b": "x y"})
    one = server.run(HELD, labels={"a": "1"})
    plain.goto("/runs?label=a%3D1")
    assert rows(plain) == [one, both]
    plain.locator(f'tr[data-run="{both}"]').get_by_role("link", name="b=x y").click()
    assert rows(plain) == [both]
    plain.get_by_role("link", name="No longer filter by a=1").click()
    assert plain.url.endswith("/runs?label=b%3Dx+y")
    assert rows(plain) == [both]


def test_counters_choose_several_statuses_and_let_them_go_again(
    plain: PlainPage, server: Server
) -> None:
    server.steps.open("s")
    done = server.run(TWO_STEPS, {"first": "s", "second": "s"}, labels={"kind": "status"})
    waits = server.run(HELD, labels={"kind": "status"})
    plain.goto("/runs?label=kind%3Dstatus")
    counters = plain.locator("#counters")
    counters.get_by_role("link", name="completed").click()
    assert rows(plain) == [done]
    counters.get_by_role("link", name="waiting").click()
    assert rows(plain) == [waits, done]
    chosen = counters.locator("[aria-current]").all_inner_texts()
    assert [text.split()[-1] for text in chosen] == ["waiting", "completed"]
    counters.get_by_role("link", name="completed").click()
    assert rows(plain) == [waits]
    counters.get_by_role("link", name="all").click()
    assert plain.url.endswith("/runs?label=kind%3Dstatus")


def test_pages_of_the_list_do_not_repeat_or_lose_a_run(plain: PlainPage, server: Server) -> None:
    server.steps.open("p")
    made = {
        server.run(TWO_STEPS, {"first": "p", "second": "p"}, labels={"batch": "many"})
        for _ in range(60)
    }
    plain.goto("/runs?label=batch%3Dmany")
    first = rows(plain)
    plain.get_by_role("link", name="Older").click()
    second = rows(plain)
    assert len(first) == 50
    assert {*first, *second} == made
    assert not set(first) & set(second)
    plain.get_by_role("link", name="Newest").click()
    assert rows(plain) == first


def test_counters_and_rows_move_while_one_looks(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "move", "second": "move"}, labels={"live": "yes"})
    page.goto("/runs?label=live%3Dyes")
    row = page.locator(f'tr[data-run="{run}"]')
    assert row.locator(".badge").inner_text() == "running"
    is_live(page)
    before = int(page.locator('[data-count="completed"]').inner_text())
    server.steps.open("move")
    here = f"document.querySelector('tr[data-run=\"{run}\"] %s')"
    becomes(page, f"{here % '.badge'}.textContent === 'completed'")
    becomes(
        page,
        f"Number(document.querySelector('[data-count=completed]').textContent) === {before + 1}",
    )
    state = server.wait(run)
    assert row.locator("[data-events]").inner_text() == str(state.seq)
    took = row.locator("[data-took]").inner_text()
    page.wait_for_timeout(1500)
    assert row.locator("[data-took]").inner_text() == took  # it has ended: the clock stands


def test_new_runs_are_offered_and_do_not_make_the_list_jump(page: Any, server: Server) -> None:
    server.run(HELD, labels={"new": "yes"})
    page.goto("/runs?label=new%3Dyes")
    is_live(page)
    before = rows(page)
    newer = server.run(HELD, labels={"new": "yes"})
    offer = page.get_by_role("link", name=NEW_RUNS)
    offer.wait_for()
    assert rows(page) == before
    offer.click()
    assert rows(page) == [newer, *before]  # with the filter that was chosen


def test_ticks_are_set_by_keys_alone_and_verbs_come_with_them(page: Any, server: Server) -> None:
    for _ in range(4):  # some may begin in one millisecond: in which order they stand is open
        server.run(HELD, labels={"keys": "yes"})
    page.goto("/runs?label=keys%3Dyes")
    runs = rows(page)
    assert page.locator("#actions").is_hidden()  # nothing is ticked
    page.get_by_label(f"Tick {runs[0]}").focus()
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowDown")  # takes the next one along
    page.keyboard.press("ArrowDown")  # passes this one by
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    ticked = page.locator('input[name="run"]:checked').evaluate_all("all => all.map(x => x.value)")
    assert ticked == [runs[0], runs[1], runs[3]]
    assert page.locator("#ticked").inner_text() == "3 ticked"
    reached = ""
    for _ in range(20):
        page.keyboard.press("Tab")
        reached = page.evaluate("document.activeElement.textContent")
        if reached == "Pause…":
            break
    assert reached == "Pause…"
    shot(page, "runs-ticked")


def test_a_range_is_ticked_with_shift_and_all_with_one_click(page: Any, server: Server) -> None:
    for _ in range(5):  # some may begin in one millisecond: in which order they stand is open
        server.run(HELD, labels={"range": "yes"})
    page.goto("/runs?label=range%3Dyes")
    boxes = page.locator("table.runs tbody").get_by_role("checkbox")
    boxes.nth(1).click()
    boxes.nth(3).click(modifiers=["Shift"])
    assert page.locator("#ticked").inner_text() == "3 ticked"
    page.get_by_label("Tick all runs on this page").check()
    assert page.locator("#ticked").inner_text() == "5 ticked"


def test_an_empty_list_says_what_can_be_done(browser: Any, tmp_path: Path) -> None:
    with Server(tmp_path) as fresh:
        context = browser.new_context(base_url=fresh.url)
        page = context.new_page()
        page.goto("/runs")
        assert "There is no run yet." in page.locator(".empty").inner_text()
        page.get_by_role("link", name="Start one").click()
        page.wait_for_url("**/definitions")
        page.goto("/runs?status=failed")
        assert "No run fits these filters." in page.locator(".empty").inner_text()
        is_live(page)
        fresh.run(HELD)
        page.wait_for_selector("#newer:not([hidden])")  # also an empty page hears of it
        page.get_by_role("link", name="Show all runs").click()
        assert page.locator("table.runs tbody tr").count() == 1
        context.close()


def test_a_bad_address_is_answered_in_words(plain: PlainPage) -> None:
    for bad in ("before=x", "from=yesterday", "to=1e99", "from=9999-99-99T00:00"):
        plain.goto(f"/runs?{bad}")
        assert plain.locator("[role=alert]").inner_text(), bad

"""The list of runs: filters live in the address, counters move, and verbs reach what is ticked."""

from __future__ import annotations

from typing import Any

from .support import HELD, TWO_STEPS, Server, becomes, eventually


def rows(page: Any) -> list[str]:
    found: list[str] = page.locator("table.runs tbody tr").evaluate_all(
        "rows => rows.map(row => row.dataset.run)"
    )
    return found


def confirm(page: Any, answer: str = "Yes") -> None:
    page.locator("#confirm").get_by_role("button", name=answer).click()


def test_filters_stand_in_the_address_and_narrow_the_list(page: Any, server: Server) -> None:
    server.steps.open("f")
    red = server.run(TWO_STEPS, {"first": "f", "second": "f"}, labels={"team": "red"})
    blue = server.run(HELD, labels={"team": "blue"})
    page.goto("/runs")
    page.get_by_label("Label").fill("team=red")
    page.get_by_role("button", name="Filter").click()
    assert "label=team%3Dred" in page.url
    assert rows(page) == [red]
    page.goto("/runs?status=waiting&label=team%3Dblue")
    assert rows(page) == [blue]
    page.goto("/runs?name=two_steps&dialect=noetl&from=2020-01-01T00:00&label=team%3Dred")
    assert rows(page) == [red]
    page.goto("/runs?to=2020-01-01T00:00")
    assert page.locator(".empty").inner_text() == "No run fits these filters."
    page.goto("/runs?label=nonsense")
    assert "KEY=VALUE" in page.locator("[role=alert]").inner_text()


def test_pages_of_the_list_do_not_repeat_or_lose_a_run(page: Any, server: Server) -> None:
    server.steps.open("p")
    made = {
        server.run(TWO_STEPS, {"first": "p", "second": "p"}, labels={"batch": "many"})
        for _ in range(60)
    }
    page.goto("/runs?label=batch%3Dmany")
    first = rows(page)
    page.get_by_role("link", name="Older").click()
    second = rows(page)
    assert len(first) == 50
    assert {*first, *second} == made
    assert not set(first) & set(second)


def test_counters_and_statuses_move_while_one_looks(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "move", "second": "move"})
    page.goto("/runs")
    row = page.locator(f'tr[data-run="{run}"]')
    assert row.locator(".badge").inner_text() == "running"
    page.wait_for_selector("#live-state:not([hidden])")
    before = int(page.locator('[data-count="completed"]').inner_text())
    server.steps.open("move")
    becomes(
        page, f"document.querySelector('tr[data-run=\"{run}\"] .badge').textContent === 'completed'"
    )
    becomes(
        page,
        f"Number(document.querySelector('[data-count=completed]').textContent) === {before + 1}",
    )
    server.run(HELD)
    page.wait_for_selector("#newer:not([hidden])")


def test_ticked_runs_are_paused_resumed_and_cancelled_after_a_question(
    page: Any, server: Server
) -> None:
    runs = [server.start(TWO_STEPS, {"first": "t", "second": "t"}) for _ in range(3)]
    chosen = runs[:2]

    def tick_and(verb: str, answer: str = "Yes") -> None:
        page.goto("/runs")
        for run in chosen:
            page.get_by_label(f"Tick {run}").check()
        assert page.locator("#ticked").inner_text() == "2 ticked"
        page.get_by_label("Reason").fill("a test")
        page.get_by_role("button", name=verb).click()
        confirm(page, answer)

    page.goto("/runs")
    assert page.get_by_role("button", name="Pause").is_disabled()  # nothing is ticked
    tick_and("Pause", "No")
    assert page.url.endswith("/runs")
    assert {server.status(run) for run in runs} == {"running"}
    tick_and("Pause")
    page.get_by_text("2 of 2 done.").wait_for()
    assert [server.status(run) for run in runs] == ["paused", "paused", "running"]
    tick_and("Resume")
    page.get_by_text("2 of 2 done.").wait_for()
    assert {server.status(run) for run in runs} == {"running"}
    tick_and("Redrive")  # they have not ended: each says so
    page.get_by_text("0 of 2 done.").wait_for()
    assert page.get_by_text("has not ended").count() == 2
    tick_and("Cancel")
    page.get_by_text("2 of 2 done.").wait_for()
    server.steps.open("t")
    assert eventually(lambda: {server.status(run) for run in chosen} == {"cancelled"})
    assert server.wait(runs[2]).status == "completed"
    tick_and("Redrive")
    page.get_by_text("2 of 2 done.").wait_for()
    links = page.locator("td[data-label=Outcome] a.id").all_inner_texts()
    assert len(links) == 2
    assert [server.wait(run).status for run in links] == ["completed", "completed"]

"""What can be done with a run from its page, and what failed runs say first."""

from __future__ import annotations

from typing import Any

from anabranch.kernel import events as e

from .plain import PlainPage
from .scenes import FAILING, HANDLED, confirm, events_of, is_live, run_of, shot
from .support import HELD, TWO_STEPS, Server, becomes, eventually

BADGE = "document.querySelector('#status .badge').textContent"


def test_pause_resume_and_cancel_take_effect_with_their_reasons(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "v1", "second": "v2"})
    page.goto(f"/runs/{run}")
    page.get_by_role("button", name="Pause", exact=True).click()
    assert page.evaluate("document.activeElement.id") == "confirm-why"
    confirm(page, reason="lunch")
    page.get_by_text("Paused. Running jobs").wait_for()
    assert server.status(run) == "paused"
    assert [(said.actor, said.reason) for said in events_of(server, run, e.RunPaused)] == [
        ("local", "lunch")
    ]
    becomes(page, "document.querySelector('[data-part=waits]').textContent.includes('lunch')")
    page.get_by_role("button", name="Resume", exact=True).click()
    page.get_by_text("It goes on.").wait_for()
    assert server.status(run) == "running"
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.locator("#confirm-why").fill("not needed")
    page.keyboard.press("Enter")  # means yes
    page.get_by_text("Cancelled.").first.wait_for()
    server.steps.open("v1")
    assert eventually(lambda: server.status(run) == "cancelled")
    becomes(page, f"{BADGE} === 'cancelled'")
    becomes(page, "document.getElementById('problem')?.textContent.includes('not needed')")
    server.steps.open("v2")
    page.get_by_role("button", name="Redrive").click()
    confirm(page)
    page.get_by_text("redrives").wait_for()
    again = run_of(page)
    assert again != run
    assert server.wait(again).status == "completed"
    page.goto(f"/runs/{run}")
    assert f"redriven by {again}" in page.locator(".facts").first.inner_text()
    page.get_by_role("button", name="Redrive again").first.click()
    assert f"Run {again} redrives this one already" in page.locator("#confirm").inner_text()
    confirm(page)
    page.get_by_text("redrives").wait_for()
    assert run_of(page) not in (run, again)
    page.goto("/runs?redriven=yes")
    assert "redriven" in page.locator(f'tr[data-run="{run}"]').inner_text()
    assert page.locator(f'tr[data-run="{again}"]').count() == 0


def test_no_and_escape_change_nothing_and_give_the_focus_back(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "no", "second": "no"})
    page.goto(f"/runs/{run}")
    for leave in ("No", "Escape"):
        page.get_by_role("button", name="Cancel", exact=True).focus()
        page.keyboard.press("Enter")
        page.locator("#confirm[open]").wait_for()
        shot(page, "question")
        if leave == "No":
            confirm(page, "No")
        else:
            page.keyboard.press("Escape")
        becomes(page, "document.activeElement.textContent === 'Cancel'")
    assert server.status(run) == "running"
    server.steps.open("no")


def test_a_verb_that_does_not_fit_says_why_and_changes_nothing(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "n", "second": "n"})
    page.goto(f"/runs/{run}")
    server.steps.open("n")
    server.wait(run)
    becomes(page, f"{BADGE} === 'completed'")
    becomes(page, "document.getElementById('live-state').hidden")
    page.evaluate(  # as somebody whose page has not heard of it yet
        "document.querySelector('[data-verb=cancel]').closest('[data-when]').hidden = false"
    )
    page.get_by_role("button", name="Cancel", exact=True).click()
    confirm(page)
    page.locator("[role=alert]").wait_for()
    assert "has ended" in page.locator("[role=alert]").inner_text()
    assert server.status(run) == "completed"


def test_a_patch_of_the_context_lets_a_held_step_go_on(plain: PlainPage, server: Server) -> None:
    run = server.run(HELD)
    plain.goto(f"/runs/{run}")
    plain.locator("[data-part=waits]").get_by_role("link", name="Patch the context").click()
    plain.get_by_label("What to write").fill('{"approved": true, "by": {"name": "kim"}}')
    plain.get_by_label("How").select_option("set")
    plain.get_by_role("button", name="Patch", exact=True).click()
    plain.get_by_text("Written to the context.").wait_for()
    state = server.wait(run)
    assert (state.status, state.ctx["by"]) == ("completed", {"name": "kim"})
    assert events_of(server, run, e.ContextPatched)[0].by == "local"


def test_a_patch_in_lines_reads_values_as_the_command_line_does(
    plain: PlainPage, server: Server
) -> None:
    run = server.run(HELD)
    plain.goto(f"/runs/{run}/data")
    plain.get_by_label("What to write").fill("count=3\n\nnames=[1, 2]\nword = plain words")
    plain.get_by_role("button", name="Patch", exact=True).click()
    plain.get_by_text("Written to the context.").wait_for()
    ctx = server.parts.engine.state(run).ctx
    assert (ctx["count"], ctx["names"], ctx["word"]) == (3, [1, 2], "plain words")
    plain.goto(f"/runs/{run}/data")
    for bad in ("nonsense", "{oops", "=1"):
        plain.get_by_label("What to write").fill(bad)
        plain.get_by_role("button", name="Patch", exact=True).click()
        assert plain.locator("[role=alert]").inner_text()
        plain.goto(f"/runs/{run}/data")
    assert server.parts.engine.state(run).ctx == ctx


def test_a_failed_run_says_first_which_step_failed_of_what_and_at_which_try(
    page: Any, server: Server
) -> None:
    run = server.run(FAILING)
    page.goto(f"/runs/{run}")
    card = page.locator("#problem")
    assert card.locator("h2").inner_text() == "Step match failed"
    said = card.inner_text()
    assert "the statement is missing" in said
    assert "attempt 3 of 3" in said
    assert page.get_by_role("button", name="Redrive").count() == 1
    above = "document.querySelector('#problem').getBoundingClientRect().top < innerHeight / 3"
    assert page.evaluate(above)
    shot(page, "failed")
    for way in ("/timeline", "/events", "/data"):
        page.goto(f"/runs/{run}{way}")
        assert "the statement is missing" in page.locator("#problem").inner_text()
    page.get_by_role("link", name="Show it in the graph").click()
    becomes(page, "document.querySelector('g.anb-sought')?.dataset.step === 'match'")
    server.steps.open("mended")
    page.locator("#problem").get_by_role("link", name="What would it redo?").click()
    page.get_by_role("heading", name="What a redrive would do").wait_for()
    assert "match it did not end well" in " ".join(page.locator("#runs-again").inner_text().split())
    assert page.locator("#reused tbody tr").count() > 0
    shot(page, "redrive")
    page.locator("#problem").get_by_role("button", name="Redrive").click()
    confirm(page)
    page.get_by_text("redrives").wait_for()
    assert server.wait(run_of(page)).status == "completed"
    server.steps.door("mended").clear()


def test_a_failure_appears_while_one_looks(page: Any, server: Server) -> None:
    run = server.start(FAILING, {"door": "appear"})
    page.goto(f"/runs/{run}")
    is_live(page)
    assert page.locator("#problem").count() == 0
    server.steps.open("appear")
    page.locator("#problem .said").get_by_text("the statement is missing").wait_for()
    becomes(page, f"{BADGE} === 'failed'")
    page.locator("#problem").get_by_role("button", name="Redrive").wait_for()


def test_a_failure_that_was_taken_care_of_is_told_without_alarm(page: Any, server: Server) -> None:
    run = server.run(HANDLED)
    page.goto(f"/runs/{run}")
    card = page.locator("#problem")
    assert card.locator("h2").inner_text() == "Step guess failed; the run took another way"
    assert "mild" in (card.get_attribute("class") or "")
    assert card.get_by_role("button").count() == 0
    assert page.locator(".verbs").get_by_role("button", name="Redrive").is_visible()

"""One verb over many runs: a page says what would happen, and only then it is done."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.surfaces.ui.pages import bulk

from .plain import PlainPage
from .scenes import events_of, shot
from .support import HELD, TWO_STEPS, Server, eventually
from .test_guard import Locked, locked, sign_in  # noqa: F401 - a fixture


def tick(page: Any, runs: list[str], verb: str, where: str = "/runs") -> None:
    page.goto(where)
    for run in runs:
        page.get_by_label(f"Tick {run}").check()
    if not isinstance(page, PlainPage):
        assert page.locator("#ticked").inner_text() == f"{len(runs)} ticked"
    page.get_by_role("button", name=f"{verb}…").click()
    page.get_by_role("heading", level=1, name=f"{verb} {len(runs)} run").wait_for()


def outcome(page: Any) -> str:
    text: str = page.locator("h1").inner_text()
    return text


def test_a_dry_run_comes_first_and_changes_nothing(page: Any, server: Server) -> None:
    live = server.start(TWO_STEPS, {"first": "dry", "second": "dry"})
    server.steps.open("over")
    ended = server.run(TWO_STEPS, {"first": "over", "second": "over"})
    tick(page, [live, ended], "Cancel")
    said = page.locator("form.asks").inner_text()
    assert "1 would be cancelled, 1 would be left alone. Nothing has been done yet." in said
    table = {row.split()[1]: row for row in page.locator("tbody tr").all_inner_texts()}
    assert "would be cancelled" in table[live]
    assert "the run has ended: completed" in table[ended]
    shot(page, "many-dry-run")
    page.get_by_role("link", name="Back, change nothing").click()
    assert page.url.endswith("/runs")
    assert server.status(live) == "running"
    server.steps.open("dry")


def test_ticked_runs_are_paused_resumed_cancelled_and_redriven(
    plain: PlainPage, server: Server
) -> None:
    runs = [server.start(TWO_STEPS, {"first": "t", "second": "t"}) for _ in range(3)]
    chosen = runs[:2]
    tick(plain, chosen, "Pause")
    plain.get_by_label("Reason, recorded in the log of each run").fill("a test of ours")
    plain.get_by_role("button", name="Pause 2 runs").click()
    plain.get_by_text("2 of 2 paused").wait_for()
    assert [server.status(run) for run in runs] == ["paused", "paused", "running"]
    assert {events_of(server, run, e.RunPaused)[0].reason for run in chosen} == {"a test of ours"}
    tick(plain, chosen, "Resume")
    plain.get_by_role("button", name="Resume 2 runs").click()
    plain.get_by_text("2 of 2 resumed").wait_for()
    assert {server.status(run) for run in runs} == {"running"}
    tick(plain, chosen, "Redrive")  # they have not ended: there is nothing to press
    assert plain.locator("form.asks button").count() == 0
    assert plain.get_by_text("the run has not ended").count() == 2
    tick(plain, chosen, "Cancel")
    plain.get_by_role("button", name="Cancel 2 runs").click()
    plain.get_by_text("2 of 2 cancelled").wait_for()
    server.steps.open("t")
    assert eventually(lambda: {server.status(run) for run in chosen} == {"cancelled"})
    assert server.wait(runs[2]).status == "completed"
    tick(plain, chosen, "Redrive")
    plain.get_by_role("button", name="Redrive 2 runs").click()
    plain.get_by_text("2 of 2 redriven").wait_for()
    links = plain.locator("td[data-label=Outcome] a.id").all_inner_texts()
    assert len(links) == 2
    assert [server.wait(run).status for run in links] == ["completed", "completed"]


def test_a_patch_of_several_runs_opens_their_gates(plain: PlainPage, server: Server) -> None:
    runs = [server.run(HELD) for _ in range(2)]
    tick(plain, runs, "Patch")
    plain.get_by_label("What to write").fill("approved=true\nnote=by hand")
    plain.get_by_role("button", name="Patch 2 runs").click()
    plain.get_by_text("2 of 2 patched").wait_for()
    states = [server.wait(run) for run in runs]
    assert {state.status for state in states} == {"completed"}
    assert states[0].ctx["note"] == "by hand"


def test_a_patch_that_cannot_be_read_changes_nothing(plain: PlainPage, server: Server) -> None:
    run = server.run(HELD)
    tick(plain, [run], "Patch")
    plain.get_by_label("What to write").fill("approved")
    plain.get_by_role("button", name="Patch 1 run").click()
    assert "KEY=VALUE" in plain.locator("[role=alert]").inner_text()
    assert server.status(run) == "waiting"


def test_deleting_takes_only_what_has_ended(plain: PlainPage, server: Server) -> None:
    server.steps.open("gone")
    ended = server.run(TWO_STEPS, {"first": "gone", "second": "gone"})
    held = server.run(HELD)
    tick(plain, [ended, held], "Delete")
    plain.get_by_role("button", name="Delete 1 run").click()
    assert outcome(plain) == "1 of 2 deleted"
    assert server.store.head(ended) is None
    assert server.status(held) == "waiting"
    tick(plain, [held], "Pause")
    plain.goto("/runs")
    assert plain.get_by_label(f"Tick {ended}").count() == 0


def test_all_that_fit_the_filter_are_reached_not_only_the_page(
    plain: PlainPage, server: Server
) -> None:
    runs = [server.run(HELD, labels={"batch": "all"}) for _ in range(60)]
    other = server.run(HELD, labels={"batch": "other"})
    plain.goto("/runs?label=batch%3Dall")
    plain.get_by_label("Tick all runs on this page").check()
    plain.get_by_label("all that fit the filter, not only this page").check()
    plain.get_by_role("button", name="Pause…").click()
    plain.get_by_role("heading", name="Pause 60 runs?").wait_for()
    assert "These are the runs that fit the filter." in plain.locator("main").inner_text()
    plain.get_by_role("button", name="Pause 60 runs").click()
    plain.get_by_text("60 of 60 paused").wait_for()
    assert {server.status(run) for run in runs} == {"paused"}
    assert server.status(other) == "waiting"
    plain.get_by_role("link", name="Back to the list").click()
    assert plain.url.endswith("/runs?label=batch%3Dall")


def test_very_many_are_done_in_portions_that_somebody_lets_go_on(
    page: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "AT_ONCE", 2)
    monkeypatch.setattr(bulk, "BUDGET_SECONDS", 0.0)
    runs = [server.run(HELD, labels={"batch": "slow"}) for _ in range(3)]
    page.goto("/runs?label=batch%3Dslow")
    page.get_by_label("Tick all").check()
    page.evaluate(  # the list is too short for the page to offer it
        "document.getElementById('many').insertAdjacentHTML("
        "'beforeend', '<input type=hidden name=which value=filter>')"
    )
    page.get_by_role("button", name="Pause…").click()
    assert outcome(page) == "Pause more than 2 runs?"
    page.get_by_role("button", name="Pause more than 2 runs").click()
    assert outcome(page) == "2 of 2 paused"
    page.get_by_role("button", name="Go on").click()
    assert outcome(page) == "1 of 1 paused"
    assert page.get_by_role("button", name="Go on").count() == 0
    assert {server.status(run) for run in runs} == {"paused"}


def test_a_run_that_is_gone_meanwhile_is_told_as_such(page: Any, server: Server) -> None:
    run = server.run(HELD)
    page.goto("/runs")
    page.get_by_label(f"Tick {run}").check()
    page.evaluate(f"document.querySelector('input[value=\"{run}\"]').value = 'nobody'")
    page.get_by_role("button", name="Pause…").click()
    assert "there is no such run any more" in page.locator("tbody").inner_text()
    assert page.locator("form.asks button").count() == 0


def test_only_who_administers_the_server_deletes(locked: Locked) -> None:  # noqa: F811
    run = locked.call(locked.server.parts.verbs.start(HELD))
    operator, _, _ = sign_in(locked, locked.token("op", "read", "operate"))
    form = {"csrf": operator.csrf("/runs"), "verb": "purge", "run": run, "sure": "yes"}
    status, text, _ = operator.ask("/runs", form)
    assert status == 403
    assert "admin" in text
    assert locked.server.parts.store.head(run) is not None
    assert "Delete…" not in operator.ask("/runs")[1]

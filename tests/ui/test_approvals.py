"""The inbox: a decision in the browser moves the run."""

from __future__ import annotations

from typing import Any

from anabranch.kernel import events as e
from anabranch.runtime.core import history

from .support import ASKED, HELD, Server


def decided(server: Server, run: str) -> list[e.GateDecided]:
    log = history(server.store.read(run))
    return [event for _, event in log if isinstance(event, e.GateDecided)]


def test_fulfilling_in_the_browser_lets_the_run_go_on(page: Any, server: Server) -> None:
    run = server.run(ASKED, {"amount": 77})
    page.goto("/runs")
    page.get_by_role("link", name="Approvals").click()
    card = page.locator(f'article[data-gate="{run}"]')
    assert "Pay the bill?" in card.inner_text()
    card.get_by_text("Input").click()
    assert '"amount": 77' in card.inner_text()
    card.get_by_label("Reason").fill("it is fine")
    card.get_by_label("Evidence").fill('{"ticket": 4711}')
    card.get_by_role("button", name="Fulfil").click()
    page.get_by_text("Fulfilled. The run goes on.").wait_for()
    assert server.wait(run).status == "completed"
    (said,) = decided(server, run)
    assert (said.verdict, said.actor, said.reason) == ("fulfil", "local", "it is fine")
    assert said.evidence == {"ticket": 4711}
    assert page.locator(f'article[data-gate="{run}"]').count() == 0


def test_a_rejection_needs_a_reason_which_is_recorded(page: Any, server: Server) -> None:
    run = server.run(ASKED)
    page.goto("/approvals")
    card = page.locator(f'article[data-gate="{run}"]')
    card.get_by_role("button", name="Reject").click()
    assert page.evaluate("document.activeElement.name") == "reason"  # the browser asks for it
    assert decided(server, run) == []
    card.get_by_label("Reason").fill("too much")
    card.get_by_role("button", name="Reject").click()
    page.get_by_text("Rejected.").wait_for()
    assert server.wait(run).status == "failed"
    assert decided(server, run)[0].reason == "too much"


def test_an_admission_that_holds_a_token_can_be_granted(page: Any, server: Server) -> None:
    run = server.run(HELD)
    page.goto("/approvals")
    card = page.locator(f'article[data-gate="{run}"]')
    assert "{{ ctx.approved }}" in card.inner_text()
    card.get_by_role("button", name="Fulfil").click()
    page.get_by_text("Fulfilled.").wait_for()
    assert server.wait(run).status == "completed"


def test_evidence_that_is_neither_words_nor_json_is_refused(page: Any, server: Server) -> None:
    run = server.run(ASKED)
    page.goto("/approvals")
    card = page.locator(f'article[data-gate="{run}"]')
    card.get_by_label("Evidence").fill("{oops")
    card.get_by_role("button", name="Fulfil").click()
    assert "neither plain words nor JSON" in page.locator("[role=alert]").inner_text()
    assert decided(server, run) == []


def test_a_new_question_is_announced_to_an_inbox_that_is_open(page: Any, server: Server) -> None:
    page.goto("/approvals")
    page.wait_for_selector("#live-state:not([hidden])")
    server.run(ASKED)
    page.wait_for_selector("#newer:not([hidden])")

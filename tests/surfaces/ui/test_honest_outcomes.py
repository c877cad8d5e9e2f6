"""What pages say of how things went: no more and no less than what happened."""

from __future__ import annotations

import json
from typing import Any

from .plain import PlainPage
from .scenes import HANDLED, is_live
from .support import LOOP, OPINIONS, RULES, TWO_STEPS, VALID, Server, becomes

POOLED = TWO_STEPS.replace("step: dig\n", "step: dig\n    spec: {pool: nobodys}\n")
#: Whatever comes of the first step, the second follows; only one of the two arrows is taken.
EITHER = json.dumps(
    {
        "id": "either",
        "structure": {
            "A": {
                "rule": "cm:xrc137:A",
                "onValid": {"spawns": ["B"]},
                "onInvalid": {"spawns": ["B"]},
            },
            "B": {"rule": "cm:xrc137:B"},
        },
    }
)
STATUS = "document.querySelector('g[data-step=%s]').dataset.status"


def test_a_rule_is_valid_or_invalid_on_its_node_and_in_the_table(page: Any, server: Server) -> None:
    run = server.run(OPINIONS, {"amount": 5}, rules=RULES)
    page.goto(f"/runs/{run}")
    becomes(page, f"{STATUS % 'A'} === 'valid' && {STATUS % 'B'} === 'invalid'")
    assert "invalid" in page.locator("#steps tr[data-step=B]").inner_text()
    page.goto("/sessions")
    row = page.locator(f"[data-key='{run}'] tr", has_text="invalid")
    assert row.count() == 1


def test_a_no_that_an_error_gave_says_so_and_counts_as_a_problem(page: Any, server: Server) -> None:
    run = server.run(OPINIONS, {"other": 5}, rules=RULES)
    assert server.status(run) == "completed"
    page.goto(f"/runs/{run}")
    becomes(page, f"{STATUS % 'ORDER'} === 'invalid by error'")
    assert page.locator("h1").inner_text().endswith("1 problem")
    page.goto(f"/runs/{run}/steps/ORDER")
    assert "inputs are missing: amount" in page.locator("[data-key=head]").inner_text()
    page.goto("/runs?name=opinions")
    assert "1 problem" in page.locator("tr", has_text=run).inner_text()


def test_failed_items_that_a_loop_tolerates_are_a_problem_of_a_completed_run(
    plain: PlainPage, server: Server
) -> None:
    run = server.run(LOOP, {"count": 60})
    plain.goto(f"/runs/{run}")
    assert "completed" in plain.locator("h1").inner_text()
    assert "1 problem" in plain.locator("h1").inner_text()
    handled = server.run(HANDLED)
    plain.goto(f"/runs/{handled}")
    assert "problem" not in plain.locator("h1").inner_text()  # it has a way of its own


def test_a_job_that_no_worker_has_is_queued(page: Any, server: Server) -> None:
    run = server.start(POOLED)
    page.goto(f"/runs/{run}")
    becomes(page, f"{STATUS % 'dig'} === 'queued'")
    page.locator("#steps tr[data-step=dig]", has_text="queued").wait_for()
    page.locator("#why", has_text="Why is it waiting?").wait_for()
    page.goto(f"/runs/{run}/timeline")
    page.get_by_text("As a table").click()
    page.locator("#lanes tbody tr", has_text="queued").wait_for()


def test_what_is_only_at_work_is_not_asked_why_it_waits(page: Any, server: Server) -> None:
    run = server.start(TWO_STEPS, {"first": "w1", "second": "w2"})
    page.goto(f"/runs/{run}")
    is_live(page)
    becomes(page, "document.getElementById('why').textContent === 'At work'")
    assert "waits for" not in page.locator("#why-section").inner_text()
    server.steps.open("w1")
    server.steps.open("w2")
    server.wait(run)


def test_of_two_arrows_that_lead_the_same_way_only_the_taken_one_is_drawn_so(
    page: Any, server: Server
) -> None:
    run = server.run(EITHER, {"amount": 5}, rules={"A": VALID, "B": VALID})
    page.goto(f"/runs/{run}")
    arrows = "[...document.querySelectorAll('g.anb-arrow[data-from=A][data-to=B]')]"
    becomes(page, f"{arrows}.some(one => one.classList.contains('anb-taken'))")
    taken = page.evaluate(
        f"{arrows}.map(one => [one.dataset.when, one.classList.contains('anb-taken')])"
    )
    assert sorted(taken) == [["invalid", False], ["valid", True]]

"""The inbox: a decision in the browser moves the run."""

from __future__ import annotations

from typing import Any

from anabranch.kernel import events as e
from anabranch.operations.runs.verbs import decision
from anabranch.runtime.live_run import history

from .plain import PlainPage
from .scenes import NAMED, is_live
from .support import ASKED, HELD, TWO_STEPS, Server, becomes
from .test_guard import Locked, locked  # noqa: F401 - a fixture


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
    card.get_by_role("button", name="Approve").click()
    page.get_by_text("Approved. The run continues.").wait_for()
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


def test_an_admission_that_holds_a_token_can_be_granted(plain: PlainPage, server: Server) -> None:
    run = server.run(HELD)
    plain.goto("/approvals")
    card = plain.locator(f'article[data-gate="{run}"]')
    assert "{{ ctx.approved }}" in card.inner_text()
    card.get_by_role("button", name="Approve").click()
    plain.get_by_text("Approved.").wait_for()
    assert server.wait(run).status == "completed"


def test_evidence_that_is_neither_words_nor_json_is_refused(
    plain: PlainPage, server: Server
) -> None:
    run = server.run(ASKED)
    plain.goto("/approvals")
    card = plain.locator(f'article[data-gate="{run}"]')
    card.get_by_label("Evidence").fill("{oops")
    card.get_by_role("button", name="Approve").click()
    assert "neither plain words nor JSON" in plain.locator("[role=alert]").inner_text()
    assert decided(server, run) == []


def test_a_new_question_is_announced_to_an_inbox_that_is_open(page: Any, server: Server) -> None:
    page.goto("/approvals")
    is_live(page)
    server.steps.open("quiet")
    server.run(TWO_STEPS, {"first": "quiet", "second": "quiet"})  # moves, and asks nothing
    run = server.run(ASKED)
    page.get_by_role("link", name="A new question: show it").click()
    page.locator(f'article[data-gate="{run}"]').wait_for()
    assert page.locator("#newer").is_hidden()


def test_on_this_machine_people_answer_by_a_name_that_may(plain: PlainPage, server: Server) -> None:
    run = server.run(NAMED)
    plain.goto("/approvals")
    card = plain.locator(f'article[data-gate="{run}"]')
    card.get_by_role("button", name="Approve").click()  # nobody was chosen: the browser asks
    assert decided(server, run) == []
    card.locator("[name=as]").select_option("sam")
    card.get_by_role("button", name="Approve").click()
    plain.get_by_text("Approved. The run continues.").wait_for()
    assert [one.actor for one in decided(server, run)] == ["sam"]


def test_a_name_that_may_not_answer_changes_nothing(plain: PlainPage, server: Server) -> None:
    run = server.run(NAMED)
    plain.goto("/approvals")
    form = {"csrf": plain.locator("[name=csrf]").first.input_value(), "verdict": "fulfil"}
    for name in ("eve", "x" * 101):
        answer = plain.request.post(
            f"{server.url}/runs/{run}/gates/gate-1", form={**form, "as": name}, max_redirects=0
        )
        assert answer.status >= 400
    assert decided(server, run) == []


def test_a_question_shows_what_the_step_before_it_came_to(plain: PlainPage, server: Server) -> None:
    run = server.run(ASKED, {"amount": 4712})
    plain.goto("/approvals")
    card = plain.locator(f'article[data-gate="{run}"]')
    assert card.get_by_text("What quote came to").is_visible()
    assert '"price": 4712' in card.locator("details.about pre").inner_text()


def test_the_navigation_counts_open_questions_and_follows(page: Any, server: Server) -> None:
    server.run(ASKED)
    page.goto("/definitions")
    count = page.locator("#open-approvals")
    count.wait_for()
    before = page.request.get(f"{server.url}/approvals/count").json()["open"]
    becomes(page, f"parseInt(document.getElementById('open-approvals').textContent) === {before}")
    server.run(ASKED)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    becomes(
        page, f"parseInt(document.getElementById('open-approvals').textContent) === {before + 1}"
    )


def test_the_inbox_says_until_when_and_the_time_that_is_left_goes_down(
    page: Any, server: Server
) -> None:
    run = server.run(NAMED)
    page.goto("/approvals")
    card = page.locator(f'article[data-gate="{run}"]')
    assert "may be answered by kim, sam" in card.inner_text()
    assert f"anabranch decide {run} gate-1 --fulfil --actor kim" in card.inner_text()
    state = server.parts.engine.state(run)
    (token,) = state.tokens.values()
    assert str(token.until) == card.locator(".due .ticks").get_attribute("data-until")
    left = f"document.querySelector('article[data-gate=\"{run}\"] .due').textContent"
    becomes(page, f"/^due in (2 h|1 h 59 min)$/.test({left}.trim())")
    page.evaluate(  # a minute and a half later
        "Date.now = (now => () => now() + 90_000)(Date.now)"
    )
    becomes(page, f"/^due in 1 h 5[78] min$/.test({left}.trim())")
    page.evaluate("Date.now = (now => () => now() + 7_200_000)(Date.now)")
    becomes(page, f"{left}.trim() === 'due now'")


def test_what_was_rejected_before_and_what_the_work_came_to_can_be_read(
    plain: PlainPage, server: Server
) -> None:
    run = server.run(ASKED, {"amount": 31})
    plain.goto("/approvals")
    card = plain.locator(f'article[data-gate="{run}"]')
    assert card.get_by_role("link", name=run).get_attribute("href") == f"/runs/{run}"
    card.get_by_text("Input").click()
    assert '"amount": 31' in card.inner_text()


def test_a_card_that_somebody_else_answers_is_closed_and_keeps_what_was_typed(
    page: Any, server: Server
) -> None:
    run = server.run(ASKED)
    page.goto("/approvals")
    is_live(page)
    card = page.locator(f'article[data-gate="{run}"]')
    card.get_by_label("Reason").fill("I was just")
    server.call(server.parts.verbs.send(run, decision("approve", "fulfil", "kim", "faster")))
    card.get_by_text("This was answered meanwhile").wait_for()
    assert card.get_by_role("button", name="Approve").is_disabled()
    assert card.get_by_label("Reason").input_value() == "I was just"
    assert "was answered meanwhile" in page.locator("#said").inner_text()


def test_of_two_people_the_later_one_is_told_who_was_faster(
    locked: Locked,  # noqa: F811
) -> None:
    parts = locked.server.parts
    run = locked.call(parts.verbs.start(NAMED))
    locked.call(parts.verbs.wait(run, standing=True))
    pages = []
    for name in ("kim", "sam"):
        page = PlainPage(locked.url)
        page.goto("/login?next=/approvals")
        page.get_by_label("Token").fill(locked.token(name, "read", "decide"))
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/approvals")
        pages.append(page)
    kim, sam = pages  # neither page hears of the answer of the other
    kim.get_by_label("Reason", exact=True).fill("we need the room")
    sam.get_by_label("Reason", exact=True).fill("keep it")
    kim.get_by_role("button", name="Approve").click()
    kim.get_by_text("Approved. The run continues.").wait_for()
    sam.get_by_role("button", name="Reject").click()
    sam.get_by_role("heading", name="Another person was faster").wait_for()
    said = sam.locator("[role=alert]").inner_text()
    assert said.startswith("kim answered “fulfil” at ")
    assert "we need the room" in said
    assert "Your answer, “reject”, changed nothing." in said
    assert "Your reason was: keep it" in sam.locator("main").inner_text()
    assert locked.call(parts.verbs.wait(run)).status == "completed"

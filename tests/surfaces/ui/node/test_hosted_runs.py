"""The pages of runs: what a run asked, bought and got, and what the operator says about it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.market.node.errors import NodeError

from .fake_arca import FakeArca
from .scenes import DIGEST, ELSEWHERE, bought, fan_out, instant, order, waiting, write_run
from .support import OFFER, Browser, TwoNodes, answer, links, section, trade, words


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, arca: FakeArca) -> Iterator[TwoNodes]:
    with TwoNodes(Path(tmp_path_factory.mktemp("nodes")), arca=arca) as running:
        trade(running, OFFER)
        yield running


def test_the_list_says_how_far_each_run_is_and_until_when_it_may_take(
    nodes: TwoNodes, operator: Browser
) -> None:
    write_run(nodes, "run:list", [fan_out(nodes, "run:list"), waiting()])
    ended = {"status": "failed", "finished_at": instant()}
    write_run(nodes, "run:over", [fan_out(nodes, "run:over", status="failed")], **ended)
    text = operator.page("/runs")
    assert "1 of 2" in words(text)
    assert {"/runs/run:list", "/runs/run:list#step-check", "/runs/run:over"} <= set(links(text))
    assert "data-until" in text  # the deadline counts down
    assert "run:over" not in operator.page("/runs?status=active")
    assert "run:list" not in operator.page("/runs?status=failed")
    assert operator.send("GET", "/runs?status=odd")[0].status == 400


def test_a_fan_out_shows_whom_it_asked_and_no_answer_of_theirs(
    nodes: TwoNodes, operator: Browser
) -> None:
    write_run(nodes, "run:asked", [fan_out(nodes, "run:asked")])
    card = section(operator.page("/runs/run:asked"), "step-find")
    shown = words(card)
    for said in (nodes.provider.node_id, nodes.buyer.node_id, ELSEWHERE, "responded", "usable"):
        assert said in shown
    assert "negative" in shown
    assert "timeout" in shown
    assert "400 ms" in shown
    assert "response" not in card


def test_offers_are_compared_and_the_chosen_one_is_marked(
    nodes: TwoNodes, operator: Browser
) -> None:
    dear = {**OFFER, "offer/id": "offer:dear", "pricing/amount": 900}
    nodes.provider.ask("POST", "/v1/service-offers", dear)
    nodes.buyer.ask("POST", "/v1/service-offers/fetch", {"node_id": nodes.provider.node_id})
    write_run(nodes, "run:compared", [fan_out(nodes, "run:compared")])
    card = section(operator.page("/runs/run:compared"), "step-find")
    table = card.partition("Offers compared")[2].partition("</table>")[0]
    rows = [words(row) for row in table.split("<tr")[2:]]
    assert "offer:summaries 250 ORC per-request 1 h" in rows[0]
    assert "explicit" in rows[0]
    assert "chosen" in rows[0]
    assert "offer:dear 900 ORC" in rows[1]
    assert "chosen" not in rows[1]
    assert "/offers/offer:dear" in links(table)


def test_an_order_is_followed_from_its_offer_to_its_receipt(
    nodes: TwoNodes, operator: Browser
) -> None:
    execution = order(nodes, "run:order", "buy")
    write_run(nodes, "run:order", [bought(execution)])
    way = f"/orders/{execution}"
    card = section(operator.page("/runs/run:order"), "step-buy")
    assert {"/offers/offer:summaries", way, f"{way}#document-contract"} <= set(links(card))
    assert "/ledger/holds/hold:order-buy-a1" in links(card)
    assert any(one.startswith("/deliveries/delivery:") for one in links(card))
    assert "active 250 ORC" in words(card)
    assert "succeeded 1 try" in words(card)
    assert "accepted" in words(card)
    assert "Result not there yet" in words(card)
    assert "Receipt when the order ends" in words(card)
    assert "On hold 250 ORC" in words(operator.page("/runs/run:order"))

    answer(nodes, execution, {"status": "completed", "output": {"summary": "short"}})
    nodes.buyer.ask("POST", f"/v1/executions/{execution}/accept", {"reason": "good"})
    text = operator.page("/runs/run:order")
    card = section(text, "step-buy")
    assert f"{way}#document-receipt" in links(card)
    assert "admitted by host: accepted" in words(card)
    assert "settled" in words(card)
    assert "Paid 250 ORC" in words(text)
    assert "On hold 0 ORC" in words(text)
    assert "/runs/run:order#step-buy" in links(operator.page(way))


def test_orders_of_earlier_attempts_are_named(nodes: TwoNodes, operator: Browser) -> None:
    first = order(nodes, "run:again", "buy", 1)
    answer(nodes, first, {"status": "failed", "error": {"code": "busy", "message": "no room"}})
    second = order(nodes, "run:again", "buy", 2)
    write_run(nodes, "run:again", [bought(second, attempt=2)])
    text = operator.page("/runs/run:again")
    card = section(text, "step-buy")
    _, _, earlier = card.partition("Orders of earlier attempts")
    assert f"/orders/{first}" in links(earlier)
    assert "Came back 250 ORC" in words(text)


def test_a_failure_is_said_in_plain_words_with_its_message_and_its_step(
    nodes: TwoNodes, operator: Browser
) -> None:
    error = {"code": "price-exceeded", "message": "900 ORC is more than 500 ORC"}
    step = bought("execution:none", status="failed", error=error)
    write_run(
        nodes, "run:failed", [step], status="failed", error={**error, "step_id": "buy"},
        finished_at=instant(),
    )  # fmt: skip
    text = operator.page("/runs/run:failed")
    said = "The price is above the most that the step may pay. 900 ORC is more than 500 ORC"
    assert words(text).count(said) == 2
    assert "was not opened" in words(section(text, "step-buy"))
    assert "/runs/run:failed#step-buy" in links(text)
    assert 'name="verb"' not in text  # nothing can be done to it any more


def test_of_a_large_output_there_is_its_digest_and_its_beginning(
    nodes: TwoNodes, operator: Browser
) -> None:
    write_run(nodes, "run:large", [waiting(output={"text": "x" * 1_000_000})])
    text = operator.page("/runs/run:large")
    assert len(text) < 30_000
    card = words(section(text, "step-check"))
    assert f"The first KiB of 1,000,011 bytes; the whole has the digest {DIGEST}" in card


def test_many_steps_are_shown_in_pages(nodes: TwoNodes, operator: Browser) -> None:
    steps = [waiting(step_id=f"s{number}", depends_on=[]) for number in range(45)]
    write_run(nodes, "run:many", steps)
    text = operator.page("/runs/run:many")
    assert 'id="step-s19"' in text
    assert 'id="step-s20"' not in text
    assert {"/runs/run:many?from=20", "/runs/run:many?from=40#step-s44"} <= set(links(text))
    assert 'id="step-s44"' in operator.page("/runs/run:many?from=40")
    assert 'id="step-s0"' in operator.page("/runs/run:many?from=999999")
    fields = {"fulfilled": "no", "reason": ""}
    found, text = operator.fill("/runs/run:many", "/runs/run:many/steps/s44", **fields)
    assert found.status == 400  # said at the step, on the page that shows it
    assert "say why" in words(section(text, "step-s44"))


# -- what the operator says ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason", "fulfilled"),
    [("yes", "", True), ("yes", "good", True), ("no", "bad", False)],
)
def test_a_decision_goes_to_arca_with_its_reason_and_its_actor(
    nodes: TwoNodes, operator: Browser, arca: FakeArca, said: str, reason: str, fulfilled: bool
) -> None:
    run = f"run:{said}{reason}"
    write_run(nodes, run, [waiting()], status="paused", pause_reason="a decision at check")
    assert f"/runs/{run}#step-check" in links(operator.page("/"))  # it is named on the first page
    path = f"/runs/{run}/steps/check"
    found, _ = operator.fill(f"/runs/{run}", path, fulfilled=said, reason=reason)
    assert found.status == 303
    assert found.headers["Location"].startswith(f"/runs/{run}?note=")
    body = {"fulfilled": fulfilled, "reason": reason, "actor": "operator"}
    assert arca.told == [(f"{path}/confirm", body)]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fulfilled": "no", "reason": " "}, "say why the task is not fulfilled"),
        ({"fulfilled": "perhaps", "reason": ""}, "choose one of the buttons"),
        ({"reason": "nothing chosen"}, "choose one of the buttons"),
    ],
)
def test_a_decision_that_says_nothing_is_refused_at_its_form(
    nodes: TwoNodes, operator: Browser, arca: FakeArca, fields: dict[str, str], message: str
) -> None:
    run = f"run:wrong-{len(fields)}-{fields.get('fulfilled')}"
    write_run(nodes, run, [waiting()])
    found, text = operator.fill(f"/runs/{run}", f"/runs/{run}/steps/check", **fields)
    assert found.status == 400
    assert message in words(section(text, "step-check"))
    assert arca.told == []


def test_what_arca_refuses_is_said_at_the_form_and_what_was_typed_stays(
    nodes: TwoNodes, operator: Browser, arca: FakeArca
) -> None:
    write_run(nodes, "run:refused", [waiting()])
    arca.refusal = NodeError(409, "decided_by_source", "its source decides, not you")
    path = "/runs/run:refused/steps/check"
    found, text = operator.fill("/runs/run:refused", path, fulfilled="yes", reason="I say so")
    assert found.status == 409
    card = section(text, "step-check")
    assert "its source decides, not you" in words(card)
    assert 'value="I say so"' in card
    found, text = operator.fill("/runs/run:refused", "/runs/run:refused", verb="cancel")
    assert (found.status, "its source decides, not you" in text) == (409, True)


def test_a_decision_that_is_no_longer_open_is_refused_on_top(
    nodes: TwoNodes, operator: Browser, arca: FakeArca
) -> None:
    write_run(nodes, "run:late", [waiting(status="completed", finished_at=instant())])
    assert 'name="fulfilled"' not in operator.page("/runs/run:late")
    arca.refusal = NodeError(409, "gate_not_open", "nothing waits for a decision there")
    path = "/runs/run:late/steps/check"
    found, text = operator.fill("/runs/run:late", path, fulfilled="yes")
    assert (found.status, text.count("nothing waits for a decision there")) == (409, 1)


@pytest.mark.parametrize(
    ("status", "verbs"),
    [("running", ["pause", "cancel"]), ("paused", ["resume", "cancel"]), ("completed", [])],
)
def test_a_run_is_paused_resumed_and_cancelled_as_its_status_allows(
    nodes: TwoNodes, operator: Browser, arca: FakeArca, status: str, verbs: list[str]
) -> None:
    run = f"run:is-{status}"
    write_run(nodes, run, [bought("execution:none", status="completed")], status=status)
    text = operator.page(f"/runs/{run}")
    assert [one for one in ("pause", "resume", "cancel") if f'value="{one}"' in text] == verbs
    for verb in verbs:
        arca.told.clear()
        found, _ = operator.fill(f"/runs/{run}", f"/runs/{run}", verb=verb, reason="so")
        assert (found.status, found.headers["Location"]) == (303, f"/runs/{run}?note=run_{verb}")
        assert arca.told == [(f"/runs/{run}/{verb}", {"reason": "so", "actor": "operator"})]
    found, _ = operator.fill(f"/runs/{run}", f"/runs/{run}", verb="steps/check/confirm")
    assert found.status == 400


def test_a_decision_without_the_secret_of_the_session_is_not_passed_on(
    nodes: TwoNodes, operator: Browser, arca: FakeArca
) -> None:
    write_run(nodes, "run:forged", [waiting()])
    for path, fields in (
        ("/runs/run:forged/steps/check", {"fulfilled": "yes"}),
        ("/runs/run:forged", {"verb": "cancel"}),
    ):
        assert operator.post(path, {**fields, "csrf": "x" * 43})[0].status == 403
        ours = {**fields, "csrf": operator.secret("/runs/run:forged")}
        assert operator.post(path, ours, Origin="https://evil.example")[0].status == 403
    assert arca.told == []


def test_a_run_that_is_not_there_is_not_found(operator: Browser) -> None:
    found, text = operator.send("GET", "/runs/run:none")
    assert (found.status, "there is no run run:none" in text) == (404, True)


def test_a_node_without_arca_says_so_when_it_is_asked_for_a_decision(
    browser_of: Callable[[str], Browser],
) -> None:
    provider = browser_of("provider")
    assert "No run yet." in words(provider.page("/runs"))
    found, text = provider.fill("/ledger", "/runs/run:none", verb="cancel")
    assert (found.status, "there is no run" in text) == (404, True)


def test_the_raw_response_of_a_participant_cannot_be_kept_and_so_not_shown(nodes: TwoNodes) -> None:
    step = fan_out(nodes, "run:raw")
    step["dispatches"][0]["response"] = {"secret": "of a loser"}
    with pytest.raises(AssertionError, match="raw_response"):
        write_run(nodes, "run:raw", [step])

"""What the operators of two nodes do with the pages: sell, buy, answer, accept, dispute."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import OpenPage, sign_in, signed_in
from .support import OFFER, TwoNodes, answer, place, state_of, trade

PUBLISHED = """{"offer/id": "offer:poems", "service/type": "text/poem", "pricing/amount": 40,
 "confirmation/mode": "self-confirmed"}"""


def badge(page: Any, word: str) -> None:
    page.locator("h1 .badge").get_by_text(word, exact=True).wait_for()


def test_a_token_leads_to_the_page_that_was_asked_for(open_page: OpenPage, nodes: TwoNodes) -> None:
    page = open_page(nodes.buyer, signed_in=False)
    page.goto("/orders?open=true")
    sign_in(page, "wrong")
    assert "not the token of the node" in page.get_by_role("alert").inner_text()
    assert page.get_by_label("Control token").input_value() == ""
    sign_in(page, nodes.buyer.token)
    page.wait_for_url("**/orders?open=true")
    page.get_by_role("button", name="Sign out").click()
    page.get_by_text("You are signed out.").wait_for()


def test_an_offer_becomes_an_order_a_result_and_a_payment(
    open_page: OpenPage, nodes: TwoNodes
) -> None:
    seller, buyer = open_page(nodes.provider), open_page(nodes.buyer)
    seller.goto("/offers")
    seller.get_by_label("service-offer.v1").fill(PUBLISHED)
    seller.get_by_role("button", name="Publish").click()
    seller.get_by_text("The offer is published.").wait_for()

    buyer.goto("/offers")
    buyer.get_by_label("Id of the participant").fill(nodes.provider.participant_id)
    buyer.get_by_role("button", name="Trust", exact=True).click()
    buyer.get_by_text("are trusted when they come in").wait_for()
    buyer.get_by_label("Id of the node").fill(nodes.provider.node_id)
    buyer.get_by_role("button", name="Ask", exact=True).click()
    row = buyer.get_by_role("row", name="text/poem")
    assert "explicit" in row.inner_text()

    buyer.goto("/ledger")
    buyer.get_by_label("Amount").fill("100")
    buyer.get_by_role("button", name="Top up").click()
    buyer.get_by_text("The money is in the account.").wait_for()

    buyer.goto("/offers")
    buyer.get_by_role("link", name="Order text/poem").click()
    buyer.get_by_label("Input for the provider").fill('{"about": "the sea"}')
    buyer.get_by_role("button", name="Place the order").click()
    buyer.get_by_text("The order is open, and sent to its provider.").wait_for()
    badge(buyer, "dispatched")  # the page follows by itself

    seller.goto("/")
    seller.get_by_role("link", name="text/poem for").click()
    card = seller.get_by_role("article")
    assert "the sea" in card.locator("pre").inner_text()
    card.get_by_label("Output").fill('{"poem": "Blue."}')
    card.get_by_role("button", name="Complete").click()
    seller.get_by_text("Answered. The result is on its way.").wait_for()
    assert "Blue." in seller.get_by_role("row", name="text/poem").inner_text()

    badge(buyer, "awaiting acceptance")
    assert "Blue." in buyer.get_by_role("region", name="Result", exact=True).inner_text()
    buyer.get_by_label("Reason, for the record").fill("it rhymes")
    buyer.get_by_role("button", name="Accept").click()
    badge(buyer, "released")
    assert (
        "by operator: it rhymes" in buyer.get_by_role("region", name="What happened").inner_text()
    )
    assert "settled" in buyer.get_by_role("region", name="Order", exact=True).inner_text()
    buyer.goto("/ledger")
    assert buyer.locator(".numbers dd").first.inner_text() == "60 ORC"
    kinds = buyer.locator("[data-key=movements] td[data-label=What]").all_inner_texts()
    assert kinds == ["release", "hold", "top-up"]
    buyer.goto("/deliveries")
    buyer.locator("td a").first.click()
    assert "admitted" in buyer.get_by_role("region", name="Stage direct").inner_text()


@pytest.fixture(scope="module")
def trading(nodes: TwoNodes) -> TwoNodes:
    trade(nodes, OFFER)
    return nodes


def test_a_dispute_needs_a_reason_and_is_resolved(open_page: OpenPage, trading: TwoNodes) -> None:
    execution = place(trading, "offer:summaries", input={"text": "x"})
    answer(trading, execution, {"status": "completed", "output": {"summary": ""}})
    page = open_page(trading.buyer)
    page.goto("/")
    page.get_by_role("link", name="text/summarise").click()
    page.get_by_role("button", name="Dispute").click()
    assert page.evaluate("document.querySelector('#reason').validity.valueMissing")
    assert state_of(trading, execution) == "awaiting_acceptance"
    page.get_by_label("Reason, for the record").fill("it is empty")
    page.get_by_role("button", name="Dispute").click()
    badge(page, "disputed")
    page.get_by_label("Reason, for the record").fill("the payer is right")
    page.get_by_role("button", name="The payer: refund").click()
    page.get_by_role("button", name="Yes").click()
    badge(page, "rejected")
    assert "refunded" in page.get_by_role("region", name="Order", exact=True).inner_text()


def test_an_order_is_opened_now_and_sent_later(trading: TwoNodes) -> None:
    page = signed_in(trading.buyer)
    page.goto("/offers/offer:summaries")
    page.get_by_label("Send it to the provider at once").uncheck()
    page.get_by_role("button", name="Place the order").click()
    page.get_by_text("Nothing was sent yet.").wait_for()
    badge(page, "opened")
    page.get_by_role("button", name="Send to the provider").click()
    badge(page, "dispatched")


def test_what_is_refused_is_said_at_its_form_and_what_was_typed_stays(trading: TwoNodes) -> None:
    page = signed_in(trading.buyer)
    page.goto("/offers")
    page.get_by_label("service-offer.v1").fill('{"service/type": "text/poem"')
    page.get_by_role("button", name="Publish").click()
    region = page.get_by_role("region", name="Publish an offer")
    assert "the offer is not JSON" in region.get_by_role("alert").inner_text()
    assert page.get_by_label("service-offer.v1").input_value() == '{"service/type": "text/poem"'
    page.get_by_label("service-offer.v1").fill('{"service/type": "text/poem"}')
    page.get_by_role("button", name="Publish").click()
    assert "`pricing/amount` is missing" in region.get_by_role("alert").inner_text()

    page.goto("/offers/offer:summaries")
    page.get_by_label("Input for the provider").fill('{"text": "kept"}')
    page.get_by_label("Units").fill("1000")
    page.get_by_role("button", name="Place the order").click()
    assert "settlement-blocked" in page.get_by_role("alert").inner_text()
    assert page.get_by_label("Input for the provider").input_value() == '{"text": "kept"}'

    page.goto("/ledger")
    page.get_by_label("Amount").fill("ten")
    page.get_by_role("button", name="Top up").click()
    assert "whole number" in page.get_by_role("alert").inner_text()
    page.goto("/peers")
    page.get_by_label("Id of the node").fill("node:did:key:z6Mknowhere")
    page.get_by_role("button", name="Open", exact=True).click()
    assert page.get_by_role("region", name="Open a session").get_by_role("alert").count() == 1


def test_a_decision_that_came_too_late_says_so(trading: TwoNodes) -> None:
    execution = place(trading, "offer:summaries", input={})
    answer(trading, execution, {"status": "completed", "output": "done"})
    page = signed_in(trading.buyer)
    page.goto(f"/orders/{execution}")
    page.get_by_label("Reason, for the record").fill(
        "mine"
    )  # the page stands still while one types
    trading.buyer.ask("POST", f"/v1/executions/{execution}/accept", {"reason": "first"})
    page.get_by_role("button", name="Dispute").click()
    assert "is released; it takes no dispute" in page.get_by_role("alert").inner_text()
    assert state_of(trading, execution) == "released"


def test_a_provider_says_no_and_the_buyer_reads_why(trading: TwoNodes) -> None:
    execution = place(trading, "offer:summaries", input={"text": "too long"})
    order_id = execution.replace("execution:", "order:")
    seller, buyer = signed_in(trading.provider), signed_in(trading.buyer)
    seller.goto("/inbox")
    card = seller.get_by_role("article").filter(has_text=order_id)
    card.get_by_label("Output").fill("no json")
    card.get_by_role("button", name="Complete").click()
    assert "the output is not JSON" in card.get_by_role("alert").inner_text()
    assert card.get_by_label("Output").input_value() == "no json"
    card.get_by_label("Or why not").fill("I read no long texts")
    card.get_by_role("button", name="Reject").click()
    seller.get_by_text("Answered.").first.wait_for()
    buyer.goto(f"/orders/{execution}")
    badge(buyer, "rejected")
    assert (
        "I read no long texts"
        in buyer.get_by_role("region", name="Result", exact=True).inner_text()
    )


def test_passports_are_issued_and_revoked(nodes: TwoNodes) -> None:
    page = signed_in(nodes.provider)
    page.goto("/directory")
    page.get_by_label("Capability").fill("offer-catalog")
    page.get_by_role("button", name="Issue").click()
    page.get_by_text("The passport is issued.").wait_for()
    page.get_by_role("link", name="1 offer-catalog").click()
    assert nodes.provider.url in page.get_by_role("region", name="Capabilities").inner_text()
    page.get_by_role("button", name="Revoke offer-catalog").click()
    page.get_by_text("The passport is revoked.").wait_for()
    assert "revoked" in page.get_by_role("row", name="offer-catalog").inner_text()


def test_everything_is_a_form_that_works_without_scripts(nodes: TwoNodes) -> None:
    page = signed_in(nodes.provider)
    page.goto("/ledger")
    page.get_by_label("Amount").fill("7")
    page.get_by_role("button", name="Top up").click()
    page.get_by_text("The money is in the account.").wait_for()
    page.goto("/offers")
    page.get_by_label("service-offer.v1").fill(
        '{"offer/id": "offer:plain", "service/type": "text/plain", "pricing/amount": 1}'
    )
    page.get_by_role("button", name="Publish").click()
    page.get_by_role("button", name="Withdraw offer:plain").click()
    page.get_by_text("The offer is withdrawn.").wait_for()

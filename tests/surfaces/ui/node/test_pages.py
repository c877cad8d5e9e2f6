"""Every page of a node with everything on it: what comes from outside is text, keys reach every
control, texts can be read, and nothing is wider than a telephone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ..support import NASTY, TWO_FRAMES
from ..test_accessible import CONTRAST, CONTROLS, HERE, STRUCTURE
from . import scenes
from .conftest import OpenPage, Visit, signed_in
from .fake_arca import FakeArca
from .support import OFFER, TwoNodes, answer, module_config, place, trade

ELSEWHERE = "node:did:key:z6MkfVJAvfWEfSPHmFyc7mm84n3oQiTrGrv8tY9fGLcjU1RS"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    """Hostile names, descriptions, inputs, outputs, reasons and errors, in every state."""
    folder = Path(tmp_path_factory.mktemp("nodes"))
    modules = [module_config("broken", f"/nowhere/{NASTY}")]
    with TwoNodes(folder, (NASTY, NASTY), modules, hostile_arca()) as running:
        trade(running, {**OFFER, "service/description": NASTY})
        trusted = {"participant_id": running.buyer.participant_id, "note": NASTY}
        running.buyer.ask("POST", "/v1/trusted-providers", trusted)
        running.buyer.ask("POST", "/v1/ledger/top-up", {"amount": 1, "note": NASTY})
        note = {"schema_version": "v1", "capability_id": "notify_emit", "level": "error"}
        running.provider.say("broken", "/v1/module/notify", {**note, "title": NASTY, "body": NASTY})
        running.provider.ask("POST", "/v1/passports", {"capability_id": "offer-catalog"})
        running.buyer.ask("POST", "/v1/directory/sync")
        yield running


@pytest.fixture(scope="module")
def executions(nodes: TwoNodes) -> dict[str, str]:
    """One in each state that a page shows in its own way."""
    made = {
        name: place(nodes, "offer:summaries", input={"text": NASTY, NASTY: [NASTY]})
        for name in ("dispatched", "awaiting", "disputed", "released", "rejected")
    }
    done = {"status": "completed", "output": {"said": NASTY}}
    for name in ("awaiting", "disputed", "released"):
        answer(nodes, made[name], done)
    refused = {"status": "rejected", "error": {"code": "no", "message": NASTY}}
    answer(nodes, made["rejected"], refused)
    act = nodes.buyer.ask
    act("POST", f"/v1/executions/{made['disputed']}/dispute", {"reason": NASTY})
    act("POST", f"/v1/executions/{made['released']}/accept", {"reason": NASTY})
    return made


@pytest.fixture(scope="module")
def runs(nodes: TwoNodes) -> tuple[str, str]:
    """One that waits for a decision and has bought something, one that has failed."""
    error = {"code": NASTY, "message": NASTY}
    asked = scenes.fan_out(nodes, "run:1")
    asked["dispatches"].append(scenes.dispatch("run:1", "find", NASTY, "pending"))
    asked["selected_output"] = {"offer": {"offer/id": NASTY, "provider/participant-id": NASTY}}
    asked["task"] = {"fulfilled": False, "decided_by": NASTY, "reason": NASTY}
    bought = scenes.order(nodes, "run:1", "buy")
    answer(nodes, bought, {"status": "failed", "error": error})
    judged = scenes.waiting(output={NASTY: NASTY}, service_type=NASTY, error=error)
    steps = [asked, scenes.bought(bought, depends_on=[NASTY]), judged]
    about = {"workflow_id": NASTY, "workflow_kind": NASTY, "input": {NASTY: NASTY}}
    write = scenes.write_run
    write(nodes, "run:1", steps, status="paused", pause_reason=NASTY, **about)
    write(
        nodes,
        "run:2",
        [judged],
        status="failed",
        error={**error, "step_id": NASTY},
        **about,
    )
    return "/runs/run:1", "/runs/run:2"


def hostile_arca() -> FakeArca:
    made = FakeArca()
    parameters = {NASTY: {"type": "string", "default": NASTY, "description": NASTY}}
    template = {
        "template_id": NASTY,
        "label": NASTY,
        "description": NASTY,
        "parameters": parameters,
    }
    offer = {"offer/id": NASTY, "service/type": NASTY, "service/description": NASTY,
             "provider/participant-id": NASTY, "pricing/currency": NASTY, "pricing/amount": 1,
             "expires-at": "2126-01-01T00:00:00Z", "pricing/unit-kind": NASTY}  # fmt: skip
    row = {"offer": offer, "trust_level": NASTY, "source_node_id": NASTY}
    seen = {"publisher": NASTY, "signature": NASTY, "digest": NASTY, "here": NASTY,
            "problems": [{"message": NASTY}], "template": template}  # fmt: skip
    made.answers |= {
        "GET service-catalog": {"observed_offers": [row]},
        "GET /templates": {"items": [{**template, "publisher": NASTY, "problem": NASTY}]},
        "GET /templates/odd": {"template": template},
        "POST /templates/import/preview": seen,
        "POST /templates/browse": {"templates": [template], "next": NASTY},
        "POST /templates/materialize": {"definition": {NASTY: NASTY}},
    }
    return made


@pytest.fixture(scope="module")
def things(nodes: TwoNodes, executions: dict[str, str], runs: tuple[str, str]) -> dict[str, str]:
    """What the addresses name."""
    sent = nodes.buyer.ask("GET", "/v1/artifact-delivery/deliveries")["items"][0]["delivery/id"]
    hold = executions["awaiting"].replace("execution:", "hold:")
    return {**executions, "sent": sent, "hold": hold, "first": runs[0], "second": runs[1]}


#: Of each node, those that show the most; in braces what `things` makes.
BUYER = (
    *("/", "/runs", "{first}", "{second}", "/catalog", "/catalog?show=all", "/templates"),
    *("/templates/odd", "/orders", "/orders/{dispatched}", "/orders/{awaiting}"),
    *("/orders/{disputed}", "/orders/{released}", "/orders/{rejected}", "/offers"),
    *("/offers/offer:summaries", "/ledger", "/ledger/holds/{hold}", "/deliveries"),
    *("/deliveries/{sent}", "/peers"),
)
PROVIDER = (
    *("/", "/orders", "/inbox", "/runs", "/templates", "/offers", "/modules", "/modules/broken"),
    *("/directory?capability=offer-catalog", "/notifications", "/login"),
)
PAGES = [*(("buyer", one) for one in BUYER), *(("provider", one) for one in PROVIDER)]
#: Those with the most words of others; `test_gallery.py` visits the rest.
VISITED = {
    *(("buyer", one) for one in ("{first}", "/catalog?show=all", "/templates/odd")),
    ("provider", "/inbox"),
}
HOSTILE, NAMED = quote(NASTY, safe=""), quote(NASTY.replace("{{7*7}}", ""), safe="")
#: No address has braces.
TYPED = (
    f"/orders/{NAMED}",
    f"/directory?capability={HOSTILE}",
    f"/login?next={HOSTILE}",
    f"/notifications?module={HOSTILE}",
    f"/ledger?account={HOSTILE}",
    f"/runs/{NAMED}",
    f"/catalog?service_type={HOSTILE}&provider={HOSTILE}&show={HOSTILE}",
    f"/templates/{NAMED}",
)
FOREIGN = "main img, main script, main [onerror]"


def test_nothing_that_comes_from_outside_becomes_markup(
    nodes: TwoNodes, things: dict[str, str]
) -> None:
    shown, wrong = 0, []
    for whose in ("buyer", "provider"):
        plain = signed_in(getattr(nodes, whose))
        pages = [address.format(**things) for name, address in PAGES if name == whose]
        for address in (*pages, *TYPED):
            plain.goto(address)
            shown += "<img src=x onerror" in plain.locator("main").text_content()
            if plain.locator(FOREIGN).count():
                wrong.append((whose, address))
    assert wrong == []
    assert shown >= 20  # it is there to be read


@pytest.mark.parametrize(
    ("whose", "address"),
    [pytest.param(*one, marks=() if one in VISITED else pytest.mark.soak) for one in PAGES],
)
def test_a_page_is_text_has_its_headings_and_names_stands_out_and_fits_a_telephone(
    visit: Visit, nodes: TwoNodes, things: dict[str, str], whose: str, address: str
) -> None:
    """With scripts, in both schemes of colours, at one visit."""
    page = visit(getattr(nodes, whose))
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.goto(address.format(**things))
    page.evaluate("() => new Promise(go => requestAnimationFrame(() => setTimeout(go, 0)))")
    assert page.evaluate("window.hacked") is None
    assert page.locator(FOREIGN).count() == 0
    assert page.evaluate(STRUCTURE) == []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found = page.evaluate(CONTRAST)
        assert found["looked"] > 8, scheme
        assert found["bad"] == [], scheme
    page.set_viewport_size({"width": 400, "height": 800})
    page.evaluate(TWO_FRAMES)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_what_was_typed_and_refused_comes_back_as_text(
    open_page: OpenPage, nodes: TwoNodes
) -> None:
    page = open_page(nodes.provider)
    page.goto("/offers")
    text = f'{NASTY}"></textarea><b>bold</b>'
    page.get_by_label("service-offer.v1").fill(text)
    page.get_by_role("button", name="Publish").click()
    page.get_by_role("alert").wait_for()
    assert page.get_by_label("service-offer.v1").input_value() == text
    page.get_by_label("Id of the participant").fill(NASTY)
    page.get_by_role("button", name="Trust", exact=True).click()
    page.get_by_role("alert").wait_for()
    assert page.get_by_label("Id of the participant").input_value() == NASTY
    assert page.locator("main b, main img").count() == 0
    assert page.evaluate("window.hacked") is None


def test_what_a_form_brings_from_others_is_text(
    open_page: OpenPage, nodes: TwoNodes, runs: tuple[str, str]
) -> None:
    page = open_page(nodes.buyer)
    page.goto("/templates")
    page.get_by_label("Id of the node").fill(NASTY)
    page.get_by_role("button", name="Look", exact=True).click()
    page.get_by_role("heading", name="Public templates").wait_for()
    assert page.evaluate(STRUCTURE) == []
    page.get_by_role("button", name="Look at").click()
    page.get_by_text("Who wrote this is not proven").wait_for()
    assert page.evaluate(STRUCTURE) == []
    page.goto("/templates/odd")
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("region", name="What it comes to").wait_for()
    assert page.evaluate(STRUCTURE) == []
    page.goto(runs[0])
    page.get_by_label("Is the task fulfilled?").fill(NASTY)
    page.get_by_role("button", name="Fulfil check").click()
    page.get_by_text("Confirmed: the task is fulfilled.").wait_for()
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.hacked") is None


#: Nothing is asked again: what is rendered anew in between would have to be counted anew.
STILL = "window.setInterval = () => 0;"


@pytest.mark.parametrize(
    ("name", "address"),
    [
        pytest.param("provider", "/offers", marks=pytest.mark.soak),
        ("provider", "/inbox"),
        pytest.param("provider", "/modules", marks=pytest.mark.soak),
        ("buyer", "/runs/run:1"),
        pytest.param("buyer", "/catalog", marks=pytest.mark.soak),
        ("buyer", "/templates/odd"),
    ],
)
def test_the_tab_key_reaches_every_control_and_shows_where_it_is(
    open_page: OpenPage, nodes: TwoNodes, things: dict[str, str], name: str, address: str
) -> None:
    assert things  # with everything on them
    page = open_page(getattr(nodes, name))
    page.add_init_script(STILL)
    page.goto(address)
    wanted = set(page.evaluate(CONTROLS))
    reached: set[str] = set()
    for _ in range(3 * len(wanted) + 20):
        page.keyboard.press("Tab")
        here: Any = page.evaluate(HERE)
        if here is None:
            continue
        assert here["ring"], here
        assert here["inside"], here
        reached.add(here["tab"])
        if reached == wanted:
            break
    assert reached == wanted


def test_an_id_that_is_cut_opens_to_the_whole_of_it(open_page: OpenPage, nodes: TwoNodes) -> None:
    page = open_page(nodes.buyer)
    page.goto("/peers")
    whole = page.get_by_text(nodes.provider.node_id, exact=True)
    assert not whole.is_visible()
    page.locator("summary.id").first.click()
    assert whole.is_visible()


def test_a_node_that_does_not_answer_is_named_with_its_reason(nodes: TwoNodes) -> None:
    page = signed_in(nodes.buyer)
    page.goto("/peers")
    page.get_by_label("Id of the node").fill(ELSEWHERE)
    page.get_by_role("button", name="Open", exact=True).click()
    region = page.get_by_role("region", name="Open a session")
    assert region.get_by_role("alert").inner_text() != ""
    assert page.get_by_label("Id of the node").input_value() == ELSEWHERE

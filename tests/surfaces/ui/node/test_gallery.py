"""Every page of a node with everyday things on it: readable in light and dark, and on a telephone.

With `make pictures` they are kept in `test-artifacts/ui/gallery`, for people who look at them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..support import chosen
from ..test_gallery import asks_only, look
from . import scenes
from .conftest import OpenPage, Visit
from .fake_arca import FakeArca
from .support import OFFER, TwoNodes, answer, module_config, place, trade
from .test_with_arca import NAME, TEMPLATE

RUN = "run:summary-of-the-week"
DONE = {"status": "completed", "output": {"summary": "A short text, as it was ordered."}}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    arca = FakeArca()
    shown = {**TEMPLATE, "publisher": "participant:did:key:z6MkfVJAvfWEf", "problem": ""}
    arca.answers |= {
        "GET service-catalog": {"observed_offers": []},
        "GET /templates": {"items": [shown]},
        f"GET /templates/{NAME}": {"template": TEMPLATE},
    }
    modules = [module_config("translator", "/usr/lib/translator/bin/translator")]
    folder = Path(tmp_path_factory.mktemp("nodes"))
    with TwoNodes(folder, ("summaries.example", "editors.example"), modules, arca) as running:
        trade(running, OFFER)
        note = {"schema_version": "v1", "capability_id": "notify_emit", "level": "error"}
        said = {"title": "The model is missing", "body": "Put it into the folder `models`."}
        running.provider.say("translator", "/v1/module/notify", {**note, **said})
        running.provider.ask("POST", "/v1/passports", {"capability_id": "offer-catalog"})
        running.buyer.ask("POST", "/v1/directory/sync")
        yield running


@pytest.fixture(scope="module")
def things(nodes: TwoNodes) -> dict[str, str]:
    """What the addresses name."""
    made = {
        name: place(nodes, "offer:summaries", input={"text": "a long text"})
        for name in ("dispatched", "awaiting", "disputed", "released")
    }
    for name in ("awaiting", "disputed", "released"):
        answer(nodes, made[name], DONE)
    act = nodes.buyer.ask
    act("POST", f"/v1/executions/{made['disputed']}/dispute", {"reason": "it is far too long"})
    act("POST", f"/v1/executions/{made['released']}/accept", {"reason": "as ordered"})
    bought = scenes.order(nodes, RUN, "buy")
    steps = [scenes.fan_out(nodes, RUN), scenes.bought(bought), scenes.waiting()]
    scenes.write_run(nodes, RUN, steps, status="paused", pause_reason="a decision at check")
    error = {"code": "no_offer", "message": "no participant has an offer", "step_id": "find"}
    failed = scenes.fan_out(nodes, "run:failed", status="failed", error=error)
    scenes.write_run(nodes, "run:failed", [failed], status="failed", error=error)
    sent = act("GET", "/v1/artifact-delivery/deliveries")["items"][0]["delivery/id"]
    hold = made["awaiting"].replace("execution:", "hold:")
    return {**made, "sent": sent, "hold": hold}


#: Name → the node and the address; in braces what `things` makes.
PAGES = {
    "node": ("buyer", "/"),
    "node-runs": ("buyer", "/runs"),
    "node-run": ("buyer", f"/runs/{RUN}"),
    "node-run-failed": ("buyer", "/runs/run:failed"),
    "node-catalog": ("buyer", "/catalog?show=all"),
    "node-templates": ("buyer", "/templates"),
    "node-template": ("buyer", f"/templates/{NAME}"),
    "node-orders": ("buyer", "/orders"),
    "node-order-dispatched": ("buyer", "/orders/{dispatched}"),
    "node-order-awaiting": ("buyer", "/orders/{awaiting}"),
    "node-order-disputed": ("buyer", "/orders/{disputed}"),
    "node-order-released": ("buyer", "/orders/{released}"),
    "node-offers": ("buyer", "/offers"),
    "node-offer": ("buyer", "/offers/offer:summaries"),
    "node-ledger": ("buyer", "/ledger"),
    "node-hold": ("buyer", "/ledger/holds/{hold}"),
    "node-deliveries": ("buyer", "/deliveries"),
    "node-delivery": ("buyer", "/deliveries/{sent}"),
    "node-peers": ("buyer", "/peers"),
    "node-inbox-empty": ("buyer", "/inbox"),
    "node-provider": ("provider", "/"),
    "node-inbox": ("provider", "/inbox"),
    "node-runs-empty": ("provider", "/runs"),
    "node-templates-none": ("provider", "/templates"),
    "node-directory": ("provider", "/directory?capability=offer-catalog"),
    "node-modules": ("provider", "/modules"),
    "node-module": ("provider", "/modules/translator"),
    "node-notifications": ("provider", "/notifications"),
    "node-error": ("provider", "/orders/nowhere"),
}

#: Those whose parts other pages show as well, in the same template.
ALIKE = {
    *("node-order-dispatched", "node-order-released", "node-provider", "node-inbox-empty"),
    *("node-runs-empty", "node-templates-none", "node-run-failed", "node-order-disputed"),
    *("node-deliveries", "node-peers", "node-offers", "node-template", "node-error"),
}


@pytest.mark.parametrize("name", chosen(PAGES, ALIKE))
def test_every_page_of_a_node_can_be_read_in_every_form(
    visit: Visit, nodes: TwoNodes, things: dict[str, str], name: str
) -> None:
    whose, address = PAGES[name]
    node = getattr(nodes, whose)
    page: Any = visit(node)
    with asks_only(page, node.url):
        page.goto(address.format(**things))
        look(page, name)


def test_the_entrance_of_a_node_can_be_read_in_every_form(
    open_page: OpenPage, nodes: TwoNodes
) -> None:
    page: Any = open_page(nodes.buyer, signed_in=False)
    page.goto("/orders")
    look(page, "node-login")

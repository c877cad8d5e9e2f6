"""The pages with Arca itself: a template is shared, imported, started, and its run followed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.clock import SystemClock
from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.market.node.modules.part import HostCall
from anabranch.modules.arca.module import ArcaModule
from anabranch.modules.kit.host import Host
from anabranch.store.memory.store import MemoryStore

from ..support import eventually
from .support import (
    OFFER,
    Browser,
    Served,
    TwoNodes,
    answer,
    links,
    request_for,
    section,
    trade,
    words,
)

NAME = "summary.v1"
TEMPLATE: dict[str, Any] = {
    "template_id": NAME,
    "label": "The best summary",
    "parameters": {"text": {"type": "string"}, "who": {"type": "string"}},
    "plan": {
        "steps": [
            {
                "step_id": "find",
                "service_type": "text/summarise",
                "target": {"resolve": "capability", "capability_id": "{{params.who}}"},
                "fan_in": {
                    "policy": "best_of",
                    "score_field": "/offer/pricing~1amount",
                    "score_order": "asc",
                },
                "timing": {"timeout": "PT5M"},
            },
            {
                "step_id": "buy",
                "service_type": "text/summarise",
                "offer_ref": {"from": "/steps/find/output/offer"},
                "depends_on": ["find"],
                "request_input": {"text": "{{params.text}}"},
                "fulfillment": {"policy": "requester_confirmation"},
            },
        ]
    },
}


def real_arca(host: HostCall) -> ArcaModule:
    clock = SystemClock()
    return ArcaModule(
        host=Host(host),
        clock=clock,
        store=MemoryStore(),
        catalog=OfferCatalog(":memory:", clock=clock),
    )


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    with TwoNodes(Path(tmp_path_factory.mktemp("nodes")), hosted=real_arca) as running:
        assert eventually(lambda: _is_ready(running.provider) and _is_ready(running.buyer))
        trade(running, OFFER)
        running.provider.ask("POST", "/v1/passports", {"capability_id": "offer-catalog"})
        running.buyer.ask("POST", "/v1/directory/sync")
        yield running


def _is_ready(node: Served) -> bool:
    found: bool = node.ask("GET", "/v1/modules/arca")["ready"]
    return found


def test_a_template_becomes_a_run_an_order_a_decision_and_an_end(
    nodes: TwoNodes, browser_of: Callable[[str], Browser]
) -> None:
    seller, buyer = browser_of("provider"), browser_of("buyer")
    seller.fill("/templates", "/templates", template=json.dumps(TEMPLATE))
    found, text = seller.fill(f"/templates/{NAME}", f"/templates/{NAME}", verb="publish")
    assert found.status == 303, words(text)

    wish = {"node_id": nodes.provider.node_id}
    _, text = buyer.fill("/templates", "/import-template", verb="look", **wish)
    assert "The best summary" in words(text)
    _, text = buyer.fill("/templates", "/import-template", template_id=NAME, **wish)
    assert "signature valid" in words(text)
    assert nodes.provider.participant_id in words(text)
    digest = text.partition('name="digest" value="')[2].partition('"')[0]
    kept = {"verb": "keep", "template_id": NAME, "digest": digest, **wish}
    found, text = buyer.fill("/templates", "/import-template", **kept)
    assert found.status == 303, words(text)
    assert "The best summary" in words(buyer.page("/templates"))

    way = f"/templates/{NAME}"
    given = {"value:text": "a long text", "value:who": "offer-catalog"}
    typed = {**given, "was:text": "", "was:who": ""}
    _, text = buyer.fill(way, way, verb="preview", **typed)
    assert "offer-catalog" in words(text.partition('id="made"')[2])
    start = {"verb": "start", "run_id": "run:paged", **typed}
    for _ in range(2):  # twice, it is one run
        found, text = buyer.fill(way, way, **start)
        assert found.status == 303, words(text)
        assert found.headers["Location"] == "/runs/run:paged?note=started"
    assert len(nodes.buyer.ask("GET", "/v1/module/workflow/runs")["items"]) == 1

    assert eventually(lambda: _ordered(nodes) or _run(nodes).get("error"))
    execution = _ordered(nodes)
    assert execution, _run(nodes)
    order_id = execution.replace("execution:", "order:")
    assert eventually(lambda: request_for(nodes, order_id))
    assert "Asked" not in section(buyer.page("/runs/run:paged"), "step-buy")  # the order says it
    card = section(buyer.page("/runs/run:paged"), "step-find")
    assert "responded usable" in words(card)
    assert "chosen ordered" in words(card)

    answer(nodes, execution, {"status": "completed", "output": {"summary": "short"}})
    nodes.buyer.ask("POST", f"/v1/executions/{execution}/accept", {"reason": "good"})
    assert eventually(lambda: 'name="fulfilled"' in buyer.page("/runs/run:paged"))
    text = buyer.page("/runs/run:paged")
    card = section(text, "step-buy")
    assert "admitted by arca-results: accepted" in words(card)
    assert f"/orders/{execution}#document-receipt" in links(card)
    assert "operation" in words(card)  # the deferred one, kept on the step
    assert "Paid 250 ORC" in words(text)
    step = "/runs/run:paged/steps/buy"
    found, text = buyer.fill("/runs/run:paged", step, fulfilled="yes", reason="it is short")
    assert found.status == 303, words(text)
    assert eventually(lambda: _run(nodes)["status"] == "completed")
    text = buyer.page("/runs/run:paged")
    assert "fulfilled by operator: it is short" in words(section(text, "step-buy"))
    found, text = buyer.fill("/runs", "/runs/run:paged", verb="cancel")
    assert (found.status, "has ended" in words(text)) == (409, True)


def _run(nodes: TwoNodes) -> Any:
    return nodes.buyer.ask("GET", "/v1/module/workflow/runs/run:paged")


def _ordered(nodes: TwoNodes) -> str:
    steps = {one["step_id"]: one for one in _run(nodes)["steps"]}
    found: str = steps["buy"].get("execution_id", "")
    return found


def test_the_catalogs_of_the_node_and_of_arca_are_one_list(
    nodes: TwoNodes, browser_of: Callable[[str], Browser]
) -> None:
    nodes.buyer.ask("POST", "/v1/enact/offer-catalog/sync")
    text = words(browser_of("buyer").page("/catalog"))
    assert text.count("offer:summaries") == 1
    assert "is not in this list" not in text

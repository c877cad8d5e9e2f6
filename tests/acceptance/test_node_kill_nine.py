"""Three nodes as processes, one of which is killed with -9 at a commit of an order: the order goes
on where it was, and everything happens once.

An order has commits on both sides: offer published, fetched, order opened, dispatched, admitted,
answered, result admitted, accepted with a receipt. Each is a place to die, before and after. The
suite takes a few of them, `make soak` all.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seeds import seeds

from .node_processes import Market, NodeProcess, end, market, wait_until

pytestmark = pytest.mark.slow

COMMITS = 10  # of either side, in one order; a place that an order does not come to kills nothing
POINTS = [
    (victim, when, number)
    for victim in ("buyer", "provider")
    for when in ("before", "after")
    for number in range(1, COMMITS + 1)
]
PRICE = 250


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Market]:
    made = market(tmp_path)
    try:
        for node in made:
            node.launch()
        for node in made:
            node.await_start()
        yield made
    finally:
        end(made)


def publish(nodes: Market, offer: str) -> None:
    draft = {
        "offer/id": offer, "sequence/no": 1, "service/type": "text/summarise",
        "pricing/amount": PRICE, "pricing/currency": "ORC", "confirmation/mode": "self-confirmed",
        "queue/max-depth": 100,
    }  # fmt: skip
    answer = nodes.provider.surely("POST", "/v1/service-offers", draft)
    assert answer.status in (200, 201, 409), answer  # 409: published by the process that was killed


def fetch(nodes: Market, offer: str) -> None:
    buyer, provider = nodes.buyer, nodes.provider

    def has_it() -> bool:
        buyer.surely("POST", "/v1/service-offers/fetch", {"node_id": provider.node_id})
        return buyer.surely("GET", f"/v1/service-offers/{offer}").status == 200

    wait_until(has_it, buyer, provider)


def state(buyer: NodeProcess, execution: str) -> str:
    return str(buyer.surely("GET", f"/v1/executions/{execution}").body["state"])


def buy(nodes: Market, name: str) -> None:
    """From the offer to the receipt. Every step may be repeated."""
    buyer, execution = nodes.buyer, f"execution:{name}"
    publish(nodes, f"offer:{name}")
    fetch(nodes, f"offer:{name}")
    order = {
        "offer_id": f"offer:{name}", "order_id": f"order:{name}", "dispatch": False,
        "input": {"text": "a b c d e f"},
    }  # fmt: skip
    answer = buyer.surely("POST", "/v1/orders", order)
    known = buyer.surely("GET", f"/v1/executions/{execution}").status == 200
    assert known, answer  # opened now, or by the process that was killed
    if state(buyer, execution) == "opened":
        buyer.surely("POST", f"/v1/executions/{execution}/dispatch")
    wait_until(lambda: "await" in state(buyer, execution), *nodes)
    result = buyer.surely("GET", f"/v1/executions/{execution}/result").body
    assert result["output"] == {"summary": "a b c d e"}
    buyer.surely("POST", f"/v1/executions/{execution}/accept", {})
    assert state(buyer, execution) == "released"
    receipt = buyer.surely("GET", f"/v1/receipts/receipt:{name}")
    assert (receipt.status, receipt.body["outcome"]) == (200, "settled")


def require_once(nodes: Market, names: list[str]) -> None:
    """One execution, one outcome of a hold, one admission on either side, and no money made."""
    buyer, provider = nodes.buyer, nodes.provider
    executions = buyer.items("/v1/executions")
    assert Counter(one["order_id"] for one in executions) == Counter(f"order:{n}" for n in names)
    for name in names:
        hold = buyer.surely("GET", f"/v1/ledger/holds/hold:{name}").body
        assert hold["status"] == "released", hold
    moved = Counter(one["kind"] for one in buyer.items("/v1/ledger/movements"))
    assert moved == {"top-up": 1, "hold": len(names), "release": len(names)}
    balances = {one["account_id"]: one["balance"] for one in buyer.items("/v1/ledger/accounts")}
    assert sum(balances.values()) == 0
    assert balances[f"account:{provider.participant_id}"] == PRICE * len(names)
    for node, schema in ((provider, "dispatch.request"), (buyer, "result")):
        # A node killed between the work and the record of it decides again after its start.
        wait_until(partial(has_decided, node), node)
        found = [(one["artifact"]["schema"], one["status"]) for one in admissions(node)]
        assert found == [(f"service-order.{schema}.v1", "accepted")] * len(names)
    results = list((provider.folder.path / "middleware" / "summaries").glob("result-*"))
    assert len(results) == len(names)


def admissions(node: NodeProcess) -> list[dict[str, Any]]:
    return node.items("/v1/artifact-delivery/admissions")


def has_decided(node: NodeProcess) -> bool:
    return all(one["status"] != "pending" for one in admissions(node))


def stop_and_check(nodes: Market) -> None:
    for node in nodes:
        node.stop()
        assert node.check().problems == []


def begin(nodes: Market) -> None:
    """Money and trust."""
    nodes.buyer.surely("POST", "/v1/ledger/top-up", {"amount": 100_000, "idempotency_key": "one"})
    trusted = {"participant_id": nodes.provider.participant_id}
    nodes.buyer.surely("POST", "/v1/trusted-providers", trusted)


def test_a_node_that_is_killed_at_a_commit_of_an_order_does_everything_once(nodes: Market) -> None:
    begin(nodes)
    names, reached = [], 0
    for seed in seeds(len(POINTS), least=5):
        victim_name, when, number = POINTS[seed * 7 % len(POINTS)]  # all of them, far apart
        victim: NodeProcess = getattr(nodes, victim_name)
        victim.stop()
        victim.start(when, str(number))
        victim.arm()
        name = f"{victim_name}-{when}-{number}"
        names.append(name)
        deaths = victim.deaths
        buy(nodes, name)
        reached += victim.deaths > deaths
        if victim.revive():  # killed at the very end
            reached += 1
    assert reached >= len(names) // 3, "the orders came to few of the places to die"
    require_once(nodes, names)
    stop_and_check(nodes)


def test_a_module_that_is_killed_comes_back_with_its_routes(nodes: Market) -> None:
    begin(nodes)
    provider = nodes.provider
    home = provider.folder.path / "middleware" / "summaries"
    route, modules = "/v1/enact/summaries/state", "/v1/modules/summaries"
    wait_until(lambda: provider.ask("GET", route).status == 200)
    buy(nodes, "before")
    pid = int((home / "pid").read_text())
    provider_of = provider.ask("GET", modules).body
    assert (provider_of["state"], provider_of["restarts"]) == ("ready", 0)
    os.kill(pid, signal.SIGKILL)
    seen = set()

    def is_back() -> bool:
        answer = provider.ask("GET", route)
        seen.add(answer.status)
        if answer.status == 503:
            assert "Retry-After" in answer.headers
        shown = provider.ask("GET", modules).body
        return bool(shown["restarts"] == 1 and shown["state"] == "ready")

    wait_until(is_back)
    assert seen <= {200, 502, 503}  # never 404: the route has an owner
    assert int((home / "pid").read_text()) != pid
    assert provider.ask("GET", modules).body["last_problem"]["code"] == "crashed"
    buy(nodes, "after")
    require_once(nodes, ["after", "before"])
    stop_and_check(nodes)


def test_modules_end_with_a_node_that_is_killed(nodes: Market) -> None:
    provider = nodes.provider
    home = provider.folder.path / "middleware" / "summaries"
    wait_until(lambda: provider.ask("GET", "/v1/modules/summaries").body["state"] == "ready")
    pid = int((home / "pid").read_text())
    provider.kill()

    def is_gone() -> bool:
        status = Path(f"/proc/{pid}/stat")
        return not status.exists() or status.read_text().rpartition(")")[2].split()[0] == "Z"

    wait_until(is_gone)
    provider.start()  # the port of the module is free again
    wait_until(lambda: provider.ask("GET", "/v1/modules/summaries").body["state"] == "ready")
    stop_and_check(nodes)

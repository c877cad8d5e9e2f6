"""Must: a cache of the offers of others, and how offers are discovered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.clock import ManualClock
from anabranch.market import OfferCatalog
from anabranch.market.catalog.listing import CatalogFilter
from anabranch.market.catalog.relays import relay_of
from anabranch.testing.market import NodeSpec, World, WorldNode, arca
from modules.arca.work.stage import Watched

CATALOG = "/v1/enact/service-catalog"
SERVICE = "text/summarise"
#: What discovery may ask of the host.
ALLOWED = {
    "offers.local.query", "offers.trust.query", "seed.directory.query", "peer.session.establish",
    "peer.message.dispatch",
}  # fmt: skip


class Pair:
    """A buyer with Arca, whose calls of its host are noted, and a seller."""

    def __init__(self) -> None:
        self.arca = Watched(arca())
        self.world = World([NodeSpec(name="buyer", modules={"arca": self.arca}), "seller"])
        self.buyer, self.seller = self.world["buyer"], self.world["seller"]
        self.world.advance(1)

    def ask(self, node: WorldNode, method: str, path: str, body: Any = None) -> Any:
        answer = node.request(method, path, body).result
        assert answer.status < 300, answer
        return answer.body

    def publish(self, node: WorldNode, name: str, **fields: Any) -> Any:
        draft = {"offer/id": f"offer:{name}", "service/type": SERVICE, "pricing/amount": 5}
        return self.ask(node, "POST", "/v1/service-offers", {**draft, **fields})["offer"]

    def push(self, payload: Any, msg: str = "offer-catalog.push") -> Any:
        node = self.seller.node
        assert node is not None
        return self.seller.run(node.context.peers.request(
            self.buyer.node_id, msg, payload, correlation_id="m", seconds=30))  # fmt: skip

    def known(self) -> list[str]:
        return [one["offer/id"] for one in self.ask(self.buyer, "GET", CATALOG)["offers"]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    asyncio.run(made.world.close())


def test_the_cache_is_a_file_with_the_trust_of_each_source(pair: Pair, tmp_path: Path) -> None:
    offer = pair.publish(pair.seller, "one")
    now, node = pair.world.clock.now(), pair.seller.node_id
    clock = ManualClock(now)
    file = tmp_path / "offers.db"
    catalog = OfferCatalog(file, clock=clock)
    relay = relay_of(offer, node, now)
    assert catalog.admit(relay, source_node=node).reason == "untrusted"
    assert catalog.rows(CatalogFilter()) == [], "a stranger is not seen"
    catalog.facts.trust(offer["provider/participant-id"])
    newer = pair.publish(pair.seller, "one", **{"pricing/amount": 6})
    assert catalog.admit(relay_of(newer, node, now), source_node=node).status == "stored"
    catalog.close()
    (row,) = OfferCatalog(file, clock=clock).rows(CatalogFilter())
    assert (row["offer"], row["source"], row["trust_level"]) == (newer, "observed", "explicit")
    assert (row["source_node_id"], row["relay_origin_node_id"]) == (node, node)


def test_catalogs_are_found_through_the_capabilities_of_the_host(pair: Pair) -> None:
    pair.publish(pair.seller, "one")
    pair.ask(pair.seller, "POST", "/v1/passports", {"capability_id": "offer-catalog"})
    pair.world.advance(400)
    assert pair.known() == ["offer:one"]
    used = {
        path.removeprefix("/v1/host/capabilities/")
        for _, path, _ in pair.arca.calls
        if "/capabilities/" in path
    }
    assert used == ALLOWED, "all of them, and nothing else"


def test_a_pushed_offer_and_a_late_answer_are_taken_in(pair: Pair) -> None:
    now, node = pair.world.clock.now(), pair.seller.node_id
    one, two = (pair.publish(pair.seller, name) for name in ("one", "two"))
    assert pair.push({"offers": [relay_of(one, node, now)]})["counts"]["stored"] == 1
    late = {"offers": [relay_of(two, node, now)], "query_id": "offer-query:unknown"}
    assert pair.push(late, "offer-catalog.fetch.response")["counts"]["stored"] == 1
    assert pair.known() == ["offer:one", "offer:two"]


def test_the_participant_sees_local_and_observed_offers_together(pair: Pair) -> None:
    offer = pair.publish(pair.seller, "theirs", **{"pricing/amount": 1})
    pair.push({"relay": relay_of(offer, pair.seller.node_id, pair.world.clock.now())})
    pair.publish(pair.buyer, "own", **{"pricing/amount": 9})
    found = pair.ask(pair.buyer, "GET", f"{CATALOG}?service_type={SERVICE}")
    assert [one["offer/id"] for one in found["offers"]] == ["offer:own", "offer:theirs"]
    assert [one["offer"]["offer/id"] for one in found["local_offers"]] == ["offer:own"]
    assert [one["offer"]["offer/id"] for one in found["observed_offers"]] == ["offer:theirs"]
    assert (found["counts"]["local"], found["counts"]["observed"]) == (1, 1)
    pair.ask(pair.seller, "POST", "/v1/service-offers/offer:theirs/withdraw")
    gone = pair.seller.request("GET", "/v1/service-offers?active_only=false").result.body
    (withdrawn,) = gone["offers"]
    pair.push({"relay": relay_of(withdrawn, pair.seller.node_id, pair.world.clock.now())})
    assert pair.known() == ["offer:own"], "what is withdrawn is not offered"


def test_signatures_and_sequences_are_checked_by_the_shared_catalog(pair: Pair) -> None:
    now, node = pair.world.clock.now(), pair.seller.node_id
    first = pair.publish(pair.seller, "one")
    second = pair.publish(pair.seller, "one", **{"pricing/amount": 6})
    forged = {**second, "pricing/amount": 1, "sequence/no": 9}
    assert pair.push({"relay": relay_of(second, node, now)})["counts"]["stored"] == 1
    assert pair.push({"relay": relay_of(forged, node, now)})["counts"]["rejected"] == 1
    assert pair.push({"relay": relay_of(first, node, now)})["counts"]["stale"] == 1
    far = {**relay_of(second, node, now), "relay/hops": 4}
    assert pair.push({"relay": far})["counts"]["rejected"] == 1
    (row,) = pair.ask(pair.buyer, "GET", CATALOG)["observed_offers"]
    assert row["offer"] == second
    path = "/v1/enact/offer-catalog/replay/diagnostics"
    codes = {one["code"] for one in pair.ask(pair.buyer, "GET", path)["items"]}
    assert codes == {"wrong-signature", "too-many-hops"}

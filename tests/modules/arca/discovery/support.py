"""Nodes of the world whose only module is the catalog; it outlives its processes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.clock import Clock
from anabranch.market import OfferCatalog
from anabranch.modules.arca.catalog import CatalogPart
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.kit.composed import ComposedModule
from anabranch.modules.kit.host import Host
from anabranch.testing.market import LastingModule, ModuleLife, NodeSpec, World, WorldNode

OFFERS = "/v1/service-offers"
CATALOG = "/v1/enact/service-catalog"
REMOTE = "/v1/enact/catalog/remote-query"
SYNC = "/v1/enact/offer-catalog/sync"
SOURCES = "/v1/enact/offer-catalog/sources"
REPLAY = "/v1/enact/offer-catalog/replay"
SERVICE = "text/summarise"


def catalog_module(config: ArcaConfig | None = None, **limits: Any) -> LastingModule[OfferCatalog]:
    def keep(clock: Clock) -> OfferCatalog:
        return OfferCatalog(clock=clock, **limits)

    def make(life: ModuleLife, catalog: OfferCatalog) -> ComposedModule:
        part = CatalogPart(
            host=Host(life.host), catalog=catalog, clock=life.clock, config=config or ArcaConfig()
        )
        return ComposedModule("arca", [part])

    return LastingModule(keep, make)


def market(
    *names: str,
    config: ArcaConfig | None = None,
    node: Mapping[str, Any] | None = None,
    **limits: Any,
) -> World:
    """The first one has the catalog (`node` is its configuration), the others nothing."""
    buyer = NodeSpec(
        name=names[0], modules={"arca": catalog_module(config, **limits)}, config=node or {}
    )
    world = World([buyer, *names[1:]])
    world.advance(1)  # until the module is ready
    return world


def catalog_of(node: WorldNode) -> OfferCatalog:
    found: OfferCatalog = node.modules["arca"].kept
    return found


async def published(node: WorldNode, name: str, **changes: Any) -> dict[str, Any]:
    draft = {"offer/id": f"offer:{name}", "service/type": SERVICE, "pricing/amount": 5, **changes}
    answer = await node.request("POST", OFFERS, draft)
    assert answer.status == 201, answer.body
    found: dict[str, Any] = answer.body["offer"]
    return found


async def introduced(world: World, *names: str, capability: str = "offer-catalog") -> None:
    """They hold a passport that the others know of."""
    for name in names:
        node = world[name]
        body = {"capability_id": capability}
        answer = await node.request("POST", "/v1/passports", body)
        assert answer.status == 201, answer.body
    await world.advance(130)  # longer than the directory takes to be read


async def names(node: WorldNode, query: str = "") -> list[str]:
    answer = await node.request("GET", f"{CATALOG}{query}")
    assert answer.status == 200, answer.body
    return [one["offer/id"].removeprefix("offer:") for one in answer.body["offers"]]

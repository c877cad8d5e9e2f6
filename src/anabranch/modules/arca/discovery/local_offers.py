"""The offers of the node itself, asked of the host and copied into the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.market.catalog.listing import LIMIT_MAX
from anabranch.modules.kit.host import Host

PAGES_MAX = 20  # 10,000 offers: more than a node keeps


class LocalOffers:
    def __init__(self, host: Host, catalog: OfferCatalog) -> None:
        self._host = host
        self._catalog = catalog

    async def refresh(self) -> None:
        """Copy what the node offers now, also what has ended."""
        rows = await self.rows({"active_only": False})
        node_id = next((str(row["source_node_id"]) for row in rows), "")
        self._catalog.put_local([row["offer"] for row in rows], node_id)

    async def rows(self, wanted: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """All rows that fit a filter, as the host has them now."""
        found: list[Mapping[str, Any]] = []
        after: dict[str, Any] = {}
        for _ in range(PAGES_MAX):
            body = {
                "schema_version": "v1",
                "capability_id": "offers_local_query",
                "query": {**wanted, "limit": LIMIT_MAX, **after},
            }
            page = (await self._host.capability("offers.local.query", body)).body["local_offers"]
            found += page
            if len(page) < LIMIT_MAX:
                break
            after = {"after": page[-1]["offer"]["offer/id"]}
        return found

"""`workflow.fanout.request` of a peer: answered with an offer of this node, or that there is none.

Nothing is executed, and nothing of others is offered. Keys of the filter with a slash are fields of
the offer; the others are about the node, which the asker has looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.clock import Clock
from anabranch.market.catalog.routes import is_active
from anabranch.market.node.door import Door
from anabranch.modules.arca.discovery.local_offers import LocalOffers
from anabranch.modules.kit.host import HostRefused, HostUnavailable
from anabranch.modules.kit.module import PeerMessage, reply

REQUEST = "workflow.fanout.request"


class FanOutAnswers:
    def __init__(self, local: LocalOffers, clock: Clock) -> None:
        self._local = local
        self._clock = clock
        self._door = Door()

    async def asked(self, message: PeerMessage) -> dict[str, Any]:
        problems = await self._door.problems(message.payload, REQUEST, at=self._clock.now())
        if problems:
            known = message.payload if isinstance(message.payload, Mapping) else {}
            dispatch = known.get("dispatch_id")
            named = dispatch if isinstance(dispatch, str) else message.correlation_id
            return _error(named, problems[0].code, str(problems[0])[:500])
        request: Mapping[str, Any] = message.payload
        try:
            offer = await self._offer(request)
        except (HostUnavailable, HostRefused) as error:
            return _error(request["dispatch_id"], error.code, error.message[:500])
        if offer is None:
            return _answer(request["dispatch_id"], status="no_offer_available")
        return _answer(request["dispatch_id"], status="offer", offer=offer)

    async def _offer(self, request: Mapping[str, Any]) -> Any:
        """The cheapest one that takes orders, then by id."""
        asked = request.get("filter") or {}
        fields = {key: value for key, value in asked.items() if "/" in key}
        named = asked.get("service_type", request["service_type"])
        if named != request["service_type"]:
            return None
        rows = await self._local.rows({**fields, "service/type": request["service_type"]})
        now = self._clock.now()
        offers = [
            row["offer"]
            for row in rows
            if not row["queue"]["saturated"] and is_active(row["offer"], now)
        ]
        return min(offers, key=lambda one: (one["pricing/amount"], one["offer/id"]), default=None)


def _error(dispatch: str, code: str, message: str) -> dict[str, Any]:
    return _answer(dispatch, status="error", error={"code": code, "message": message})


def _answer(dispatch: str, **fields: Any) -> dict[str, Any]:
    return reply({"schema_version": "v1", "dispatch_id": dispatch, **fields})

"""Who is told of offers, and how: answers to those who ask, and pushes to those who follow.

A push is sent once and not waited for: a node that misses it asks again at its own pace.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from anabranch.clock import Clock
from anabranch.errors import AnabranchError
from anabranch.market.catalog.relays import relay_of
from anabranch.market.node.ids import derived
from anabranch.modules.dator.config import PushConfig
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable
from anabranch.modules.kit.module import ALLOW, PeerMessage, reply
from anabranch.work.participants.performers import rfc3339

logger = logging.getLogger("anabranch.module")

ASKED, PUSHED = "offer-catalog.fetch.request", "offer-catalog.push"
ANSWER_BYTES = 768 * 1024
ASKERS_KEPT = 100
PUSH_TIMEOUT_MS = 10_000
_QUERY_ID_MAX = 256


class Spawns(Protocol):
    def spawn(self, work: Coroutine[Any, Any, Any]) -> Any: ...


class Pushes:
    def __init__(self, *, host: Host, clock: Clock, config: PushConfig, tasks: Spawns) -> None:
        self._host = host
        self._clock = clock
        self._config = config
        self._tasks = tasks
        self._askers: OrderedDict[str, bool] = OrderedDict()  # whether the host trusts them
        self._number = 0
        self.node_id = ""

    # -- answers -----------------------------------------------------------------------------

    async def asked(self, message: PeerMessage) -> dict[str, Any]:
        """Answer with the offers of this node and nothing else."""
        payload = message.payload if isinstance(message.payload, Mapping) else {}
        self._note(message.remote_node_id, trusted=message.remote_trusted)
        query_id = payload.get("query_id")
        known = isinstance(query_id, str) and 0 < len(query_id) <= _QUERY_ID_MAX
        answer: dict[str, Any] = {
            "offers": [],
            "node_id": self.node_id,
            "responded_at": rfc3339(self._clock.now()),
            "query_id": query_id if known else message.correlation_id,
            "error": None,
        }
        try:
            answer["offers"], is_all = await self._page(payload.get("filter"))
            if not is_all:
                answer["next"] = answer["offers"][-1]["offer"]["offer/id"]
        except HostUnavailable:
            return ALLOW  # the host answers itself
        except HostRefused as error:
            answer["error"] = {"code": error.code, "message": error.message}
        if len(msgspec.json.encode(answer)) > ANSWER_BYTES:
            return ALLOW  # the host may send more in one message
        return reply(answer)

    async def relays(self, wanted: Any = None) -> list[dict[str, Any]]:
        """Offers of this node that fit the filter. Raises `HostRefused` for a bad one."""
        return (await self._page(wanted))[0]

    async def _page(self, wanted: Any) -> tuple[list[dict[str, Any]], bool]:
        """The same, and whether these are all."""
        body = {
            "schema_version": "v1",
            "capability_id": "offers_local_query",
            "query": {} if wanted is None else wanted,
        }
        found = (await self._host.capability("offers.local.query", body)).body
        now, offers = self._clock.now(), found["offers"]
        is_all = not offers or found["counts"]["local"] == len(offers)
        return [relay_of(one, self.node_id, now) for one in offers], is_all

    def _note(self, node_id: str, *, trusted: bool) -> None:
        """The last ones that have asked. No stranger takes the place of one that the host trusts:
        they can be as many as they like."""
        self._askers[node_id] = trusted
        self._askers.move_to_end(node_id)
        while len(self._askers) > ASKERS_KEPT:
            strangers = (one for one, known in self._askers.items() if not known)
            del self._askers[next(strangers, next(iter(self._askers)))]

    # -- pushes ------------------------------------------------------------------------------

    def push(self, offers: Sequence[Mapping[str, Any]]) -> None:
        now = self._clock.now()
        relays = [relay_of(one, self.node_id, now) for one in offers]
        self._tasks.spawn(self.send(relays))

    async def send(self, relays: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """To all who follow; what the host made of each."""
        payload = {
            "offers": list(relays),
            "node_id": self.node_id,
            "pushed_at": rfc3339(self._clock.now()),
        }
        nodes = [*self._config.node_ids, *(self._askers if self._config.askers else ())]
        places: list[dict[str, Any]] = [
            {"node_id": node} for node in dict.fromkeys(nodes) if node != self.node_id
        ]
        places += [{"capability_id": name} for name in self._config.capabilities]
        return [row for place in places for row in await self._send(place, payload)]

    async def _send(
        self, destination: Mapping[str, Any], payload: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        self._number += 1
        drawn = derived("offer-push", self.node_id, payload["pushed_at"], str(self._number))
        try:
            return await self._host.message(
                destination,
                PUSHED,
                payload,
                correlation_id=f"offer-push:{drawn}",
                timeout_ms=PUSH_TIMEOUT_MS,
                mode="async",
            )
        except AnabranchError as error:
            logger.info("offers are not pushed to %s: %s", dict(destination), error.message)
            return [{**destination, "status": "failed", "reason": error.code}]

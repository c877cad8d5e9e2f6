"""Offers between nodes: asked for, answered and pushed.

`offer-catalog.fetch.request` is for the modules first; where none of them answers or drops it, the
host answers with its own offers and nothing else. `offer-catalog.fetch.response` and
`offer-catalog.push` are admitted by the host, and then shown to the modules.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from anabranch.errors import AnabranchError, InputError
from anabranch.market.catalog.listing import CatalogFilter, filter_of
from anabranch.market.catalog.messages import (
    OFFERS_MAX,
    PUSH,
    REQUEST,
    RESPONSE,
    answer,
    pages,
    query_id_of,
    refusal,
    relays_in,
)
from anabranch.market.catalog.relays import forwarded, relay_of
from anabranch.market.node.door import Door, portions, size_of
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ids import derived
from anabranch.market.node.offers.config import OffersConfig
from anabranch.market.node.offers.registry import Registry, Room, Verdict
from anabranch.market.node.ports import InboundMessage, NodeContext, PeerUnreachable
from anabranch.work.participants.performers import rfc3339


class OfferMessages:
    def __init__(self, context: NodeContext, registry: Registry, config: OffersConfig) -> None:
        self._context = context
        self._entities = context.entities
        self._registry = registry
        self._config = config
        self._door = Door()

    def listen(self) -> None:
        self._context.peers.on(REQUEST, self._asked)
        self._context.peers.on(RESPONSE, self._received)
        self._context.peers.on(PUSH, self._received)

    # -- out ---------------------------------------------------------------------------------

    async def fetch(self, node_id: str, wanted: Any, seconds: float) -> dict[str, Any]:
        """Ask a node for its offers, and admit what it answers."""
        drawn = self._context.random_bytes(16).hex()
        query_id = f"offer-query:{derived('offer-query', node_id, drawn)}"
        payload = {"filter": wanted or {}, "query_id": query_id}
        try:
            found = await self._context.peers.request(
                node_id, REQUEST, payload, correlation_id=query_id, seconds=seconds
            )
        except PeerUnreachable as error:
            raise NodeError(
                503, "peer_unreachable", error.message, headers={"Retry-After": "5"}
            ) from None
        if not isinstance(found, dict):
            raise NodeError(502, "peer_answer", "the node answered with no catalog")
        if found.get("query_id", query_id) != query_id:
            raise NodeError(502, "peer_answer", "the node answered another question")
        if found.get("error") is not None:
            raise NodeError(502, "peer_answer", f"the node answered: {str(found['error'])[:300]}")
        try:
            verdicts = await self.admit(_relays(found), node_id)
        except NodeError as error:  # of the peer, not of the one who asked
            raise NodeError(502, "peer_answer", f"the node answered: {error.message}") from None
        return {"query_id": query_id, "node_id": node_id, **_summary(verdicts)}

    async def push(self, node_ids: Iterable[str], *, observed: bool) -> list[dict[str, Any]]:
        """Send the active offers of this node, and with `observed` those of others that may be
        passed on; one result for each node."""
        now, active = self._context.clock.now(), filter_of(None)
        relays = self._own(active)
        if observed:
            rows = self._registry.every_visible()
            passed = (
                forwarded(row.offer, row.route, now) for row in rows if active.fits(row.offer, now)
            )
            relays += [relay for relay in passed if relay is not None]
        said = {"node_id": self._context.signer.node_id, "pushed_at": rfc3339(now)}
        payloads = [{"offers": page, **said} for page in pages(relays)]
        await self._entities.durable()
        return await asyncio.gather(*(self._push(node_id, payloads) for node_id in node_ids))

    async def _push(self, node_id: str, payloads: list[dict[str, Any]]) -> dict[str, Any]:
        sent = 0
        for payload in payloads:
            name = derived("offer-push", node_id, self._context.random_bytes(16).hex())
            try:
                await self._context.peers.request(
                    node_id,
                    PUSH,
                    payload,
                    correlation_id=f"offer-push:{name}",
                    seconds=self._config.fetch_seconds,
                )
            except AnabranchError as error:
                return {"node_id": node_id, "status": "failed", "reason": error.code}
            sent += len(payload["offers"])
        return {"node_id": node_id, "status": "sent", "offers": sent}

    # -- in ----------------------------------------------------------------------------------

    async def admit(self, relays: list[Any], source: str) -> list[Verdict]:
        """Decide about relays that this peer has sent; durable when it returns. Raises `NodeError`
        for too many of them, and where too much of strangers waits."""
        if len(relays) > OFFERS_MAX:
            message = f"{len(relays)} offers in one message; {OFFERS_MAX} are the most"
            raise NodeError(413, "too_many_offers", message)
        trusted = self._context.directory.is_trusted(source)
        with self._door.waiting.place(size_of(relays), trusted=trusted):
            verdicts = await self._verdicts(relays, source, trusted=trusted)
        await self._entities.durable()
        return verdicts

    async def _verdicts(self, relays: list[Any], source: str, *, trusted: bool) -> list[Verdict]:
        room = Room(self._entities, self._config.observed_max)
        verdicts: list[Verdict] = []
        for part, size in portions(relays):
            check = self._registry.checking(part, source)
            problems = await self._door.read(check, size, trusted=trusted)
            for relay, problem in zip(part, problems, strict=True):
                verdicts.append(self._registry.admit(relay, source, room, problem))
        return verdicts

    async def observe(self, payload: Any, node_id: str) -> Mapping[str, int]:
        """The port `OfferCatalog`."""
        try:
            relays = _relays(payload) if isinstance(payload, dict) else []
            if not relays:
                relays = self._own_of(payload, node_id)
            verdicts = await self.admit(relays, node_id)
        except NodeError:
            return {"rejected": 1}
        counts: dict[str, int] = _summary(verdicts)["counts"]
        return counts

    def _own_of(self, payload: Any, node_id: str) -> list[Any]:
        """An offer alone, as the one who provides it answers, is a relay that begins there."""
        offer = payload.get("offer", payload) if isinstance(payload, dict) else None
        if not isinstance(offer, dict) or "offer/id" not in offer:
            return []
        # What others provide comes as a relay, which says where it began.
        names = offer["offer/id"], offer.get("provider/node-id")
        if not isinstance(names[0], str) or names[1] != node_id or "sequence/no" not in offer:
            return [{"offer": offer}]
        return [relay_of(offer, node_id, self._context.clock.now())]  # admission checks it

    async def _asked(self, message: InboundMessage) -> Any:
        outcome = await self._modules(message)
        if outcome is not None and outcome.kind != "passed":
            return outcome.payload
        payload = message.payload if isinstance(message.payload, dict) else {}
        node_id, now = self._context.signer.node_id, self._context.clock.now()
        query_id = query_id_of(payload, message.correlation_id)
        try:
            wanted = filter_of(payload.get("filter"))
        except AnabranchError as error:
            return refusal(error.code, error.message, node_id=node_id, query_id=query_id, now=now)
        shown = self._own(wanted, wanted.limit + 1)  # one more says that there are more
        return answer(shown, wanted, node_id=node_id, query_id=query_id, now=now)

    async def _received(self, message: InboundMessage) -> Any:
        if not isinstance(message.payload, dict):
            raise NodeError(400, "schema", f"the payload of {message.msg} is an object")
        verdicts = await self.admit(_relays(message.payload), message.remote_node_id)
        outcome = await self._modules(message)
        if outcome is not None and outcome.payload is not None:
            return outcome.payload
        return {"status": "ok", "counts": _summary(verdicts)["counts"]}

    def _own(self, wanted: CatalogFilter, most: int | None = None) -> list[dict[str, Any]]:
        """Those that fit, or so many of the first."""
        now, me = self._context.clock.now(), self._context.signer.node_id
        rows = self._registry.every_local()
        fitting = (one.offer for one in rows if wanted.fits(one.offer, now))
        return [relay_of(offer, me, now) for offer in islice(fitting, most)]

    async def _modules(self, message: InboundMessage) -> Any:
        """What the chains of modules say to it; None where this node has no modules."""
        modules = getattr(self._context, "modules", None)
        return None if modules is None else await modules.message("peer", message)


def _relays(payload: Mapping[str, Any]) -> list[Any]:
    try:
        return relays_in(payload)
    except InputError as error:
        raise NodeError(400, error.code, error.message) from None


def _summary(verdicts: list[Verdict]) -> dict[str, Any]:
    counts = Counter(one.outcome for one in verdicts)
    return {"counts": dict(sorted(counts.items())), "results": [one.row() for one in verdicts]}

"""The part of a node that knows which nodes there are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.market.node.api import Endpoint
from anabranch.market.node.directory import records
from anabranch.market.node.directory.operator import OperatorSurface
from anabranch.market.node.directory.own import OwnPublications
from anabranch.market.node.directory.participants import NodeParticipants, VisibleOffers
from anabranch.market.node.directory.passport_cache import PassportCache
from anabranch.market.node.directory.policy import IssuerPolicy
from anabranch.market.node.directory.records import (
    ADVERTISEMENTS,
    OWN_PASSPORTS,
    REGISTRATIONS,
    REVOCATIONS,
)
from anabranch.market.node.directory.registry import SeedDirectory
from anabranch.market.node.directory.seed_endpoints import SeedEndpoints
from anabranch.market.node.directory.settings import directory_settings
from anabranch.market.node.directory.sync import DirectorySync, follow
from anabranch.market.node.entities import Family
from anabranch.market.node.peers.settings import peer_settings
from anabranch.market.node.ports import NodeContext, Signer

FAMILIES = records.FAMILIES
FORGET_MS = 60 * 60 * 1000


class DirectoryPart:
    """The port `Directory`."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        settings = directory_settings(context.config.raw)
        self._given = dict(peer_settings(context.config.raw).endpoints)
        me = context.config.url.rstrip("/")
        seeds = [url for url in context.config.seeds if url.rstrip("/") != me]
        policy = IssuerPolicy(settings)
        self._advertisement_ms = settings.advertisement_ms
        self.registry = SeedDirectory(context.entities, settings, policy, context.signer)
        self.cache = PassportCache(
            context.clock,
            policy,
            self.registry.revoked,
            settings.stale_ms,
            named={context.signer.node_id, *self._given},
            secret=_secret_of(context.signer),
        )
        self.sync = DirectorySync(
            context.clock, context.transport, settings, self.registry, self.cache, seeds
        )
        self.own = OwnPublications(context, settings, self.registry, seeds, self._messages)
        self._seed_endpoints = SeedEndpoints(
            context.clock, self.registry, self.cache, settings.proxies
        )
        self._operator = OperatorSurface(context, self.registry, self.cache, self.sync, self.own)
        self._operator.register()
        self._republishing = False
        self._forget_at = 0

    def endpoints(self) -> Sequence[Endpoint]:
        return (*self._seed_endpoints.endpoints(), *self._operator.endpoints())

    async def open(self) -> None:
        """What is known here, then what the seeds say; only then does the node take work."""
        self.registry.load()
        follow(self.registry, self.cache)
        self.own.remember_revocations()
        self.own.issue_missing()
        for passport_id, _ in self._context.entities.each_open(OWN_PASSPORTS):
            self.own.renew(passport_id)
        self.own.prepare()
        await self.own.publish()
        await self.sync.sync()
        self._context.spawn(self._keep_synced())

    async def close(self) -> None:
        """Its own task is one of the node."""
        await self.sync.close()

    async def wake(self, family: Family[Any], thing: str) -> None:
        if family is REGISTRATIONS:
            self.registry.expire(thing)
        elif family is ADVERTISEMENTS:
            self.registry.expire_advertisement(thing)
        elif family is OWN_PASSPORTS and self.own.renew(thing) and not self._republishing:
            self._republishing = True
            self._context.spawn(self._republish())

    async def _republish(self) -> None:
        """Once for all passports whose time has come together."""
        self._republishing = False
        self.own.prepare()
        await self.own.publish()

    async def _keep_synced(self) -> None:
        while True:
            if await self._is_due(min(self.sync.delay_ms, self.own.retry_ms) / 1000):
                self.own.refresh(self.sync.without(self._context.signer.node_id))
                await self.own.publish()
                await self.sync.sync()
                await self._forget()

    async def _forget(self) -> None:
        """Advertisements that ended so long ago that they would not be taken again, with what their
        nodes had registered, and revocations that were dropped; looked for now and then."""
        now = self._context.clock.now()
        if now < self._forget_at:
            return
        self._forget_at = now + FORGET_MS
        for family in (ADVERTISEMENTS, REGISTRATIONS, REVOCATIONS):
            while await self._context.entities.forget(family, now - self._advertisement_ms):
                pass

    async def _is_due(self, seconds: float) -> bool:
        """Wait; no longer where a seed refuses meanwhile, which may be told again sooner."""
        self.own.refused.clear()
        try:
            async with asyncio.timeout(seconds):
                await self.own.refused.wait()
        except TimeoutError:
            return True
        return False

    # -- the port ----------------------------------------------------------------------------

    def endpoint(self, node_id: str) -> str:
        if node_id == self._context.signer.node_id:
            return self._context.config.url
        return self._given.get(node_id) or self.cache.url(node_id)

    async def locate(self, node_id: str) -> str:
        return self.endpoint(node_id) or await self.sync.locate(node_id)

    def nodes_of(self, participant_id: str) -> list[str]:
        found = self.cache.nodes_of(participant_id)
        if participant_id == self._context.signer.participant_id:
            found = sorted({*found, self._context.signer.node_id})
        return found

    def is_trusted(self, node_id: str) -> bool:
        return (
            node_id in self._given
            or self.registry.is_vouched_for(node_id)
            or self.cache.is_vouched_for(node_id)
        )

    def holders(self, capability_id: str) -> list[Mapping[str, Any]]:
        return self.cache.ranked(capability_id)

    def participants(self, offers: VisibleOffers) -> NodeParticipants:
        """For the engine of this node, where steps look for participants."""
        return NodeParticipants(self.cache, self._context.clock, offers, self.sync.unread)

    def _messages(self) -> Sequence[str]:
        peers = getattr(self._context, "peers", None)
        return peers.messages() if peers is not None else ()


def _secret_of(signer: Signer) -> str:
    """Known to this node alone, and the same whenever it is started."""
    signed = signer.sign_as_node({"schema": "order-of-strangers", "node/id": signer.node_id})
    return str(signed["signature"])


def make(context: NodeContext) -> DirectoryPart:
    part = DirectoryPart(context)
    context.directory = part
    return part

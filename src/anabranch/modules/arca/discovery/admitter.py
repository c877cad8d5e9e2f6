"""Admitting what peers have sent, with the trust of the host.

The host says which providers its operator trusts and which nodes it knows (`offers.trust.query`),
each time anew; what the message says about trust does not count.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from anabranch.errors import InputError
from anabranch.market.catalog.admission import Admission
from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.market.catalog.messages import OFFERS_MAX
from anabranch.modules.kit.host import Host, HostRefused

logger = logging.getLogger("anabranch.module")

#: Messages with offers that nobody asked for at once, of all peers and of one; further ones are
#: refused. What was asked for waits for its turn, however many of them there are.
WAITING_MAX, OF_A_PEER_MAX = 32, 8
RESERVED = 4  # one of so many places is for nodes that the host trusts
_NAMES_MAX = 2000  # of one question


class Trusted(NamedTuple):
    participants: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()


class Admitter:
    def __init__(self, host: Host, catalog: OfferCatalog) -> None:
        self._host = host
        self._catalog = catalog
        self._turn = asyncio.Lock()
        self._unasked: Counter[str] = Counter()  # by peer
        self._told = False

    async def admit(self, relays: Sequence[Any], source: str) -> list[Admission]:
        """Decide about relays with which this node has answered. Raises `InputError` for more than
        a message may have; then nothing was looked at."""
        _require_few(relays)
        async with self._turn:
            return await self._admit(relays, source)

    async def unasked(
        self, relays: Sequence[Any], source: str, *, trusted: bool = False
    ) -> list[Admission]:
        """The same for a message that came by itself. Raises `InputError` also where too many of
        them wait; a quarter of the places is for nodes that the host trusts."""
        _require_few(relays)
        most = WAITING_MAX if trusted else WAITING_MAX - WAITING_MAX // RESERVED
        if self._unasked.total() >= most or self._unasked[source] >= OF_A_PEER_MAX:
            raise InputError("too many messages with offers at once; send it later", code="busy")
        self._unasked[source] += 1
        try:
            return await self.admit(relays, source)
        finally:
            self._unasked -= Counter([source])  # keeps those above zero

    async def _admit(self, relays: Sequence[Any], source: str) -> list[Admission]:
        trusted = await self.trusted(*self._catalog.parties(relays, source))
        found = await self._catalog.admit_batch(
            relays,
            source_node=source,
            known_peers=trusted.nodes,
            trusted=trusted.participants,
            by_peer=True,
        )
        self._catalog.facts.refused(f"peer:{source}", found)
        return found

    async def trusted(self, participants: Collection[str], nodes: Collection[str]) -> Trusted:
        """Those of them whom the host trusts now; nobody, where it does not say."""
        body = {
            "schema_version": "v1",
            "capability_id": "offers_trust_query",
            "participant_ids": sorted(participants)[:_NAMES_MAX],
            "node_ids": sorted(nodes)[:_NAMES_MAX],
        }
        try:
            found = (await self._host.capability("offers.trust.query", body)).body
        except HostRefused as error:
            if not self._told:
                self._told = True
                logger.warning("the host does not say whom it trusts: %s", error.message)
            return Trusted()
        self._catalog.node_id = found["node_id"]
        return Trusted(frozenset(found["participant_ids"]), frozenset(found["node_ids"]))


def _require_few(relays: Sequence[Any]) -> None:
    if len(relays) > OFFERS_MAX:
        raise InputError(
            f"{len(relays):,} offers in one message; {OFFERS_MAX} are the most",
            code="too_many_offers",
        )

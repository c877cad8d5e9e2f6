"""The catalog of a buyer: offers of others in a SQLite file, with where they came from and how far
they are trusted.

    catalog = OfferCatalog("offers.db")
    catalog.admit(relay, source_node="node:did:key:…").status    # stored, stale or rejected

It signs nothing and asks nobody. Trust is decided when an offer is admitted, and again when it
comes in the next time; what strangers sent is kept for an hour, unseen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from anabranch.clock import Clock, SystemClock
from anabranch.market.catalog.admission import (
    AT_ONCE,
    Admission,
    Admitting,
    Candidate,
    Limits,
    bodies_of,
    is_sound,
    local_bodies,
    parties_in,
)
from anabranch.market.catalog.database import CatalogFile
from anabranch.market.catalog.facts import Facts
from anabranch.market.catalog.listing import CatalogFilter
from anabranch.market.catalog.queries import Query, counted, found_row, row_of
from anabranch.market.catalog.relays import encoded, forwarded, route_of
from anabranch.market.node.door import LARGE, weigh

IN_A_THREAD = 20  # relays whose signatures are checked beside the event loop, or as many bytes


class OfferCatalog:
    """`max_rows` is for offers of others. `node_id` is the node whose catalog this is, where it is
    known: relays for another node are refused."""

    def __init__(
        self,
        path: str | Path = ":memory:",
        *,
        clock: Clock | None = None,
        node_id: str = "",
        known_peers: Collection[str] = (),
        max_rows: int = 4096,
        offer_bytes: int = 64 * 1024,
        untrusted_seconds: int = 3_600,
        expired_seconds: int = 7 * 86_400,
        observed_seconds: int = 60 * 86_400,
    ) -> None:
        self.clock = clock or SystemClock()
        self.node_id = node_id
        self.known_peers = frozenset(known_peers)
        self.limits = Limits(
            max_rows=max_rows,
            offer_bytes=offer_bytes,
            untrusted_ms=untrusted_seconds * 1000,
            expired_ms=expired_seconds * 1000,
            observed_ms=observed_seconds * 1000,
        )
        self.file = CatalogFile(path)
        #: Trusted providers, sources, the cursor of the replay, and what was refused.
        self.facts = Facts(self.file, self.clock)

    def close(self) -> None:
        """Close its file; the catalog cannot be used afterwards."""
        self.file.close()

    # -- offers of others ----------------------------------------------------------------------

    def admit(
        self,
        relay: Any,
        *,
        source_node: str,
        known_peers: Collection[str] | None = None,
        trusted: Collection[str] = (),
        by_peer: bool = False,
    ) -> Admission:
        """Decide about a relay that came from this node.

        `known_peers` are the nodes whose relays count (those of the catalog where it is not given),
        `trusted` are participants who are trusted besides those of the catalog. `by_peer` says that
        the node signed what the relay came in, so that a relay without a hop is its own.
        """
        (found,) = self.admit_all(
            [relay], source_node=source_node, known_peers=known_peers, trusted=trusted,
            by_peer=by_peer,
        )  # fmt: skip
        return found

    def admit_all(
        self,
        relays: Sequence[Any],
        *,
        source_node: str,
        known_peers: Collection[str] | None = None,
        trusted: Collection[str] = (),
        by_peer: bool = False,
    ) -> list[Admission]:
        """About many, in their order and in one transaction."""
        candidates = self.checked(relays, source_node=source_node, by_peer=by_peer)
        return self.store(candidates, known_peers=known_peers, trusted=trusted)

    async def admit_batch(
        self,
        relays: Sequence[Any],
        *,
        source_node: str,
        known_peers: Collection[str] | None = None,
        trusted: Collection[str] = (),
        by_peer: bool = False,
    ) -> list[Admission]:
        """The same beside the event loop, which other work has meanwhile."""
        if len(relays) < IN_A_THREAD and sum(map(weigh, relays)) < LARGE:
            candidates = self.checked(relays, source_node=source_node, by_peer=by_peer)
            return self.store(candidates, known_peers=known_peers, trusted=trusted)
        loop, candidates = asyncio.get_running_loop(), []
        for part in _parts(relays):
            work = partial(self._checked, part, source_node, by_peer)
            candidates += await loop.run_in_executor(None, work)
        return await loop.run_in_executor(None, self.store, candidates, known_peers, trusted)

    def checked(
        self, relays: Sequence[Any], *, source_node: str, by_peer: bool = False
    ) -> list[Candidate]:
        """Form and signatures, which need no transaction. What is kept already is not checked a
        second time."""
        return [one for part in _parts(relays) for one in self._checked(part, source_node, by_peer)]

    def _checked(self, relays: Sequence[Any], source: str, by_peer: bool) -> list[Candidate]:
        now = self.clock.now()
        with self.file.look() as db:
            known = bodies_of(db, relays)
        return [
            Candidate.of_relay(relay, source, self.node_id, now, self.limits, known, by_peer)
            for relay in relays
        ]

    def store(
        self,
        candidates: Sequence[Candidate],
        known_peers: Collection[str] | None = None,
        trusted: Collection[str] = (),
    ) -> list[Admission]:
        """Decide about checked relays in one transaction."""
        with self.file.change() as db:
            admitting = Admitting(
                db,
                now=self.clock.now(),
                limits=self.limits,
                known_peers=self.known_peers if known_peers is None else known_peers,
                trusted=trusted,
            )
            return admitting.all_of(candidates)

    def parties(self, relays: Sequence[Any], source_node: str) -> tuple[set[str], set[str]]:
        """The participants and nodes on whom the trust in these relays depends: also those from
        whom the kept versions came."""
        with self.file.look() as db:
            return parties_in(db, relays, source_node)

    def purge(self) -> int:
        """Take out what strangers sent an hour ago, and what expired or came long ago; how many."""
        with self.file.change() as db:
            now = self.clock.now()
            return Admitting(db, now=now, limits=self.limits, known_peers=(), trusted=()).purge()

    def forward(self, relay: Mapping[str, Any]) -> dict[str, Any] | None:
        """The relay that passes a relay on: one hop more, the same origin, relayed now. None where
        it would go too far, or is not to be passed on."""
        return forwarded(relay["offer"], route_of(relay, ""), self.clock.now())

    # -- offers of the node itself -------------------------------------------------------------

    def put_local(self, offers: Sequence[Mapping[str, Any]], node_id: str = "") -> int:
        """These are the offers of the node now; how many were taken. They beat those of others
        with the same id. One that is no offer is left out."""
        now = self.clock.now()
        with self.file.look() as db:
            known = bodies_of(db, [{"offer": one} for one in offers])
            local = local_bodies(db)
        good = [one for one in offers if is_sound(one, known)]
        if {one["offer/id"]: encoded(one) for one in good} == local:
            return len(good)  # nobody waits for a writer where there is nothing to write
        with self.file.change() as db:
            admitting = Admitting(db, now=now, limits=self.limits, known_peers=(), trusted=())
            admitting.replace_local(good, node_id or self.node_id)
        return len(good)

    # -- looking -------------------------------------------------------------------------------

    def rows(
        self,
        wanted: CatalogFilter | None = None,
        *,
        source: str = "all",
        cheapest: bool = False,
        hidden: bool = False,
        fits: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> list[dict[str, Any]]:
        """Offers with where they were seen: those of the node first, or the cheapest first. With
        `hidden` also what strangers sent; `fits` is asked about offers that the filter fits."""
        query = Query(
            wanted=wanted or CatalogFilter(), now=self.clock.now(), hidden=hidden, fits=fits
        )
        with self.file.look() as db:
            return query.rows(db, source, cheapest=cheapest)

    def row(self, offer_id: str, *, hidden: bool = False) -> dict[str, Any] | None:
        """One offer, also where it has ended."""
        with self.file.look() as db:
            found = found_row(db, offer_id)
        if found is None or (found["trust_level"] == "untrusted" and not hidden):
            return None
        return row_of(found)

    def counts(self) -> dict[str, int]:
        """How many rows there are: local, observed (which can be seen) and hidden."""
        with self.file.look() as db:
            return counted(db)


def _parts(relays: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for at in range(0, len(relays), AT_ONCE):
        yield relays[at : at + AT_ONCE]

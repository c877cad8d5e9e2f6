"""Other catalogs: who they are, and what they offer, asked again and again.

A peer is asked page by page for its offers, those that it has withdrawn among them. How it went is
kept with the node (`sources`); a peer that cannot be reached is asked again the next time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Literal, Protocol

from anabranch.clock import Clock
from anabranch.errors import AnabranchError, InputError
from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.market.catalog.facts import Counts
from anabranch.market.catalog.messages import OFFERS_MAX, REQUEST, relays_in
from anabranch.market.documents.shapes import moment
from anabranch.market.node.ids import derived
from anabranch.modules.arca.discovery.admitter import Admitter
from anabranch.modules.kit.host import Host, HostUnavailable

#: Passports for one of these say that a node has offers to tell.
CAPABILITIES = (
    "offer-catalog", "local-offer-catalog", "shared-offer-catalog", "offer-snapshot-publisher",
)  # fmt: skip
PEERS_MAX = 1000
AT_ONCE = 8
STRANGERS_SECONDS = 120.0  # of one round, for all that the host does not trust
#: Of one peer in one round: as many times as long as it has for one answer, and as many pages as
#: offers of the largest size may need.
TIMEOUTS_OF_A_SYNC = 6
PAGES_LEAST, OFFERS_OF_A_PAGE = 20, 10
_NEXT_MAX = 512  # letters of the id of an offer


class SyncSettings(Protocol):
    @property
    def peer_sync_timeout_ms(self) -> int: ...

    @property
    def peer_sync_offers_max(self) -> int: ...


class PeerCatalogs:
    def __init__(
        self,
        *,
        host: Host,
        admitter: Admitter,
        catalog: OfferCatalog,
        clock: Clock,
        settings: SyncSettings,
    ) -> None:
        self._host = host
        self._admitter = admitter
        self._catalog = catalog
        self._clock = clock
        self._settings = settings
        self._questions = 0
        self._asked: set[str] = set()  # by this process
        self._begin = 0  # the first of those that the host does not trust in the next round

    async def known(self) -> list[str]:
        """The nodes with such a passport, without this one: first those that the host trusts, then
        the others in the order of the host, which they cannot choose."""
        trusted, others = await self._known()
        return [*trusted, *others]

    async def _known(self) -> tuple[list[str], list[str]]:
        await self._admitter.trusted((), ())  # says which node this is
        found = [row for one in CAPABILITIES for row in await self._host.holders(one)]
        found.sort(key=lambda row: row.get("trusted") is not True)
        nodes = {str(row["node_id"]): None for row in found}
        nodes.pop(self._catalog.node_id, None)
        named = {str(row["node_id"]) for row in found if row.get("trusted") is True}
        asked = list(nodes)[:PEERS_MAX]
        return [one for one in asked if one in named], [one for one in asked if one not in named]

    async def sync(self) -> dict[str, str]:
        """Ask all of them, some at once; how it went by node. Raises `HostUnavailable`."""
        trusted, others = await self._known()
        return await self._sync(trusted, others)

    async def meet(self) -> dict[str, str]:
        """Ask those that this process has not asked yet. Raises `HostUnavailable`."""
        trusted, others = await self._known()
        new = [[one for one in part if one not in self._asked] for part in (trusted, others)]
        return await self._sync(*new)

    async def _sync(self, trusted: Sequence[str], others: Sequence[str]) -> dict[str, str]:
        """Strangers can be as many as they like, and answer as late as is allowed: so they have so
        much time together, other ones first in every round, and nobody waits behind them."""
        loop, outcomes = asyncio.get_running_loop(), dict[str, str]()
        until = loop.time() + STRANGERS_SECONDS

        async def ask(nodes: Sequence[str], until: float = inf) -> None:
            turns = asyncio.Semaphore(AT_ONCE)

            async def one(node: str) -> None:
                async with turns:
                    if loop.time() < until:
                        self._asked.add(node)
                        outcomes[node] = await self.sync_one(node)

            await asyncio.gather(*(one(node) for node in nodes))

        begin = self._begin % len(others) if others else 0
        await asyncio.gather(ask(trusted), ask([*others[begin:], *others[:begin]], until))
        self._begin = begin + sum(node in outcomes for node in others)
        return outcomes

    async def sync_one(self, node: str) -> Literal["ok", "partial", "failed"]:
        """Ask one for all of its offers."""
        status: Literal["ok", "partial", "failed"] = "ok"
        counts, reason, after = Counts(), "", ""
        begun, pages = self._clock.now(), 0
        try:
            await self._establish(node)
            while True:
                answer = await self.fetch(node, _page(after), timeout_ms=self._timeout)
                counts += await self._taken(answer, node)
                pages += 1
                after, before = _next(answer), after
                if after <= before:  # the last page, or one that leads nowhere
                    break
                if reason := self._enough(counts, pages, self._clock.now() - begun):
                    status, reason = "partial", f"it has more, after {after}: {reason}"
                    break
        except AnabranchError as error:
            status = "partial" if counts.stored or counts.stale else "failed"
            reason = f"{error.code}: {error.message}"
        self._catalog.facts.synced(node, status, counts, reason)
        return status

    def _enough(self, counts: Counts, pages: int, took_ms: int) -> str:
        """Why a peer that has more pages is asked for no more of them in this round."""
        most = self._settings.peer_sync_offers_max
        if counts.stored + counts.stale >= most:
            return f"{most:,} offers are taken at once"
        if pages >= max(PAGES_LEAST, most // OFFERS_OF_A_PAGE):
            return f"{pages:,} pages are read at once"
        if took_ms >= TIMEOUTS_OF_A_SYNC * self._timeout:
            return f"{pages:,} pages took {took_ms / 1000:g} s"
        return ""

    async def fetch(
        self, node: str, wanted: Mapping[str, Any], *, timeout_ms: int, query_id: str = ""
    ) -> Mapping[str, Any]:
        """What a node answers to one question. Raises `InputError` for what is no answer to it, and
        `Silent` where the node took the question and said nothing."""
        query_id = query_id or self.new_query_id(node)
        (outcome,) = await self._host.message(
            {"node_id": node},
            REQUEST,
            {"filter": dict(wanted), "query_id": query_id},
            correlation_id=query_id,
            timeout_ms=timeout_ms,
        )
        if outcome["status"] in ("no_response", "dropped"):
            raise Silent(f"{node} has not answered yet")
        if outcome["status"] != "responded":
            error = outcome.get("error") or {}
            message = str(error.get("message") or outcome["status"])[:300]
            raise InputError(message, code=str(error.get("code") or "peer_failed"))
        return _answer(outcome["payload"], query_id)

    def new_query_id(self, node: str) -> str:
        self._questions += 1
        parts = self._catalog.node_id, node, str(self._clock.now()), str(self._questions)
        return f"offer-query:{derived('offer-query', *parts)}"

    async def _establish(self, node: str) -> None:
        body = {
            "schema_version": "v1",
            "capability_id": "peer_session_establish",
            "node_id": node,
            "timeout_ms": self._timeout,
        }
        await self._host.capability("peer.session.establish", body)

    async def _taken(self, answer: Mapping[str, Any], node: str) -> Counts:
        """What has expired on the way is no reason to complain."""
        now = self._clock.now()
        relays = [one for one in relays_in(answer) if not _is_over(one, now)]
        return Counts.of(await self._admitter.admit(relays, node))

    @property
    def _timeout(self) -> int:
        return self._settings.peer_sync_timeout_ms


class Silent(HostUnavailable):
    """The answer may come later, as a message of its own."""

    code = "no_response"


def _page(after: str) -> dict[str, Any]:
    page = {"active_only": False, "limit": OFFERS_MAX}
    return page | {"after": after} if after else page


def _next(answer: Mapping[str, Any]) -> str:
    """Where the next page begins; "" where there is none, or none that can be asked for."""
    found = answer.get("next")
    return found if isinstance(found, str) and len(found) <= _NEXT_MAX else ""


def _answer(payload: Any, query_id: str) -> Mapping[str, Any]:
    if not isinstance(payload, Mapping):
        raise InputError("the node answered with no catalog", code="peer_answer")
    if payload.get("query_id", query_id) != query_id:
        raise InputError("the node answered another question", code="peer_answer")
    if payload.get("error") is not None:
        said = str(payload["error"])[:300]
        raise InputError(f"the node answered: {said}", code="peer_answer")
    return payload


def _is_over(relay: Any, now: int) -> bool:
    offer = relay.get("offer") if isinstance(relay, Mapping) else None
    ends = offer.get("expires-at") if isinstance(offer, Mapping) else None
    at = moment(ends) if isinstance(ends, str) else None
    return at is not None and at <= now


def visible_rows(catalog: OfferCatalog, names: Sequence[str]) -> list[dict[str, Any]]:
    """Those of these offers that may be seen, the cheapest first."""
    rows = [row for name in dict.fromkeys(names) if (row := catalog.row(name)) is not None]
    return sorted(rows, key=lambda row: (row["offer"]["pricing/amount"], row["offer"]["offer/id"]))

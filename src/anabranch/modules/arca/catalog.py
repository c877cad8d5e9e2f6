"""The part of Arca that knows offers: it hears of them, keeps them in the catalog, and shows them.

The offers of the node come from the host; those of others from their catalogs, asked again and
again, from what they push, and from Agora. It answers peers that ask for an offer of this node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.clock import Clock
from anabranch.errors import AnabranchError, InputError
from anabranch.market.catalog import listing
from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.market.catalog.facts import Counts
from anabranch.market.catalog.listing import CatalogFilter
from anabranch.market.catalog.messages import PUSH, RESPONSE, relays_in
from anabranch.market.node.api import Answer, Call, Endpoint, Handler
from anabranch.market.node.errors import NodeError
from anabranch.market.node.paging import whole_number
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.discovery import fan_out_answers
from anabranch.modules.arca.discovery.admitter import Admitter
from anabranch.modules.arca.discovery.agora import AgoraReplay
from anabranch.modules.arca.discovery.fan_out_answers import FanOutAnswers
from anabranch.modules.arca.discovery.local_offers import LocalOffers
from anabranch.modules.arca.discovery.peers import PeerCatalogs
from anabranch.modules.arca.discovery.remote_query import RemoteQueries, RemoteQueryBody
from anabranch.modules.arca.work.search import matches
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable
from anabranch.modules.kit.module import MessageHandler, PeerMessage, reply

logger = logging.getLogger("anabranch.module")

OFFERS_MAX = 1000  # that one search looks at, the cheapest first
ANSWER_BYTES = 900_000  # of the rows of a catalog: a host takes 1 MiB where nothing else is set
SYNC_SECONDS = 4.0  # that a caller waits for other catalogs
REFRESH_SECONDS = 60.0  # the same for a step that knows of no offer
MEET_SECONDS = 10  # between two looks for catalogs that were not asked yet
RETRY_SECONDS = 5.0  # after a round in which the host was not there
_SERVICE = ("service_type", "service/type")


class CatalogPart:
    """A `ModulePart`, and the `Offers` of hosted runs."""

    def __init__(
        self, *, host: Host, catalog: OfferCatalog, clock: Clock, config: ArcaConfig
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._config = config
        self._local = LocalOffers(host, catalog)
        self._admitter = Admitter(host, catalog)
        self._peers = PeerCatalogs(
            host=host, admitter=self._admitter, catalog=catalog, clock=clock, settings=config
        )
        self.queries = RemoteQueries(
            peers=self._peers, admitter=self._admitter, catalog=catalog, clock=clock
        )
        self.agora = AgoraReplay(config.agora_source, self._admitter, catalog)
        self._answers = FanOutAnswers(self._local, clock)
        self._syncing = asyncio.Lock()
        self._synced_at = -1
        self._synced: dict[str, str] = {}
        self._rounds: list[asyncio.Task[None]] = []
        self._syncs: set[asyncio.Task[dict[str, str]]] = set()  # that callers have asked for

    # -- a part of the module ------------------------------------------------------------------

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            _row("GET", "/v1/service-catalog", self.listed, "Offers of this node and of others",
                 query=tuple(name for name in listing.QUERY if name != "source")),
            _row("POST", "/v1/catalog/remote-query", self.remote_query, "Ask other catalogs",
                 body=RemoteQueryBody),
            _row("GET", "/v1/catalog/remote-query/{query}", self.query, "How a query stands"),
            _row("GET", "/v1/offer-catalog/sources", self.sources, "Catalogs that were asked"),
            _row("POST", "/v1/offer-catalog/sync", self.sync_now, "Ask other catalogs now"),
            _row("GET", "/v1/offer-catalog/replay/status", self.replay_status, "The replay"),
            _row("GET", "/v1/offer-catalog/replay/diagnostics", self.diagnostics,
                 "What was refused, newest first", query=("limit",)),
            _row("POST", "/v1/offer-catalog/replay/resync", self.resync, "Replay what is new"),
            _row("POST", "/v1/offer-catalog/replay/reset-cursor", self.reset_cursor,
                 "Begin the next replay anew"),
        ]  # fmt: skip

    def local_routes(self) -> Sequence[str]:
        return [f"{one.method} {one.path.removeprefix('/v1/')}" for one in self.endpoints()]

    def messages(self) -> Mapping[str, MessageHandler]:
        return {
            RESPONSE: self.received,
            PUSH: self.received,
            fan_out_answers.REQUEST: self._answers.asked,
        }

    async def start(self) -> None:
        """Begin the rounds: catalogs of others, and the replay where there is a source."""
        rounds = [
            (self._sync_round, self._config.peer_sync_interval_sec),
            (self._meet_round, MEET_SECONDS),
        ]
        if self._config.agora_source:
            rounds.append((self._replay_round, self._config.agora_interval_sec))
        loop = asyncio.get_running_loop()
        self._rounds = [loop.create_task(_again_and_again(*one)) for one in rounds]

    async def close(self) -> None:
        await cancel_and_wait(*self._rounds, *self._syncs, ignore=Exception)  # defects were told
        self._rounds = []
        await self.queries.close()

    # -- the port of hosted runs ---------------------------------------------------------------

    def offers(
        self,
        *,
        service_type: str,
        provider: str = "",
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the word of definitions
    ) -> list[Mapping[str, Any]]:
        fields = {"service/type": service_type, "provider/participant-id": provider}
        wanted = CatalogFilter(
            fields={key: msgspec.json.encode(value) for key, value in fields.items() if value},
            limit=OFFERS_MAX,
        )
        keys = {_SERVICE[1] if key in _SERVICE else key: one for key, one in (filter or {}).items()}

        def fits(offer: Mapping[str, Any]) -> bool:
            return all(matches(offer, key, value) for key, value in keys.items())

        rows = self._catalog.rows(wanted, cheapest=True, fits=fits if keys else None)
        return [row["offer"] for row in rows]

    def offer(self, offer_id: str) -> Mapping[str, Any] | None:
        row = self._catalog.row(offer_id)
        return row["offer"] if row else None

    async def refresh(self) -> None:
        """The offers of the node, and of other catalogs if they were not asked just now."""
        try:
            await self._local.refresh()
            if self._clock.now() - self._synced_at >= self._config.peer_sync_again_ms:
                await self._begun(REFRESH_SECONDS)
        except AnabranchError as error:
            logger.info("offers could not be refreshed: %s", error.message)

    # -- rounds --------------------------------------------------------------------------------

    async def _sync_round(self) -> None:
        self._catalog.purge()
        await self._local.refresh()
        await self._sync()

    async def _meet_round(self) -> None:
        """A node that has just become known is not left until the next full round."""
        async with self._syncing:
            await self._peers.meet()

    async def _replay_round(self) -> None:
        await self.agora.run()

    async def _sync(self) -> dict[str, str]:
        """How each peer answered. One at a time; who waited for another is content with that."""
        asked_at = self._clock.now()
        async with self._syncing:
            if self._synced_at < asked_at:
                self._synced = await self._peers.sync()
                self._synced_at = self._clock.now()
            return self._synced

    async def _begun(self, seconds: float) -> dict[str, str] | None:
        """The same for a caller who waits for so long; None where it goes on."""
        sync = asyncio.get_running_loop().create_task(self._sync())
        self._syncs.add(sync)
        sync.add_done_callback(self._ended)
        await asyncio.wait({sync}, timeout=seconds)
        return sync.result() if sync.done() else None

    def _ended(self, sync: asyncio.Task[dict[str, str]]) -> None:
        """The caller may be gone; why it failed is no defect."""
        self._syncs.discard(sync)
        if not sync.cancelled():
            sync.exception()

    # -- messages of peers -----------------------------------------------------------------------

    async def received(self, message: PeerMessage) -> dict[str, Any]:
        """Offers that a peer has sent: an answer that came later, or unasked."""
        payload = message.payload if isinstance(message.payload, Mapping) else {}
        try:
            relays = relays_in(payload)
            found = await self._admitter.unasked(
                relays, message.remote_node_id, trusted=message.remote_trusted
            )
        except AnabranchError as error:
            said = {"code": error.code, "message": error.message}
            return reply({"status": "refused", "error": said}, reason=error.code)
        if message.msg == RESPONSE:
            self.queries.heard(payload.get("query_id"), message.remote_node_id, found)
        return reply({"status": "ok", "counts": Counts.of(found).shown()})

    # -- what it serves --------------------------------------------------------------------------

    async def listed(self, call: Call) -> Answer:
        _, wanted = listing.query_of(call.query)
        message = ""
        try:
            await self._local.refresh()
        except AnabranchError as error:
            message = f"offers of this node as they were: {error.message}"
        rows = self._catalog.rows(wanted)
        shown = _within(rows, ANSWER_BYTES)
        if len(shown) < len(rows):
            message = f"{len(rows) - len(shown)} more fit; ask for a service type or a provider"
        local = [row for row in shown if row["source"] == "local"]
        body = listing.answer(
            local, [row for row in shown if row["source"] != "local"], wanted.limit,
            "service_catalog",
        )  # fmt: skip
        body["counts"]["hidden"] = self._catalog.counts()["hidden"]
        return Answer(body=body | {"message": message} if message else body)

    async def remote_query(self, call: Call) -> Answer:
        return Answer(body=await self.queries.ask(msgspec.convert(call.body, RemoteQueryBody)))

    async def query(self, call: Call) -> Answer:
        return Answer(body=self.queries.find(call.params["query"]))

    async def sources(self, _call: Call) -> Answer:
        return Answer(body={"items": self._catalog.facts.sources()})

    async def sync_now(self, _call: Call) -> Answer:
        """Catalogs that do not answer take their time: then it goes on without the caller."""
        await self._local.refresh()
        found = await self._begun(SYNC_SECONDS)
        items = [{"node_id": node, "status": status} for node, status in (found or {}).items()]
        status = "running" if found is None else "done"
        return Answer(body={"status": status, "items": items, "counts": self._catalog.counts()})

    async def replay_status(self, _call: Call) -> Answer:
        return Answer(body=self.agora.status())

    async def diagnostics(self, call: Call) -> Answer:
        limit = whole_number(call.query, "limit", 100, least=1, most=500)
        return Answer(body={"items": self._catalog.facts.diagnostics(limit)})

    async def resync(self, _call: Call) -> Answer:
        if not self._config.agora_source:
            raise InputError(
                "no source is configured: set `agora_source` of the section `arca`",
                code="agora_source",
            )
        return Answer(body=await self.agora.run())

    async def reset_cursor(self, _call: Call) -> Answer:
        self.agora.reset()
        return Answer(body=self.agora.status())


async def _again_and_again(work: Callable[[], Awaitable[None]], seconds: float) -> None:
    while True:
        wait = seconds
        try:
            await work()
        except AnabranchError as error:
            logger.info("a round of the catalog failed: %s", error.message)
            wait = min(seconds, RETRY_SECONDS)
        except Exception as error:  # a defect is told, and is no reason never to ask again
            said = {"message": "a round of the catalog failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(said)
        await asyncio.sleep(wait)


def _within(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """As many of the first rows as fit; every offer stands in an answer twice."""
    size, count = 0, 0
    for row in rows:
        size += 2 * len(msgspec.json.encode(row))
        if size > most:
            break
        count += 1
    return rows[:count]


def _asking(handler: Handler) -> Handler:
    """What the host does not do now is told as that."""

    async def answer(call: Call) -> Answer:
        try:
            return await handler(call)
        except HostUnavailable as error:
            later = {"Retry-After": "5"}
            raise NodeError(503, error.code, error.message, headers=later) from None
        except HostRefused as error:
            raise NodeError(502, error.code, error.message) from None

    return answer


def _row(
    method: str,
    path: str,
    handler: Handler,
    summary: str,
    *,
    body: Any = None,
    query: tuple[str, ...] = (),
) -> Endpoint:
    return Endpoint(
        method=method,
        path=path,
        scopes=("operator",),
        handler=_asking(handler),
        summary=summary,
        body=body,
        query=query,
    )

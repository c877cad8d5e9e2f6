"""A question to other catalogs, once: it ends when all have answered, or when its time is over.

Answers are found by the id of the query, whether the node answers at once or sends them later as an
`offer-catalog.fetch.response`. One that comes too late is kept in the catalog all the same, and the
query shows it for a while.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from anabranch.cancel import cancel_and_wait
from anabranch.clock import Clock
from anabranch.errors import AnabranchError, InputError, NotFound
from anabranch.market.catalog.admission import Admission
from anabranch.market.catalog.catalog import OfferCatalog
from anabranch.market.catalog.listing import filter_of
from anabranch.market.catalog.messages import relays_in
from anabranch.market.identities import public_key
from anabranch.market.node.errors import NodeError
from anabranch.modules.arca.discovery.admitter import Admitter
from anabranch.modules.arca.discovery.peers import PeerCatalogs, Silent, visible_rows

TIMEOUT_MS, TIMEOUT_MS_MAX = 5_000, 50_000
LATE_MS = 60_000  # how long the host waits for an answer, at least
QUERIES_KEPT = 200
NODES_MAX = 256
#: Questions at the host at once: each may take a minute, and the host has other work for this
#: module. Of those that wait for their turn there are at most so many.
ASKED_AT_ONCE, WAITING_MAX = 64, 2048
OFFERS_OF_A_NODE = 500  # that one query remembers


class RemoteQueryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    filter: dict[str, Any] = {}
    node_ids: Annotated[list[str], msgspec.Meta(max_length=NODES_MAX)] | None = None
    timeout_ms: Annotated[int, msgspec.Meta(ge=1, le=TIMEOUT_MS_MAX)] = TIMEOUT_MS


class RemoteQuery:
    """`nodes` says how each stands: waiting, answered, or why it failed."""

    def __init__(self, query_id: str, wanted: Mapping[str, Any], nodes: Iterable[str]) -> None:
        self.query_id = query_id
        self.wanted = wanted
        self.nodes = dict.fromkeys(nodes, "waiting")
        self._offers: dict[str, dict[str, None]] = {}  # by node: the ids of offers
        self.changed = asyncio.Event()

    @property
    def offers(self) -> list[str]:
        return [name for names in self._offers.values() for name in names]

    def answered(self, node: str, admissions: Iterable[Admission]) -> None:
        """Also more than once: an answer may come in several messages."""
        names = self._offers.setdefault(node, {})
        for one in admissions:
            if one.status != "rejected" and len(names) < OFFERS_OF_A_NODE:
                names[one.offer_id] = None
        self._settle(node, "answered")

    def failed(self, node: str, reason: str) -> None:
        if self.nodes[node] == "waiting":
            self._settle(node, reason)

    def _settle(self, node: str, how: str) -> None:
        self.nodes[node] = how
        self.changed.set()

    @property
    def is_settled(self) -> bool:
        return "waiting" not in self.nodes.values()

    @property
    def status(self) -> Literal["complete", "partial", "timeout"]:
        answers = list(self.nodes.values()).count("answered")
        if answers == len(self.nodes):
            return "complete"
        return "partial" if answers else "timeout"


class RemoteQueries:
    def __init__(
        self, *, peers: PeerCatalogs, admitter: Admitter, catalog: OfferCatalog, clock: Clock
    ) -> None:
        self._peers = peers
        self._admitter = admitter
        self._catalog = catalog
        self._clock = clock
        self._queries: OrderedDict[str, RemoteQuery] = OrderedDict()
        self._asking: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(self, body: RemoteQueryBody) -> dict[str, Any]:
        """Raises `InputError` for a filter or a node that is none, and `NodeError` where too many
        questions wait."""
        filter_of(body.filter)
        nodes = await self._peers.known() if body.node_ids is None else body.node_ids
        nodes = nodes[:NODES_MAX]
        for node in nodes:
            _require_node(node)
        if len(self._asking) + len(nodes) > WAITING_MAX:
            said = "too many questions to other catalogs wait; ask later"
            raise NodeError(503, "busy", said, headers={"Retry-After": "60"})
        query_id = self._peers.new_query_id("")
        query = RemoteQuery(query_id, body.filter, nodes)
        self._keep(query)
        for node in query.nodes:
            self._spawn(query, node, max(body.timeout_ms, LATE_MS))
        await self._settled(query, body.timeout_ms / 1000)
        return self._shown(query)

    def find(self, query_id: str) -> dict[str, Any]:
        """How a query stands now, with what came late. Raises `NotFound`."""
        found = self._queries.get(query_id)
        if found is None:
            raise NotFound(f"no query {query_id[:200]!r} is known here", code="query_not_found")
        return self._shown(found)

    def heard(self, query_id: Any, node: str, admissions: Iterable[Admission]) -> None:
        """A node has sent its answer as a message of its own."""
        query = self._queries.get(query_id) if isinstance(query_id, str) else None
        if query is not None and node in query.nodes:
            query.answered(node, admissions)

    async def close(self) -> None:
        await cancel_and_wait(*self._asking, ignore=AnabranchError)

    # -- one query -----------------------------------------------------------------------------

    def _spawn(self, query: RemoteQuery, node: str, timeout_ms: int) -> None:
        work = self._one(query, node, timeout_ms)
        task = asyncio.get_running_loop().create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _one(self, query: RemoteQuery, node: str, timeout_ms: int) -> None:
        try:
            async with self._turns:
                answer = await self._peers.fetch(
                    node, query.wanted, timeout_ms=timeout_ms, query_id=query.query_id
                )
            found = await self._admitter.admit(relays_in(answer), node)
        except Silent:
            return  # it may answer later
        except AnabranchError as error:
            query.failed(node, error.code)
        else:
            query.answered(node, found)

    async def _settled(self, query: RemoteQuery, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not query.is_settled:
                    query.changed.clear()
                    await query.changed.wait()
        except TimeoutError:
            pass

    def _keep(self, query: RemoteQuery) -> None:
        self._queries[query.query_id] = query
        while len(self._queries) > QUERIES_KEPT:
            self._queries.popitem(last=False)

    def _shown(self, query: RemoteQuery) -> dict[str, Any]:
        wanted, now = filter_of(query.wanted), self._clock.now()
        rows = visible_rows(self._catalog, query.offers)
        rows = [row for row in rows if wanted.fits(row["offer"], now)][: wanted.limit]
        return {
            "query_id": query.query_id,
            "status": query.status,
            "offers": [row["offer"] for row in rows],
            "observed_offers": rows,
            "nodes": [{"node_id": node, "status": how} for node, how in query.nodes.items()],
        }


def _require_node(node: str) -> None:
    public_key(node)
    if not node.startswith("node:"):
        raise InputError(f"`node_ids` names nodes: {node[:100]} is none", code="bad_identity")

"""The routes of the seed directory. Reads are open; writes are authorised by what is signed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from anabranch.clock import Clock
from anabranch.errors import InputError
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.directory.artifacts import (
    endpoints_of,
    published_at,
    size_of,
)
from anabranch.market.node.directory.passport_cache import PassportCache
from anabranch.market.node.directory.registry import SeedDirectory
from anabranch.market.node.directory.room import source_of
from anabranch.market.node.directory.sync import cached_here
from anabranch.market.node.door import Door, weigh
from anabranch.market.node.errors import NodeError
from anabranch.market.node.paging import whole_number
from anabranch.market.passports import instant
from anabranch.work.participants.performers import rfc3339

ITEMS_MAX = 500
PAGE_BYTES = 2 * 1024 * 1024  # far below the 8 MiB that a reader takes at once
BODY_BYTES = 512 * 1024
REVOCATION_BYTES = 16 * 1024
REVOCATION_FAMILY = "capability-passport-revocation"


class SeedEndpoints:
    def __init__(
        self,
        clock: Clock,
        registry: SeedDirectory,
        cache: PassportCache,
        proxies: Sequence[str] = (),
    ) -> None:
        self._proxies = frozenset(proxies)
        self._door = Door()
        self._clock = clock
        self._registry = registry
        self._cache = cache

    def endpoints(self) -> Sequence[Endpoint]:
        def row(method: str, path: str, handler: Any, summary: str, **more: Any) -> Endpoint:
            return Endpoint(
                method=method, path=path, scopes=("open",), handler=handler, summary=summary,
                **{"body_bytes": BODY_BYTES, **more},
            )  # fmt: skip

        refused = (400, 403, 409, 413, 429)
        return (
            row("PUT", "/adv/{node}", self.put_advertisement,
                "Publish the advertisement of a node, which has signed it",
                status=201, errors=refused),
            row("GET", "/adv/{node}", self.get_advertisement,
                "The newest advertisement of a node", errors=(404,)),
            row("GET", "/adv", self.list_advertisements,
                "Advertisements that came after a number or an instant",
                query=("since",), errors=(400,)),
            row("PUT", "/cap/{node}/{capability*}", self.put_capability,
                "Register a capability of a node with its passport", status=201, errors=refused),
            row("GET", "/cap/{node}", self.list_capabilities,
                "Capabilities of a node", errors=(404,)),
            row("GET", "/cap", self.query,
                "Nodes with a capability, or all of them", query=("capability", "cursor", "limit"),
                errors=(400,)),
            row("POST", "/revoke", self.revoke,
                "Revoke a passport with a signed revocation", errors=(400, 403, 413, 429),
                body_bytes=REVOCATION_BYTES),
            row("GET", "/revocations", self.list_revocations,
                "Revocations that came after a number or an instant",
                query=("since",), errors=(400,)),
            row("GET", "/participant/{participant}", self.participant,
                "Nodes that a participant runs", errors=(404,)),
        )  # fmt: skip

    # -- advertisements ----------------------------------------------------------------------

    async def put_advertisement(self, call: Call) -> Answer:
        node = call.params["node"]
        await self._check_documents(call)
        first = self._registry.put_advertisement(node, call.body, self._source(call))
        one = self._registry.advertisements[node]
        ends = rfc3339(self._registry.ends_at(one.advertisement))
        body = {"node_id": node, "sequence/no": one.sequence, "expires_at": ends}
        return await self._taken(first, body)

    async def _check_documents(self, call: Call) -> None:
        """Shapes and signatures, where they hold nobody up: anyone may send them. What holds is
        known when it is decided about, so it is not looked at again."""
        weight = weigh(call.body)
        with self._door.waiting.place(weight, trusted=False):
            await self._door.read(partial(self._registry.check_documents, call.body), weight)

    def _source(self, call: Call) -> str:
        return source_of(call, self._proxies)

    async def get_advertisement(self, call: Call) -> Answer:
        found = self._registry.advertisements.get(call.params["node"])
        if found is None:
            raise NodeError(404, "not-found", "no advertisement of this node is known")
        return Answer(body={"advertisement": found.advertisement, "sequence/no": found.sequence})

    async def list_advertisements(self, call: Call) -> Answer:
        rows = sorted(self._registry.advertisements.values(), key=lambda one: one.number)
        since = _since(call.query)
        items = (
            (one.number, {"advertisement": one.advertisement, "sequence/no": one.sequence})
            for one in rows
            if since.is_before(one.number, lambda one=one: published_at(one.advertisement))
        )
        return _page(items, since.number)

    # -- capabilities ------------------------------------------------------------------------

    async def put_capability(self, call: Call) -> Answer:
        node, capability = call.params["node"], call.params["capability"]
        await self._check_documents(call)
        first = self._registry.put_capability(node, capability, call.body, self._source(call))
        number = call.body["sequence/no"]
        body = {"node_id": node, "capability_id": capability, "sequence/no": number}
        return await self._taken(first, body)

    async def list_capabilities(self, call: Call) -> Answer:
        items = self._rows(call.params["node"])
        if not items:
            raise NodeError(404, "not-found", "no capability of this node is registered")
        return Answer(body={"items": items, "next": None, "max-items": len(items)})

    async def query(self, call: Call) -> Answer:
        wanted, cursor = call.query.get("capability"), call.query.get("cursor", "")
        limit = whole_number(call.query, "limit", ITEMS_MAX, least=1, most=ITEMS_MAX)
        items: list[Any] = []
        after, last, size = None, "", 0
        for node in sorted(node for node in self._registry.registrations if node > cursor):
            rows = self._rows(node, wanted)
            size += size_of(rows)
            if items and (len(items) + len(rows) > limit or size > PAGE_BYTES):
                after = last
                break
            items, last = items + rows, node
        return Answer(body={"items": items, "next": after, "max-items": limit})

    def _rows(self, node: str, wanted: str | None = None) -> list[dict[str, Any]]:
        """Those that are current: expiry is looked at with every question. Rows are made of those
        alone that are asked for: anyone may ask, and other nodes may have registered many."""
        now = self._clock.now()
        if wanted is not None and wanted not in self._registry.registrations.get(node, {}):
            return []
        found = cached_here(self._registry, node)
        return [
            self._cache.row(one)
            for capability, one in sorted(found.items())
            if wanted in (None, capability)
            and ((ends := one.checked.passport.expires_at) is None or ends > now)
        ]

    # -- revocations -------------------------------------------------------------------------

    async def revoke(self, call: Call) -> Answer:
        news = self._registry.revoke(call.body)
        await self._registry.durable()
        status = "revoked" if news else "already-revoked"
        return Answer(body={"status": status, "revocation_id": call.body["revocation_id"]})

    async def list_revocations(self, call: Call) -> Answer:
        since, known = _since(call.query), self._registry.in_order
        rows = known.after(since.number) if since.at is None else known.since(since.at)
        items = (
            (one.number, {"artifact_family": REVOCATION_FAMILY, "artifact": one.revocation})
            for one in rows
        )
        return _page(items, since.number)

    # -- participants ------------------------------------------------------------------------

    async def participant(self, call: Call) -> Answer:
        wanted = call.params["participant"]
        found = self._cache.operators.nodes_of(wanted, ITEMS_MAX)
        if not found:
            raise NodeError(404, "not-found", "no node of this participant is registered")
        nodes = [self._node_row(node, capabilities) for node, capabilities in found]
        return Answer(body={"participant_id": wanted, "nodes": nodes})

    def _node_row(self, node: str, capabilities: list[str]) -> dict[str, Any]:
        advertised = self._registry.advertisements.get(node)
        return {
            "node_id": node,
            "endpoints": endpoints_of(advertised.advertisement) if advertised else [],
            "capabilities": capabilities,
        }

    async def _taken(self, first: bool, body: Mapping[str, Any]) -> Answer:
        await self._registry.durable()
        status = "registered" if first else "updated"
        return Answer(status=201 if first else 200, body={"status": status, **body})


class _Since:
    """From where a list is asked for: a number of this directory, or an instant."""

    def __init__(self, number: int, at: int | None = None) -> None:
        self.number = number
        self.at = at

    def is_before(self, number: int, moment: Any) -> bool:
        return number > self.number if self.at is None else moment() >= self.at


def _since(query: Mapping[str, str]) -> _Since:
    text = query.get("since") or "0"
    if text.isascii() and text.isdigit() and len(text) < 20:
        return _Since(int(text))
    try:
        return _Since(0, instant(text, "since"))
    except InputError as error:
        raise NodeError(400, "schema", f"{error.message}; a number is taken, too") from None


def _page(items: Iterable[tuple[int, Any]], since: int) -> Answer:
    """`next` is where to go on; asked again with it, nothing is missed and nothing repeated. A page
    ends early where its items are large: strangers wrote them, and every reader has its limit."""
    page: list[Any] = []
    after, size = since, 0
    for number, item in items:
        size += size_of(item)
        if page and (len(page) == ITEMS_MAX or size > PAGE_BYTES):
            break
        page.append(item)
        after = number
    return Answer(body={"items": page, "next": str(after), "max-items": ITEMS_MAX})

"""The servers of this store, the partitions they own, who owns a run, and draining a server.

Any server answers for all of them: what is shown stands in the store, by the clock of the store.
"""

from __future__ import annotations

import msgspec
from aiohttp import web

from anabranch.operations.drain import drain, undrain
from anabranch.operations.read.cluster import (
    ClusterCard,
    ClusterReader,
    PartitionCard,
    RunOwner,
    ServerCard,
)
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.request_body import answer
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.http.routes import API, PARTS, Route

CLUSTER = f"{API}/cluster"
DRAIN = f"{CLUSTER}/servers/{{server}}/drain"


class PartitionList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[PartitionCard]
    next: None = None


def reader_of(request: web.Request) -> ClusterReader:
    """With the store handle of the engine: its servers are asked on a connection of their own."""
    return ClusterReader(request.app[PARTS].store, answering=True)


async def show(request: web.Request) -> web.StreamResponse:
    return answer(await in_thread(reader_of(request).summary))


async def list_partitions(request: web.Request) -> web.StreamResponse:
    return answer(PartitionList(items=await in_thread(reader_of(request).partitions)))


async def owner(request: web.Request) -> web.StreamResponse:
    name, reader = request.match_info["run"], reader_of(request)
    head = await look(request, lambda by: by.read.find(name))
    return answer(await in_thread(lambda: reader.owner(head.run)))


async def begin_drain(request: web.Request) -> web.StreamResponse:
    store, name = request.app[PARTS].store, request.match_info["server"]
    card = await in_thread(lambda: drain(store, name, answering=True))
    request[SUBJECT] = card.id
    return answer(card)


async def end_drain(request: web.Request) -> web.StreamResponse:
    store, name = request.app[PARTS].store, request.match_info["server"]
    card = await in_thread(lambda: undrain(store, name, answering=True))
    request[SUBJECT] = card.id
    return answer(card)


ROUTES = (
    Route("GET", CLUSTER, "read", show, "The servers of the store, and how its partitions stand",
          returns=ClusterCard),
    Route("GET", f"{CLUSTER}/partitions", "read", list_partitions,
          "The partitions: owner, epoch, messages that wait", returns=PartitionList),
    Route("GET", f"{CLUSTER}/runs/{{run}}", "read", owner, "Which server owns a run",
          returns=RunOwner, errors=(404,)),
    Route("POST", DRAIN, "admin", begin_drain,
          "Ask a server to hand over every partition it owns; it goes on answering",
          returns=ServerCard, errors=(404, 409), bodiless=True),
    Route("DELETE", DRAIN, "admin", end_drain, "Let a drained server take its share again",
          returns=ServerCard, errors=(404, 409)),
)  # fmt: skip

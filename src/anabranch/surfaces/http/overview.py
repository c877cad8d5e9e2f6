"""`GET /overview`: everything at a glance; and `/views`, the saved views of the list of runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec
from aiohttp import web
from msgspec.structs import replace

from anabranch.errors import AnabranchError
from anabranch.operations.overview import pool_loads
from anabranch.operations.overview.overview import KeptOverviews, Overview, PoolLoad, ServerLoad
from anabranch.operations.overview.pool_loads import PoolRecords
from anabranch.operations.overview.views import View, Views
from anabranch.operations.overview.windows import DEFAULT_WINDOW, WINDOWS, Window
from anabranch.operations.read.on_clusters import named
from anabranch.parts import Parts
from anabranch.pools.seen.pool_cards import PoolCard
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.request_body import answer, read_body, read_query
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.http.resources.cluster import reader_of
from anabranch.surfaces.http.resources.health import HEALTH
from anabranch.surfaces.http.routes import API, PARTS, Query, Route, actor_of

VIEWS = f"{API}/views"
KEPT = web.AppKey("overviews", KeptOverviews)
LOADS = web.AppKey("pool_loads", PoolRecords)


class ViewPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[View]
    next: None = None


class ViewDraft(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`query` is what stands behind `/runs?` in the address of the list."""

    query: str


def mount(app: web.Application) -> None:
    app[KEPT] = KeptOverviews()
    app.cleanup_ctx.append(_tell_other_servers)


async def _tell_other_servers(app: web.Application) -> AsyncIterator[None]:
    """Where servers share a store, each tells the others how full its pools are."""
    parts = app[PARTS]
    cluster = parts.store.cluster
    if cluster is None:
        yield
        return
    shared = app[LOADS] = PoolRecords(parts.store, cluster)
    telling = asyncio.get_running_loop().create_task(_keep_telling(parts, shared))
    yield
    telling.cancel()
    await asyncio.wait([telling])
    with suppress(AnabranchError):  # the others see that this server is gone
        await asyncio.to_thread(shared.leave)


async def _keep_telling(parts: Parts, shared: PoolRecords) -> None:
    while True:
        loads = _loads(parts, parts.store.cluster.server if parts.store.cluster else "")
        with suppress(AnabranchError):  # the store is away: the next time tells
            await asyncio.to_thread(shared.write, loads, parts.engine.clock.now())
        await asyncio.sleep(pool_loads.EVERY_SECONDS)


def _loads(parts: Parts, server: str) -> list[PoolLoad]:
    return [_load(card, server) for card in parts.pool_cards.all(tickets=0)]


async def overview_of(request: web.Request, window: Window) -> Overview:
    """Of the whole store, with the pools of all servers and the health of this one."""
    parts, kept = request.app[PARTS], request.app[KEPT]
    now = parts.engine.clock.now()
    found = await look(request, lambda by: kept.read(by.store, window, now))
    servers: list[ServerLoad] = []
    others: list[PoolLoad] = []
    if (shared := request.app.get(LOADS)) is not None:
        cards = (await in_thread(reader_of(request).summary)).servers
        servers = [
            ServerLoad(
                id=one.id, name=one.name, state=one.state, partitions=one.partitions, here=one.here
            )
            for one in cards
            if one.takes_share
        ]
        alive = {one.id for one in cards if one.alive}
        others = await in_thread(shared.of_others, alive)
    here = next((one.id for one in servers if one.here), "")
    pools = sorted([*_loads(parts, here), *others], key=lambda one: (one.pool, one.server))
    health = await request.app[HEALTH].report()
    return replace(found, pools=pools, servers=servers, health=health)


def _load(card: PoolCard, server: str) -> PoolLoad:
    cluster = card.cluster
    return PoolLoad(
        pool=card.pool,
        waiting=card.waiting + (cluster.queued if cluster is not None else 0),
        waiting_since=card.waiting_since,
        out=cluster.running if cluster is not None else len(card.leased),
        workers=cluster.workers if cluster is not None else len(card.workers),
        cluster=f"{named(cluster.engine, cluster.address)}: {cluster.state}" if cluster else "",
        server=server,
    )


async def show(request: web.Request) -> web.StreamResponse:
    return answer(await overview_of(request, read_query(request)["window"]))


async def list_views(request: web.Request) -> web.StreamResponse:
    return answer(ViewPage(items=await look(request, lambda by: Views(by.store).all())))


async def save_view(request: web.Request) -> web.StreamResponse:
    draft, name = await read_body(request, ViewDraft), request.match_info["view"]
    request[SUBJECT] = name[:200]
    parts = request.app[PARTS]
    views, now = Views(parts.store), parts.engine.clock.now()
    return answer(await in_thread(views.save, name, draft.query, actor_of(request), now))


async def drop_view(request: web.Request) -> web.StreamResponse:
    name = request.match_info["view"]
    request[SUBJECT] = name[:200]
    return answer(await in_thread(Views(request.app[PARTS].store).drop, name))


ROUTES = (
    Route(
        "GET",
        f"{API}/overview",
        "read",
        show,
        "Runs over time and by definition, what waits longest, pools, and the health of the engine",
        returns=Overview,
        query=(
            Query(
                "window",
                "how far back runs are counted",
                choices=tuple(WINDOWS),
                default=DEFAULT_WINDOW,
            ),
        ),
    ),
    Route("GET", VIEWS, "read", list_views, "Saved views of the list of runs", returns=ViewPage),
    Route(
        "PUT",
        f"{VIEWS}/{{view}}",
        "operate",
        save_view,
        "Save the filters of the list of runs under a name, for all users",
        body=ViewDraft,
        returns=View,
        example={"query": "status=failed&search=bank"},
        errors=(409,),
    ),
    Route(
        "DELETE",
        f"{VIEWS}/{{view}}",
        "operate",
        drop_view,
        "Delete a saved view",
        returns=View,
        errors=(404,),
    ),
)

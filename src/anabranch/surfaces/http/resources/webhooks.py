"""Webhooks over HTTP, and the dispatcher that lives as long as the application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from anabranch.operations.access.secret_key import key_of
from anabranch.operations.webhooks.dispatcher import WebhookDispatcher
from anabranch.operations.webhooks.matcher import WebhookMatcher
from anabranch.operations.webhooks.sender import WebhookSender
from anabranch.operations.webhooks.webhooks import (
    DeliveryCard,
    HookCard,
    HookChange,
    HookDraft,
    Webhooks,
)
from anabranch.store.hook_ports import DeliveryFilter
from anabranch.surfaces.http.io.request_body import (
    answer,
    page_of,
    read_body,
    read_cursor,
    read_query,
)
from anabranch.surfaces.http.resources.definitions import CURSOR, PAGE
from anabranch.surfaces.http.resources.health import HEALTH
from anabranch.surfaces.http.resources.metrics import METERS
from anabranch.surfaces.http.routes import API, PARTS, SETTINGS, Query, Route

log = logging.getLogger("anabranch.http")

WEBHOOKS = web.AppKey("webhooks", Webhooks)
DISPATCHER = web.AppKey("dispatcher", WebhookDispatcher)

ALL = f"{API}/webhooks"
ONE = f"{ALL}/{{webhook}}"
DELIVERIES = f"{ONE}/deliveries"
EXAMPLE = {
    "url": "https://example.org/anabranch",
    "kinds": ["run.finished", "gate.opened"],
    "labels": {"tenant": "a"},
}


class HookList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[HookCard]
    next: None = None


class DeliveryPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[DeliveryCard]
    next: str | None


class Redelivered(msgspec.Struct, frozen=True, kw_only=True):
    count: int


class Removed(msgspec.Struct, frozen=True, kw_only=True):
    id: str


async def create(request: web.Request) -> web.StreamResponse:
    draft = await read_body(request, HookDraft)
    card = await asyncio.to_thread(request.app[WEBHOOKS].create, draft)
    request.app[DISPATCHER].changed()
    return answer(card, 201, {"Location": f"{ALL}/{card.id}", "Cache-Control": "no-store"})


async def list_all(request: web.Request) -> web.StreamResponse:
    return answer(HookList(items=await asyncio.to_thread(request.app[WEBHOOKS].all)))


async def show(request: web.Request) -> web.StreamResponse:
    hooks, name = request.app[WEBHOOKS], request.match_info["webhook"]
    return answer(await asyncio.to_thread(hooks.show, name))


async def change(request: web.Request) -> web.StreamResponse:
    given = await read_body(request, HookChange)
    hooks, name = request.app[WEBHOOKS], request.match_info["webhook"]
    card = await asyncio.to_thread(hooks.change, name, given)
    request.app[DISPATCHER].changed()
    return answer(card)


async def rotate(request: web.Request) -> web.StreamResponse:
    hooks, name = request.app[WEBHOOKS], request.match_info["webhook"]
    card = await asyncio.to_thread(hooks.rotate, name)
    request.app[DISPATCHER].changed()
    return answer(card, headers={"Cache-Control": "no-store"})


async def remove(request: web.Request) -> web.StreamResponse:
    hooks, name = request.app[WEBHOOKS], request.match_info["webhook"]
    await asyncio.to_thread(hooks.remove, name)
    request.app[DISPATCHER].changed()
    return answer(Removed(id=name))


async def deliveries(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    limit = asked["limit"]
    wanted = DeliveryFilter(
        hook=request.match_info["webhook"],
        state=asked["state"],
        run=asked["run"],
        before=read_cursor(asked["cursor"], int, str, int) if asked["cursor"] else None,
        limit=limit + 1,
    )
    found = await asyncio.to_thread(request.app[WEBHOOKS].deliveries, wanted)
    items, following = page_of(found, limit, lambda one: (one.found_at, one.run, one.seq))
    return answer(DeliveryPage(items=items, next=following))


async def delivery(request: web.Request) -> web.StreamResponse:
    hooks, names = request.app[WEBHOOKS], request.match_info
    return answer(await asyncio.to_thread(hooks.delivery, names["webhook"], names["delivery"]))


async def redeliver(request: web.Request) -> web.StreamResponse:
    hooks, names = request.app[WEBHOOKS], request.match_info
    card = await asyncio.to_thread(hooks.redeliver, names["webhook"], names["delivery"])
    request.app[DISPATCHER].changed()
    return answer(card, 202)


async def redeliver_dead(request: web.Request) -> web.StreamResponse:
    hooks, name = request.app[WEBHOOKS], request.match_info["webhook"]
    count = await asyncio.to_thread(hooks.redeliver_dead, name)
    request.app[DISPATCHER].changed()
    return answer(Redelivered(count=count), 202)


async def carry(app: web.Application) -> AsyncIterator[None]:
    """The dispatcher works from the start of the application to its end."""
    dispatcher, engine = app[DISPATCHER], app[PARTS].engine
    left = await asyncio.to_thread(app[WEBHOOKS].protect)
    if left:
        log.warning(
            "the secrets of %d webhooks are in the store in plain text: `anabranch webhook rotate` "
            "makes new ones, or install 'anabranch[market]' to have them encrypted",
            left,
        )
    dispatcher.start()
    stop = engine.listen(dispatcher.news)
    yield
    stop()
    await dispatcher.close()


def mount(app: web.Application) -> None:
    parts, settings = app[PARTS], app[SETTINGS]
    clock = parts.engine.clock
    key = key_of(parts.store, settings)
    app[WEBHOOKS] = Webhooks(parts.store, clock, settings.webhook_addresses, key)
    app[DISPATCHER] = WebhookDispatcher(
        parts.store,
        WebhookMatcher(parts.store, parts.nets, settings.webhook_body_bytes),
        WebhookSender(settings.webhook_addresses, settings.webhook_timeout_seconds),
        clock=clock,
        settings=settings,
        may_act_for=parts.engine.may_act_for,
    )
    if parts.engine.member is not None:
        parts.engine.member.before_hand_over.append(app[DISPATCHER].let_go)
    app[METERS].registry.add(app[DISPATCHER].attempts)
    app[HEALTH].dispatcher = app[DISPATCHER]
    app.cleanup_ctx.append(carry)


_STATE = Query("state", "only those", choices=("pending", "done", "dead"), example="dead")
_PAGED = (
    _STATE,
    Query("run", "only those of this run"),
    PAGE,
    CURSOR,
)

ROUTES = (
    Route(
        "POST",
        ALL,
        "admin",
        create,
        "Create a webhook; the answer holds its secret, once",
        body=HookDraft,
        returns=HookCard,
        example=EXAMPLE,
        status=201,
        errors=(409,),
    ),
    Route("GET", ALL, "admin", list_all, "All webhooks and their state", returns=HookList),
    Route("GET", ONE, "admin", show, "One webhook", returns=HookCard),
    Route(
        "PATCH",
        ONE,
        "admin",
        change,
        "Change its events, its address or whether it is enabled",
        body=HookChange,
        returns=HookCard,
        example={"enabled": False},
    ),
    Route(
        "DELETE",
        ONE,
        "admin",
        remove,
        "Remove it, with all notices not delivered yet",
        returns=Removed,
    ),
    Route(
        "POST",
        f"{ONE}/rotate",
        "admin",
        rotate,
        "Make a new secret; the answer holds it, once",
        returns=HookCard,
        errors=(409,),
    ),
    Route(
        "GET",
        DELIVERIES,
        "admin",
        deliveries,
        "The deliveries: sent, waiting or dead, newest first",
        returns=DeliveryPage,
        query=_PAGED,
    ),
    Route(
        "GET",
        f"{DELIVERIES}/{{delivery}}",
        "admin",
        delivery,
        "One delivery with its body",
        returns=DeliveryCard,
    ),
    Route(
        "POST",
        f"{DELIVERIES}/{{delivery}}/redeliver",
        "admin",
        redeliver,
        "Send it again, under the same id",
        returns=DeliveryCard,
        errors=(409,),
        status=202,
    ),
    Route(
        "POST",
        f"{ONE}/redeliver",
        "admin",
        redeliver_dead,
        "Send all dead notices again",
        returns=Redelivered,
        status=202,
    ),
)

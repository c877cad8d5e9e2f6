"""Aliases over HTTP: names that lead to a version of the catalog."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from anabranch.operations.definitions.aliases import AliasCard
from anabranch.surfaces.http.guard.idempotency import KEY_HEADER, KeyedRequest, once
from anabranch.surfaces.http.io import shapes
from anabranch.surfaces.http.io.request_body import (
    answer,
    page_of,
    read_body,
    read_cursor,
    read_query,
)
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.http.resources.definitions import CURSOR, PAGE
from anabranch.surfaces.http.routes import API, PARTS, Route, actor_of

ALL = f"{API}/aliases"
ONE = f"{ALL}/{{alias}}"


class AliasRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What the alias leads to: a path of the catalog, with @N a version of it."""

    target: str


class AliasPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[AliasCard]
    next: str | None


async def put(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, AliasRequest)
    kept, name = request.app[PARTS].triggering.aliases, request.match_info["alias"]
    return answer(await in_thread(kept.set, name, body.target, actor_of(request)))


async def list_all(request: web.Request) -> web.StreamResponse:
    query = read_query(request)
    limit = query["limit"]
    after = str(read_cursor(query["cursor"], str)[0]) if query["cursor"] else ""
    kept = request.app[PARTS].triggering.aliases
    found: list[AliasCard] = await in_thread(kept.page, after, limit + 1)
    items, more = page_of(found, limit, lambda card: (card.name,))
    return answer(AliasPage(items=items, next=more))


async def show(request: web.Request) -> web.StreamResponse:
    kept, name = request.app[PARTS].triggering.aliases, request.match_info["alias"]
    return answer(await in_thread(kept.show, name))


async def rollback(request: web.Request) -> web.StreamResponse:
    await read_body(request, shapes.Nothing, optional=True)
    kept, name = request.app[PARTS].triggering.aliases, request.match_info["alias"]

    async def do(_this: KeyedRequest) -> tuple[int, Any]:
        return 200, await in_thread(kept.rollback, name, actor_of(request))

    return await once(request, None, do)


async def remove(request: web.Request) -> web.StreamResponse:
    kept, name = request.app[PARTS].triggering.aliases, request.match_info["alias"]
    return answer(await in_thread(kept.remove, name))


ROUTES = (
    Route("GET", ALL, "read", list_all, "The aliases by name",
          returns=AliasPage, query=(PAGE, CURSOR)),
    Route("GET", ONE, "read", show, "What an alias leads to, and what it led to before",
          returns=AliasCard, errors=(404,)),
    Route("PUT", ONE, "operate", put, "Lead an alias to a version of the catalog",
          body=AliasRequest, returns=AliasCard, example={"target": "quotes@3"},
          errors=(404, 409)),
    Route("POST", f"{ONE}/rollback", "operate", rollback, "Lead it back to what it led to before",
          body=shapes.Nothing, bodiless=True, returns=AliasCard, example={}, errors=(404, 409),
          headers=(KEY_HEADER,)),
    Route("DELETE", ONE, "operate", remove, "Remove an alias; what it led to stays",
          returns=AliasCard, errors=(404, 409)),
)  # fmt: skip

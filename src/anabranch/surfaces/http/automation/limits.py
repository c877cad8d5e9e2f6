"""Limits across runs over HTTP, and what they look like in metrics."""

from __future__ import annotations

import msgspec
from aiohttp import web

from anabranch.operations.runs.limits import LimitCard, LimitDetail, limit_detail, limit_page
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.request_body import answer, page_of, read_cursor, read_query
from anabranch.surfaces.http.resources.definitions import CURSOR, PAGE
from anabranch.surfaces.http.routes import API, Query, Route

ALL = f"{API}/limits"


class LimitPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[LimitCard]
    next: str | None


async def list_all(request: web.Request) -> web.StreamResponse:
    query = read_query(request)
    limit = query["limit"]
    after = str(read_cursor(query["cursor"], str)[0]) if query["cursor"] else ""
    found = await look(request, lambda by: limit_page(by.store, after, limit + 1))
    items, more = page_of(found, limit, lambda card: (card.key,))
    return answer(LimitPage(items=items, next=more))


async def show(request: web.Request) -> web.StreamResponse:
    key = read_query(request)["key"]
    return answer(await look(request, lambda by: limit_detail(by.store, key)))


_KEY = Query("key", "as the list has it", example="invoices[acme]", default="")

ROUTES = (
    Route("GET", ALL, "read", list_all, "Keys of limits across runs, with who holds and who waits",
          returns=LimitPage, query=(PAGE, CURSOR)),
    Route("GET", f"{ALL}/runs", "read", show, "The runs under one key: those with a place, then "
          "those that wait", returns=LimitDetail, query=(_KEY,), errors=(404,)),
)  # fmt: skip

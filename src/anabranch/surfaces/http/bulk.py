"""`POST /api/v1/bulk`: one verb over the runs that a filter finds, a page at a time."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from anabranch.net.net import Reducer
from anabranch.operations.bulk import PAGE_MAX, Bulk, Bulks, BulkVerb, Outcome
from anabranch.store.ports import HeadFilter
from anabranch.surfaces.http.auth import CALLER
from anabranch.surfaces.http.problems import ApiError
from anabranch.surfaces.http.reading import answer, cursor, read_body, read_cursor
from anabranch.surfaces.http.routes import API, PARTS, Route, actor_of


class BulkFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs; what is left out leaves nothing out."""

    status: list[str] = []
    dialect: str | None = None
    name: str | None = None
    labels: dict[str, str] = {}
    prefix: str = ""  # how the run id begins
    parent: str | None = None
    created_after: int | None = None
    created_before: int | None = None
    ended_before: int | None = None  # only runs that ended before that instant


class BulkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    verb: BulkVerb
    filter: BulkFilter = BulkFilter()
    dry_run: bool = False
    everything: bool = False  # needed where the filter leaves nothing out
    reason: str = ""
    values: dict[str, Any] = {}  # of a patch
    reducer: Reducer = "set"
    limit: int = 200
    cursor: str | None = None


class BulkPage(msgspec.Struct, frozen=True, kw_only=True):
    """What became of this page. Ask again with `next` as `cursor` until it is null."""

    verb: BulkVerb
    dry_run: bool
    found: int
    done: int
    refused: int
    items: list[Outcome]
    next: str | None


async def bulk(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, BulkRequest)
    if not 1 <= body.limit <= PAGE_MAX:
        raise ApiError(422, "usage", f"the limit is {body.limit}", f"give 1 to {PAGE_MAX}")
    caller = request.get(CALLER)
    if body.verb == "purge" and not body.dry_run and caller is not None:
        caller.require("admin")  # what is deleted does not come back
    parts = request.app[PARTS]
    made = Bulks(parts.store, parts.verbs.send, parts.verbs.redrive)
    report = await made.page(
        Bulk(
            verb=body.verb,
            wanted=_wanted(body),
            dry_run=body.dry_run,
            actor=actor_of(request),
            reason=body.reason,
            values=body.values,
            reducer=body.reducer,
            everything=body.everything,
        )
    )
    fields = {name: getattr(report, name) for name in report.__struct_fields__}
    return answer(BulkPage(**{**fields, "next": cursor(*report.next) if report.next else None}))


def _wanted(body: BulkRequest) -> HeadFilter:
    given = body.filter
    before = read_cursor(body.cursor, int, str) if body.cursor else None
    return HeadFilter(
        statuses=given.status,
        dialect=given.dialect,
        name=given.name,
        labels=given.labels,
        run_prefix=given.prefix,
        parent=given.parent,
        created_after=given.created_after,
        created_before=given.created_before,
        ended_before=given.ended_before,
        before=(before[0], before[1]) if before else None,
        limit=body.limit,
    )


ROUTES = (
    Route(
        "POST",
        f"{API}/bulk",
        "operate",
        bulk,
        "Do one thing with all runs that a filter finds; `dry_run` only lists them",
        body=BulkRequest,
        returns=BulkPage,
        example={
            "verb": "cancel",
            "filter": {"status": ["waiting"], "labels": {"tenant": "a"}},
            "dry_run": True,
        },
        errors=(403,),
    ),
)

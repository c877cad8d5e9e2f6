"""One verb over the runs that a filter finds, and purging old ones; both a page at a time."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec.structs import asdict, replace

from anabranch.ages import age_ms
from anabranch.literals import BulkVerb, Reducer
from anabranch.operations.overview.search import checked_search
from anabranch.operations.runs.bulk import PAGE_MAX, Bulk, BulkReport, Outcome, bulks_of
from anabranch.operations.runs.purge import PAGE as PURGE_PAGE
from anabranch.operations.runs.purge import STEPS_AT_ONCE, Purged, give_back, purge_page
from anabranch.store.ports import HeadFilter, Space, Store
from anabranch.surfaces.http.guard.audit import ACTION, SUBJECT
from anabranch.surfaces.http.guard.auth import CALLER
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.request_body import answer, cursor, read_body, read_cursor
from anabranch.surfaces.http.routes import API, PARTS, Route, actor_of

STATUSES_MAX = 20  # more than there are


class RunFilter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs; what is left out leaves nothing out."""

    status: Annotated[list[str], msgspec.Meta(max_length=STATUSES_MAX)] = []
    dialect: str | None = None
    name: str | None = None
    labels: dict[str, str] = {}
    prefix: str = ""  # how the run id begins
    search: str = ""  # words that are in its id, name, labels or reason


class BulkFilter(RunFilter, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs; what is left out leaves nothing out."""

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
    """The outcomes of this page. Request again with `next` as `cursor` until it is null."""

    verb: BulkVerb
    dry_run: bool
    found: int
    done: int
    refused: int
    items: list[Outcome]
    next: str | None


class PurgeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which runs to delete: those that ended longer ago, as far as the filter finds them."""

    older_than: str = "30d"  # 45s, 90m, 12h, 30d, 4w
    filter: RunFilter = RunFilter()
    dry_run: bool = False
    limit: int = PURGE_PAGE  # runs that are looked at in this page
    cursor: str | None = None


class PurgePage(msgspec.Struct, frozen=True, kw_only=True):
    """What this page deleted, or would. Ask again with `next` as `cursor` until it is null."""

    runs: int
    payloads: int
    bytes: int
    dry_run: bool
    next: str | None
    space: Space = Space()  # of the store, after the last page


async def bulk(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, BulkRequest)
    if not 1 <= body.limit <= PAGE_MAX:
        raise ApiError(422, "usage", f"the limit is {body.limit}", f"give 1 to {PAGE_MAX}")
    request[ACTION] = f"bulk.{body.verb}{'.dry_run' if body.dry_run else ''}"
    request[SUBJECT] = msgspec.json.encode(body.filter).decode()
    caller = request.get(CALLER)
    if body.verb == "purge" and not body.dry_run and caller is not None:
        caller.require("admin")  # what is deleted does not come back
    report = await bulks_of(request.app[PARTS].verbs).page(
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
    return answer(BulkPage(**_with_cursor(report)))


async def purge(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, PurgeRequest)
    request[ACTION] = f"runs.purge{'.dry_run' if body.dry_run else ''}"
    if not 1 <= body.limit <= PURGE_PAGE:
        raise ApiError(422, "usage", f"the limit is {body.limit}", f"give 1 to {PURGE_PAGE}")
    age = age_ms(body.older_than)
    now = request.app[PARTS].engine.clock.now()
    wanted = replace(_page(body), ended_before=now - age)
    gone = await asyncio.to_thread(_purged, request.app[PARTS].store, wanted, now, body.dry_run)
    return answer(PurgePage(**_with_cursor(gone), dry_run=body.dry_run))


def _with_cursor(page: BulkReport | Purged) -> dict[str, Any]:
    """Its fields, with where the next page begins as clients are told it."""
    return {**asdict(page), "next": cursor(*page.next) if page.next else None}


def _purged(store: Store, wanted: HeadFilter, now: int, dry_run: bool) -> Purged:
    gone = purge_page(store, wanted, dry_run=dry_run)
    if gone.next is None and not dry_run:
        store.expire(now)
        return replace(gone, space=give_back(store, STEPS_AT_ONCE))
    return gone


def _wanted(body: BulkRequest) -> HeadFilter:
    given = body.filter
    return replace(
        _page(body),
        parent=given.parent,
        created_after=given.created_after,
        created_before=given.created_before,
        ended_before=given.ended_before,
    )


def _page(body: BulkRequest | PurgeRequest) -> HeadFilter:
    """What both kinds of filter say, behind the cursor."""
    given = body.filter
    return HeadFilter(
        statuses=given.status,
        dialect=given.dialect,
        name=given.name,
        labels=given.labels,
        run_prefix=given.prefix,
        search=checked_search(given.search),
        before=read_cursor(body.cursor, int, str) if body.cursor else None,
        limit=body.limit,
    )


ROUTES = (
    Route(
        "POST",
        f"{API}/bulk",
        "operate",
        bulk,
        "Apply one verb to all runs that match a filter; `dry_run` only lists them",
        body=BulkRequest,
        returns=BulkPage,
        example={
            "verb": "cancel",
            "filter": {"status": ["waiting"], "labels": {"tenant": "a"}},
            "dry_run": True,
        },
        errors=(403,),
    ),
    Route(
        "POST",
        f"{API}/runs/purge",
        "admin",
        purge,
        "Delete runs that ended long ago, with their payloads; `dry_run` only counts them",
        body=PurgeRequest,
        returns=PurgePage,
        example={"older_than": "30d", "filter": {"labels": {"tenant": "a"}}, "dry_run": True},
    ),
)

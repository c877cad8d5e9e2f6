"""Gates: what waits for a yes or a no, and answering it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal

import msgspec
from aiohttp import web

from anabranch.errors import Refused
from anabranch.operations.runs.approvals import Approvals
from anabranch.operations.runs.verbs import decision
from anabranch.surfaces.http.guard.auth import CALLER
from anabranch.surfaces.http.io import shapes
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.request_body import (
    answer,
    page_of,
    read_body,
    read_cursor,
    read_query,
)
from anabranch.surfaces.http.resources.definitions import CURSOR, PAGE
from anabranch.surfaces.http.resources.runs import RUN, tell
from anabranch.surfaces.http.routes import API, PARTS, Query, Route, actor_of

APPROVALS = web.AppKey("approvals", Approvals)


class DecideRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`evidence` is any JSON; it is stored in the log with the answer. `override` answers in the
    place of the source that the definition declares, which `ask_again` asks again."""

    verdict: Literal["fulfil", "reject", "ask_again"]
    reason: str = ""
    evidence: Any = None
    override: bool = False


async def decide(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, DecideRequest)
    gate = request.match_info["gate"]
    actor = actor_of(request)
    more = {"override": body.override, "decoded": True}
    said = decision(gate, body.verdict, actor, body.reason, body.evidence, **more)
    try:
        return answer(await tell(request, said))
    except Refused as refusal:
        if refusal.code != "not_allowed":
            raise
        caller = request.get(CALLER)
        signed = caller is not None and caller.token
        hint = "use a token of one of these names" if signed else "X-Actor: NAME says who you are"
        raise ApiError(403, refusal.code, refusal.message, hint) from None


async def approvals(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    limit = asked["limit"]
    before = read_cursor(asked["cursor"], int, str, str) if asked["cursor"] else None
    open_now = request.app[APPROVALS]
    found = await look(
        request,
        lambda by: open_now.page(by.store, before=before, actor=asked["actor"], limit=limit + 1),
    )
    items, following = page_of(found, limit, lambda one: (one.since, one.run, one.gate))
    return answer(shapes.ApprovalPage(items=items, next=following))


async def hear_news(app: web.Application) -> AsyncIterator[None]:
    """The open gates follow what becomes durable, for as long as the application lives."""
    stop = app[PARTS].engine.listen(app[APPROVALS].hear)
    yield
    stop()


ROUTES = (
    Route(
        "GET",
        f"{API}/approvals",
        "read",
        approvals,
        "Gates that are open, over all runs, newest first",
        returns=shapes.ApprovalPage,
        query=(Query("actor", "only those this one may answer", example="ada"), PAGE, CURSOR),
    ),
    Route(
        "POST",
        f"{RUN}/gates/{{gate}}/decide",
        "decide",
        decide,
        "Answer an open gate, by its id or its step",
        body=DecideRequest,
        returns=shapes.RunStatus,
        example={"verdict": "fulfil", "reason": "seen", "evidence": {"ticket": 7}},
        errors=(403, 409),
    ),
)

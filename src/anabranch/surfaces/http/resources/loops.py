"""Loops of a run: how far they are, their items page by page, and changing one under way."""

from __future__ import annotations

from typing import get_args

import msgspec
from aiohttp import web

from anabranch.kernel import stimuli as s
from anabranch.literals import ItemState
from anabranch.operations.read.items import PAGE_MAX
from anabranch.surfaces.http.io import shapes
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.request_body import answer, read_body, read_query
from anabranch.surfaces.http.resources.runs import RUN, tell
from anabranch.surfaces.http.routes import Query, Route, actor_of


class TuneRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How many shards may be at work at once from now on, or that no more items start."""

    window: int = 0
    stop: bool = False
    reason: str = ""


async def list_all(request: web.Request) -> web.StreamResponse:
    run = request.match_info["run"]
    shown = await look(request, lambda by: by.read.show(run))
    return answer({"items": shown["loops"]})


async def items(request: web.Request) -> web.StreamResponse:
    asked, run, step = read_query(request), request.match_info["run"], request.match_info["step"]
    page = await look(
        request,
        lambda by: by.read.items(
            run,
            step,
            state=asked["state"],
            error=asked["error"],
            after=asked["after"],
            limit=asked["limit"],
        ),
    )
    fields = msgspec.structs.asdict(page)
    fields["next"] = fields.pop("more_after")
    return answer(fields)


async def tune(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, TuneRequest)
    if body.window < 0 or (body.window == 0) != body.stop:
        said = "a loop gets a new window (1 or more), or it is stopped"
        raise ApiError(422, "usage", said, "send `window` or `stop`, one of the two")
    said_to_it = s.TuneLoop(
        request.match_info["step"], body.window, body.stop, actor_of(request), body.reason
    )
    return answer(await tell(request, said_to_it))


ROUTES = (
    Route(
        "GET",
        f"{RUN}/loops",
        "read",
        list_all,
        "The loops of a run and their progress",
        returns=shapes.LoopPage,
    ),
    Route(
        "GET",
        f"{RUN}/loops/{{step}}/items",
        "read",
        items,
        "The items of a loop by rising index; request the next page with `after=next`",
        returns=shapes.ItemPage,
        query=(
            Query("state", "only items in this state", choices=get_args(ItemState)),
            Query("error", "only failures of this kind", example="http"),
            Query("after", "only items behind it", "integer", least=-1, default=-1),
            Query("limit", "how many at most", "integer", least=1, most=PAGE_MAX, default=50),
        ),
        errors=(422,),
    ),
    Route(
        "POST",
        f"{RUN}/loops/{{step}}",
        "operate",
        tune,
        "Change the window of a running loop, or stop it",
        body=TuneRequest,
        returns=shapes.RunStatus,
        example={"window": 4, "reason": "the database is busy"},
        errors=(409,),
    ),
)

"""Runs: begin, list, show, explain, and everything a person may tell them."""

from __future__ import annotations

import asyncio
from typing import Any, get_args

import msgspec
from aiohttp import web

from anabranch.dialects.xrc729.words import DIALECT as ORCHESTRATION
from anabranch.errors import NotFound
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import RunStatus
from anabranch.net.net import Reducer
from anabranch.operations.definitions import Prepared
from anabranch.operations.processes import pid_of
from anabranch.operations.verbs import patches
from anabranch.runtime.messages import Sayable
from anabranch.store.ports import HeadFilter
from anabranch.surfaces.http import shapes
from anabranch.surfaces.http.definitions import CURSOR, EXAMPLE, FORMAT, PAGE, RAW, drawing
from anabranch.surfaces.http.definitions import prepared as compiled
from anabranch.surfaces.http.looking import Looking, look
from anabranch.surfaces.http.problems import ApiError
from anabranch.surfaces.http.reading import (
    answer,
    bad_parameter,
    cursor,
    read_body,
    read_cursor,
    read_query,
)
from anabranch.surfaces.http.repeats import KEY_HEADER, Once, once
from anabranch.surfaces.http.routes import API, PARTS, Query, Route, actor_of

RUN = f"{API}/runs/{{run}}"


class StartRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to begin: a definition (text or JSON), or the fingerprint of one that is kept here."""

    definition: str | dict[str, Any] | None = None
    fingerprint: str | None = None
    input: dict[str, Any] = {}
    start: str | None = None  # the step to begin with, instead of the entry
    labels: dict[str, str] = {}
    run: str | None = None  # an id of your own choice
    rules: dict[str, Any] | None = None  # of an orchestration, by alias or address


class Reason(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = ""


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """There is nothing more to say; an empty object will do."""


class PatchRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Values to write to the context, by name."""

    values: dict[str, Any]
    reducer: Reducer = "set"


class WakeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """One waiting process by its number, or all that wait at a step."""

    process: int = 0
    step: str = ""
    payload: dict[str, Any] = {}
    runner: str = ""  # on whose behalf, where that is not the owner


# -- beginning -------------------------------------------------------------------------------------


async def start(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, StartRequest)
    if (body.definition is None) == (body.fingerprint is None):
        said = "a run is begun from a definition or from a fingerprint, one of the two"
        raise ApiError(422, "usage", said, "send `definition`, or `fingerprint`")
    if body.fingerprint is not None and body.rules is not None:
        said = "rules belong to a definition that is sent along"
        raise ApiError(422, "usage", said, "leave out `rules`: a kept definition has its own")

    async def begin(this: Once) -> tuple[int, Any]:
        parts, chosen = request.app[PARTS], this.run if body.run is None else body.run
        if this.resumed and chosen is not None and parts.engine.known(chosen):
            return 201, shapes.Started(chosen)
        ready = await _prepared(request, body)
        begun = await parts.verbs.start(
            ready, body.input, run=chosen, step=body.start, labels=body.labels
        )
        return 201, shapes.Started(begun)

    return _located(await once(request, msgspec.to_builtins(body), begin, again=True))


def _located(response: web.Response) -> web.Response:
    assert isinstance(response.body, bytes)
    run = msgspec.json.decode(response.body, type=shapes.Started).run
    response.headers["Location"] = f"{API}/runs/{run}"
    return response


async def _prepared(request: web.Request, body: StartRequest) -> Prepared:
    if body.definition is not None:
        return await compiled(request, body.definition, body.rules)
    parts, fingerprint = request.app[PARTS], body.fingerprint or ""
    definition = parts.store.definition(fingerprint)
    if definition is None:
        raise NotFound(f"there is no definition {fingerprint[:100]!r}")
    net = await asyncio.to_thread(parts.nets.get, fingerprint)
    return Prepared(definition, net, ())


async def redrive(request: web.Request) -> web.StreamResponse:
    await read_body(request, Nothing, optional=True)
    run = request.match_info["run"]

    async def begin(this: Once) -> tuple[int, Any]:
        parts = request.app[PARTS]
        origin = parts.verbs.read.find(run).run
        if this.run is not None and parts.engine.known(this.run):
            return 201, shapes.Started(this.run, origin)
        return 201, shapes.Started(await parts.verbs.redrive(run, new=this.run), origin)

    return _located(await once(request, None, begin, again=True))


# -- looking ---------------------------------------------------------------------------------------


async def list_all(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    limit = asked["limit"]
    wanted = HeadFilter(
        statuses=asked["status"],
        dialect=asked["dialect"],
        name=asked["name"],
        labels=dict(_label(text) for text in asked["label"]),
        run_prefix=asked["prefix"] or "",
        parent=asked["parent"],
        created_after=asked["created_after"],
        created_before=asked["created_before"],
        before=read_cursor(asked["cursor"], int, str) if asked["cursor"] else None,
        limit=limit + 1,
    )
    found = await look(request, lambda by: by.store.heads(wanted))
    last = found[limit - 1] if len(found) > limit else None
    page = shapes.RunPage(
        items=[shapes.run_card(head) for head in found[:limit]],
        next=cursor(last.created_at, last.run) if last is not None else None,
    )
    return answer(page)


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise bad_parameter("label", f"is {text[:100]!r}", "write it as label=key=value")
    return key, value


async def show(request: web.Request) -> web.StreamResponse:
    run = request.match_info["run"]
    shown = await look(request, lambda by: by.read.show(run))
    shown["created"] = shapes.instant(shown["created_at"])
    shown["updated"] = shapes.instant(shown["updated_at"])
    return answer(shown)


async def explain(request: web.Request) -> web.StreamResponse:
    run = request.match_info["run"]
    return answer(await look(request, lambda by: by.read.explain(run)))


async def graph(request: web.Request) -> web.StreamResponse:
    asked, run = read_query(request), request.match_info["run"]
    form: str = asked["format"]
    text = await look(request, lambda by: by.read.graph(run, form))
    return drawing(text, form, raw=asked["raw"])


async def joins(request: web.Request) -> web.StreamResponse:
    run = request.match_info["run"]

    def both(by: Looking) -> dict[str, Any]:
        shown = by.read.show(run)
        waiting = [one for one in shown["waiting"] if one.get("slots")]
        return {"items": shown["joins"], "open": waiting, "dropped": shown.get("joins_dropped", 0)}

    return answer(await look(request, both))


# -- telling ---------------------------------------------------------------------------------------


async def tell(request: web.Request, said: Sayable) -> shapes.RunStatus:
    """Say it, and tell how the run stands once that is durable."""
    parts, run = request.app[PARTS], request.match_info["run"]
    found = parts.verbs.read.find(run).run
    await parts.verbs.send(found, said)
    head = parts.store.head(found)
    return shapes.RunStatus(found, head.status if head is not None else "")


async def pause(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, Reason, optional=True)
    return answer(await tell(request, s.Pause(actor_of(request), body.reason)))


async def resume(request: web.Request) -> web.StreamResponse:
    await read_body(request, Nothing, optional=True)
    return answer(await tell(request, s.Resume(actor_of(request))))


async def cancel(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, Reason, optional=True)
    return answer(await tell(request, s.Cancel(actor_of(request), body.reason)))


async def patch(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, PatchRequest)
    said = s.PatchContext(patches(body.values, body.reducer), actor_of(request))

    async def do(_this: Once) -> tuple[int, Any]:
        return 200, await tell(request, said)

    return await once(request, msgspec.to_builtins(body), do)


async def wake(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, WakeRequest)
    if bool(body.process) == bool(body.step) or body.process < 0:
        raise ApiError(422, "usage", "name a process or a step", "send `process`, or `step`")

    async def do(_this: Once) -> tuple[int, Any]:
        parts = request.app[PARTS]
        head = parts.verbs.read.find(request.match_info["run"])
        if head.dialect != ORCHESTRATION:
            said = s.Wake(body.process, body.step, body.payload, actor_of(request))
            await parts.verbs.send(head.run, said)
            return 200, shapes.Woken(head.run, None)
        woken = await parts.sessions.wake_up_process(
            pid_of(head.run, body.process) if body.process else head.run,
            step=body.step,
            payload=body.payload,
            runner=body.runner,
            actor=actor_of(request),
        )
        return 200, shapes.Woken(head.run, woken["woken"])

    return await once(request, msgspec.to_builtins(body), do)


# -- the table -------------------------------------------------------------------------------------


def _told(verb: str, handler: Any, summary: str, **more: Any) -> Route:
    given: dict[str, Any] = {
        "body": Reason,
        "bodiless": True,
        "returns": shapes.RunStatus,
        "example": {"reason": "the supplier called"},
        "errors": (409,),
        **more,
    }
    return Route("POST", f"{RUN}/{verb}", "operate", handler, summary, **given)


_FILTERS = (
    Query("status", "only runs in this status", choices=get_args(RunStatus), many=True),
    Query("dialect", "only runs of this language", example="noetl"),
    Query("name", "only runs of definitions of this name", example="hello"),
    Query("label", "only runs with this label: key=value", many=True, example="tenant=north"),
    Query("prefix", "only runs whose id begins so"),
    Query("parent", "only children of this run"),
    Query("created_after", "begun at this instant (ms) or later", "integer"),
    Query("created_before", "begun before this instant (ms)", "integer"),
    PAGE,
    CURSOR,
)

ROUTES = (
    Route(
        "POST",
        f"{API}/runs",
        "operate",
        start,
        "Begin a run; it is durable when this answers",
        body=StartRequest,
        returns=shapes.Started,
        example={"definition": EXAMPLE, "input": {"name": "Ada"}, "labels": {"tenant": "north"}},
        status=201,
        errors=(404, 409),
        headers=(KEY_HEADER,),
    ),
    Route(
        "GET",
        f"{API}/runs",
        "read",
        list_all,
        "List runs, newest first",
        returns=shapes.RunPage,
        query=_FILTERS,
    ),
    Route("GET", RUN, "read", show, "Show a run", returns=shapes.RunShown),
    Route(
        "GET",
        f"{RUN}/explain",
        "read",
        explain,
        "Say what a run waits for, and who can move it",
        returns=shapes.Explained,
    ),
    Route(
        "GET",
        f"{RUN}/graph",
        "read",
        graph,
        "Draw a run: its definition with what became of the steps",
        returns=shapes.Graph,
        query=(FORMAT, RAW),
        also=("text/plain", "image/svg+xml"),
    ),
    Route(
        "GET",
        f"{RUN}/joins",
        "read",
        joins,
        "Joins that were settled, and open ones slot by slot",
        returns=shapes.JoinPage,
    ),
    _told("pause", pause, "Begin nothing new in this run until it is resumed"),
    _told("resume", resume, "Let a paused run go on", body=Nothing, example={}),
    _told("cancel", cancel, "End a run: its work is told to stop"),
    _told(
        "patch",
        patch,
        "Write to the context of a run; tokens held by admission are looked at again",
        body=PatchRequest,
        bodiless=False,
        example={"values": {"approved": True}, "reducer": "set"},
        headers=(KEY_HEADER,),
    ),
    _told(
        "wake",
        wake,
        "Let a waiting process go on now",
        body=WakeRequest,
        bodiless=False,
        returns=shapes.Woken,
        example={"process": 2, "payload": {"paid": True}},
        headers=(KEY_HEADER,),
    ),
    _told(
        "redrive",
        redrive,
        "Begin a linked run that reuses what succeeded and works again on what failed",
        body=Nothing,
        example={},
        returns=shapes.Started,
        status=201,
        headers=(KEY_HEADER,),
    ),
)

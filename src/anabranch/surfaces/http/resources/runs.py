"""Runs: list, show, explain, and everything a person may tell them."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from aiohttp import web

from anabranch.kernel import stimuli as s
from anabranch.literals import Reducer, RunStatus
from anabranch.operations.overview.search import checked_search
from anabranch.operations.read.waiting import SignalView
from anabranch.operations.runs.signals import SignalSent, send_signal, signal
from anabranch.operations.runs.verbs import Right, patches, skipping
from anabranch.operations.runs.wake import wake_sleepers
from anabranch.runtime.messages.codec import Sayable
from anabranch.store.ports import HeadFilter
from anabranch.surfaces.http.guard.auth import CALLER
from anabranch.surfaces.http.guard.idempotency import (
    KEY_HEADER,
    KEY_LETTERS,
    KeyedRequest,
    key_of,
    once,
)
from anabranch.surfaces.http.io import shapes
from anabranch.surfaces.http.io.ended_runs import EndedRuns
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.readers import ReadHandle, look, read_inline
from anabranch.surfaces.http.io.request_body import (
    answer,
    bad_parameter,
    json_answer,
    page_of,
    read_body,
    read_cursor,
    read_query,
)
from anabranch.surfaces.http.resources.definitions import CURSOR, FORMAT, PAGE, RAW, drawing
from anabranch.surfaces.http.routes import API, PARTS, Header, Query, Route, actor_of

RUN = f"{API}/runs/{{run}}"
ENDED_RUNS = web.AppKey("ended_runs", EndedRuns)
ID_HEADER = Header(
    "Idempotency-Key",
    f"the id of the signal, up to {KEY_LETTERS} letters: sent again, it is the same signal",
)


class Reason(msgspec.Struct, forbid_unknown_fields=True):
    reason: str = ""


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


class SignalRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`payload` is any JSON. `ttl` says how long the run keeps the signal: seconds, or text such
    as `1h`; without it, until the run ends."""

    payload: Any = None
    ttl: float | str | None = None


class SignalPage(msgspec.Struct):
    """`names` are those that the definition waits for."""

    run: str
    names: list[str]
    items: list[SignalView]


class RetryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which run of the step, where several wait; all of them without."""

    token: int = 0
    reason: str = ""


class SkipRequest(msgspec.Struct, forbid_unknown_fields=True):
    """With `result` the step counts as done with that result, without it as skipped."""

    token: int = 0
    reason: str = ""
    result: Any = msgspec.UNSET


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
        search=checked_search(asked["search"] or ""),
        parent=asked["parent"],
        redriven=asked["redriven"],
        created_after=asked["created_after"],
        created_before=asked["created_before"],
        before=read_cursor(asked["cursor"], int, str) if asked["cursor"] else None,
        limit=limit + 1,
    )
    cards = await look(request, lambda by: _cards(by, wanted))
    shown, following = page_of(cards, limit, lambda card: (card.created_at, card.run))
    return answer(shapes.RunPage(items=list(shown), next=following))


def _cards(by: ReadHandle, wanted: HeadFilter) -> list[shapes.RunCard]:
    heads = by.store.heads(wanted)
    redriven = by.read.redriven_by(heads)
    return [
        shapes.run_card(head, redriven[head.run], by.read.missing(head), by.read.queued(head))
        for head in heads
    ]


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise bad_parameter("label", f"is {text[:100]!r}", "write it as label=key=value")
    return key, value


async def show(request: web.Request) -> web.StreamResponse:
    run, ended = request.match_info["run"], request.app[ENDED_RUNS]
    return json_answer(await read_inline(request, lambda by: ended.show(by, run)))


async def explain(request: web.Request) -> web.StreamResponse:
    run = request.match_info["run"]
    return answer(await read_inline(request, lambda by: by.read.explain(run)))


async def graph(request: web.Request) -> web.StreamResponse:
    asked, run = read_query(request), request.match_info["run"]
    form: str = asked["format"]
    text = await look(request, lambda by: by.read.graph(run, form))
    return drawing(text, form, raw=asked["raw"])


async def joins(request: web.Request) -> web.StreamResponse:
    run = request.match_info["run"]
    return answer(await look(request, lambda by: by.read.joins(run)))


async def signals(request: web.Request) -> web.StreamResponse:
    run = request.match_info["run"]
    return answer(await read_inline(request, lambda by: by.read.signals(run)))


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
    await read_body(request, shapes.Nothing, optional=True)
    return answer(await tell(request, s.Resume(actor_of(request))))


async def cancel(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, Reason, optional=True)
    return answer(await tell(request, s.Cancel(actor_of(request), body.reason)))


async def retry(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, RetryRequest, optional=True)
    step, token = request.match_info["step"], _token(body.token)
    return answer(await tell(request, s.RetryNow(step, token, actor_of(request), body.reason)))


async def skip(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, SkipRequest, optional=True)
    step, token = request.match_info["step"], _token(body.token)
    right = right_of(request)
    said = skipping(step, token, actor_of(request), body.reason, body.result, right, decoded=True)

    async def do(_this: KeyedRequest) -> tuple[int, Any]:
        return 200, await tell(request, said)

    return await once(request, body, do)


def right_of(request: web.Request) -> Right:
    """Of whoever asks, over the steps of a run; without a token they sit at the machine."""
    caller = request.get(CALLER)
    if caller is None or not caller.token:
        return ""
    return "decide" if caller.may("decide") else "operate"


def _token(given: int) -> int:
    if given < 0:
        raise ApiError(422, "usage", "a step run is named by its number", "send `token` from 1 on")
    return given


async def patch(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, PatchRequest)
    said = s.PatchContext(patches(body.values, body.reducer, decoded=True), actor_of(request))

    async def do(_this: KeyedRequest) -> tuple[int, Any]:
        return 200, await tell(request, said)

    return await once(request, body, do)


async def wake(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, WakeRequest)
    if bool(body.process) == bool(body.step) or body.process < 0:
        raise ApiError(422, "usage", "name a process or a step", "send `process`, or `step`")

    async def do(_this: KeyedRequest) -> tuple[int, Any]:
        parts = request.app[PARTS]
        head = parts.verbs.read.find(request.match_info["run"])
        woken = await wake_sleepers(
            parts.verbs,
            parts.sessions,
            head,
            body.process,
            step=body.step,
            payload=body.payload,
            runner=body.runner,
            actor=actor_of(request),
        )
        return 200, shapes.Woken(head.run, woken)

    return await once(request, body, do)


async def signal_run(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, SignalRequest, optional=True)
    run, name = request.match_info["run"], request.match_info["name"]
    given = key_of(request)
    actor = actor_of(request)
    said = signal(name, body.payload, actor=actor, ttl=body.ttl, id=given, decoded=True)
    return answer(await send_signal(request.app[PARTS].verbs, run, said))


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
    Query("prefix", "only runs whose id starts with this"),
    Query("search", "only runs with these words in id, name, labels or reason", example="bank 500"),
    Query("parent", "only children of this run"),
    Query("redriven", "only runs that another redrives, or only those that none does", "boolean"),
    Query("created_after", "started at this instant (ms) or later", "integer"),
    Query("created_before", "started before this instant (ms)", "integer"),
    PAGE,
    CURSOR,
)

ROUTES = (
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
        "Explain what a run waits for, and who can move it",
        returns=shapes.Explained,
    ),
    Route(
        "GET",
        f"{RUN}/graph",
        "read",
        graph,
        "Draw a run: its definition with the status of each step",
        returns=shapes.Graph,
        query=(FORMAT, RAW),
        also=("text/plain", "image/svg+xml"),
    ),
    Route(
        "GET",
        f"{RUN}/joins",
        "read",
        joins,
        "Settled joins, and open ones slot by slot",
        returns=shapes.JoinPage,
    ),
    _told("pause", pause, "Start nothing new in this run until it is resumed"),
    _told("resume", resume, "Continue a paused run", body=shapes.Nothing, example={}),
    _told("cancel", cancel, "Cancel a run: its running jobs are stopped"),
    _told(
        "steps/{step}/retry",
        retry,
        "Try a step now that waits for its next try",
        body=RetryRequest,
        example={"reason": "the disk has room again"},
    ),
    _told(
        "steps/{step}/skip",
        skip,
        "End a run of a step without its work: as skipped, or as done with a given result",
        body=SkipRequest,
        example={"reason": "the supplier is closed", "result": {"price": None}},
        headers=(KEY_HEADER,),
    ),
    _told(
        "patch",
        patch,
        "Write to the context of a run; admission of held tokens is evaluated again",
        body=PatchRequest,
        bodiless=False,
        example={"values": {"approved": True}, "reducer": "set"},
        headers=(KEY_HEADER,),
    ),
    _told(
        "wake",
        wake,
        "Wake a waiting process now",
        body=WakeRequest,
        bodiless=False,
        returns=shapes.Woken,
        example={"process": 2, "payload": {"paid": True}},
        headers=(KEY_HEADER,),
    ),
    Route(
        "GET",
        f"{RUN}/signals",
        "read",
        signals,
        "The signals that a run keeps, and what became of the last others",
        returns=SignalPage,
    ),
    Route(
        "POST",
        f"{RUN}/signals/{{name}}",
        "operate",
        signal_run,
        "Send a signal to a run: a wait takes it, or the run keeps it for one",
        body=SignalRequest,
        bodiless=True,
        returns=SignalSent,
        example={"payload": {"order": 7}, "ttl": "1h"},
        errors=(409,),
        headers=(ID_HEADER,),
    ),
)

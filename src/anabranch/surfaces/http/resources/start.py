"""Beginning runs: of a definition, of what is kept here, and once more of one that has ended."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from anabranch.errors import InputError, NotFound
from anabranch.net.net import child_target
from anabranch.operations.definitions.input_check import read_typed
from anabranch.operations.definitions.prepare import TEXT, Prepared
from anabranch.operations.definitions.templates import DIALECT as TEMPLATE
from anabranch.operations.definitions.templates import Templates
from anabranch.operations.runs.redrive_plan import RedrivePlan, prepare_redrive
from anabranch.store.access_ports import RequestRecord
from anabranch.surfaces.http.guard.audit import RECORDED, line_of_start
from anabranch.surfaces.http.guard.idempotency import KEY_HEADER, KeyedRequest, once
from anabranch.surfaces.http.guard.shares import checking, in_line
from anabranch.surfaces.http.io import shapes
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.request_body import answer, read_body, read_query
from anabranch.surfaces.http.resources.definitions import EXAMPLE
from anabranch.surfaces.http.resources.definitions import prepared as compiled
from anabranch.surfaces.http.routes import API, PARTS, Query, Route
from anabranch.surfaces.http.traces import TRACE_HEADER, traced


class StartRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to start: a definition (text or JSON), or what is stored: one by its fingerprint, by
    its path or number in the catalog, or a template with its parameters."""

    definition: str | dict[str, Any] | None = None
    fingerprint: str | None = None
    template: str | None = None
    path: str | None = None  # of the catalog
    catalog_id: int | None = None  # its number there
    version: int | None = None  # of the template or the path, instead of the newest
    parameters: dict[str, Any] = {}  # of the template
    input: dict[str, Any] = {}
    input_texts: dict[str, str] = {}  # values as somebody typed them, read by the types of inputs
    start: str | None = None  # the step to begin with, instead of the entry
    labels: dict[str, str] = {}
    run: str | None = None  # an id of your own choice
    rules: dict[str, Any] | None = None  # of an orchestration, by alias or address
    file: str = TEXT  # what the file of the definition is called; none is read
    allow_extra_input: bool = False  # take input that the definition has no use for
    priority: int | None = None  # instead of the definition's; the highest goes first


class RedriveRequest(
    msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, rename={"from_step": "from"}
):
    """With `from` that step and what depends on it run again as well, however they ended. A run
    that another redrives already is refused without `again`. `input` are its secret inputs once
    more, which no store keeps."""

    from_step: str = ""
    again: bool = False
    input: dict[str, str] = {}


async def start(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, StartRequest)
    _check_start(body)

    async def begin(this: KeyedRequest) -> tuple[int, Any]:
        parts, chosen = request.app[PARTS], this.run if body.run is None else body.run
        if this.resumed and chosen is not None and parts.engine.known(chosen):
            return 201, shapes.Started(chosen)
        ready = await _prepared(request, body)
        left = None
        if parts.store.cluster is None:  # the engine here makes the commit that begins the run
            chosen = parts.engine.new_run_id() if chosen is None else chosen
            kept = this.kept(201, shapes.Started(chosen))
            left = RequestRecord(audit=line_of_start(request, chosen), kept=kept)
        try:
            begun = await parts.verbs.start(
                ready,
                read_typed(ready.net, body.input, body.input_texts),
                run=chosen,
                step=body.start,
                labels=body.labels,
                trace=traced(request),
                allow_extra_input=body.allow_extra_input,
                priority=body.priority,
                request=left,
                decoded=True,
            )
            request[RECORDED] = left is not None
        except InputError as error:
            begun = _begun_before(this, chosen, error)
        return 201, shapes.Started(begun)

    return _located(await once(request, body, begin, again=True, begins=True))


def _begun_before(this: KeyedRequest, run: str | None, error: InputError) -> str:
    """What an earlier try had asked for came to its end meanwhile, or else the error."""
    if not (this.resumed and run is not None and error.code == "run_exists"):
        raise error
    return run


def _check_start(body: StartRequest) -> None:
    given = [body.definition, body.fingerprint, body.template, body.path, body.catalog_id]
    if given.count(None) != len(given) - 1:
        said = "a run starts from a definition, a fingerprint, a path or a template, one of them"
        hint = "send `definition`, or `fingerprint`, `path`, `catalog_id` or `template`"
        raise ApiError(422, "usage", said, hint)
    if body.definition is None and body.rules is not None:
        said = "rules belong to a definition that is sent along"
        raise ApiError(422, "usage", said, "leave out `rules`: a stored definition has its own")
    if body.template is None and body.parameters:
        said = "parameters belong to a template"
        raise ApiError(422, "usage", said, "send `template`, or leave them out")
    if body.template is None and body.path is None and body.version is not None:
        said = "a version belongs to a template or a path"
        raise ApiError(422, "usage", said, "send `template` or `path`, or leave it out")


def _located(response: web.Response) -> web.Response:
    assert isinstance(response.body, bytes)
    run = msgspec.json.decode(response.body, type=shapes.Started).run
    response.headers["Location"] = f"{API}/runs/{run}"
    return response


async def _prepared(request: web.Request, body: StartRequest) -> Prepared:
    if body.definition is not None:
        return await compiled(request, body.definition, body.rules, body.file)
    if body.template is not None:
        name, given, version = body.template, body.parameters, body.version
        async with checking(request, patient=True):
            made = await look(
                request, lambda by: Templates(by.store).materialise(name, given, version)
            )
        return made[0]
    if body.path is not None or body.catalog_id is not None:
        return await _from_catalog(request, body)
    parts, fingerprint = request.app[PARTS], body.fingerprint or ""
    definition = parts.store.definition(fingerprint)
    if definition is None:
        raise NotFound(f"there is no definition {fingerprint[:100]!r}")
    if definition.dialect == TEMPLATE:
        said = f"{fingerprint[:100]} is the template {definition.name}, and no definition"
        raise ApiError(422, "usage", said, "send its name as `template`")
    net = await asyncio.to_thread(parts.nets.get, fingerprint)
    return Prepared(definition, net, ())


async def _from_catalog(request: web.Request, body: StartRequest) -> Prepared:
    """Never a file: whoever may start runs here may not read files by naming them."""
    fields = {"path": body.path, "version": body.version, "catalog_id": body.catalog_id}
    target = child_target(fields)
    if body.path is not None and body.version is None:
        target = f"catalog://{target.removeprefix('catalog://')}"
    found = await in_line(request, request.app[PARTS].catalog.prepared, target)
    assert found is not None, "it is in the catalog, or an error"
    return found


async def redrive(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, RedriveRequest, optional=True)
    run, asked = request.match_info["run"], msgspec.to_builtins(body) or None

    async def begin(this: KeyedRequest) -> tuple[int, Any]:
        parts = request.app[PARTS]
        origin = parts.verbs.read.find(run).run
        if this.run is not None and parts.engine.known(this.run):
            return 201, shapes.Started(this.run, origin)
        try:
            begun = await parts.verbs.redrive(
                run,
                new=this.run,
                trace=traced(request),
                from_step=body.from_step,
                again=body.again,
                input=body.input,
            )
        except InputError as error:
            begun = _begun_before(this, this.run, error)
        return 201, shapes.Started(begun, origin)

    return _located(await once(request, asked, begin, again=True))


async def plan_redrive(request: web.Request) -> web.StreamResponse:
    run, step = request.match_info["run"], read_query(request)["from"] or ""
    return answer(await look(request, lambda by: prepare_redrive(by.read, run, step).plan()))


ROUTES = (
    Route(
        "POST",
        f"{API}/runs",
        "operate",
        start,
        "Start a run; it is durable when the server answers",
        body=StartRequest,
        returns=shapes.Started,
        example={"definition": EXAMPLE, "input": {"name": "Ada"}, "labels": {"tenant": "north"}},
        status=201,
        errors=(404, 409),
        headers=(KEY_HEADER, TRACE_HEADER),
    ),
    Route(
        "GET",
        f"{API}/runs/{{run}}/redrive",
        "read",
        plan_redrive,
        "Show what a redrive would run again, why, and what it would reuse; starts nothing",
        returns=RedrivePlan,
        query=(Query("from", "also run this step and what depends on it again", example="match"),),
        errors=(409, 422),
    ),
    Route(
        "POST",
        f"{API}/runs/{{run}}/redrive",
        "operate",
        redrive,
        "Start a linked run that repeats what failed and what depends on it, and keeps the rest",
        body=RedriveRequest,
        bodiless=True,
        returns=shapes.Started,
        example={"from": "match"},
        status=201,
        errors=(409,),
        headers=(KEY_HEADER, TRACE_HEADER),
    ),
)

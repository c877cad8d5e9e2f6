"""Arca workflows in their own words: dispatches, snapshots and templates."""

from __future__ import annotations

import asyncio
from typing import Any, get_args
from urllib.parse import quote

import msgspec
from aiohttp import web

from anabranch.dialects.arca.templates import definition_text
from anabranch.literals import DispatchStatus
from anabranch.operations.definitions.prepare import require_size
from anabranch.operations.definitions.templates import Templates, Version
from anabranch.operations.read.dispatches import Dispatch, WorkflowStepDispatch
from anabranch.store.ports import Store
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.http.guard.shares import checking, in_share
from anabranch.surfaces.http.io.problems import PlaceProblem, place_problem
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.request_body import (
    answer,
    page_of,
    read_body,
    read_cursor,
    read_query,
)
from anabranch.surfaces.http.resources.definitions import CURSOR, PAGE
from anabranch.surfaces.http.resources.runs import RUN
from anabranch.surfaces.http.routes import API, PARTS, Query, Route

ALL = f"{API}/templates"
ONE = f"{ALL}/{{template}}"
EXAMPLE = {
    "template_id": "cheapest.v1",
    "label": "Cheapest summary",
    "parameters": {"limit": {"type": "integer", "default": 5}},
    "plan": {
        "steps": [
            {
                "step_id": "ask",
                "service_type": "text/summarise",
                "target": {"resolve": "static", "participants": ["p1", "p2"]},
                "fan_in": {"policy": "any_one"},
                "input": {"limit": "{{params.limit}}"},
            }
        ]
    },
}


# -- what it is answered with ----------------------------------------------------------------------


class DispatchShown(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a participant; `record` is at `place` in the log of its world."""

    number: int  # in the order in which they went out
    place: str
    record: WorkflowStepDispatch
    job: str
    gather: str
    attempt: int
    outcome: str
    selected: bool
    score: float | None
    late_response_at: str | None
    reason: str = ""  # why an answer that says yes cannot be used


class DispatchPage(msgspec.Struct, frozen=True, kw_only=True):
    """Request the rest with `after=next`."""

    items: list[DispatchShown]
    next: int | None


class Snapshot(msgspec.Struct, kw_only=True):
    """A `WorkflowRunSnapshot`. What does not apply is left out."""

    schema: str
    run_id: str
    workflow_id: str
    workflow_kind: str
    status: str
    input: Any
    created_at: str
    started_at: str
    updated_at: str
    revision: int
    steps: list[dict[str, Any]]


class TemplateKept(msgspec.Struct, kw_only=True):
    template_id: str
    version: int
    created_at: int


class TemplateCard(TemplateKept, kw_only=True):
    label: str
    description: str
    parameters: dict[str, dict[str, Any]]


class TemplateShown(TemplateCard, kw_only=True):
    """`template` is the part that definitions are made of, `text` all that was stored."""

    template: dict[str, Any]
    text: str


class TemplatePage(msgspec.Struct, kw_only=True):
    items: list[TemplateCard]
    next: str | None


class Materialised(msgspec.Struct, kw_only=True):
    """A definition made of a template: its text, and what is worth a look in it."""

    definition: str
    fingerprint: str
    problems: list[PlaceProblem]


# -- what is sent ----------------------------------------------------------------------------------


class TemplateGiven(msgspec.Struct, forbid_unknown_fields=True):
    """A template as text or as a JSON object."""

    template: str | dict[str, Any]


class Parameters(msgspec.Struct, forbid_unknown_fields=True):
    parameters: dict[str, Any] = {}
    version: int | None = None  # instead of the newest


# -- runs ------------------------------------------------------------------------------------------


async def dispatches(request: web.Request) -> web.StreamResponse:
    asked, run = read_query(request), request.match_info["run"]
    limit = asked["limit"]
    found = await look(request, lambda by: by.read.dispatches(run))
    wanted = [
        (number, one)
        for number, one in enumerate(found, start=1)
        if number > asked["after"]
        and asked["step"] in (None, one.record.step_id)
        and asked["status"] in (None, one.record.status)
    ]
    items = [shown(number, one) for number, one in wanted[:limit]]
    return answer(DispatchPage(items=items, next=items[-1].number if wanted[limit:] else None))


def shown(number: int, one: Dispatch) -> DispatchShown:
    fields = msgspec.structs.asdict(one)
    fields["late_response_at"] = fields.pop("late_at")
    return DispatchShown(number=number, place=one.place, **fields)


async def snapshot(request: web.Request) -> web.StreamResponse:
    run = request.match_info["run"]
    return answer(await look(request, lambda by: by.read.snapshot(run)))


# -- templates -------------------------------------------------------------------------------------


async def put(request: web.Request) -> web.StreamResponse:
    given = (await read_body(request, TemplateGiven)).template
    kept = await in_share(request, _keep, request.app[PARTS].store, given)
    request[SUBJECT] = kept.template_id
    place = f"{ALL}/{quote(kept.template_id, safe='')}"
    return answer(kept.fields(), 201, {"Location": place})


def _keep(store: Store, given: str | dict[str, Any]) -> Version:
    if not isinstance(given, str):
        require_size(given)
        given = definition_text(given)
    return Templates(store).put(given)


async def list_all(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    limit = asked["limit"]
    after = read_cursor(asked["cursor"], str)[0] if asked["cursor"] else ""
    found = await look(request, lambda by: Templates(by.store).newest(after, limit + 1))
    items, more = page_of(found, limit, lambda card: (card["template_id"],))
    return answer({"items": items, "next": more})


async def versions(request: web.Request) -> web.StreamResponse:
    asked, name = read_query(request), request.match_info["template"]
    limit = asked["limit"]
    after = read_cursor(asked["cursor"], int)[0] if asked["cursor"] else 0
    found = await look(request, lambda by: Templates(by.store).versions(name, after, limit + 1))
    items, more = page_of(found, limit, lambda card: (card["version"],))
    return answer({"items": items, "next": more})


async def show(request: web.Request) -> web.StreamResponse:
    asked, name = read_query(request), request.match_info["template"]
    version: int | None = asked["version"]
    return answer(await look(request, lambda by: Templates(by.store).show(name, version)))


async def delete(request: web.Request) -> web.StreamResponse:
    name = request[SUBJECT] = request.match_info["template"]
    gone = await asyncio.to_thread(Templates(request.app[PARTS].store).delete, name)
    return answer(gone.fields())


async def materialise(request: web.Request) -> web.StreamResponse:
    """What a run of it would be, without one."""
    given = await read_body(request, Parameters, optional=True)
    name = request.match_info["template"]
    async with checking(request):
        ready, text = await look(
            request,
            lambda by: Templates(by.store).materialise(name, given.parameters, given.version),
        )
    problems = [place_problem(one) for one in ready.problems]
    fingerprint = ready.definition.fingerprint
    return answer(Materialised(definition=text, fingerprint=fingerprint, problems=problems))


# -- the table -------------------------------------------------------------------------------------

ROUTES = (
    Route(
        "GET",
        f"{RUN}/dispatches",
        "read",
        dispatches,
        "Which participants were asked, when, and the outcome; "
        "request the next page with `after=next`",
        returns=DispatchPage,
        query=(
            Query("step", "only those of this step", example="ask"),
            Query("status", "only those", choices=get_args(DispatchStatus), example="responded"),
            Query("after", "only after this number", "integer", default=0),
            PAGE,
        ),
    ),
    Route(
        "GET",
        f"{RUN}/snapshot",
        "read",
        snapshot,
        "The run as a WorkflowRunSnapshot, without raw responses",
        returns=Snapshot,
    ),
    Route(
        "POST",
        ALL,
        "operate",
        put,
        "Store a template; a changed text is a new version",
        body=TemplateGiven,
        returns=TemplateKept,
        example={"template": EXAMPLE},
        status=201,
    ),
    Route(
        "GET",
        ALL,
        "read",
        list_all,
        "List the templates by name, each in its newest version",
        returns=TemplatePage,
        query=(PAGE, CURSOR),
    ),
    Route(
        "GET",
        ONE,
        "read",
        show,
        "Show a template with its text",
        returns=TemplateShown,
        query=(Query("version", "instead of the newest", "integer", least=1, example=1),),
    ),
    Route(
        "DELETE",
        ONE,
        "operate",
        delete,
        "Delete a template; its runs stay, and it can be put again",
        returns=TemplateKept,
    ),
    Route(
        "GET",
        f"{ONE}/versions",
        "read",
        versions,
        "The versions of a template, oldest first",
        returns=TemplatePage,
        query=(PAGE, CURSOR),
    ),
    Route(
        "POST",
        f"{ONE}/definition",
        "read",
        materialise,
        "The definition that a template makes with these parameters; stores and starts nothing",
        body=Parameters,
        returns=Materialised,
        example={"parameters": {"limit": 5}},
        bodiless=True,
    ),
)

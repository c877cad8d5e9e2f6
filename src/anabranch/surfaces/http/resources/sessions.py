"""Orchestrations in their own words: sessions, processes, receipts, and what a rule costs."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from anabranch.operations.sessions.sessions import estimated_gas
from anabranch.surfaces.http.guard.shares import in_share
from anabranch.surfaces.http.io import shapes
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.request_body import (
    answer,
    cursor,
    read_body,
    read_cursor,
    read_query,
)
from anabranch.surfaces.http.resources.definitions import CURSOR
from anabranch.surfaces.http.resources.runs import RUN
from anabranch.surfaces.http.routes import API, Query, Route


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[dict[str, Any]]
    next: str | None


class GasRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A rule as text or as a JSON object."""

    rule: str | dict[str, Any]
    valid_spawns: int = 1
    invalid_spawns: int = 1
    encrypted: bool = False


async def list_all(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    place = read_cursor(asked["cursor"], int, str) if asked["cursor"] else None
    rows, after = await look(
        request, lambda by: by.sessions.page(asked["owner"], asked["limit"], place)
    )
    return answer({"items": rows, "next": cursor(*after) if after is not None else None})


class NextNumber(msgspec.Struct, frozen=True):
    owner: str
    next: int


class FoundSession(msgspec.Struct, frozen=True):
    owner: str
    session: str
    run: str


async def next_number(request: web.Request) -> web.StreamResponse:
    owner = read_query(request)["owner"] or ""
    number = await look(request, lambda by: by.sessions.next_number(owner))
    return answer(NextNumber(owner.lower(), number))


async def find(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    name, owner = asked["session"] or "", asked["owner"]
    run = await look(request, lambda by: by.sessions.find(name, owner))
    return answer(FoundSession(owner or "", name, run))


async def wakeable(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    rows = await look(
        request,
        lambda by: by.sessions.wakeable(
            asked["address"] or "",
            owner=asked["owner"],
            run=asked["session"],
            step=asked["step"],
            last=asked["limit"],
        ),
    )
    return answer({"items": rows})


async def processes(request: web.Request) -> web.StreamResponse:
    run = request.match_info["run"]
    rows = await look(request, lambda by: by.sessions.list_sessions(run=run))
    return answer({"items": rows})


async def receipts(request: web.Request) -> web.StreamResponse:
    asked, run = read_query(request), request.match_info["run"]
    rows = await look(
        request,
        lambda by: by.sessions.receipts(run, step=asked["step"], iteration=asked["iteration"]),
    )
    return answer({"items": rows})


async def gas(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, GasRequest)
    counts = {
        "valid_spawns": body.valid_spawns,
        "invalid_spawns": body.invalid_spawns,
        "encrypted": body.encrypted,
    }
    return answer(await in_share(request, estimated_gas, body.rule, **counts))


ROUTES = (
    Route(
        "GET",
        f"{API}/sessions",
        "read",
        list_all,
        "One row for every process of the newest sessions",
        returns=SessionPage,
        query=(
            Query("owner", "only sessions of this one"),
            Query(
                "limit", "of how many sessions at most", "integer", least=1, most=500, default=50
            ),
            CURSOR,
        ),
    ),
    Route(
        "GET",
        f"{API}/sessions/next",
        "read",
        next_number,
        "The number that the next session of an owner gets",
        returns=NextNumber,
        query=(Query("owner", "the address of the owner", example="0x" + "a" * 40),),
        errors=(422,),
    ),
    Route(
        "GET",
        f"{API}/sessions/find",
        "read",
        find,
        "The run that a session is, by its number and its owner",
        returns=FoundSession,
        query=(
            Query("session", "its number, or the id of the run", example="7"),
            Query("owner", "whose session is meant by a number", example="0x" + "a" * 40),
        ),
        errors=(404, 409, 422),
    ),
    Route(
        "GET",
        f"{API}/sessions/wakeable",
        "read",
        wakeable,
        "The sleeping processes that an address may wake",
        returns=shapes.RowPage,
        query=(
            Query("address", "who would wake them", example="0x" + "a" * 40),
            Query("owner", "only of sessions of this one"),
            Query("session", "only of this session"),
            Query("step", "only at this step"),
            Query("limit", "so many at most", "integer", least=1, most=500, default=100),
        ),
        errors=(404, 409, 422),
    ),
    Route(
        "POST",
        f"{API}/sessions/gas",
        "read",
        gas,
        "What evaluating a rule costs at most",
        body=GasRequest,
        returns=dict[str, Any],
        example={"rule": {"payload": {"age": {"type": "int64"}}, "rules": ["[age] > 17"]}},
    ),
    Route(
        "GET",
        f"{RUN}/processes",
        "read",
        processes,
        "The processes of a session",
        returns=shapes.RowPage,
        errors=(409,),
    ),
    Route(
        "GET",
        f"{RUN}/receipts",
        "read",
        receipts,
        "The receipt of each executed step of a session",
        returns=shapes.RowPage,
        query=(
            Query("step", "only of this step"),
            Query("iteration", "only of this process", "integer", least=1),
        ),
        errors=(409,),
    ),
)

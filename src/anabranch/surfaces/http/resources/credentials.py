"""Credentials over HTTP: kept, listed, rotated and removed; their values come in and never out."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from anabranch.operations.access.credentials import (
    CredentialCard,
    CredentialChange,
    CredentialDraft,
)
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.http.io.request_body import answer, read_body
from anabranch.surfaces.http.routes import API, PARTS, Route, actor_of

ALL = f"{API}/credentials"
ONE = f"{ALL}/{{credential}}"
EXAMPLE = {
    "name": "pg_main",
    "type": "postgres",
    "data": {"host": "db.example.org", "user": "loader", "password": "…", "dbname": "main"},
}


class CredentialList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[CredentialCard]
    next: None = None


async def add(request: web.Request) -> web.StreamResponse:
    draft = await read_body(request, CredentialDraft)
    request[SUBJECT] = draft.name[:200]
    kept = request.app[PARTS].credentials
    card = await asyncio.to_thread(kept.add, draft, actor_of(request))
    return answer(card, 201, {"Location": f"{ALL}/{card.name}"})


async def list_all(request: web.Request) -> web.StreamResponse:
    return answer(CredentialList(items=await asyncio.to_thread(request.app[PARTS].credentials.all)))


async def show(request: web.Request) -> web.StreamResponse:
    kept, name = request.app[PARTS].credentials, request.match_info["credential"]
    return answer(await asyncio.to_thread(kept.show, name))


async def rotate(request: web.Request) -> web.StreamResponse:
    change = await read_body(request, CredentialChange)
    kept, name = request.app[PARTS].credentials, request.match_info["credential"]
    return answer(await asyncio.to_thread(kept.rotate, name, change, actor_of(request)))


async def remove(request: web.Request) -> web.StreamResponse:
    kept, name = request.app[PARTS].credentials, request.match_info["credential"]
    return answer(await asyncio.to_thread(kept.remove, name))


ROUTES = (
    Route("POST", ALL, "admin", add, "Store a credential, encrypted",
          body=CredentialDraft, returns=CredentialCard, example=EXAMPLE, status=201, errors=(409,)),
    Route("GET", ALL, "admin", list_all, "The credentials, without their values",
          returns=CredentialList),
    Route("GET", ONE, "admin", show, "One credential, without its values",
          returns=CredentialCard, errors=(404,)),
    Route("POST", f"{ONE}/rotate", "admin", rotate, "Replace the value of a credential",
          body=CredentialChange, returns=CredentialCard,
          example={"data": {"host": "db.example.org", "user": "loader", "password": "…"}},
          errors=(404, 409)),
    Route("DELETE", ONE, "admin", remove, "Remove a credential",
          returns=CredentialCard, errors=(404,)),
)  # fmt: skip

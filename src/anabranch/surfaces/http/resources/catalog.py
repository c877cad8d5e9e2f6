"""The catalog over HTTP: definitions by path, in versions."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from aiohttp import web

from anabranch.operations.definitions.catalog import Catalog, Draft, Registered
from anabranch.operations.definitions.prepare import TEXT, as_text
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.http.guard.shares import in_share
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.request_body import (
    answer,
    page_of,
    read_body,
    read_cursor,
    read_query,
)
from anabranch.surfaces.http.resources.definitions import CURSOR, EXAMPLE, PAGE, label_of, source_of
from anabranch.surfaces.http.routes import API, PARTS, Query, Route, actor_of

ALL = f"{API}/catalog"
ONE = f"{ALL}/{{path}}"
DEFINITIONS_MAX = 200  # of one request


class DefinitionAt(msgspec.Struct, forbid_unknown_fields=True):
    """A definition as text or as a JSON object, what its file is called, and its path if its
    metadata says none."""

    definition: str | dict[str, Any]
    file: str = TEXT
    path: str = ""


class ToRegister(msgspec.Struct, forbid_unknown_fields=True):
    definitions: Annotated[
        list[DefinitionAt], msgspec.Meta(min_length=1, max_length=DEFINITIONS_MAX)
    ]


class RegisteredList(msgspec.Struct, frozen=True, kw_only=True):
    items: list[Registered]


class CatalogPage(msgspec.Struct, frozen=True, kw_only=True):
    items: list[Registered]
    next: str | None


class CatalogDefinition(Registered, frozen=True, kw_only=True):
    definition: str


async def register(request: web.Request) -> web.StreamResponse:
    body = await read_body(request, ToRegister)
    parts, actor = request.app[PARTS], actor_of(request)
    named = (one.path or label_of(one.file) for one in body.definitions)
    request[SUBJECT] = ", ".join(named)[:200]
    now = parts.engine.clock.now()
    found = await in_share(request, _register, parts.catalog, body, now, actor)
    return answer(RegisteredList(items=found), 201)


def _register(catalog: Catalog, body: ToRegister, now: int, actor: str) -> list[Registered]:
    return catalog.register([_draft(one) for one in body.definitions], now, actor)


def _draft(given: DefinitionAt) -> Draft:
    text = as_text(source_of(given.definition))
    return Draft(text, label_of(given.file), given.path)


async def list_paths(request: web.Request) -> web.StreamResponse:
    query = read_query(request)
    prefix, limit = query["prefix"] or "", query["limit"]
    after = str(read_cursor(query["cursor"], str)[0]) if query["cursor"] else ""
    found: list[Registered] = await look(
        request, lambda by: Catalog(by.store).paths(prefix, after, limit + 1)
    )
    items, more = page_of(found, limit, lambda entry: (entry.path,))
    return answer(CatalogPage(items=items, next=more))


async def show(request: web.Request) -> web.StreamResponse:
    path, version = request.match_info["path"], read_query(request)["version"]
    target = path if version is None else f"{path}@{version}"
    entry, definition = await look(request, lambda by: Catalog(by.store).show(target))
    fields: dict[str, Any] = msgspec.structs.asdict(entry)
    return answer(CatalogDefinition(**fields, definition=definition.source))


async def versions(request: web.Request) -> web.StreamResponse:
    path = request.match_info["path"]
    found = await look(request, lambda by: Catalog(by.store).versions(path))
    return answer(RegisteredList(items=found))


ROUTES = (
    Route("POST", ALL, "operate", register,
          "Store definitions under their metadata.path, all or none; "
          "a changed text is a new version",
          body=ToRegister, returns=RegisteredList,
          example={"definitions": [{"definition": EXAMPLE, "path": "etl/hello"}]},
          status=201, errors=(409,)),
    Route("GET", ALL, "read", list_paths, "The paths, each in its newest version",
          returns=CatalogPage,
          query=(Query("prefix", "only paths that start with this", example="etl/"), PAGE, CURSOR)),
    Route("GET", ONE, "read", show, "A definition by its path, with its text",
          returns=CatalogDefinition, errors=(404,),
          query=(Query("version", "this version, instead of the newest", "integer", least=1),)),
    Route("GET", f"{ONE}/versions", "read", versions, "The versions of a path, newest first",
          returns=RegisteredList, errors=(404,)),
)  # fmt: skip

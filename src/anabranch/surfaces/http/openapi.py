"""The OpenAPI document, written from the route table: nothing is said twice.

Schemas come from the types of bodies and answers, the rest from the rows of the table. Programs may
generate clients from it, and a test sends what it promises to a real server.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from anabranch import __version__
from anabranch.surfaces.http.guard.unread_answers import SHARED
from anabranch.surfaces.http.io.problems import MEDIA as PROBLEM
from anabranch.surfaces.http.io.problems import ProblemDocument
from anabranch.surfaces.http.io.request_body import json_answer
from anabranch.surfaces.http.routes import API, Query, Route

_NAME = re.compile(r"{(\w+)}")
_REF = "#/components/schemas/{name}"
PARAMETERS: Mapping[str, tuple[str, str]] = {
    "run": ("the id of a run, the first letters of one, or `last`", "last"),
    "template": ("the id of a template; a / in it is written %2F", "cheapest.v1"),
    "fingerprint": ("what a definition is known by", "6f1c0a"),
    "step": ("a step of the definition, or the id of the loop", "each"),
    "name": ("the name of a signal that the definition waits for", "paid"),
    "gate": ("the id of a gate, or its step", "gate-2"),
    "sha256": ("the hash of a payload, 64 digits 0-9a-f", "0" * 64),
    "token": ("the id of a token", "k3f9x2m7q1ab"),
    "path": ("the path of a definition in the catalog; a / in it is written %2F", "etl%2Fload"),
    "credential": ("the name of a credential", "pg_main"),
    "server": ("a server of the cluster: its id, the first letters of it, or its name", "3f1c"),
    "pool": ("the name of a pool of workers", "gpu"),
    "job": ("the id of a job, as it was claimed", "2.0"),
    "attempt": ("the attempt of the job, as it was claimed", "1"),
    "webhook": ("the id of a webhook", "w1"),
    "schedule": ("the name of a schedule", "nightly"),
    "trigger": ("the name of a trigger", "paid"),
    "hook": ("the name of a trigger that is a hook", "paid"),
    "alias": ("the name of an alias", "prod"),
    "view": ("the name of a saved view", "Failed today"),
    "delivery": ("the id of a delivery", "d1"),
}


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """The whole document; the order is that of the table."""
    rows = list(routes)
    kinds = [kind for row in rows for kind in (row.body, row.returns) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [*kinds, ProblemDocument], ref_template=_REF
    )
    known = dict(zip(map(repr, kinds), schemas, strict=False))
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, known)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Anabranch",
            "version": __version__,
            "description": "Runs workflows that ask many parties at once. Errors are "
            "`application/problem+json`: programs look at `code`, people at `detail` and `hint`.",
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": tag} for tag in dict.fromkeys(row.tag for row in rows)],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY},
    }


_SECURITY = {"token": {"type": "http", "scheme": "bearer", "description": "anb_<id>_<secret>"}}


def _operation(row: Route, known: Mapping[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(row),
        "summary": row.summary,
        "tags": [row.tag],
        "x-scope": row.scope,
        "responses": _responses(row, known),
    }
    if row.scope != "open":
        operation["security"] = [{"token": []}, {}]
    parameters = [*_path_parameters(row), *map(_query, row.query), *_headers(row)]
    if parameters:
        operation["parameters"] = parameters
    if row.body is not None:
        content: dict[str, Any] = {"schema": known[repr(row.body)]}
        if row.example is not None:
            content["example"] = row.example
        operation["requestBody"] = {
            "required": not row.bodiless,
            "content": {"application/json": content},
        }
    return operation


def _operation_id(row: Route) -> str:
    """`get_runs_run_events`: stable, and a good name for a function."""
    words = re.findall(r"\w+", row.path.removeprefix(API))
    place = [] if row.path.startswith(API) else ["root"]
    return "_".join([row.method.lower(), *place, *words])


def _path_parameters(row: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PARAMETERS.get(name, (name, ""))[0],
            "schema": {"type": "string", "minLength": 1},
            "example": PARAMETERS.get(name, (name, name))[1],
        }
        for name in _NAME.findall(row.path)
    ]


def _query(query: Query) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": query.kind}
    if query.choices:
        schema["enum"] = list(query.choices)
    if query.kind == "integer":
        schema |= {"minimum": query.least, "maximum": query.most}
    if query.many:
        schema = {"type": "array", "items": schema}
    if query.default is not None:
        schema["default"] = query.default
    said: dict[str, Any] = {
        "name": query.name,
        "in": "query",
        "required": False,
        "description": query.summary,
        "schema": schema,
    }
    if query.example is not None:
        said["example"] = [query.example] if query.many else query.example
    return said


_SHORT = {"minLength": 1, "maxLength": 200}


def _headers(row: Route) -> list[dict[str, Any]]:
    return [
        {
            "name": header.name,
            "in": "header",
            "required": False,
            "description": header.summary,
            "schema": {"type": "string", **(_SHORT if header.strict else {})},
        }
        for header in row.headers
    ]


def _responses(row: Route, known: Mapping[str, Any]) -> dict[str, Any]:
    good: dict[str, Any] = {"description": HTTPStatus(row.status).phrase}
    if row.status != HTTPStatus.NO_CONTENT:
        good["content"] = _good_content(row, known)
    found = {str(row.status): good}
    for status in _statuses(row):
        found[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {PROBLEM: {"schema": {"$ref": _REF.format(name="ProblemDocument")}}},
        }
    return found


def _good_content(row: Route, known: Mapping[str, Any]) -> dict[str, Any]:
    if row.media != "application/json":
        return {row.media: {"schema": {"type": "string"}}}
    schema = known[repr(row.returns)] if row.returns is not None else {}
    content: dict[str, Any] = {row.media: {"schema": schema}}
    for media in row.also:
        content[media] = {"schema": {"type": "string"}}
    return content


def _statuses(row: Route) -> list[int]:
    """What can go wrong, from what the row takes."""
    found = {*row.errors, 401, 403, 421, 429, 500, 503}  # a wrong token is one everywhere
    if row.query or row.headers or row.body is not None:
        found.add(400)
    if "{" in row.path:
        found |= {400, 404}
    if row.body is not None:
        found |= {408, 413, 415, 422}
    return sorted(found)


class Described:
    """The document as it is sent, written at the first question: it never changes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = tuple(routes)
        self._written: bytes | None = None

    def written(self) -> bytes:
        if self._written is None:
            self._written = msgspec.json.encode(document(self._routes))
        return self._written


DESCRIBED = web.AppKey("described", Described)


async def show(request: web.Request) -> web.StreamResponse:
    described = request.app[DESCRIBED]
    request[SHARED] = True
    return json_answer(await asyncio.to_thread(described.written))


ROUTES = (
    Route(
        "GET",
        f"{API}/openapi.json",
        "open",
        show,
        "The OpenAPI document of this server, for programs",
        returns=dict[str, Any],
    ),
)

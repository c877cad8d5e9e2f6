"""The OpenAPI document of a node, written from its table of endpoints."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import msgspec
from aiohttp import web

from anabranch.market.node.api import Answer, Api, Call, Endpoint, NodeProblem, Scope
from anabranch.market.node.parameters import ID_MAX, PATH, TEXT_MAX, Parameter, parameter_at
from anabranch.surfaces.http.node.answers import ANSWERS, ANY_BODY, BODIES
from anabranch.surfaces.http.openapi import document
from anabranch.surfaces.http.routes import Route

DESCRIPTION = (
    "A node of the market: modules, peers, offers, orders, deliveries and a ledger. Errors are "
    "`application/problem+json`: programs look at `code`, people at `detail`."
)
#: What callers of a node show, and the names of its schemes.
SCHEMES = {
    "operator": {"type": "apiKey", "in": "header", "name": "X-Orbiplex-Authtok"},
    "module": {"type": "apiKey", "in": "header", "name": "X-Orbiplex-Module-Authtok"},
}
_NAME = re.compile(r"{(\w+)\*?}")


def node_document(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    rows = list(endpoints)
    described = document([_route(one) for one in rows])
    described["info"] |= {"title": "Anabranch node", "description": DESCRIPTION}
    described["components"]["securitySchemes"] = SCHEMES
    described["components"]["schemas"]["ProblemDocument"] = _problem_schema()
    described["tags"] = [{"name": tag} for tag in dict.fromkeys(_tag(one.path) for one in rows)]
    for one in rows:
        operation = described["paths"][_path(one)][one.method.lower()]
        _complete(operation, one)
    return described


def openapi_endpoint(api: Api) -> Endpoint:
    """`GET /openapi.json`, for the table that it describes; written at the first question."""
    written: list[dict[str, Any]] = []

    async def show(_call: Call) -> Answer:
        if not written:
            written.append(node_document(api.endpoints))
        return Answer(body=written[0])

    return Endpoint(
        method="GET",
        path="/openapi.json",
        scopes=("open",),
        handler=show,
        summary="The OpenAPI document of this node, for programs",
        returns=dict[str, Any],
    )


def _path(endpoint: Endpoint) -> str:
    return endpoint.path.replace("*}", "}")


def _route(endpoint: Endpoint) -> Route:
    named = f"{endpoint.method} {endpoint.path}"
    return Route(
        method=endpoint.method,
        path=_path(endpoint),
        scope="any",
        handler=_nothing,
        summary=endpoint.summary,
        body=endpoint.body,
        returns=endpoint.returns or ANSWERS.get(named, dict[str, Any]),
        example=endpoint.example,
        status=endpoint.status,
        errors=tuple({*endpoint.errors, 400, 408, 413}),  # any call may have a wrong body
    )


def _complete(operation: dict[str, Any], endpoint: Endpoint) -> None:
    """What routes of the server do not have."""
    named = f"{endpoint.method} {endpoint.path}"
    operation["tags"] = [_tag(endpoint.path)]
    operation["x-scope"] = [scope for scope in get_args(Scope) if scope in endpoint.scopes]
    operation.pop("security", None)
    if "open" not in endpoint.scopes:
        operation["security"] = [{scope: []} for scope in endpoint.scopes if scope in SCHEMES]
    operation["parameters"] = [
        *(_parameter("path", name, PATH[name]) for name in _NAME.findall(endpoint.path)),
        *(_parameter("query", one, parameter_at(endpoint.path, one)) for one in endpoint.query),
        *(_parameter("query", name, one) for name, one in endpoint.parameters.items()),
    ]
    responses = operation["responses"]
    if endpoint.status == 201:  # said again, it is there already
        responses["200"] = {**responses["201"], "description": "OK"}
    if named in ANY_BODY:
        responses["202"] = {**responses["200"], "description": "Accepted"}
        responses["200"] = {**responses["200"], "content": {"application/json": {"schema": {}}}}
    if named in BODIES or named in ANY_BODY:
        operation["requestBody"] = _body(endpoint, BODIES.get(named))
    elif endpoint.body is not None:
        optional = type(None) in get_args(endpoint.body)
        operation["requestBody"]["required"] = not optional


def _body(endpoint: Endpoint, summary: str | None) -> dict[str, Any]:
    schema: dict[str, Any] = {} if summary is None else {"type": "object"}
    content: dict[str, Any] = {"schema": schema}
    if endpoint.example is not None:
        content["example"] = endpoint.example
    said = summary or "What the capability takes"
    return {
        "description": said,
        "required": summary is not None,
        "content": {"application/json": content},
    }


def _parameter(place: str, name: str, parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": parameter.kind}
    if parameter.kind == "integer":
        schema |= {"minimum": parameter.least, "maximum": parameter.most}
    elif parameter.choices:
        schema["enum"] = list(parameter.choices)
    elif parameter.kind == "string":
        in_path = place == "path"
        schema |= {"minLength": int(in_path), "maxLength": ID_MAX if in_path else TEXT_MAX}
    said = {
        "name": name,
        "in": place,
        "required": place == "path" or parameter.required,
        "description": parameter.summary,
        "schema": schema,
    }
    return {**said, "example": parameter.example} if parameter.example else said


def _problem_schema() -> Mapping[str, Any]:
    (_, components) = msgspec.json.schema_components([NodeProblem])
    found: Mapping[str, Any] = components["NodeProblem"]
    return found


def _tag(path: str) -> str:
    """`/v1/ledger/holds/{hold}` → ledger; what nodes ask of each other has no version."""
    words = path.strip("/").split("/")
    return words[1] if words[0] == "v1" else "node"


async def _nothing(_request: web.Request) -> web.Response:
    raise AssertionError("the node's own table answers")

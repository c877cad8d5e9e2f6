"""What a route is, and what every handler finds in its request.

The table is the one source of truth: the application is mounted from it, tokens are checked against
its scopes, and the OpenAPI document is written from it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from aiohttp import web

from anabranch.settings import Settings

if TYPE_CHECKING:
    from anabranch.parts import Parts

#: `any` is a token of whatever scope, `open` needs none.
Scope = Literal["read", "operate", "decide", "work", "hook", "admin", "any", "open"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

API = "/api/v1"

PARTS: web.AppKey[Parts] = web.AppKey("parts")
SETTINGS = web.AppKey("settings", Settings)
#: Who asks: set by the middleware that knows tokens, "local" without one.
ACTOR = web.RequestKey("actor", str)
LOCAL = "local"


class Query(msgspec.Struct, frozen=True):
    """One parameter after the question mark."""

    name: str
    summary: str
    kind: Literal["string", "integer", "boolean"] = "string"
    choices: tuple[str, ...] = ()
    least: int = 0  # of an integer
    most: int = 2**53
    many: bool = False  # may be given several times
    default: Any = None
    example: Any = None


class Header(msgspec.Struct, frozen=True):
    """A header that means something to this route."""

    name: str
    summary: str
    strict: bool = True  # what does not fit is refused; otherwise it counts as left out


class Route(msgspec.Struct, frozen=True):
    """One row of the table."""

    method: str
    path: str  # "/api/v1/runs/{run}"
    scope: Scope
    handler: Handler
    summary: str
    body: type | None = None  # msgspec struct of the request body
    returns: Any = None  # type of the answer; None is any JSON
    query: tuple[Query, ...] = ()
    example: Any = None  # of the request body
    status: int = 200  # of the good answer
    media: str = "application/json"  # of the good answer
    also: tuple[str, ...] = ()  # further media types it can have
    errors: tuple[int, ...] = ()  # beside those that every route can give
    headers: tuple[Header, ...] = ()
    bodiless: bool = False  # the body may be left out

    @property
    def tag(self) -> str:
        """The resource it belongs to."""
        return self.path.removeprefix(API).strip("/").partition("/")[0] or "api"


TABLE = web.AppKey("table", dict[tuple[str, str], Route])
#: The first names of the paths in it: `api`, `rpc` …
ROOTS = web.AppKey("roots", frozenset[str])


def table_of(routes: tuple[Route, ...]) -> Mapping[tuple[str, str], Route]:
    """The routes by method and path; two of the same are a mistake of ours."""
    table: dict[tuple[str, str], Route] = {}
    for route in routes:
        if table.setdefault((route.method, route.path), route) is not route:
            raise ValueError(f"{route.method} {route.path} is in the table twice")
    return table


def route_of(request: web.Request) -> Route | None:
    """The row that a request belongs to; None for pages, files and paths that do not exist."""
    resource = request.match_info.route.resource
    if resource is None:
        return None
    return request.app[TABLE].get((request.method, resource.canonical))


def is_for_programs(request: web.Request) -> bool:
    """Whether programs call what is below its first name, such as `/rpc`: they read no pages."""
    first = request.path.removeprefix("/").partition("/")[0]  # `OPTIONS *` has no path
    return first in request.app[ROOTS]


def actor_of(request: web.Request) -> str:
    """Who is recorded as the one that did it."""
    actor: str = request.get(ACTOR, LOCAL)
    return actor

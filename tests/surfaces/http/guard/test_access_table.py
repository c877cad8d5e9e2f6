"""Every address there is, asked by everybody: the tests are made from the tables of routes.

Whoever adds a route or a page is covered without doing anything, and cannot leave it open by
forgetting something.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from anabranch.operations.access.tokens import SCOPES
from anabranch.surfaces.http.app import ALL_ROUTES
from anabranch.surfaces.http.routes import API, TABLE, Route
from anabranch.surfaces.ui import routes

from ..access import Door, serving
from ..support import run

NEEDED: Any = {"require_tokens": "yes"}
MAY = {
    "read": {"read"},
    "operate": {"read", "operate"},
    "decide": {"read", "decide"},
    "work": {"work"},
    "hook": {"hook"},
    "admin": set(SCOPES),
}
#: Whoever makes something open to everybody says so here, too.
OPEN = {
    ("GET", f"{API}/health"),
    ("GET", f"{API}/openapi.json"),
    ("POST", "/hooks/{hook}"),  # asks for a signature or a token itself: automation/test_hooks.py
}
OPEN_PAGES = {
    ("GET", "/static/{version}/{name}"),
    ("GET", "/favicon.ico"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("POST", "/logout"),
}
#: Pages that answer a form and change nothing.
UNCHANGING = {
    ("POST", "/definitions"),
    ("POST", "/definitions/check"),
    ("POST", "/login"),
    ("POST", "/logout"),
}


def filled(path: str) -> str:
    """The path with something where names belong; one that `Door.ask` takes as it is."""
    plain = path.replace("{anything:(?!api/).*}", "nowhere")
    plain = plain.replace("{attempt}", "1").replace("{sha256}", "0" * 64)
    return "/" + plain.replace("{", "").replace("}", "")


def pages(app: web.Application) -> Iterator[tuple[str, str]]:
    """(method, path) of everything that is mounted beside the table."""
    for route in app.router.routes():
        assert route.resource is not None
        path = route.resource.canonical
        if (route.method, path) not in app[TABLE] and route.method != "HEAD":
            yield route.method, path


def application(door: Door) -> web.Application:
    assert door.server._runner is not None
    return door.server._runner.app


# -- the API ---------------------------------------------------------------------------------------


def test_nothing_is_open_by_mistake() -> None:
    assert {(one.method, one.path) for one in ALL_ROUTES if one.scope == "open"} == OPEN


def test_every_change_needs_more_than_reading() -> None:
    """`read` with a body: those that only compute, by name."""
    computing = {"check", "format", "graph", "gas", "definition", "test"}
    for route in ALL_ROUTES:
        if (route.method, route.path) in OPEN:
            continue
        if route.method != "GET" and route.path.rpartition("/")[2] not in computing:
            assert route.scope in ("operate", "decide", "work", "admin"), route.path


@pytest.mark.parametrize("scope", ["", *SCOPES])
def test_a_token_opens_the_routes_of_its_scope_and_no_others(scope: str) -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            token = door.token(scope) if scope else ""
            for route in ALL_ROUTES:
                reply = await door.ask(route.method, filled(route.path), token, body=[])
                refusal = reply.code if reply.status in (401, 403) else ""
                assert refusal == _expected(route, scope), (route.method, route.path, reply)
                assert reply.status != 500, (route.path, reply)

    run(go())


def _expected(route: Route, scope: str) -> str:
    if not scope:
        return "" if route.scope == "open" else "token_missing"
    return "" if route.scope in {"any", "open", *MAY[scope]} else "scope"


def test_whoever_has_no_token_is_told_how_to_show_one() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            for route in ALL_ROUTES:
                if route.scope != "open":
                    reply = await door.ask(route.method, filled(route.path))
                    assert reply.headers["WWW-Authenticate"].startswith("Bearer"), route.path

    run(go())


def test_everything_under_the_api_is_in_the_table() -> None:
    async def go() -> None:
        async with serving(pages=True) as door:
            assert [path for _, path in pages(application(door)) if path.startswith(API)] == []

    run(go())


def test_a_route_beside_the_table_is_closed_to_all_but_admins() -> None:
    """A mount that adds one without saying what it needs opens nothing."""

    async def handler(_request: web.Request) -> web.StreamResponse:
        return web.json_response({})

    def mount(app: web.Application) -> None:
        app.router.add_post(f"{API}/forgotten", handler)

    async def go() -> None:
        async with serving(mounts=(mount,), **NEEDED) as door:
            assert (await door.ask("POST", "/forgotten")).code == "token_missing"
            assert (await door.ask("POST", "/forgotten", door.token("operate"))).code == "scope"
            assert (await door.ask("POST", "/forgotten", door.token("admin"))).status == 200

    run(go())


# -- the pages -------------------------------------------------------------------------------------


def test_every_form_says_what_it_needs_and_what_it_is_called() -> None:
    async def go() -> None:
        async with serving(pages=True) as door:
            changing = {one for one in pages(application(door)) if one[0] != "GET"}
            assert changing <= set(routes.SCOPES)
            assert changing - UNCHANGING == set(routes.ACTIONS)
            opened = {one for one, scope in routes.SCOPES.items() if scope == "open"}
            assert opened == OPEN_PAGES
            assert {routes.SCOPES[one] for one in UNCHANGING} == {"read", "open"}

    run(go())


@pytest.mark.parametrize("scope", ["", *SCOPES])
def test_a_page_opens_with_its_scope_and_no_other(scope: str) -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            token = door.token(scope) if scope else ""
            for method, path in pages(application(door)):
                default = "read" if method == "GET" else "admin"
                needed = routes.SCOPES.get((method, path), default)
                reply = await door.ask(method, filled(path), token)
                refused = reply.headers.get("WWW-Authenticate") or "scope" in reply.text[-3000:]
                may = needed == "open" or (scope and needed in MAY[scope])
                if may:
                    assert reply.status not in (401, 500), (method, path)
                else:
                    assert reply.status == (403 if scope else 401), (method, path)
                    assert refused, (method, path)

    run(go())


def test_no_form_is_taken_without_the_secret_of_its_page() -> None:
    async def go() -> None:
        async with serving(pages=True) as door:
            for method, path in pages(application(door)):
                if method == "GET":
                    continue
                url = door.server.url + filled(path)[1:]
                for data in ({}, {"csrf": ""}, {"csrf": "x" * 43}):
                    async with door.session.request(method, url, data=data) as reply:
                        assert (reply.status, path) == (403, path)
                        assert "earlier session" in await reply.text()

    run(go())

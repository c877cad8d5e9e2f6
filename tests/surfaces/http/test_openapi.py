"""The OpenAPI document keeps its word: a real server is asked everything it promises."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import checks
from schemathesis.specs.openapi import checks as openapi_checks

from anabranch.operations.definitions.templates import Templates
from anabranch.operations.webhooks.sender import SendResult, WebhookSender
from anabranch.settings import Settings
from anabranch.surfaces.cli.parser import VERBS
from anabranch.surfaces.http.app import ALL_ROUTES
from anabranch.surfaces.http.openapi import PARAMETERS, document
from anabranch.surfaces.http.resources.workflows import EXAMPLE as TEMPLATE
from anabranch.surfaces.http.routes import API
from anabranch.surfaces.http.serve import Server
from hangs import HANG_SECONDS
from seeds import seeds

from ..tables import wrong_answers
from .promises import Choice, schema_of
from .support import ASKING, HELLO, playbook, run, serving, step

FANNED = playbook(step("each", loop={"in": [1, 2, 3], "iterator": "n"}), name="fanned")

WHOLE = document(ALL_ROUTES)
DOCS = Path(__file__).parents[3] / "docs"

# -- the document itself ---------------------------------------------------------------------------


def test_every_route_is_in_the_document_with_its_scope() -> None:
    said = {
        (method.upper(), path): operation["x-scope"]
        for path, methods in WHOLE["paths"].items()
        for method, operation in methods.items()
    }
    assert said == {(route.method, route.path): route.scope for route in ALL_ROUTES}


def test_no_two_operations_have_one_name() -> None:
    names = [one["operationId"] for path in WHOLE["paths"].values() for one in path.values()]
    assert len(names) == len(set(names))


def test_every_reference_leads_to_a_schema() -> None:
    text = json.dumps(WHOLE)
    known = {f"#/components/schemas/{name}" for name in WHOLE["components"]["schemas"]}
    assert set(re.findall(r'"(#/components/[^"]+)"', text)) <= known


def test_every_body_has_an_example_that_fits_its_type() -> None:
    for route in ALL_ROUTES:
        if route.body is not None:
            assert route.example is not None, route.path
            msgspec.convert(route.example, route.body)


def reached(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas that one is made of, by name."""
    waiting, seen = [json.dumps(schema)], set[str]()
    while waiting:
        for name in set(re.findall(r"#/components/schemas/([^\"]+)", waiting.pop())) - seen:
            seen.add(name)
            one = WHOLE["components"]["schemas"][name]
            waiting.append(json.dumps(one))
            yield name, one


def test_a_definition_in_a_request_is_its_text_or_its_json() -> None:
    of_a_name = {"AfterDraft"}
    found = set()
    for path, methods in WHOLE["paths"].items():
        for operation in methods.values():
            for name, schema in reached(operation.get("requestBody", {})):
                if name in of_a_name or "definition" not in schema.get("properties", {}):
                    continue
                kinds = {one.get("type") for one in schema["properties"]["definition"]["anyOf"]}
                assert {"string", "object"} <= kinds, (path, name)
                found.add(path.removeprefix(API))
    assert found >= {"/runs", "/catalog", "/schedules", "/triggers", "/definitions/check"}


def lists_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Every list that a schema has, but for those whose places have names."""
    if isinstance(schema, dict):
        if schema.get("type") == "array" and "prefixItems" not in schema:
            yield schema
        for inner in schema.values():
            yield from lists_in(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from lists_in(inner)


def test_every_list_in_a_body_says_how_long_it_may_be() -> None:
    """So that nothing is done for each of its items before they are counted."""
    of_the_log = {"ShardReport"}  # it is recorded as it is; nothing is looked up for an item
    found = {
        (path, name)
        for path, methods in WHOLE["paths"].items()
        for operation in methods.values()
        for name, schema in reached(operation.get("requestBody", {}))
        if name not in of_the_log
        for each in lists_in(schema)
        if "maxItems" not in each
    }
    assert found == set()


def test_json_is_taken_where_text_is() -> None:
    given = playbook(step("a"), name="hello")
    bodies = {
        "/catalog": {"definitions": [{"definition": given, "path": "hello"}]},
        "/schedules": {"name": "s", "definition": given, "every": "1h"},
        "/triggers": {"name": "t", "definition": given, "after": {"definition": "zz"}},
        "/definitions/format": {"definition": given},
    }

    async def go() -> None:
        async with serving() as client:
            for path, body in bodies.items():
                reply = await client.post(path, body)
                assert reply.status in (200, 201), (path, reply.text)

    asyncio.run(go())


def test_the_example_of_a_body_is_taken() -> None:
    async def go() -> None:
        async with serving() as client:

            async def check(path: str) -> None:
                (route,) = (r for r in ALL_ROUTES if (r.method, r.path) == ("POST", f"{API}{path}"))
                reply = await client.post(path, route.example)
                assert reply.status == route.status, reply.text

            assert (
                await wrong_answers(
                    [
                        *(
                            "/definitions/check",
                            "/definitions/format",
                            "/definitions/graph",
                            "/definitions",
                        ),
                        *("/runs", "/runs/purge", "/sessions/gas", "/templates", "/bulk"),
                    ],
                    check,
                )
                == []
            )

    run(go())


def test_every_name_in_a_path_is_explained() -> None:
    names = {name for route in ALL_ROUTES for name in re.findall(r"{(\w+)}", route.path)}
    assert names <= set(PARAMETERS)


def test_every_route_has_its_row_in_the_page_about_http() -> None:
    page = (DOCS / "http.md").read_text()
    missing = [
        f"{route.method} {route.path}"
        for route in ALL_ROUTES
        if f"`{route.method} {route.path.removeprefix(API)}`" not in page
    ]
    assert missing == []


def test_the_page_about_http_names_the_scope_that_a_route_needs() -> None:
    """What the server asks for is in `test_access_table.py`."""
    page = (DOCS / "http.md").read_text()
    rows = re.findall(r"^\| `([A-Z]+) (/\S*)`( \*\(at the root\)\*)? \| (\w+) \|", page, re.M)
    said = {(method, path if root else API + path): scope for method, path, root, scope in rows}
    wrong = [
        (route.method, route.path, route.scope)
        for route in ALL_ROUTES
        if said.get((route.method, route.path)) != route.scope
    ]
    assert wrong == []


def test_every_verb_of_the_command_line_says_which_routes_it_asks() -> None:
    page = (DOCS / "http.md").read_text()
    _, _, table = page.partition("\n## Verbs of the command line and their routes\n")
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", table.partition("\n## ")[0], re.MULTILINE)
    assert {verb for verbs, _ in rows for verb in re.findall(r"`(\w+)`", verbs)} == set(VERBS)
    known = {f"{route.method} {route.path.removeprefix(API)}" for route in ALL_ROUTES}
    said = {name for _, routes in rows for name in re.findall(r"`([A-Z]+ /[^`]*)`", routes)}
    assert said <= known


# -- what the server really does -------------------------------------------------------------------


async def taken(*_what: Any) -> SendResult:
    """Webhooks are made here, too; nobody on the network is asked."""
    return SendResult(200)


class Background:
    """A server in a thread of its own, for a client that blocks."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.url = ""

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        settings = Settings(store=str(self._place / "a.db"), serve_port=0, grace_seconds=0)
        with patch.object(WebhookSender, "post", taken):
            await self._listen(settings)

    async def _listen(self, settings: Settings) -> None:
        async with Server(settings, mounts=()) as running:
            for definition in (ASKING, FANNED, HELLO):
                await running.parts.verbs.start(definition)
            Templates(running.parts.store).put(json.dumps(TEMPLATE))
            self.url = running.url
            self._ready.set()
            await self._stop.wait()

    def __enter__(self) -> Background:
        self._thread.start()
        assert self._ready.wait(HANG_SECONDS)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Background]:
    with Background(tmp_path_factory.mktemp("openapi")) as running:
        yield running


#: What would wait for a long time.
LEFT_OUT = {
    f"{API}/runs/{{run}}/events/stream",
    f"{API}/runs/{{run}}/logs/stream",
    f"{API}/pools/{{pool}}/claim",
    f"{API}/pools/{{pool}}/wait",
}


PARTS = 8  # that run side by side
_paths: set[str] = set()  # of the part whose test runs
CHOICE = Choice()


@pytest.fixture(params=range(PARTS))
def promised(request: pytest.FixtureRequest) -> Any:
    """One part of what the document promises. The cases of a path are made when its test runs:
    every process that collects tests would make all of them."""
    request.node._nodeid = request.node.nodeid  # schemathesis looks there; pytest 9 has it not
    assert WHOLE["paths"].keys() >= LEFT_OUT
    _paths.clear()
    _paths.update([path for path in WHOLE["paths"] if path not in LEFT_OUT][request.param :: PARTS])
    return schema_of(WHOLE)


schema = schemathesis.pytest.from_fixture("promised").include(
    lambda context: context.operation.path in _paths
)

CHECKS = [
    checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_headers_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.negative_data_rejection,
    openapi_checks.unsupported_method,
]


@pytest.mark.slow
@schema.parametrize()
@settings(
    max_examples=len(seeds(50, least=2)),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_the_server_does_what_the_document_says(case: Any, server: Background) -> None:
    if CHOICE.has(case):
        case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=HANG_SECONDS)

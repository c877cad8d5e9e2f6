"""Definitions: check, publish, list, show, draw.

A definition in a request is always its text (or JSON itself), never a path: nothing a client sends
makes the server read one of its files.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

import msgspec
from aiohttp import web

from anabranch.dialects.port import Compiled, ToolSignature
from anabranch.errors import NotFound
from anabranch.net.net import Net
from anabranch.net.problems import Problem
from anabranch.operations.access.credentials import looked_up
from anabranch.operations.definitions.catalog import SCHEME, Catalog, missing_in
from anabranch.operations.definitions.inputs import inputs_of
from anabranch.operations.definitions.prepare import (
    TEXT,
    Prepared,
    as_text,
    canonical_form,
    check,
    prepare,
)
from anabranch.operations.definitions.rate_check import unheeded_rates
from anabranch.operations.definitions.templates import DIALECT as TEMPLATE
from anabranch.operations.read.reader import draw
from anabranch.store.ports import Definition, DefinitionCard, DefinitionFilter
from anabranch.surfaces.http.guard.shares import in_line, in_share, token_of
from anabranch.surfaces.http.io import shapes
from anabranch.surfaces.http.io.problems import ApiError, place_problem
from anabranch.surfaces.http.io.readers import ReadHandle, look
from anabranch.surfaces.http.io.request_body import (
    answer,
    page_of,
    read_body,
    read_cursor,
    read_query,
)
from anabranch.surfaces.http.io.threads import Flag, in_thread
from anabranch.surfaces.http.routes import API, PARTS, Query, Route

PAGE = Query("limit", "how many at most", "integer", least=1, most=500, default=50)
CURSOR = Query("cursor", "`next` of the page before")
FORMAT = Query(
    "format", "how to draw it", choices=("mermaid", "dot", "svg"), default="mermaid", example="dot"
)
RAW = Query("raw", "true: the drawing itself instead of JSON", "boolean", default=False)
EXAMPLE = """\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: hello}
workflow:
  - step: greet
    tool: {kind: noop, result: hello}
"""
FILE_LETTERS = 200
COMPILATIONS_KEPT = 64
KEPT_BYTES = 256 * 1024  # a longer definition is compiled each time
_MEDIA = {"svg": "image/svg+xml"}


class DefinitionGiven(msgspec.Struct, forbid_unknown_fields=True):
    """A definition as text (YAML or JSON) or as a JSON object, and the rules it names, if any.

    `file` is what the file is called that it comes from: problems name it, and so does a definition
    without a name. No file is read.
    """

    definition: str | dict[str, Any]
    rules: dict[str, Any] | None = None
    file: str = TEXT


class PlaybookText(msgspec.Struct, forbid_unknown_fields=True):
    """A playbook as text or as a JSON object. One whose `file` is called `….json` stays JSON."""

    definition: str | dict[str, Any]
    file: str = TEXT


def label_of(file: str) -> str:
    """What a text is called; a bare name, so that nobody takes it for a path of the server."""
    if not 0 < len(file) <= FILE_LETTERS or not file.isprintable() or set(file) & set("/\\"):
        said = f"`file` is {file[:100]!r}: it is the bare name of a file"
        raise ApiError(422, "usage", said, "send its last part, such as order.yaml")
    return file


def source_of(given: str | dict[str, Any]) -> str | dict[str, Any]:
    """Text stays text: one line without an end would be taken for a path."""
    return f"{given}\n" if isinstance(given, str) and "\n" not in given else given


def tools_of(request: web.Request) -> list[ToolSignature]:
    return request.app[PARTS].toolbox.signatures()


class Compute(Protocol):
    """Beside the event loop, in whatever share."""

    def __call__(self, work: Callable[[], Prepared], /) -> Coroutine[Any, Any, Prepared]: ...


class Compilations:
    """The last definitions that compiled: most runs are begun from one that was seen before."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, Prepared] = OrderedDict()
        self._under_way: dict[tuple[str, bytes], tuple[asyncio.Task[Prepared], Flag]] = {}

    async def get(
        self,
        given: str | dict[str, Any],
        tools: list[ToolSignature],
        rules: Mapping[str, Any] | None,
        file: str = TEXT,
        *,
        token: str = "",
        compute: Compute = asyncio.to_thread,
    ) -> Prepared:
        """Compiled beside the event loop, by `compute`; raises with all its problems. A token does
        not wait for what another one has in line."""
        said = msgspec.json.encode([given, tools, rules, file])
        key = hashlib.sha256(said).digest()
        found = self._kept.get(key)
        if found is None:
            work = partial(prepare, source_of(given), tools, rules, file=file)
            found = await self._compiled((token, key), work, compute)
            if len(said) <= KEPT_BYTES:
                self._kept[key] = found
        if key in self._kept:
            self._kept.move_to_end(key)
        while len(self._kept) > COMPILATIONS_KEPT:
            self._kept.popitem(last=False)
        return found

    async def _compiled(
        self, key: tuple[str, bytes], work: Callable[[], Prepared], compute: Compute
    ) -> Prepared:
        """Once for all who ask for it at the same time; not at all when they have all gone."""
        task, flag = self._under_way.get(key, (None, Flag()))
        if task is None or flag.given_up:
            flag = Flag()
            task = asyncio.ensure_future(compute(partial(flag.run, work)))
            self._under_way[key] = task, flag
            task.add_done_callback(lambda ended: self._ended(key, ended))
        return await flag.wait(task)

    def _ended(self, key: tuple[str, bytes], task: asyncio.Task[Prepared]) -> None:
        if self._under_way.get(key, (None,))[0] is task:
            del self._under_way[key]


COMPILED = web.AppKey("compiled", Compilations)


async def prepared(
    request: web.Request,
    given: str | dict[str, Any],
    rules: Mapping[str, Any] | None,
    file: str = TEXT,
) -> Prepared:
    return await request.app[COMPILED].get(
        given,
        tools_of(request),
        rules,
        label_of(file),
        token=token_of(request),
        compute=partial(in_line, request),
    )


async def check_one(request: web.Request) -> web.StreamResponse:
    given = await read_body(request, DefinitionGiven)
    source, tools = source_of(given.definition), tools_of(request)
    file = label_of(given.file)
    compiled: Compiled = await in_share(request, check, source, tools, given.rules, file=file)
    net, parts = compiled.net, request.app[PARTS]
    refused = list(parts.preflight.not_done_here(net)) if net is not None else []
    refused += parts.participants.needs_of(net) if net is not None else []
    named = looked_up(compiled.problems, net, parts.credential_sources)
    if net is not None:
        named += parts.preflight.missing_extras(net)
        named += parts.preflight.refused_files(net)
        named += unheeded_rates(net, parts.rates.limits, parts.engine.pools.outside)
    if net is not None and net.children:
        named += await in_thread(_of_children, net, parts.catalog)
    return answer(
        shapes.Checked(
            ok=net is not None and not any(one.severity == "error" for one in refused),
            name=net.name if net is not None else None,
            dialect=net.dialect if net is not None else None,
            fingerprint=net.fingerprint if net is not None else None,
            problems=[place_problem(one) for one in (*named, *refused)],
            inputs=inputs_of(net) if net is not None else [],
        )
    )


def _of_children(net: Net, catalog: Catalog) -> list[Problem]:
    """Of the catalog alone: whoever may only read makes the server look at no file."""
    cycles = catalog.cycles(net, f"{SCHEME}{net.path}", read_files=False) if net.path else ()
    return [*missing_in(net, catalog), *cycles]


async def respell(request: web.Request) -> web.StreamResponse:
    """A playbook in the canonical spelling."""
    given = await read_body(request, PlaybookText)
    file = label_of(given.file)
    return answer(await in_share(request, _respelled, given.definition, file))


def _respelled(given: str | dict[str, Any], file: str) -> shapes.Respelled:
    before = as_text(given)
    text = canonical_form(before, file)
    return shapes.Respelled(definition=text, changed=text != before)


async def draw_one(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    given = await read_body(request, DefinitionGiven)
    form: str = asked["format"]
    source, tools, file = source_of(given.definition), tools_of(request), label_of(given.file)

    def drawn() -> str:
        return draw(prepare(source, tools, given.rules, file=file).net, form)

    text = await in_share(request, drawn)
    return drawing(text, form, raw=asked["raw"])


async def publish(request: web.Request) -> web.StreamResponse:
    """Keep it, so that runs can be started by its fingerprint."""
    given = await read_body(request, DefinitionGiven)
    ready = await prepared(request, given.definition, given.rules, given.file)
    parts = request.app[PARTS]
    fingerprint = ready.definition.fingerprint
    known = parts.store.definition(fingerprint)
    new = known is None
    if known is None:
        now = parts.engine.clock.now()
        parts.nets.put(msgspec.structs.replace(ready.definition, created_at=now), ready.net)
        known = parts.store.definition(fingerprint)
        assert known is not None
    problems = [place_problem(one) for one in ready.problems]
    body = {**_fields(known), "new": new, "problems": problems}
    return answer(body, 201, {"Location": f"{API}/definitions/{fingerprint}"})


async def list_all(request: web.Request) -> web.StreamResponse:
    asked = read_query(request)
    before = read_cursor(asked["cursor"], int, str) if asked["cursor"] else None
    limit = asked["limit"]
    wanted = DefinitionFilter(
        name=asked["name"], dialect=asked["dialect"], before=before, limit=limit + 1
    )
    found = await look(request, lambda by: _listed(by, wanted))
    cards, following = page_of(found, limit, lambda one: (one.created_at, one.fingerprint))
    return answer({"items": [shapes.listed(card) for card in cards], "next": following})


def _listed(by: ReadHandle, wanted: DefinitionFilter) -> list[DefinitionCard]:
    """Templates are kept among the definitions, and are none: they have routes of their own."""
    found: list[DefinitionCard] = []
    while page := by.store.definitions(wanted):
        found += [card for card in page if card.dialect != TEMPLATE or wanted.dialect == TEMPLATE]
        if len(found) >= wanted.limit or len(page) < wanted.limit:
            break
        last = page[-1]
        wanted = msgspec.structs.replace(wanted, before=(last.created_at, last.fingerprint))
    return found[: wanted.limit]


async def show(request: web.Request) -> web.StreamResponse:
    fingerprint = request.match_info["fingerprint"]
    found = await look(request, lambda by: _found(by, fingerprint))
    return answer({**_fields(found), "source": found.source})


async def graph(request: web.Request) -> web.StreamResponse:
    asked, fingerprint = read_query(request), request.match_info["fingerprint"]

    def drawn(by: ReadHandle) -> str:
        found = _found(by, fingerprint)
        if found.dialect == TEMPLATE:
            raise NotFound(f"{fingerprint[:100]} is the template {found.name}, and no definition")
        return draw(request.app[PARTS].nets.get(found.fingerprint), form)

    form: str = asked["format"]
    return drawing(await look(request, drawn), form, raw=asked["raw"])


def drawing(text: str, form: str, *, raw: bool) -> web.Response:
    """A drawing in JSON, or as it is; as it is, it can run nothing and fetch nothing."""
    if not raw:
        return answer({"format": form, "graph": text})
    policy = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
    return web.Response(
        text=text,
        content_type=_MEDIA.get(form, "text/plain"),
        headers={"Content-Security-Policy": policy},
    )


def _found(by: ReadHandle, fingerprint: str) -> Definition:
    found = by.store.definition(fingerprint)
    if found is None:
        raise NotFound(f"there is no definition {fingerprint[:100]!r}")
    return found


def _fields(one: Definition) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(one)
    del fields["source"]
    return {**fields, "created": shapes.instant(one.created_at)}


_GIVEN = {"definition": EXAMPLE}

ROUTES = (
    Route(
        "POST",
        f"{API}/definitions/check",
        "read",
        check_one,
        "Report everything that is wrong with a definition; stores nothing",
        body=DefinitionGiven,
        returns=shapes.Checked,
        errors=(429,),
        example=_GIVEN,
    ),
    Route(
        "POST",
        f"{API}/definitions/format",
        "read",
        respell,
        "Rewrite a playbook in the canonical spelling; stores nothing",
        body=PlaybookText,
        returns=shapes.Respelled,
        example=_GIVEN,
    ),
    Route(
        "POST",
        f"{API}/definitions/graph",
        "read",
        draw_one,
        "Draw the definition in the request; stores nothing",
        body=DefinitionGiven,
        returns=shapes.Graph,
        query=(FORMAT, RAW),
        example=_GIVEN,
        also=("text/plain", "image/svg+xml"),
    ),
    Route(
        "POST",
        f"{API}/definitions",
        "operate",
        publish,
        "Publish a definition",
        body=DefinitionGiven,
        returns=shapes.Published,
        example=_GIVEN,
        status=201,
    ),
    Route(
        "GET",
        f"{API}/definitions",
        "read",
        list_all,
        "List definitions, newest first; with `name` the versions of one",
        returns=shapes.DefinitionPage,
        query=(
            Query("name", "only versions of this one", example="hello"),
            Query("dialect", "only of this language", example="noetl"),
            PAGE,
            CURSOR,
        ),
    ),
    Route(
        "GET",
        f"{API}/definitions/{{fingerprint}}",
        "read",
        show,
        "Show a definition with its source",
        returns=shapes.DefinitionShown,
    ),
    Route(
        "GET",
        f"{API}/definitions/{{fingerprint}}/graph",
        "read",
        graph,
        "Draw a definition",
        returns=shapes.Graph,
        query=(FORMAT, RAW),
        also=("text/plain", "image/svg+xml"),
    ),
)

"""Definitions: paste or upload a text, see its problems and its graph, start a run of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from aiohttp import web
from aiohttp.web_request import FileField

from anabranch.dialects.port import Compiled
from anabranch.errors import AnabranchError, InputError, NotFound
from anabranch.net.net import Net
from anabranch.operations.definitions import check
from anabranch.store.ports import DefinitionCard, DefinitionFilter
from anabranch.surfaces.ui.context import Ui, form_of, see, show, text_of, ui_of
from anabranch.surfaces.ui.rendering import trusted
from anabranch.surfaces.ui.run import run_path

TEXT_MAX = 2 * 1024 * 1024
RECENT = 20


@dataclass(frozen=True, slots=True)
class Field:
    """One input of a run as a form asks for it."""

    name: str
    kind: str  # text, number, flag, json
    value: str
    checked: bool = False


def fields_of(net: Net) -> list[Field]:
    return [_field(str(name), value) for name, value in net.workload.items()]


def _field(name: str, value: Any) -> Field:
    if isinstance(value, bool):
        return Field(name, "flag", "true", value)
    if isinstance(value, int | float):
        return Field(name, "number", json.dumps(value))
    if isinstance(value, str) and "\n" not in value:
        return Field(name, "text", value)
    return Field(name, "json", json.dumps(value, ensure_ascii=False, indent=2, default=str))


async def editor(request: web.Request) -> web.StreamResponse:
    ui = ui_of(request)
    text = ""
    fingerprint = request.query.get("fingerprint", "")
    if fingerprint:
        kept = ui.parts.store.definition(fingerprint)
        if kept is None:
            raise NotFound(f"there is no definition {fingerprint}")
        text = kept.source
    return await _answer(request, text, "")


async def examine(request: web.Request) -> web.StreamResponse:
    """Check what was pasted or uploaded."""
    form = await form_of(request)
    return await _answer(request, _text(form), text_of(form, "rules"))


async def start(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    text, rules = _text(form), text_of(form, "rules")
    try:
        run = await ui_of(request).parts.verbs.start(
            text,
            _input(form),
            labels=_labels(text_of(form, "labels")),
            rules=_rules(rules),
        )
    except AnabranchError as error:
        return await _answer(request, text, rules, error, text_of(form, "input"), 422)
    raise see(run_path(run), "started")


async def _answer(
    request: web.Request,
    text: str,
    rules: str,
    refused: AnabranchError | None = None,
    given: str = "",
    status: int = 200,
) -> web.Response:
    ui = ui_of(request)
    compiled = graph = None
    if text.strip():
        try:
            compiled = await _check(ui, text, rules)
        except AnabranchError as error:
            refused = refused or error
    net = compiled.net if compiled is not None else None
    if net is not None:
        graph = trusted(await ui.graphs.of(net))
    return show(
        request,
        "definitions.html",
        status,
        text=text,
        rules=rules,
        problems=list(compiled.problems) if compiled is not None else [],
        checked=compiled is not None,
        net=net,
        graph=graph,
        fields=fields_of(net) if net is not None else [],
        given=given,
        refused=refused,
        recent=await _recent(ui),
    )


async def _check(ui: Ui, text: str, rules: str) -> Compiled:
    tools = [tool.name for tool in ui.parts.toolbox]
    return await asyncio.to_thread(check, text, tools, _rules(rules))


async def _recent(ui: Ui) -> list[DefinitionCard]:
    """The newest ones of the store."""
    return await ui.look(lambda by: by.store.definitions(DefinitionFilter(limit=RECENT)))


# -- what the form brings ------------------------------------------------------------------


def _text(form: Any) -> str:
    """A file that was chosen counts, otherwise what stands in the editor."""
    upload = form.get("file")
    if isinstance(upload, FileField):
        data = upload.file.read(TEXT_MAX + 1)
        if data.strip():
            if len(data) > TEXT_MAX:
                raise InputError(f"the file is larger than {TEXT_MAX:,} bytes")
            return _whole(data.decode("utf-8", "replace"))
    return _whole(text_of(form, "text"))


def _whole(text: str) -> str:
    """Ends with a line break: a text of one line would be taken for the path of a file."""
    return text.replace("\r\n", "\n").rstrip("\n") + "\n"


def _rules(text: str) -> dict[str, Any] | None:
    """Of an orchestration: alias → rule, as one JSON object."""
    if not text.strip():
        return None
    value = _json(text, "the rules")
    if not isinstance(value, dict):
        raise InputError("the rules are one JSON object: alias → rule")
    return value


def _input(form: Any) -> dict[str, Any]:
    """Field by field, or the whole as JSON where that was chosen."""
    whole = text_of(form, "input").strip()
    if whole:
        value = _json(whole, "the input")
        if not isinstance(value, dict):
            raise InputError("the input is one JSON object")
        return value
    given: dict[str, Any] = {}
    for name in form.getall("field", []):
        kind, text = text_of(form, f"kind:{name}"), text_of(form, f"value:{name}")
        match kind:
            case "flag":
                given[name] = text == "true"
            case "number" | "json":
                given[name] = _json(text, f"the input {name!r}")
            case _:
                given[name] = text
    return given


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for part in text.replace(",", " ").split():
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise InputError(f"a label is given as KEY=VALUE, not {part!r}")
        labels[key] = value
    return labels


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is not JSON: {error}") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")

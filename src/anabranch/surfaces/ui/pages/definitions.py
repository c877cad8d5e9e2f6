"""Definitions: paste or upload a text, see its problems and its graph, keep it, start a run of it.

The text is checked while it is typed: the page sends the whole form and gets back what stands
beside the text and below it. Without scripts a button does the same.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from aiohttp import web

from anabranch.errors import AnabranchError, InputError, NotFound
from anabranch.operations.definitions.catalog import Catalog, Draft, wanted
from anabranch.operations.definitions.templates import DIALECT as TEMPLATE
from anabranch.store.ports import DefinitionCard, DefinitionFilter
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.http.guard.shares import checking, in_share
from anabranch.surfaces.ui.context import Ui, actor_of, form_of, may, see, show, text_of, ui_of
from anabranch.surfaces.ui.form_fields import Upload
from anabranch.surfaces.ui.guard import understood
from anabranch.surfaces.ui.pages.run import run_path
from anabranch.surfaces.ui.rendering import as_json, rendered, trusted
from anabranch.surfaces.ui.views.drafts import TEXT_MAX, DraftView, examined, keep, runnable
from anabranch.surfaces.ui.views.examples import EXAMPLES
from anabranch.surfaces.ui.views.filters import before_of
from anabranch.surfaces.ui.views.forms import blamed, fields_of, given_of, read_json

RECENT = 20
VERSIONS = 50
PROBLEMS_SHOWN = 200
DIALECTS = ("noetl", "xrc729", "arca", TEMPLATE)


async def editor(request: web.Request) -> web.StreamResponse:
    ui = ui_of(request)
    text = ""
    fingerprint = request.query.get("fingerprint", "")
    if path := request.query.get("path", "").strip():
        text = (await ui.look(lambda by: Catalog(by.store).show(path)))[1].source
    elif fingerprint:
        kept = ui.parts.store.definition(fingerprint)
        if kept is None:
            raise NotFound(f"there is no definition {fingerprint[:100]!r}")
        text = kept.source
    return await _page(request, text, "")


async def examine(request: web.Request) -> web.StreamResponse:
    """Check what was pasted or uploaded; for browsers without scripts."""
    form = await form_of(request)
    return await _page(request, _text(form), text_of(form, "rules"), form)


async def check_typed(request: web.Request) -> web.StreamResponse:
    """What stands beside the text and below it, for a page that checks while somebody types."""
    form = await form_of(request)
    values = await _checked(request, _text(form), text_of(form, "rules"), form)
    given = {**values, "may": may(request), "refused": values["refused"]}
    return as_json(
        {
            "found": rendered("definition_found.html", given),
            "start": rendered("definition_start.html", given),
            "dialect": values["draft"].dialect,
        }
    )


async def start(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    ui, text, rules = ui_of(request), _text(form), text_of(form, "rules")
    draft = await _draft(request, text, rules, form)
    given = await understood(request, given_of, draft.wanted, form)
    if given.errors or draft.refused is not None or not draft.runs:
        return await _page(request, text, rules, form, given.errors, draft.refused, 422)
    try:
        read = await understood(request, _rules, rules)
        prepared = await runnable(request, draft, read, given.values)
        values = {} if draft.template is not None else given.values
        run = await ui.parts.verbs.start(prepared, values, labels=_labels(text_of(form, "labels")))
    except AnabranchError as error:
        at = blamed(error, [one.name for one in draft.wanted])
        errors = {at: error.message} if at else {}
        return await _page(request, text, rules, form, errors, None if at else error, 422)
    request[SUBJECT] = run
    raise see(run_path(run), "started")


async def publish(request: web.Request) -> web.StreamResponse:
    """Keep it, so that it can be started again by anybody."""
    form = await form_of(request)
    text, rules = _text(form), text_of(form, "rules")
    try:
        read = await understood(request, _rules, rules)
        fingerprint, new = await keep(request, text, read)
    except AnabranchError as error:
        return await _page(request, text, rules, form, None, error, 422)
    request[SUBJECT] = fingerprint
    raise see(f"/definitions?fingerprint={quote(fingerprint)}", "kept" if new else "known")


async def register(request: web.Request) -> web.StreamResponse:
    """Put it into the catalog under the path that it says."""
    form = await form_of(request)
    ui, text = ui_of(request), _text(form)
    try:
        drafts = [Draft(text, "<text>", text_of(form, "path").strip())]
        keep_it = ui.parts.catalog.register
        (row,) = await in_share(request, keep_it, drafts, ui.now(), actor_of(request))
    except AnabranchError as error:
        return await _page(request, text, text_of(form, "rules"), form, None, error, 422)
    request[SUBJECT] = row.path
    where = f"/definitions?path={quote(f'{row.path}@{row.version}')}"
    raise see(where, "registered" if row.new else "known")


# -- pages -----------------------------------------------------------------------------------------


async def _page(
    request: web.Request,
    text: str,
    rules: str,
    form: Any = None,
    errors: dict[str, str] | None = None,
    refused: AnabranchError | None = None,
    status: int = 200,
) -> web.Response:
    ui = ui_of(request)
    values = await _checked(request, text, rules, form, errors)
    name = values["draft"].name or request.query.get("name", "")
    return show(
        request,
        "definitions.html",
        status,
        **{**values, "refused": refused or values["refused"]},
        examples=EXAMPLES,
        versions=await _cards(ui, DefinitionFilter(name=name, limit=VERSIONS)) if name else [],
        of=name,
        text_max=TEXT_MAX,
        **await _recent(ui, request),
        **await _by_path(ui, request, values["draft"]),
    )


async def _checked(
    request: web.Request,
    text: str,
    rules: str,
    form: Any = None,
    errors: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Everything that is shown of a text."""
    ui, draft = ui_of(request), await _draft(request, text, rules, form)
    async with checking(request):
        graph = trusted(await ui.graphs.of(draft.net)) if draft.net is not None else None
    known = ui.parts.store.definition(draft.fingerprint) if draft.fingerprint else None
    return {
        "text": text,
        "rules": rules,
        "draft": draft,
        "problems": draft.problems[:PROBLEMS_SHOWN],
        "more_problems": max(0, len(draft.problems) - PROBLEMS_SHOWN),
        "graph": graph,
        "known": known,
        "fields": fields_of(draft.wanted, form, errors),
        "given": text_of(form, "input") if form is not None else "",
        "given_error": (errors or {}).get("", ""),
        "labels": text_of(form, "labels") if form is not None else "",
        "refused": draft.refused,
    }


async def _draft(request: web.Request, text: str, rules: str, form: Any) -> DraftView:
    if not text.strip():
        return DraftView(text)
    try:
        read = await understood(request, _rules, rules)
    except InputError as error:
        return DraftView(text, refused=error)
    return await in_share(request, examined, ui_of(request), text, read, form)


async def _recent(ui: Ui, request: web.Request) -> dict[str, Any]:
    """The newest ones of the store; filters are in the address."""
    dialect, before = request.query.get("dialect", ""), before_of(request.query, "definitions")
    name = request.query.get("name", "").strip()
    wanted = DefinitionFilter(
        name=name or None, dialect=dialect or None, before=before, limit=RECENT + 1
    )
    found = await _cards(ui, wanted)
    here = {key: value for key, value in (("name", name), ("dialect", dialect)) if value}
    last = found[RECENT - 1] if len(found) > RECENT else None
    older = {**here, "before": f"{last.created_at}.{last.fingerprint}"} if last is not None else {}
    return {
        "recent": found[:RECENT],
        "chosen": {"name": name, "dialect": dialect},
        "dialects": DIALECTS,
        "filtered": bool(here),
        "older": "/definitions?" + urlencode(older) + "#recent" if older else "",
        "newest": ("/definitions?" + urlencode(here)).rstrip("?") + "#recent" if before else "",
    }


async def _by_path(ui: Ui, request: web.Request, draft: DraftView) -> dict[str, Any]:
    """The catalog: its paths, or the versions of the one that is in the editor."""
    prefix = request.query.get("prefix", "").strip()
    after = request.query.get("after", "")
    at = wanted(request.query.get("path", "").strip() or (draft.net.path if draft.net else ""))
    paths = await ui.look(lambda by: Catalog(by.store).paths(prefix, after, RECENT + 1))
    versions = await ui.look(lambda by: by.store.catalog_versions(at.path, VERSIONS))
    here = {"prefix": prefix} if prefix else {}
    last = paths[RECENT - 1].path if len(paths) > RECENT else ""
    return {
        "paths": paths[:RECENT],
        "path": at.path,
        "path_versions": versions,
        "prefix": prefix,
        "more_paths": "/definitions?" + urlencode({**here, "after": last}) + "#paths"
        if last
        else "",
        "first_paths": ("/definitions?" + urlencode(here)).rstrip("?") + "#paths" if after else "",
    }


async def _cards(ui: Ui, wanted: DefinitionFilter) -> list[DefinitionCard]:
    return await ui.look(lambda by: by.store.definitions(wanted))


# -- what the form brings --------------------------------------------------------------------------


def _text(form: Any) -> str:
    """A file that was chosen counts, otherwise what stands in the editor."""
    upload = form.get("file")
    if isinstance(upload, Upload) and upload.content.strip():
        if len(upload.content) > TEXT_MAX:
            raise InputError(f"the file is larger than {TEXT_MAX:,} bytes")
        return _whole(upload.content.decode("utf-8", "replace"))
    return _whole(text_of(form, "text"))


def _whole(text: str) -> str:
    """Ends with a line break: a text of one line would be taken for the path of a file."""
    return text.replace("\r\n", "\n").rstrip("\n") + "\n"


def _rules(text: str) -> dict[str, Any] | None:
    """Of an orchestration: alias → rule, as one JSON object."""
    if not text.strip():
        return None
    value = read_json(text, "the rules")
    if not isinstance(value, dict):
        raise InputError("the rules are one JSON object: alias → rule")
    return value


def _labels(text: str) -> dict[str, str]:
    labels = {}
    for part in text.replace(",", " ").split():
        key, equals, value = part.partition("=")
        if not equals or not key:
            raise InputError(f"a label is given as KEY=VALUE, not {part!r}")
        labels[key] = value
    return labels

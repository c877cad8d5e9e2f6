"""Workflow templates of Arca: their parameters, what they come to, starting one, importing one.

The module keeps the templates and judges them; a page shows what it says. What another node
publishes is shown with its publisher and the verdict on the signature before it is kept.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from anabranch.surfaces.ui import guard
from anabranch.surfaces.ui.node.arca import (
    NotHosted,
    ask_arca,
    parameters_of,
    row_of,
    template_of,
    templates_in,
    verdict_of,
)
from anabranch.surfaces.ui.node.frame import (
    Refusal,
    Trouble,
    ask,
    json_in,
    part,
    see,
    show,
    texts_in,
    trouble,
)
from anabranch.surfaces.ui.views.forms import fields_of, given_of


async def page(request: web.Request, wrong: Trouble | None = None) -> web.StreamResponse:
    rows, absent, away = [], False, ""
    try:
        rows = templates_in(await ask_arca(request, "GET", "/templates"))
    except NotHosted:
        absent = True
    except Refusal as refusal:
        away = refusal.message
    return show(
        request,
        "node/templates.html",
        wrong,
        rows=rows,
        absent=absent,
        away=away,
        peers=(await ask(request, "GET", "/v1/peers"))["items"],
    )


async def one(request: web.Request) -> web.StreamResponse:
    return await _shown(request)


async def use(request: web.Request) -> web.StreamResponse:
    """What the template comes to with these parameters, or a run of that."""
    form = await guard.read_form(request)
    typed, name = texts_in(form), request.match_info["template"]
    found = template_of(await ask_arca(request, "GET", f"/templates/{part(name)}"))
    given = given_of(parameters_of(found), form)
    if given.errors:
        wrong = Trouble("use", given.errors.get("", "look at the fields below"), 400, typed)
        return await _shown(request, wrong, form=form, errors=given.errors)
    wish: dict[str, Any] = {"template_id": name, "parameters": given.values}
    try:
        if typed.get("verb") == "start":
            wish |= {"input": _run_input(typed), "run_id": typed.get("run_id") or None}
            begun = await ask_arca(request, "POST", "/runs", wish)
            raise see(f"/runs/{part(str(begun['run_id']))}", "started")
        made = await ask_arca(request, "POST", "/runs", {**wish, "start": False})
    except Refusal as refusal:
        return await _shown(request, trouble(refusal, "use", typed), form=form)
    return await _shown(request, form=form, made=made.get("definition"), typed=typed)


def _run_input(typed: Mapping[str, str]) -> Any:
    given = json_in(typed.get("run_input") or "{}", "the input of the run")
    if not isinstance(given, dict):
        raise Refusal(400, "input", "the input of the run is a JSON object")
    return given


async def _shown(
    request: web.Request,
    wrong: Trouble | None = None,
    *,
    form: Any = None,
    errors: Mapping[str, str] | None = None,
    made: Any = None,
    typed: Mapping[str, str] | None = None,
) -> web.StreamResponse:
    name = request.match_info["template"]
    found = template_of(await ask_arca(request, "GET", f"/templates/{part(name)}"))
    typed = typed or (wrong.typed if wrong else {})
    return show(
        request,
        "node/template.html",
        wrong,
        template=found,
        row=row_of(found),
        template_id=name,
        fields=fields_of(parameters_of(found), form, errors),
        made=made,
        run_input=typed.get("run_input", ""),
        run_id=typed.get("run_id") or f"run:{secrets.token_hex(12)}",  # sent twice, it is one run
        still=form is not None,
    )


async def bring(request: web.Request) -> web.StreamResponse:
    """A template of another node: looked at first, kept only when the operator says so."""
    typed = texts_in(await guard.read_form(request))
    keep = typed.get("verb") == "keep"
    wish: dict[str, Any] = {
        "node_id": typed.get("node_id", ""),
        "template_id": typed.get("template_id", ""),
        "keep": keep,
        **({"digest": typed["digest"]} if keep and typed.get("digest") else {}),
    }
    try:
        found = await ask_arca(request, "POST", "/templates/import", wish)
    except Refusal as refusal:
        return await page(request, trouble(refusal, "import", typed))
    if keep:
        raise see(f"/templates/{part(wish['template_id'])}", "imported")
    template = template_of(found)
    return show(
        request,
        "node/import.html",
        wish=wish,
        template=template,
        row=row_of(template),
        verdict=verdict_of(found),
        fields=fields_of(parameters_of(template)),
        still=True,
    )

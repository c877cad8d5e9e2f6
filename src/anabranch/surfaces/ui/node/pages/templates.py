"""Workflow templates of Arca: their parameters, what they come to, starting, sharing, importing.

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
    preview_of,
    row_of,
    template_of,
    templates_in,
)
from anabranch.surfaces.ui.node.frame import (
    Refusal,
    Trouble,
    ask,
    form_of,
    json_in,
    part,
    see,
    show,
    texts_in,
    trouble,
)
from anabranch.surfaces.ui.views.forms import fields_of, given_of

#: What can be done with a template besides using it.
VERBS = ("publish", "withdraw", "delete")


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


async def put(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    try:
        given = await guard.understood(request, json_in, form.get("template", ""), "the template")
        kept = await ask_arca(request, "POST", "/templates", given)
    except Refusal as refusal:
        return await page(request, trouble(refusal, "put", form))
    if kept.get("status") == "deleted":
        raise see("/templates", "template_delete")
    raise see(f"/templates/{part(row_of(kept).name)}", "template_kept")


async def one(request: web.Request) -> web.StreamResponse:
    return await _shown(request)


async def use(request: web.Request) -> web.StreamResponse:
    """What the template comes to with these parameters, a run of that, or what becomes of it."""
    form = await guard.read_form(request)
    typed = texts_in(form)
    verb, name = typed.get("verb", ""), request.match_info["template"]
    if verb in VERBS:
        return await _changed(request, verb, name)
    found = template_of(await ask_arca(request, "GET", f"/templates/{part(name)}"))
    given = await guard.understood(request, given_of, parameters_of(found), form)
    if given.errors:
        wrong = Trouble("use", given.errors.get("", "look at the fields below"), 400, typed)
        return await _shown(request, wrong, form=form, errors=given.errors)
    wish: dict[str, Any] = {"template_id": name, "parameters": given.values}
    try:
        if verb == "start":
            given_to_run = await guard.understood(request, _run_input, typed)
            wish |= {"input": given_to_run, "run_id": typed.get("run_id") or None}
            begun = await ask_arca(request, "POST", "/runs", wish)
            raise see(f"/runs/{part(str(begun.get('run_id')))}", "started")
        made = await ask_arca(request, "POST", "/templates/materialize", wish)
    except Refusal as refusal:
        return await _shown(request, trouble(refusal, "use", typed), form=form)
    return await _shown(request, form=form, made=made.get("definition"), typed=typed)


async def _changed(request: web.Request, verb: str, name: str) -> web.StreamResponse:
    path = f"/templates/{part(name)}"
    try:
        if verb == "delete":
            await ask_arca(request, "DELETE", path)
        else:
            await ask_arca(request, "POST", f"{path}/publish", {"publish": verb == "publish"})
    except Refusal as refusal:
        return await _shown(request, trouble(refusal, "change"))
    raise see("/templates" if verb == "delete" else path, f"template_{verb}")


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
    answer = await ask_arca(request, "GET", f"/templates/{part(name)}")
    found = template_of(answer)
    typed = typed or (wrong.typed if wrong else {})
    return show(
        request,
        "node/template.html",
        wrong,
        template=found,
        row=row_of({**found, **answer}),
        template_id=name,
        fields=fields_of(parameters_of(found), form, errors),
        made=made,
        run_input=typed.get("run_input", ""),
        run_id=typed.get("run_id") or f"run:{secrets.token_hex(12)}",  # sent twice, it is one run
        still=form is not None,
    )


# -- templates of other nodes ----------------------------------------------------------------


async def bring(request: web.Request) -> web.StreamResponse:
    """List those of another node, look at one, and keep it when the operator has seen it."""
    typed = texts_in(await guard.read_form(request))
    verb = typed.get("verb", "")
    try:
        if verb == "keep":
            return await _kept(request, typed)
        if verb == "browse" or not typed.get("template_id"):
            return await _browsed(request, typed)
        return await _looked(request, typed)
    except Refusal as refusal:
        return await page(request, trouble(refusal, "import", typed))


async def _browsed(request: web.Request, typed: Mapping[str, str]) -> web.StreamResponse:
    node_id = typed.get("node_id", "")
    wish = {"node_id": node_id, **({"after": typed["after"]} if typed.get("after") else {})}
    found = await ask_arca(request, "POST", "/templates/browse", wish)
    further = found.get("next")
    return show(
        request,
        "node/browse.html",
        node_id=node_id,
        rows=templates_in(found, "templates"),
        further=further if isinstance(further, str) else "",
        still=True,
    )


async def _looked(request: web.Request, typed: Mapping[str, str]) -> web.StreamResponse:
    wish = {"node_id": typed.get("node_id", ""), "template_id": typed["template_id"]}
    found = await ask_arca(request, "POST", "/templates/import/preview", wish)
    template = template_of(found)
    return show(
        request,
        "node/import.html",
        wish=wish,
        template=template,
        row=row_of(template),
        seen=preview_of(found),
        fields=fields_of(parameters_of(template)),
        still=True,
    )


async def _kept(request: web.Request, typed: Mapping[str, str]) -> web.StreamResponse:
    """The digest and the publisher are those that the operator has seen."""
    names = ("node_id", "template_id", "digest", "publisher")
    wish = {name: typed.get(name, "") for name in names}
    await ask_arca(request, "POST", "/templates/import", wish)
    raise see(f"/templates/{part(wish['template_id'])}", "imported")

"""One step of a run: a page of its own, and the same as a drawer beside every other page of it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from aiohttp import web

from anabranch.errors import InputError
from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import Unfinished
from anabranch.operations.read.on_clusters import placed
from anabranch.operations.read.steps.step_view import StepView, step_view
from anabranch.operations.runs.verbs import skipping
from anabranch.store.ports import Head
from anabranch.surfaces.http.resources.runs import right_of
from anabranch.surfaces.ui import guard
from anabranch.surfaces.ui.context import (
    Ui,
    actor_of,
    form_of,
    may,
    run_of,
    see,
    show,
    text_of,
    ui_of,
)
from anabranch.surfaces.ui.pages import logs
from anabranch.surfaces.ui.pages.approvals import speaker
from anabranch.surfaces.ui.pages.run import frame, run_path
from anabranch.surfaces.ui.rendering import as_json, html, rendered
from anabranch.surfaces.ui.views.forms import read_json

#: Verb → what the page says afterwards.
VERBS = {"retry": "retried", "skip": "skipped"}
VALUES = ("input", "output")


async def page(request: web.Request) -> web.StreamResponse:
    ui, head = run_of(request)
    given = await frame(ui, head, "step")
    return show(request, "step.html", **given, **await _shown(ui, head, request))


async def panel(request: web.Request) -> web.StreamResponse:
    """Only its cards: for the drawer, and for a page that follows the run."""
    ui, head = run_of(request)
    given = await _shown(ui, head, request)
    extra = {"csrf": guard.form_secret(request), "may": may(request), "base": run_path(head.run)}
    redriven = await ui.look(lambda by: by.read.redriven_by([head]))
    extra["redriven_by"] = redriven[head.run]
    return html(rendered("step_panel.html", given | extra))


async def _shown(ui: Ui, head: Head, request: web.Request) -> dict[str, Any]:
    view = await _view(ui, head, request)
    own = run_path(head.run, "steps", view.step)
    chosen = request.query_string if request.query.get("token") or request.query.get("job") else ""
    places, waits = await _on_clusters(ui, head, view)
    view = msgspec.structs.replace(view, waits=waits)
    return {
        "view": view,
        "run_ended": head.finished,
        "places": places,
        "own": own,
        "query": f"?{chosen}" if chosen else "",
        "here": own,
        "logs": await logs.of_step(ui, head, view.step, view.shown.token) if view.shown else None,
        "speaker": speaker(request),
    }


async def _on_clusters(
    ui: Ui, head: Head, view: StepView
) -> tuple[dict[str, str], list[Unfinished]]:
    """Where its jobs are that a compute cluster does, and what that makes of its waits."""
    if ui.clusters is None or view.shown is None:
        return {}, view.waits
    state = await ui.state(head)
    told = [placed(state, one, ui.clusters, ui.now()) for one in view.waits]
    places = {
        one.id: f"{place.engine} {place.worker}".strip() for one, place in told if place is not None
    }
    return places, [one for one, _ in told]


async def _view(ui: Ui, head: Head, request: web.Request) -> StepView:
    step, job = request.match_info["step"], request.query.get("job", "")[:100]
    token = _number(request.query.get("token", "") or "0")
    return await ui.look(lambda by: step_view(by.read, head.run, step, token, job))


async def whole_value(request: web.Request) -> web.StreamResponse:
    """Its input or output in full, as a file: the page shows only the beginning of large ones."""
    what = request.match_info["what"]
    if what not in VALUES:
        raise web.HTTPNotFound
    ui, head = run_of(request)
    view = await _view(ui, head, request)
    response = as_json(view.input.rendered if what == "input" else view.output)
    name = quote(f"{head.run}-{view.step}-{what}.json", safe="")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


async def do(request: web.Request) -> web.StreamResponse:
    """Retry it now, or skip it."""
    form = await form_of(request)
    ui, verb, step = ui_of(request), request.match_info["verb"], request.match_info["step"]
    if verb not in VERBS:
        raise InputError(f"there is no verb {verb[:40]!r}: {', '.join(VERBS)}")
    head, actor = ui.head(request.match_info["run"]), actor_of(request)
    token, reason = _number(text_of(form, "token") or "0"), text_of(form, "reason").strip()
    said: s.RetryNow | s.Skip = s.RetryNow(step, token, actor, reason)
    if verb == "skip":
        result = await guard.understood(request, _result, text_of(form, "result"))
        said = skipping(step, token, actor, reason, result, right_of(request))
    await ui.parts.verbs.send(head.run, said)
    raise see(run_path(head.run, "steps", step), VERBS[verb])


def _result(text: str) -> Any:
    """JSON, or plain words; nothing at all means that there is no result."""
    if not text.strip():
        return msgspec.UNSET
    try:
        return read_json(text, "the result")
    except InputError:
        if text.strip()[0] in '{["':
            raise
        return text.strip()


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise InputError(f"a run of a step is named by its number, not {text[:50]!r}")
    return int(text)

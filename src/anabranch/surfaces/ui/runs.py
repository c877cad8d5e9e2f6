"""The list of runs: filters in the address, counters by status, verbs for those that are ticked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from anabranch.errors import AnabranchError, InputError
from anabranch.kernel import stimuli as s
from anabranch.store.ports import Head, HeadFilter
from anabranch.surfaces.ui.context import Ui, actor_of, form_of, show, text_of, ui_of
from anabranch.surfaces.ui.words import STATUSES

PAGE = 50
TICKED_MAX = 500
VERBS: Mapping[str, str] = {
    "pause": "paused",
    "resume": "resumed",
    "cancel": "cancelled",
    "redrive": "redriven",
}
DIALECTS = ("noetl", "xrc729", "arca")
FILTERS = ("status", "dialect", "name", "label", "from", "to")


async def list_runs(request: web.Request) -> web.StreamResponse:
    ui = ui_of(request)
    wanted = _wanted(request)
    heads = await ui.look(lambda by: by.store.heads(wanted))
    more = len(heads) > PAGE
    heads = heads[:PAGE]
    return show(
        request,
        "runs.html",
        heads=heads,
        counts=await counters(ui),
        statuses=STATUSES,
        dialects=DIALECTS,
        chosen=_chosen(request),
        filtered=any(request.query.get(name) for name in FILTERS),
        status_links={status: _status_link(request, status) for status in STATUSES},
        older=_older(request, heads[-1]) if more else "",
        newest=_with(request, {"before": None}) if "before" in request.query else "",
    )


def _wanted(request: web.Request) -> HeadFilter:
    """The filter for the store."""
    query = request.query
    before = None
    if query.get("before"):
        at, _, run = query["before"].partition(".")
        if not at.isdecimal() or len(at) > 16:
            raise InputError("the address names a page that does not exist; begin at /runs")
        before = (int(at), run)
    labels = {}
    for text in query.getall("label", []):
        key, equals, value = text.partition("=")
        if text and not equals:
            raise InputError(f"a label is given as KEY=VALUE, not {text!r}")
        if text:
            labels[key.strip()] = value.strip()
    return HeadFilter(
        statuses=tuple(status for status in query.getall("status", []) if status),
        dialect=query.get("dialect") or None,
        name=query.get("name") or None,
        labels=labels,
        before=before,
        created_after=_instant(query.get("from", ""), "from"),
        created_before=_instant(query.get("to", ""), "to"),
        limit=PAGE + 1,
    )


def _instant(text: str, field: str) -> int | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(f"{field} is not a time such as 2026-01-31T18:00: {text!r}") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def _chosen(request: web.Request) -> dict[str, Any]:
    query = request.query
    single = {name: query.get(name, "") for name in ("dialect", "name", "from", "to")}
    return {
        **single,
        "label": " ".join(text for text in query.getall("label", []) if text),
        "status": [status for status in query.getall("status", []) if status],
    }


def _with(request: web.Request, changes: Mapping[str, str | None]) -> str:
    """The same list with other parameters."""
    kept = [
        (key, value)
        for key, value in request.query.items()
        if key not in (*changes, "note") and value
    ]
    kept += [(key, value) for key, value in changes.items() if value is not None]
    return f"/runs?{urlencode(kept)}" if kept else "/runs"


def _older(request: web.Request, last: Head) -> str:
    return _with(request, {"before": f"{last.created_at}.{last.run}"})


def _status_link(request: web.Request, status: str) -> str:
    """A click on the status that is chosen lets it go again."""
    only = request.query.getall("status", []) == [status]
    return _with(request, {"before": None, "status": None if only else status})


async def counters(ui: Ui) -> dict[str, int]:
    """Runs by status, over the whole store."""
    counts: dict[str, int] = {}
    for status, _, count in await ui.look(lambda by: by.store.run_counts()):
        counts[status] = counts.get(status, 0) + count
    return counts


# -- verbs ---------------------------------------------------------------------------------


async def do_with_many(request: web.Request) -> web.StreamResponse:
    """One verb for every run that is ticked; each is told separately what became of it."""
    form = await form_of(request)
    verb = text_of(form, "verb")
    if verb not in VERBS:
        raise InputError(f"there is no verb {verb!r}: {', '.join(VERBS)}")
    runs = [run for run in form.getall("run", []) if isinstance(run, str)]
    if not runs:
        raise InputError("no run is ticked: tick the runs in the list first")
    if len(runs) > TICKED_MAX:
        raise InputError(f"at most {TICKED_MAX} runs at once, not {len(runs):,}")
    ui, outcomes = ui_of(request), []
    for run in dict.fromkeys(runs):
        try:
            came = await do(ui, verb, run, actor_of(request), text_of(form, "reason"))
            outcomes.append({"run": run, "good": True, "said": VERBS[verb], "next": came})
        except AnabranchError as error:
            outcomes.append({"run": run, "good": False, "said": error.message, "next": ""})
    return show(request, "outcomes.html", verb=verb, outcomes=outcomes, back=_back(form))


def _back(form: Any) -> str:
    """Where the list was; nothing but our own list."""
    back = text_of(form, "back")
    return back if re.fullmatch(r"/runs(\?[^\s]*)?", back) else "/runs"


async def do(ui: Ui, verb: str, run: str, actor: str, reason: str = "") -> str:
    """Returns the run to look at next, where that is another one."""
    verbs = ui.parts.verbs
    match verb:
        case "pause":
            await verbs.send(run, s.Pause(actor, reason))
        case "resume":
            await verbs.send(run, s.Resume(actor))
        case "cancel":
            await verbs.send(run, s.Cancel(actor, reason))
        case "redrive":
            return await verbs.redrive(run)
        case _:
            raise InputError(f"there is no verb {verb!r}: {', '.join(VERBS)}")
    return ""

"""Sessions: the runs of orchestrations with their processes; wake one up, or end them all."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import msgspec
from aiohttp import web

from anabranch.errors import InputError
from anabranch.kernel.explain import Unfinished, explain
from anabranch.kernel.state import State
from anabranch.store.ports import Head
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.ui import guard
from anabranch.surfaces.ui.context import Ui, actor_of, form_of, may, see, show, text_of, ui_of
from anabranch.surfaces.ui.rendering import html, rendered
from anabranch.surfaces.ui.views.filters import before_of
from anabranch.surfaces.ui.views.forms import read_json

SESSIONS = 25
PROCESSES = 100


class ProcessRow(msgspec.Struct, frozen=True):
    """One process, and whether somebody can wake it."""

    row: dict[str, Any]
    asleep: bool
    why: Unfinished | None


class Session(msgspec.Struct, frozen=True):
    head: Head
    owner: str
    processes: list[ProcessRow]  # unfinished ones first, then the newest
    total: int
    open: int
    number: str = ""  # among the sessions of its owner


async def list_sessions(request: web.Request) -> web.StreamResponse:
    return show(request, "sessions.html", **await _values(request))


async def panel(request: web.Request) -> web.StreamResponse:
    """Only the cards, for a page that follows what happens."""
    more = {"csrf": guard.form_secret(request), "may": may(request)}
    return html(rendered("sessions_panel.html", {**await _values(request), **more}))


async def _values(request: web.Request) -> dict[str, Any]:
    ui, owner = ui_of(request), request.query.get("owner", "").strip()
    waker = request.query.get("waker", "").strip()
    before = before_of(request.query, "sessions")
    older: tuple[int, str] | None = None
    if waker:
        rows = await ui.look(lambda by: by.sessions.wakeable(waker, owner=owner or None))
    else:
        rows, older = await ui.look(lambda by: by.sessions.page(owner or None, SESSIONS, before))
    by_run: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by_run.setdefault(row["run"], []).append(row)
    here = {**({"owner": owner} if owner else {}), **({"waker": waker} if waker else {})}
    place = {**here, **({"before": request.query["before"]} if before else {})}
    return {
        "sessions": [await _session(ui, run, found) for run, found in by_run.items()],
        "owner": owner,
        "waker": waker,
        "query": urlencode(place),
        "newest": ("/sessions?" + urlencode(here)).rstrip("?") if before else "",
        "older": "/sessions?" + urlencode({**here, "before": f"{older[0]}.{older[1]}"})
        if older is not None
        else "",
    }


async def _session(ui: Ui, run: str, rows: list[dict[str, Any]]) -> Session:
    head = ui.head(run)
    state = await ui.state(head) if not head.finished else None
    whys = _whys(ui, head, state) if state is not None else {}
    found = [_process(row, state, whys) for row in rows]
    found.sort(key=lambda one: (one.why is None, -one.row["iterationStep"]))
    unfinished = sum(one.why is not None for one in found)
    number = rows[0]["sessionId"] if rows[0]["sessionId"] != head.run else ""
    return Session(head, rows[0]["owner"], found[:PROCESSES], len(found), unfinished, number)


def _whys(ui: Ui, head: Head, state: State) -> dict[int, Unfinished]:
    """process → what it waits for."""
    found: dict[int, Unfinished] = {}
    for one in explain(ui.net(head), state):
        if one.what == "token":
            found[int(one.id)] = one
        elif one.what == "job" and (job := state.jobs.get(one.id)) is not None:
            found.setdefault(job.token, one)
    return found


def _process(row: dict[str, Any], state: State | None, whys: dict[int, Unfinished]) -> ProcessRow:
    token = state.tokens.get(row["iterationStep"]) if state is not None else None
    asleep = token is not None and token.phase == "sleeping"
    return ProcessRow(row, asleep, whys.get(row["iterationStep"]) if token is not None else None)


# -- changes ---------------------------------------------------------------------------------------


async def wake(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    request[SUBJECT] = text_of(form, "process")
    said = await ui_of(request).parts.sessions.wake_up_process(
        text_of(form, "process"),
        step=text_of(form, "step"),
        payload=await guard.understood(request, _payload, text_of(form, "payload")),
        runner=text_of(form, "waker"),
        actor=actor_of(request),
    )
    raise see(_back(form), "woken" if said["woken"] else "not_woken")


def _payload(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    value = read_json(text, "the payload")
    if not isinstance(value, dict):
        raise InputError('the payload is one JSON object, such as {"paid": true}')
    return value


async def end(request: web.Request) -> web.StreamResponse:
    form = await form_of(request)
    request[SUBJECT] = text_of(form, "run")
    said = await ui_of(request).parts.sessions.control(
        text_of(form, "run"), reason=text_of(form, "reason").strip(), actor=actor_of(request)
    )
    raise see(_back(form), "ended" if said["affected"] else "not_ended")


def _back(form: Any) -> str:
    """To the same filter."""
    query = text_of(form, "query")
    return f"/sessions?{query}" if query and query.isprintable() else "/sessions"

"""What every page has at hand, and the frame in which pages answer: errors become pages too."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
from aiohttp import web
from multidict import MultiDictProxy

from anabranch.errors import AnabranchError, NotFound
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.operations.access.tokens import SCOPES
from anabranch.operations.read.failures import Failures, add_attempts, failures_of
from anabranch.operations.read.on_clusters import Clusters
from anabranch.operations.read.timeline import Timeline
from anabranch.operations.runs.approvals import Approvals
from anabranch.parts import Parts
from anabranch.store.ports import Head
from anabranch.surfaces.http.guard.auth import CALLER, GATEKEEPER
from anabranch.surfaces.http.io.problems import ApiError, status_of
from anabranch.surfaces.http.io.readers import Readers
from anabranch.surfaces.http.routes import Handler, is_for_programs
from anabranch.surfaces.http.routes import actor_of as actor_of
from anabranch.surfaces.ui import guard
from anabranch.surfaces.ui.rendering import html, rendered
from anabranch.surfaces.ui.views.forms import text_of as text_of
from anabranch.surfaces.ui.views.graphs import Graphs
from anabranch.work.kinds.python.places import Places

log = logging.getLogger("anabranch.ui")

#: What a page may say after a change; the words are ours, the address bar only picks one.
NOTES = {
    "paused": "Paused. Running jobs finish; nothing new starts.",
    "resumed": "It goes on.",
    "cancelled": "Cancelled. The engine stops the running jobs.",
    "signalled": "Sent. A wait took the signal, or the run keeps it for one.",
    "patched": "Written to the context. The engine evaluated waiting admissions again.",
    "redriven": "This run repeats what failed and what depends on it, and keeps the rest.",
    "started": "Started.",
    "fulfilled": "Approved. The run continues.",
    "asked_again": "Asked again. The run continues with the answer of the source.",
    "rejected": "Rejected.",
    "tuned": "The loop has its new window.",
    "stopped": "The loop starts no new items; running items finish.",
    "retried": "The next try starts now.",
    "skipped": "Skipped. Its work is told to stop; the run continues without it.",
    "woken": "Woken: it continues now.",
    "not_woken": "Nothing was woken: this process does not sleep any more.",
    "ended": "Ended. What waits is aborted; what runs is aborted when its step ends.",
    "not_ended": "Nothing was ended: the session had ended before.",
    "kept": "Stored. Start runs of it by its name and version.",
    "registered": "Registered. Children and runs find it by its path.",
    "known": "This version is stored already.",
    "draining": "The server drains: it hands over what it owns, and takes nothing.",
    "undrained": "The server takes its share again.",
    "schedule_paused": "Paused. No tick begins a run until it is resumed.",
    "schedule_resumed": "It goes on with its next time.",
    "schedule_asked": "A run begins within a moment.",
    "trigger_paused": "Paused. Calls are refused, and finished runs wait until it is resumed.",
    "trigger_resumed": "It takes calls and finished runs again.",
    "trigger_retried": "What was refused is tried again.",
    "alias_rolled_back": "The alias leads to what it led to before.",
    "view_saved": "Saved. All users find this view above the list.",
    "view_deleted": "The view is deleted. No run is.",
    "signed_out": "You are signed out.",
}


class Ui(msgspec.Struct):
    parts: Parts
    look: Readers  # reads beside the event loop, with a store handle of its own
    graphs: Graphs
    approvals: Approvals
    streams: set[asyncio.Event] = set()  # each wakes one open page
    closing: bool = False

    def now(self) -> int:
        return self.parts.engine.clock.now()

    @property
    def clusters(self) -> Clusters | None:
        """Where the jobs of pools are that compute clusters do."""
        return self.parts.verbs.read.clusters

    @property
    def processes(self) -> Places | None:
        """Of inline code."""
        return self.parts.verbs.read.processes

    @property
    def has_pools(self) -> bool:
        """Whether there is anything to see of pools."""
        return self.clusters is not None or self.parts.engine.pools.is_used

    def head(self, run: str) -> Head:
        try:
            return self.parts.verbs.read.find(run)
        except NotFound as error:  # a page has a link where a terminal has a verb
            raise NotFound(error.what) from None

    async def state(self, head: Head) -> State:
        """As it is in memory, or as the store has it, read beside the event loop; a run set aside
        can still be looked at."""
        live = self.parts.engine.live_run(head.run)
        if live is not None:
            return live.state
        return await self.look(lambda by: by.read.state(head.run))

    def net(self, head: Head) -> Net:
        return self.parts.verbs.read.net(head)

    async def timeline(self, head: Head) -> Timeline:
        return await self.look(lambda by: by.read.timeline(head))

    async def failures(self, head: Head, net: Net, state: State) -> Failures:
        """The log is read last, so that it knows of all that the state knew, and only where
        something went wrong."""
        found = failures_of(net, state)
        if state.faults:
            add_attempts(found, await self.timeline(head))
        return found


UI = web.AppKey("anabranch.ui", Ui)


def ui_of(request: web.Request) -> Ui:
    return request.app[UI]


def run_of(request: web.Request) -> tuple[Ui, Head]:
    """And the run that the address names."""
    ui = ui_of(request)
    return ui, ui.head(request.match_info["run"])


@web.middleware
async def answer_in_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Errors become a page that says what is wrong; what programs call (the API, hooks, `/rpc`)
    and its problems are left alone."""
    if is_for_programs(request):
        return await handler(request)
    try:
        response = await handler(request)
    except AnabranchError as error:
        status = 403 if error.code == "forged" else status_of(error)
        response = error_page(request, status, error.message, error.code)
    except ApiError as error:
        response = error_page(request, error.status, error.detail, error.code, error.hint)
        response.headers.update(error.headers)
    except web.HTTPException as error:
        if error.status < 400 or error.status == 503:
            raise
        response = error_page(request, error.status, error.reason, "http")
    if isinstance(response, web.Response) and not response.prepared:
        guard.keep_secret(request, response)
    return response


def show(request: web.Request, template: str, status: int = 200, /, **values: Any) -> web.Response:
    """A whole page."""
    given = {
        "path": request.path,
        "here": request.path_qs,
        "csrf": guard.form_secret(request),
        "actor": actor_of(request),
        "signed_in": CALLER in request and bool(request[CALLER].token),
        "may": may(request),
        "note": NOTES.get(request.query.get("note", ""), ""),
        "now": ui_of(request).now(),
        "shared": ui_of(request).parts.store.cluster is not None,
        "pooled": ui_of(request).has_pools,
        "questions": ui_of(request).approvals.known,
    }
    return html(rendered(template, given | values), status)


def may(request: web.Request) -> dict[str, bool]:
    """scope → whether whoever asks has it; a page leaves out what it would be refused."""
    caller = request.get(CALLER)
    everybody = GATEKEEPER not in request.app
    return {scope: everybody or (caller is not None and caller.may(scope)) for scope in SCOPES}


def error_page(
    request: web.Request, status: int, message: str, code: str, hint: str = ""
) -> web.Response:
    if status >= 500:
        log.error("%s: %s", code, message)
    return show(request, "error.html", status, message=message, code=code, hint=hint, status=status)


async def form_of(request: web.Request) -> MultiDictProxy[Any]:
    """The fields of a form that one of our own pages sent."""
    return await guard.read_form(request)


def see(path: str, note: str = "") -> web.HTTPSeeOther:
    """Where to look next; a reload there does nothing twice."""
    mark = "&" if "?" in path else "?"
    return web.HTTPSeeOther(f"{path}{mark}note={note}" if note else path)

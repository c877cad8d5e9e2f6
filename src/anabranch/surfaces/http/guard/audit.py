"""Every change that somebody asks for over HTTP leaves a line in the audit trail.

Also one that was refused: who tried what they may not is worth knowing. Not written are requests by
nobody in particular (no token, a wrong one; those are counted and logged). What workers say about
their jobs is in the log of the run, job by job; here it is counted by token, verb and run. A
call of a hook is written once its handler knows who calls: an open route has no caller before.
"""

from __future__ import annotations

from functools import lru_cache

from aiohttp import web

from anabranch.errors import AnabranchError
from anabranch.operations.access.tokens import Caller, entry
from anabranch.store.access_ports import AuditEntry
from anabranch.surfaces.http.guard.auth import CALLER, GATEKEEPER, scope_of
from anabranch.surfaces.http.guard.origins import SAFE, address_of
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.routes import API, Handler

#: What a request was about, and what it is called, where its path does not say so: handlers may
#: set these.
SUBJECT = web.RequestKey("anabranch.subject", str)
ACTION = web.RequestKey("anabranch.action", str)
#: Who called a route that is open to everybody, once its handler knows: only then it is written.
OPEN_CALLER = web.RequestKey("anabranch.open_caller", Caller)
#: Set where the line of the request is in the trail already: the commit of what it did has it.
RECORDED = web.RequestKey("anabranch.recorded", bool)
#: (method, path as it was added to the router) → the action of a page, as the API calls it.
PAGE_ACTIONS = web.AppKey("anabranch.page_actions", dict[tuple[str, str], str])
NAMES = (
    *("run", "fingerprint", "token", "webhook", "credential", "template", "pool", "server"),
    *("schedule", "trigger", "alias", "hook"),
)


@web.middleware
async def keep_trail(request: web.Request, handler: Handler) -> web.StreamResponse:
    scope = "" if request.method in SAFE else scope_of(request)
    if scope in ("", "read"):
        return await handler(request)
    outcome = "failed"
    response: web.StreamResponse | None = None
    try:
        response = await handler(request)
        outcome = "done" if response.status < 400 else f"refused: {response.status}"
        return response
    except (ApiError, AnabranchError) as error:
        outcome = f"refused: {error.code}"
        raise
    except web.HTTPException as error:
        response = error
        outcome = "done" if error.status < 400 else f"refused: {error.status}"
        raise
    finally:
        await _write(request, scope, response, outcome)


async def _write(
    request: web.Request, scope: str, response: web.StreamResponse | None, outcome: str
) -> None:
    caller = request.get(OPEN_CALLER if scope == "open" else CALLER)
    if caller is None or (outcome == "done" and request.get(RECORDED)):
        return
    line = _line(request, caller, _subject(request, response), outcome)
    trail, often = request.app[GATEKEEPER].audit_log, scope == "work"
    await (trail.tally(line) if often else trail.write(line))


def line_of_start(request: web.Request, run: str) -> AuditEntry | None:
    """For the commit that begins this run; `RECORDED` says afterwards that it has the line."""
    caller = request.get(CALLER)
    return None if caller is None else _line(request, caller, run[:200], "done")


def _line(request: web.Request, caller: Caller, subject: str, outcome: str) -> AuditEntry:
    return entry(
        caller,
        action_of(request),
        request.app[GATEKEEPER].now(),
        subject=subject,
        outcome=outcome,
        address=address_of(request),
    )


def action_of(request: web.Request) -> str:
    """`POST /api/v1/runs/{run}/pause` is `runs.pause`, `DELETE /api/v1/tokens/{id}` is
    `tokens.delete`, `POST /api/v1/runs` is `runs.create`."""
    if ACTION in request:
        return request[ACTION]
    resource = request.match_info.route.resource
    path = resource.canonical if resource is not None else request.path
    named = (request.app.get(PAGE_ACTIONS) or {}).get((request.method, path))
    if named is not None:
        return named.format_map(request.match_info)
    return _action(request.method, path)


@lru_cache(maxsize=512)  # more than there are routes
def _action(method: str, path: str) -> str:
    parts = [part for part in path.removeprefix(API).split("/") if part]
    words = [part for part in parts if not part.startswith("{")]
    ends_in_name = not parts or parts[-1].startswith("{")
    if method != "POST":
        words.append({"DELETE": "delete", "PUT": "put", "PATCH": "change"}.get(method, ""))
    elif ends_in_name:
        words.append("change")
    elif len(words) == 1:
        words.append("create")
    return ".".join(word for word in words if word).replace("-", "_")


def _subject(request: web.Request, response: web.StreamResponse | None) -> str:
    if SUBJECT in request:
        return request[SUBJECT]
    for name in NAMES:
        if name in request.match_info:
            return request.match_info[name][:200]
    location = response.headers.get("Location", "") if response is not None else ""
    path = location.partition("?")[0]
    return path.rpartition("/")[2][:200] if path.startswith((API, "/runs/")) else ""

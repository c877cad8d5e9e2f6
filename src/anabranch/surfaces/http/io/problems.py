"""Errors as `application/problem+json`: what is wrong, and the one change that mends it.

`type` is always about:blank; programs look at `code`, which stays the same, and people at `detail`
and `hint`. Every error of ours has its status in one table. Whatever is not in it is a defect: it
is logged with its traceback and answered with a bare 500.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web

from anabranch import errors
from anabranch.net.problems import Problem
from anabranch.store.outages import passes
from anabranch.surfaces.http.routes import is_for_programs

log = logging.getLogger("anabranch.http")

MEDIA = "application/problem+json"
DETAIL_LETTERS = 1000
RETRY_SECONDS = "1"  # of what there is too much of at the moment
_encode = msgspec.json.Encoder().encode


class PlaceProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a definition, or worth a look."""

    code: str
    severity: str
    message: str
    hint: str
    file: str
    line: int
    column: int


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every error looks like."""

    type: str = msgspec.field(default="about:blank")
    title: str
    status: int
    code: str
    detail: str
    hint: str
    problems: list[PlaceProblem] | None = None
    server: str = ""  # the URL to ask instead


class ApiError(Exception):
    """Raised by handlers and readers; becomes the answer."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        hint: str = "",
        *,
        headers: Mapping[str, str] | None = None,
        server: str = "",
    ) -> None:
        super().__init__(detail)
        self.server = server
        self.status, self.code, self.detail, self.hint = status, code, detail, hint
        self.headers = dict(headers or {})


#: By class, for codes that the next table does not have. The first that fits counts.
BY_CLASS: tuple[tuple[type[errors.AnabranchError], int], ...] = (
    (errors.DefinitionError, 422),
    (errors.ExpressionError, 422),
    (errors.InputError, 422),
    (errors.Denied, 403),
    (errors.Refused, 409),
    (errors.NotFound, 404),
    (errors.Conflict, 409),
    (errors.StoreError, 503),
    (errors.LawBroken, 500),
)
BY_CODE: Mapping[str, int] = {
    "run_exists": 409,
    "not_a_session": 409,
    "idempotency": 409,
    "no_loop": 404,
    "payload_gone": 410,
    "not_allowed": 403,
    "engine_closed": 503,
    "engine_stopped": 503,
    "no_answer": 504,
    "too_many_values": 413,
    "logs_full": 429,
    "hook_secret": 503,
    "defect": 500,
    "damaged_run": 500,
}
#: What to do about it, where the message does not say so itself.
HINTS: Mapping[str, str] = {
    "definition": "fix what `problems` lists; POST /api/v1/definitions/check checks it again",
    "not_found": "GET /api/v1/runs lists the runs, GET /api/v1/definitions the definitions",
    "run_exists": "leave `run` out to get a new id, or send an Idempotency-Key with the start",
    "run_finished": "POST /api/v1/runs/{run}/redrive starts a linked run",
    "gate_not_open": "GET /api/v1/approvals lists the gates that are open",
    "not_paused": "GET /api/v1/runs/{run} shows the status of the run",
    "already_paused": "POST /api/v1/runs/{run}/resume continues it",
    "nothing_failed": "POST /api/v1/runs with its `fingerprint` starts a new run",
    "missing_requirements": "start the server with what the detail names; the run then goes on",
    "redriven": "redrive the newest one instead, or send `again: true`",
    "not_finished": "wait for its end, or POST /api/v1/runs/{run}/cancel first",
    "not_a_session": "only runs of orchestrations have receipts and processes",
    "not_json": "send plain JSON: no NaN, no infinity, at most the depth that the message names",
    "too_many_values": "send less at once, or keep it in a file or a bucket that others read",
    "logs_full": "send the same batches again, a little later",
    "bad_run_id": "leave `run` out to get a new id",
    "no_loop": "GET /api/v1/runs/{run}/loops lists its loops",
    "engine_closed": "the server is stopping; retry when it is back",
    "engine_stopped": "read the log of the server, then restart it",
    "conflict": "read the current state, and retry",
    "damaged_run": "restore the store from a backup, or leave the run as it is",
    "idempotency": "use a new key for another request",
    "no_such_server": "GET /api/v1/cluster lists the servers",
    "not_shared": "servers share a store on PostgreSQL",
    "last_server": "GET /api/v1/cluster lists the servers",
    "no_schedule": "GET /api/v1/schedules lists the schedules",
    "no_trigger": "GET /api/v1/triggers lists the triggers",
    "no_alias": "GET /api/v1/aliases lists the aliases",
    "hook_secret": "the log of the server says what is missing; `anabranch credential add`",
}
ANY_HINT: Mapping[int, str] = {
    404: "GET /api/v1/openapi.json lists the routes",
    409: "GET /api/v1/runs/{run} shows its status, /explain what it waits for",
    422: "change the value that the detail names",
    500: "this is a bug in Anabranch: the log of the server has the details",
    503: "the log of the server has the reason; retry later",
}


def problem(
    status: int,
    code: str,
    detail: str = "",
    hint: str = "",
    *,
    problems: Sequence[Problem] = (),
    headers: Mapping[str, str] | None = None,
    server: str = "",
) -> web.Response:
    """The answer; its title is that of its status."""
    title = HTTPStatus(status).phrase
    document = ProblemDocument(
        title=title,
        status=status,
        code=code,
        detail=_short(detail or title),
        hint=hint or HINTS.get(code, "") or ANY_HINT.get(status, "change the request"),
        problems=[place_problem(one) for one in problems] or None,
        server=server,
    )
    return web.Response(
        status=status,
        body=_encoded({"type": "about:blank", **msgspec.to_builtins(document)}),
        content_type=MEDIA,
        headers=headers,
    )


def _encoded(document: dict[str, Any]) -> bytes:
    try:
        return _encode(document)
    except UnicodeEncodeError:  # it quotes a header or a path whose bytes are no UTF-8
        return _encode(_as_utf8(document))


def _as_utf8(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case list():
            return [_as_utf8(each) for each in value]
        case dict():
            return {key: _as_utf8(each) for key, each in value.items()}
        case _:
            return value


def _short(text: str) -> str:
    """A message may quote what was sent, and that may be long."""
    left = len(text) - DETAIL_LETTERS
    return text if left <= 0 else f"{text[:DETAIL_LETTERS]}… ({left:,} more letters)"


def place_problem(one: Problem) -> PlaceProblem:
    return PlaceProblem(
        code=one.code,
        severity=one.severity,
        message=one.message,
        hint=one.hint,
        file=one.position.file,
        line=one.position.line,
        column=one.position.column,
    )


def status_of(error: errors.AnabranchError) -> int:
    if error.code in BY_CODE:
        return BY_CODE[error.code]
    return next((status for kind, status in BY_CLASS if isinstance(error, kind)), 500)


def from_error(error: errors.AnabranchError) -> web.Response:
    status = status_of(error)
    if status >= 500:
        told = isinstance(error, errors.StoreError) and passes(error)  # by the engine, once
        log.log(logging.DEBUG if told else logging.ERROR, "%s: %s", error.code, error.message)
    if isinstance(error, errors.DefinitionError):
        count = len(error.problems)
        said = f"the definition has {count} problem{'s' if count != 1 else ''}"
        return problem(status, error.code, detail=said, problems=error.problems)
    headers = {"Retry-After": RETRY_SECONDS} if status == 429 else None
    return problem(status, error.code, detail=error.message, headers=headers)


def _from_aiohttp(request: web.Request, error: web.HTTPException) -> web.Response:
    """aiohttp's own refusals, in our words."""
    match error:
        case web.HTTPNotFound():
            said = f"there is nothing at {request.path[:200]}"
            return problem(404, "no_such_path", detail=said)
        case web.HTTPMethodNotAllowed():
            allowed = ", ".join(sorted(error.allowed_methods))
            said = f"{request.method[:20]} is not possible at {request.path[:200]}"
            headers = {"Allow": allowed}
            return problem(405, "method", detail=said, hint=f"use {allowed}", headers=headers)
        case web.HTTPRequestEntityTooLarge():
            return problem(413, "too_large", detail="the body is too large", hint="send less")
        case _:
            return problem(error.status, "http", detail=error.reason)


@web.middleware
async def answer_errors(request: web.Request, handler: Any) -> web.StreamResponse:
    """The outermost middleware: whatever goes wrong inside becomes a problem document."""
    try:
        response: web.StreamResponse = await handler(request)
        return response
    except ApiError as error:
        return problem(
            error.status,
            error.code,
            detail=error.detail,
            hint=error.hint,
            headers=error.headers,
            server=error.server,
        )
    except errors.AnabranchError as error:
        return from_error(error)
    except web.HTTPException as error:
        if error.status < 400 or not is_for_programs(request):
            raise  # redirects, and the pages for people, say it in their own way
        return _from_aiohttp(request, error)
    except (asyncio.CancelledError, ConnectionError):
        raise  # the client has gone
    except Exception:
        log.exception("%s %s failed", request.method, request.rel_url.raw_path[:200])
        return problem(500, "internal", detail="the server made a mistake; nothing more is known")

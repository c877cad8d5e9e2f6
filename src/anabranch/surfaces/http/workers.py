"""Pools and jobs: what workers on other machines say and ask.

A job is named by its run, its id and its attempt. Everything said about another attempt than the
one that is out, or about a job that is over, is answered with 409 and its code, and changes
nothing: a worker may repeat itself until it hears something.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any, Literal

import msgspec
from aiohttp import web

from anabranch.kernel import stimuli as s
from anabranch.kernel.tracker import ShardReport
from anabranch.kernel.values import Answer, ContextPatch, Fault
from anabranch.operations.claims import Claimed
from anabranch.operations.pools import Beat, Pools, PoolState
from anabranch.surfaces.http.problems import ApiError
from anabranch.surfaces.http.reading import LIMITS, answer, read_body
from anabranch.surfaces.http.routes import API, PARTS, SETTINGS, Route
from anabranch.work.port import InlineAnswer

JOB = API + "/jobs/{run}/{job}/{attempt}"
_HASH = re.compile(r"[0-9a-f]{64}")


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ClaimBody(_Body, frozen=True):
    """Ask for jobs. `claim` names the question, so that a lost answer can be asked for again."""

    worker: str
    max: int = 1
    wait_seconds: float = 0.0
    lease_seconds: float | None = None
    claim: str = ""


class BeatBody(_Body, frozen=True):
    lease_seconds: float | None = None


class ProgressBody(_Body, frozen=True):
    progress: Any


class ReportBody(_Body, frozen=True):
    """What the work came to."""

    result: Any = None
    outcome: str = "ok"
    patches: tuple[ContextPatch, ...] = ()
    wait_ms: int = 0
    shard: ShardReport | None = None
    locals: dict[str, Any] = {}
    inline: bool = False  # keep the result in the log, however large


class FailBody(_Body, frozen=True):
    """Why there is no result. `retryable` says whether another try may help."""

    message: str
    kind: str = "failed"
    code: str = ""
    retryable: bool = True
    details: Any = None
    status: Literal["error", "aborted", "cancel_run"] = "error"
    patches: tuple[ContextPatch, ...] = ()
    locals: dict[str, Any] = {}


class ParkBody(_Body, frozen=True):
    ticket: str
    until: int = 0
    limit_ms: int = 0
    memory: Any = None


class ReleaseBody(_Body, frozen=True):
    reason: str = ""


class ChildBody(_Body, frozen=True):
    path: str
    run: str
    input: dict[str, Any] = {}
    waits: bool = False
    returns: str = ""


class Accepted(msgspec.Struct, frozen=True):
    accepted: bool = True


class PoolList(msgspec.Struct, frozen=True):
    items: list[PoolState]
    next: str | None = None


class Source(msgspec.Struct, frozen=True):
    """The definition of a job, to be compiled where the work is done."""

    fingerprint: str
    dialect: str
    name: str
    source: str
    origin: str


class Kept(msgspec.Struct, frozen=True):
    sha256: str


class Begun(msgspec.Struct, frozen=True):
    run: str


def _pools(request: web.Request) -> Pools:
    return request.app[PARTS].pools


def _named(request: web.Request) -> tuple[str, str, int]:
    """The run, the job and the attempt of the path."""
    run, job, attempt = (request.match_info[name] for name in ("run", "job", "attempt"))
    if not re.fullmatch(r"[0-9]{1,9}", attempt):
        hint = "take the attempt from the claim"
        raise ApiError(400, "parameter", f"the attempt is {attempt[:40]!r}, not a number", hint)
    return run, job, int(attempt)


def _accepted() -> web.Response:
    return answer(Accepted())


async def claim(request: web.Request) -> web.Response:
    body = await read_body(request, ClaimBody)
    claimed = await _pools(request).claim(
        request.match_info["pool"],
        body.worker,
        most=body.max,
        wait_seconds=body.wait_seconds,
        lease_seconds=body.lease_seconds,
        claim=body.claim[:200],
        gone=lambda: request.transport is None or request.transport.is_closing(),
    )
    return answer(claimed)


async def pools(request: web.Request) -> web.Response:
    return answer(PoolList(_pools(request).states()))


async def heartbeat(request: web.Request) -> web.Response:
    body = await read_body(request, BeatBody, optional=True)
    named = _named(request)
    return answer(await _pools(request).heartbeat(*named, lease_seconds=body.lease_seconds))


async def progress(request: web.Request) -> web.Response:
    body = await read_body(request, ProgressBody)
    await _pools(request).progress(*_named(request), body.progress)
    return _accepted()


async def report(request: web.Request) -> web.Response:
    body = await read_body(request, ReportBody)
    kind = InlineAnswer if body.inline else Answer
    said = kind(
        status="ok",
        result=body.result,
        outcome=body.outcome,
        patches=body.patches,
        wait_ms=max(0, body.wait_ms),
        shard=body.shard,
        locals=body.locals,
    )
    await _pools(request).report(*_named(request), said)
    return _accepted()


async def fail(request: web.Request) -> web.Response:
    body = await read_body(request, FailBody)
    fault = Fault(body.kind, body.message, body.code, body.retryable, body.details)
    outcome = "error" if body.status == "error" else ""
    said = Answer(
        status=body.status, fault=fault, outcome=outcome, patches=body.patches, locals=body.locals
    )
    await _pools(request).report(*_named(request), said)
    return _accepted()


async def park(request: web.Request) -> web.Response:
    body = await read_body(request, ParkBody)
    run, job, attempt = _named(request)
    parked = s.JobPark(job, attempt, body.ticket, body.until, body.memory, body.limit_ms)
    await _pools(request).park(run, job, attempt, parked)
    return _accepted()


async def release(request: web.Request) -> web.Response:
    body = await read_body(request, ReleaseBody, optional=True)
    await _pools(request).release(*_named(request), body.reason[:500])
    return _accepted()


async def definition(request: web.Request) -> web.Response:
    found = _pools(request).definition(*_named(request))
    return answer(
        Source(found.fingerprint, found.dialect, found.name, found.source, found.origin or "")
    )


async def payload(request: web.Request) -> web.Response:
    sha256 = request.match_info["sha256"]
    if not _HASH.fullmatch(sha256):
        hint = "take it from a ref of the task"
        raise ApiError(400, "parameter", f"{sha256[:80]!r} is not a SHA-256 in hex", hint)
    content = await _pools(request).payload(*_named(request), sha256)
    return web.Response(body=content, content_type="application/octet-stream")


async def put_payload(request: web.Request) -> web.Response:
    content = await _content(request)
    sha256 = await _pools(request).put_payload(*_named(request), content)
    return answer(Kept(sha256))


async def _content(request: web.Request) -> bytes:
    """A payload may be as large as a result may be, whatever bodies of JSON may."""
    most = request.app[SETTINGS].result_bytes_max
    parts, size = [], 0
    try:
        async with asyncio.timeout(max(request.app[LIMITS].body_seconds, 120.0)):
            async for part in request.content.iter_chunked(256 * 1024):
                size += len(part)
                if size > most:
                    said = f"the payload is larger than {most:,} bytes"
                    hint = "set ANABRANCH_RESULT_BYTES_MAX on the server, or keep it elsewhere"
                    raise ApiError(413, "too_large", said, hint, headers={"Connection": "close"})
                parts.append(part)
    except TimeoutError:
        said = "the payload did not arrive in time"
        raise ApiError(408, "slow_body", said, "send it again") from None
    return b"".join(parts)


async def child(request: web.Request) -> web.Response:
    body = await read_body(request, ChildBody)
    begun = await _pools(request).child(
        *_named(request),
        path=body.path,
        given=body.input,
        child=body.run,
        waits=body.waits,
        returns=body.returns,
    )
    return answer(Begun(begun))


ROUTES: tuple[Route, ...] = (
    Route(
        "POST", API + "/pools/{pool}/claim", "work", claim,
        "Take jobs of a pool under a lease; waits for the first one",
        body=ClaimBody, returns=Claimed,
        example={"worker": "gpu-1", "max": 4, "wait_seconds": 20, "claim": "5f3c"},
    ),
    Route(
        "GET", API + "/pools", "read", pools,
        "Every pool: what waits, what is out and with whom, which workers asked",
        returns=PoolList,
    ),
    Route(
        "POST", JOB + "/heartbeat", "work", heartbeat,
        "Extend the lease; the answer may tell the worker to stop",
        body=BeatBody, returns=Beat, example={"lease_seconds": 60}, errors=(404, 409),
        bodiless=True,
    ),
    Route(
        "POST", JOB + "/progress", "work", progress,
        "Say how far the work is, in small JSON",
        body=ProgressBody, returns=Accepted, errors=(404, 409),
        example={"progress": {"done": 30, "of": 100}},
    ),
    Route(
        "POST", JOB + "/report", "work", report,
        "The result of the work; a second or stale report is refused with 409",
        body=ReportBody, returns=Accepted, example={"result": {"price": 12}}, errors=(404, 409),
    ),
    Route(
        "POST", JOB + "/fail", "work", fail,
        "The work failed; its definition says whether it is tried again",
        body=FailBody, returns=Accepted, errors=(404, 409),
        example={"kind": "connection", "message": "the scanner does not answer"},
    ),
    Route(
        "POST", JOB + "/park", "work", park,
        "The answer comes later from elsewhere, such as a child run; the worker lets go",
        body=ParkBody, returns=Accepted, example={"ticket": "run-7"}, errors=(404, 409),
    ),
    Route(
        "POST", JOB + "/release", "work", release,
        "The worker no longer has it: it stopped as told, or hands it back",
        body=ReleaseBody, returns=Accepted, example={"reason": "the worker stops"},
        errors=(404, 409), bodiless=True,
    ),
    Route(
        "GET", JOB + "/definition", "work", definition,
        "The source of the definition that the job is part of",
        returns=Source, errors=(404, 409),
    ),
    Route(
        "GET", JOB + "/payloads/{sha256}", "work", payload,
        "A large value that the task refers to",
        media="application/octet-stream", errors=(404, 409, 410),
    ),
    Route(
        "POST", JOB + "/payloads", "work", put_payload,
        "Keep a large value, to be referred to in the report; the body is its bytes",
        returns=Kept, errors=(404, 409, 413),
    ),
    Route(
        "POST", JOB + "/children", "work", child,
        "Begin the child run of a task of kind `playbook`, once",
        body=ChildBody, returns=Begun, errors=(404, 409),
        example={"path": "child.yaml", "run": "run-7", "waits": True},
    ),
)  # fmt: skip

"""Pools and jobs: what workers on other machines say and ask.

A job is named by its run, its id, its attempt, and the worker that has it, and belongs to the token
that it was claimed with. Everything said about
another attempt than the one that is out, by somebody else, or about a job that is over, is answered
with 409 and its code, and changes nothing: a worker may repeat itself until it hears something.

On a store that several servers share, the one that owns the run of a job hears its worker. Any
other answers with 421 `run_elsewhere` and the URL of the owner; nothing was done then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import wraps
from typing import Any

from aiohttp import web

from anabranch.errors import Denied, NotFound, Refused
from anabranch.net.problems import did_you_mean
from anabranch.operations.logs.batches import clean_batches
from anabranch.operations.workers.claims import NAMES_COMPARED, Claimed
from anabranch.operations.workers.job_data import ResultsPage
from anabranch.operations.workers.leases import NOBODY, LeaseClaim, LeaseHolder
from anabranch.operations.workers.worker_api import Beat, WorkerApi
from anabranch.operations.workers.worker_cards import WorkerCards
from anabranch.pools.answers import FailBody, ParkBody, ReportBody
from anabranch.pools.remote.shapes import Begun, FoundCredential, ServerAddress, ServerList, Source
from anabranch.pools.seen.pool_cards import PoolCard
from anabranch.runtime.messages.codec import RunElsewhere
from anabranch.surfaces.http.guard.auth import CALLER, GATEKEEPER
from anabranch.surfaces.http.guard.shares import long_request
from anabranch.surfaces.http.guard.unread_answers import require_room
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.request_body import (
    LARGE_BYTES,
    LIMITS,
    answer,
    read_at_most,
    read_body,
    read_query,
    taken_apart,
)
from anabranch.surfaces.http.io.work_shapes import (
    Accepted,
    BeatBody,
    ChildBody,
    ClaimBody,
    Kept,
    LogsBody,
    PoolList,
    ProgressBody,
    ReleaseBody,
    WaitBody,
    WaitingJobs,
    WatchBody,
    Watched,
    WithdrawBody,
    Withdrawn,
    WorkerList,
)
from anabranch.surfaces.http.resources.payloads import READING
from anabranch.surfaces.http.routes import API, PARTS, SETTINGS, Handler, Query, Route
from anabranch.work.logs.attempt_log import LogBatch
from anabranch.work.port import parked_job
from anabranch.work.secrets.oauth2 import KeychainError

JOB = API + "/jobs/{run}/{job}/{attempt}"
WORKER = Query("worker", "as whom the job was claimed", example="gpu-1")
CLAIM_BYTES = 8 * 1024 * 1024  # of the answer to a claim, and of the job that ends it
_HASH = re.compile(r"[0-9a-f]{64}")

#: What a worker does about a refusal.
HINTS: Mapping[str, str] = {
    "unknown_job": "drop the result: the job has its answer, or the run no longer needs one",
    "stale_attempt": "drop the result: the lease ran out and another worker has the job",
    "not_your_job": "use the token and the name of the claim, and report only its jobs",
    "job_not_running": "drop the result, and claim the job again if it is offered",
    "run_finished": "drop the result: the run has ended",
    "not_found": "take run, job and attempt from a claim",
    "no_children": "report the result of the task; only tasks of kind `playbook` start runs",
    "child_path": "request the child that the task names: the server computes path and input",
    "child_refused": "fail the job: the definition of the child must be fixed on the server",
    "credential_refused": "request only credentials that the task names in its definition",
    "not_running": "the job was cancelled: stop the work and release it",
    "pool_on_cluster": "serve another pool, or start the server without the cluster of this one",
}


MOVED = "ask the server that `server` names; without one, retry: a server is taking the run over"


def _for_workers(handler: Handler) -> Handler:
    """The same handler; refusals say what a worker does about them."""

    @wraps(handler)
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except (Refused, NotFound) as refusal:
            hint = HINTS.get(refusal.code)
            if hint is None:
                raise
            status = 404 if isinstance(refusal, NotFound) else 409
            raise ApiError(status, refusal.code, refusal.message, hint) from None
        except RunElsewhere as moved:
            url = await _pools(request).owner_url(moved.run)
            raise ApiError(421, moved.code, moved.message, MOVED, server=url) from None

    return handle


def _pools(request: web.Request) -> WorkerApi:
    return request.app[PARTS].pools


def _out(request: web.Request) -> LeaseClaim:
    """The run, the job and the attempt of the path, and who says to have it."""
    run, job, attempt = (request.match_info[name] for name in ("run", "job", "attempt"))
    if not re.fullmatch(r"[0-9]{1,9}", attempt):
        hint = "take the attempt from the claim"
        raise ApiError(400, "parameter", f"the attempt is {attempt[:40]!r}, not a number", hint)
    worker = read_query(request)["worker"]
    if not worker:
        hint = "add ?worker=NAME, the name of the claim"
        raise ApiError(400, "parameter", "the parameter 'worker' is missing", hint)
    return LeaseClaim(run, job, int(attempt), worker, _holder(request))


def _holder(request: web.Request) -> LeaseHolder:
    """The token that the worker has shown."""
    caller, keeper = request.get(CALLER), request.app.get(GATEKEEPER)
    if caller is None or keeper is None:  # an application without tokens
        return NOBODY
    return LeaseHolder(caller.token, caller.pools, keeper.access.succeeds)


def _own_pool(request: web.Request) -> str:
    """The pool of the path, if the token may work for it."""
    pool = request.match_info["pool"]
    _require_pool(request, pool)
    return pool


def _require_pool(request: web.Request, pool: str) -> None:
    caller = request.get(CALLER)
    if caller is None:
        return
    try:
        caller.require_pool(pool)
    except Denied as denied:
        hint = "use a token for that pool: `anabranch token create --scope work --pool NAME`"
        raise ApiError(403, denied.code, denied.message, hint) from None


def _hung_up(request: web.Request) -> Callable[[], bool]:
    return lambda: request.transport is None or request.transport.is_closing()


def _accepted() -> web.Response:
    return answer(Accepted())


async def let_go(app: web.Application) -> None:
    """The server stops: whoever waits for a job, or for news of one, is answered now."""
    app[PARTS].pools.close()


# -- pools -----------------------------------------------------------------------------------


async def claim(request: web.Request) -> web.Response:
    body = await read_body(request, ClaimBody)
    pool = _own_pool(request)
    _pools(request).require_workers(pool, body.worker)
    with long_request(request, "claims") if body.wait_seconds > 0 else nullcontext():
        claimed = await _pools(request).claim(
            pool,
            body.worker,
            most=body.max,
            wait_seconds=body.wait_seconds,
            lease_seconds=body.lease_seconds,
            claim=body.claim[:200],
            items=body.items,
            gone=_hung_up(request),
            by=_holder(request),
            about=body.about,
            bytes_max=CLAIM_BYTES,
        )
    return answer(claimed)


async def wait(request: web.Request) -> web.Response:
    body = await read_body(request, WaitBody)
    pool = _own_pool(request)
    _pools(request).require_workers(pool, body.worker)
    with long_request(request, "claims") if body.wait_seconds > 0 else nullcontext():
        found = await _pools(request).wait(
            pool,
            body.worker,
            wait_seconds=body.wait_seconds,
            gone=_hung_up(request),
            about=body.about,
        )
    return answer(WaitingJobs(found))


async def servers(request: web.Request) -> web.Response:
    found = await _pools(request).servers()
    return answer(
        ServerList([ServerAddress(id=one.id, url=one.url, here=here) for one, here in found])
    )


async def withdraw(request: web.Request) -> web.Response:
    body = await read_body(request, WithdrawBody)
    handed_back = await _pools(request).withdraw(
        _own_pool(request), body.worker, body.claim[:200], _holder(request)
    )
    return answer(Withdrawn(handed_back))


async def pools(request: web.Request) -> web.Response:
    return answer(PoolList(request.app[PARTS].pool_cards.all()))


async def workers(request: web.Request) -> web.Response:
    parts = request.app[PARTS]
    cards = WorkerCards(parts.engine, parts.performers)
    return answer(WorkerList(cards.all(), cards.server()))


async def pool(request: web.Request) -> web.Response:
    name, found = request.match_info["pool"], request.app[PARTS].pool_cards
    known = found.names()
    if name not in known:
        said = f"no job of a pool {name[:200]!r} was seen, and no worker has asked for one"
        meant = did_you_mean(name, known[:NAMES_COMPARED])
        hint = meant or "GET /api/v1/pools lists the pools"
        raise ApiError(404, "unknown_pool", said, hint)
    return answer(found.card(name))


async def watch(request: web.Request) -> web.Response:
    body = await read_body(request, WatchBody)
    pools, holder = _pools(request), _holder(request)
    jobs = [LeaseClaim(one.run, one.job, one.attempt, body.worker, holder) for one in body.jobs]
    if holder.pools:
        for pool in {await pools.pool_of(out) for out in jobs}:
            if pool is not None:
                _require_pool(request, pool)
    with long_request(request, "claims") if body.wait_seconds > 0 else nullcontext():
        found = await pools.watch(jobs, wait_seconds=body.wait_seconds, gone=_hung_up(request))
    return answer(Watched(found.stop, found.moved))


# -- one job ---------------------------------------------------------------------------------


async def heartbeat(request: web.Request) -> web.Response:
    body = await read_body(request, BeatBody, optional=True)
    return answer(await _pools(request).heartbeat(_out(request), lease_seconds=body.lease_seconds))


async def progress(request: web.Request) -> web.Response:
    body = await read_body(request, ProgressBody)
    await _pools(request).progress(_out(request), body.progress)
    return _accepted()


async def logs(request: web.Request) -> web.Response:
    body, out = await read_body(request, LogsBody), _out(request)
    clean = _pools(request).cleaner_of_logs(out)  # its job first
    size = request.content_length or LARGE_BYTES + 1
    batches = await taken_apart(request, size, _batches, body, clean)
    _pools(request).keep_logs(out, batches)
    return _accepted()


def _batches(body: LogsBody, clean: Callable[[str], str]) -> list[LogBatch]:
    return clean_batches([batch.batch() for batch in body.batches], clean)


async def report(request: web.Request) -> web.Response:
    body = await read_body(request, ReportBody)
    if body.payload and (not _HASH.fullmatch(body.payload) or body.result is not None):
        wrong = "`payload` is the SHA-256 that POST …/payloads answered with, instead of `result`"
        raise ApiError(422, "schema", wrong, "leave one of the two out")
    await _pools(request).report(_out(request), body.answer(), payload=body.payload)
    return _accepted()


async def fail(request: web.Request) -> web.Response:
    body = await read_body(request, FailBody)
    await _pools(request).report(_out(request), body.answer())
    return _accepted()


async def park(request: web.Request) -> web.Response:
    body = await read_body(request, ParkBody)
    out = _out(request)
    await _pools(request).park(out, parked_job(out.job, out.attempt, body.answer()))
    return _accepted()


async def release(request: web.Request) -> web.Response:
    body = await read_body(request, ReleaseBody, optional=True)
    await _pools(request).release(_out(request), body.reason[:500])
    return _accepted()


# -- what the work needs ---------------------------------------------------------------------


async def definition(request: web.Request) -> web.Response:
    found = await _pools(request).supply.definition(_out(request))
    return answer(
        Source(found.fingerprint, found.dialect, found.name, found.source, found.origin or "")
    )


async def payload(request: web.Request) -> web.Response:
    sha256 = request.match_info["sha256"]
    if not _HASH.fullmatch(sha256):
        hint = "take it from a ref of the task"
        raise ApiError(400, "parameter", f"{sha256[:80]!r} is not a SHA-256 in hex", hint)
    out = _out(request)
    async with request.app[READING]:
        require_room(request)
        content = await _pools(request).supply.payload(out, sha256)
    return web.Response(body=content, content_type="application/octet-stream")


async def credential(request: web.Request) -> web.Response:
    name = request.match_info["credential"]
    try:
        found = await _pools(request).credential(_out(request), name)
    except KeychainError as error:
        hint = "fail the job: it cannot be done without"
        if error.retryable:  # whoever keeps it cannot be asked just now
            raise ApiError(409, "credential_away", error.message, hint) from None
        raise ApiError(404, "no_credential", error.message, hint) from None
    return answer(FoundCredential(found.type, found.data), headers={"Cache-Control": "no-store"})


async def put_payload(request: web.Request) -> web.Response:
    out, supply = _out(request), _pools(request).supply
    await supply.require_job(out)  # before a byte of it is read
    content = await _content(request)
    return answer(Kept(await supply.put_payload(out, content)))


async def _content(request: web.Request) -> bytes:
    """A payload may be as large as a result may be, whatever bodies of JSON may."""
    most = request.app[SETTINGS].result_bytes_max
    said = f"the payload is larger than {most:,} bytes (setting ANABRANCH_RESULT_BYTES_MAX)"
    hint = "raise it at the server, or store the data outside and report its address"
    seconds = max(request.app[LIMITS].body_seconds, 120.0)
    return await read_at_most(request, most, seconds, said, hint)


async def results(request: web.Request) -> web.Response:
    out, asked = _out(request), read_query(request)
    if not asked["ref"]:
        hint = "give the `refs` of a loop, such as anabranch:run:RUN/loop/l2"
        raise ApiError(400, "parameter", "the parameter 'ref' is missing", hint)
    supply = _pools(request).supply
    return answer(await supply.results(out, asked["ref"], asked["first"], asked["stop"]))


async def child(request: web.Request) -> web.Response:
    body = await read_body(request, ChildBody)
    begun = await _pools(request).supply.child(
        _out(request),
        path=body.path,
        given=body.input,
        child=body.run,
        waits=body.waits,
        returns=body.returns,
        marks=body.sealed,
    )
    return answer(Begun(begun))


def _job(
    method: str, path: str, handler: Handler, summary: str, *query: Query, **more: Any
) -> Route:
    """A route about one job of a worker."""
    errors = (404, 409, *more.pop("errors", ()))
    guarded = _for_workers(handler)
    return Route(
        method, JOB + path, "work", guarded, summary, query=(WORKER, *query), errors=errors, **more
    )


ROUTES: tuple[Route, ...] = (
    Route(
        "POST", API + "/pools/{pool}/claim", "work", claim,
        "Claim jobs of a pool under a lease; waits for the first one",
        body=ClaimBody, returns=Claimed,
        example={"worker": "gpu-1", "max": 4, "wait_seconds": 20, "claim": "5f3c"},
    ),
    Route(
        "GET", API + "/servers", "work", servers,
        "The servers of this store, for workers: each offers the jobs of the runs that it owns",
        returns=ServerList,
    ),
    Route(
        "POST", API + "/pools/{pool}/wait", "work", wait,
        "Wait until a job of the pool waits at this server; claims nothing",
        body=WaitBody, returns=WaitingJobs, example={"worker": "gpu-1", "wait_seconds": 20},
    ),
    Route(
        "POST", API + "/pools/{pool}/withdraw", "work", withdraw,
        "Withdraw a claim: jobs that it was given and the worker never received go back "
        "to the queue",
        body=WithdrawBody, returns=Withdrawn, example={"worker": "gpu-1", "claim": "5f3c"},
    ),
    Route(
        "GET", API + "/pools", "read", pools,
        "Every pool: waiting jobs, leased jobs and their workers, which workers asked, and the "
        "compute cluster that does it",
        returns=PoolList,
    ),
    Route(
        "GET", API + "/pools/{pool}", "read", pool,
        "One pool: waiting jobs, leased jobs and their workers, which workers asked, and the "
        "compute cluster that does it",
        returns=PoolCard, errors=(404,),
    ),
    Route(
        "GET", API + "/workers", "read", workers,
        "The workers that asked this server since it started: where they run, what they can do, "
        "their jobs and when they were last heard; and the work of the server itself",
        returns=WorkerList,
    ),
    Route(
        "POST", API + "/jobs/watch", "work", watch,
        "Long-poll for the jobs that a worker should stop",
        body=WatchBody, returns=Watched,
        example={
            "worker": "gpu-1", "wait_seconds": 20,
            "jobs": [{"run": "run-7", "job": "2.0", "attempt": 1}],
        },
    ),
    _job(
        "POST", "/heartbeat", heartbeat,
        "Extend the lease; the answer may tell the worker to stop",
        body=BeatBody, returns=Beat, example={"lease_seconds": 60}, bodiless=True,
    ),
    _job(
        "POST", "/progress", progress, "Report the progress of the work, in small JSON",
        body=ProgressBody, returns=Accepted, example={"progress": {"done": 30, "of": 100}},
    ),
    _job(
        "POST", "/logs", logs,
        "Hand in what the job has printed, while it is at work",
        body=LogsBody, returns=Accepted,
        example={
            "batches": [{
                "first_line": 0, "lines": 1, "start": 0, "size": 6,
                "pieces": [
                    {"at": 1760000000000, "stream": "stdout", "level": "info", "text": "hello"}
                ],
            }],
        },
    ),
    _job(
        "POST", "/report", report,
        "The result of the work; a second or stale report is refused with 409",
        body=ReportBody, returns=Accepted, example={"result": {"price": 12}}, errors=(410,),
    ),
    _job(
        "POST", "/fail", fail, "The work failed; its definition decides whether it is tried again",
        body=FailBody, returns=Accepted,
        example={"kind": "connection", "message": "the scanner does not answer"},
    ),
    _job(
        "POST", "/park", park,
        "Park the job: its answer comes later from elsewhere, such as a child run",
        body=ParkBody, returns=Accepted, example={"ticket": "run-7"},
    ),
    _job(
        "POST", "/release", release,
        "Release the job: the worker stopped it as requested, or gives it back",
        body=ReleaseBody, returns=Accepted, example={"reason": "the worker stops"}, bodiless=True,
    ),
    _job(
        "GET", "/definition", definition,
        "The source of the definition that the job is part of", returns=Source,
    ),
    _job(
        "GET", "/payloads/{sha256}", payload, "A large value that the task refers to",
        media="application/octet-stream", errors=(410,),
    ),
    _job(
        "GET", "/credentials/{credential}", credential,
        "A credential that the task looks up by its name", returns=FoundCredential,
    ),
    _job(
        "POST", "/payloads", put_payload,
        "Upload a large value, to be referred to in the report; the body is its bytes",
        returns=Kept, errors=(413,),
    ),
    _job(
        "GET", "/results", results, "Results of a loop that the task refers to, as many as fit",
        Query("ref", "the `refs` of the loop", example="anabranch:run:run-7/loop/l2"),
        Query("first", "the first item wanted", "integer", default=0),
        Query("stop", "the first one not wanted", "integer", default=2**53),
        returns=ResultsPage,
    ),
    _job(
        "POST", "/children", child, "Start the child run of a task of kind `playbook`, once",
        body=ChildBody, returns=Begun,
        example={"path": "child.yaml", "run": "run-7-2.0", "waits": True},
    ),
)  # fmt: skip

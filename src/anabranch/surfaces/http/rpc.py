"""`/rpc`: the JSON-RPC interface of orchestrations, so that clients made for a chain connect.

The setting `rpc_access` says who is heard: nobody (`off`), whoever has a token that may operate
(`token`), or everybody, so that permits alone decide (`permit`). Errors of a call are answers of
JSON-RPC with status 200; what is wrong with the request itself is a problem as anywhere.

A body is read as any other, within bounds. What a batch asks for is added up before any of it is
done; reading and arithmetic are done beside the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from aiohttp import web
from msgspec.structs import replace

from anabranch.errors import AnabranchError, DefinitionError, InputError, Refused, StoreError
from anabranch.operations.access.tokens import Caller, entry
from anabranch.operations.sessions.rpc_methods import METHODS, NotHere, RpcMethods, work_of
from anabranch.operations.sessions.sessions import Sessions
from anabranch.settings import Settings
from anabranch.store.outages import passes
from anabranch.surfaces.http.guard.auth import CALLER, COOKIE, GATEKEEPER
from anabranch.surfaces.http.guard.origins import address_of
from anabranch.surfaces.http.guard.shares import SHARES, in_share, token_of
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.request_body import LIMITS, check_media, parse_body, read_at_most
from anabranch.surfaces.http.routes import PARTS, SETTINGS, Route
from anabranch.work.chain.permits import PermitRefused

log = logging.getLogger("anabranch.http")

T = TypeVar("T")
PATH = "/rpc"
BODY_BYTES = 1024 * 1024
BATCH_MAX = 20  # calls, and the work that they are together
PARAMS_MAX = 20
ID_LETTERS = 200
#: By code of JSON-RPC. Those from -32000 down are ours: the public texts name none.
PARSE, REQUEST, METHOD, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
FAILED, PERMIT, REFUSED = -32000, -32001, -32002
_REFUSALS = ("not_allowed", "step_only", "other_owner")
AWAY = "what the server needs for this does not answer it: retry later; its log has the reason"
CHANGES = ("xgr_validateDataTransfer", "xgr_wakeUpProcess", "xgr_control", "xgr_manageGrants")


class RpcRequest(msgspec.Struct):
    """One call; a list of up to 20 of them is a batch."""

    jsonrpc: str
    method: str
    params: Annotated[list[Any], msgspec.Meta(max_length=PARAMS_MAX)] = []
    id: int | str | None = None


class Chain:
    """What permits and starts need to know of the chain."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._found: asyncio.Future[int] | None = None
        self._starting: set[str] = set()  # signers

    async def chain_id(self) -> int:
        """The node is asked until it has said so once, by all who want to know together: some of
        them need no permit to."""
        if self._settings.chain_id:
            return self._settings.chain_id
        found = self._found
        if found is None or (found.done() and (found.cancelled() or found.exception())):
            self._found = found = asyncio.ensure_future(self._asked())
        return await asyncio.shield(found)

    async def _asked(self) -> int:
        from anabranch.work.chain.contracts import chain_id
        from anabranch.work.chain.rpc import JsonRpc
        from anabranch.work.chain.wiring import rpc_options

        rpc = JsonRpc(self._node("a permit names its chain"), rpc_options(self._settings))
        try:
            return await chain_id(rpc)
        finally:
            await rpc.close()

    @contextmanager
    def one_start(self, signer: str) -> Iterator[None]:
        if signer in self._starting:
            said = f"a start of {signer} is being loaded: send the next one when it has its answer"
            raise Refused(said, code="start_in_hand")
        self._starting.add(signer)
        try:
            yield
        finally:
            self._starting.discard(signer)

    async def load(self, registry: str, ostc_id: str, ostc_hash: str, starter: str) -> str:
        from anabranch.work.chain.authority import owners_and_executors
        from anabranch.work.chain.errors import WrongChain
        from anabranch.work.chain.loader import load_orchestration
        from anabranch.work.chain.wiring import rpc_options

        loaded = await load_orchestration(
            self._node("a session is started from a registry"),
            registry,
            ostc_id,
            expect_hash=ostc_hash or None,
            encrypted_rules=bool(self._settings.rule_keys_file),
            starter=starter,
            authority=owners_and_executors,
            options=rpc_options(self._settings),
        )
        wanted = self._settings.chain_id
        if wanted and loaded.chain_id != wanted:
            raise WrongChain(f"the node is one of chain {loaded.chain_id}, not of chain {wanted}")
        return loaded.bundle()

    def _node(self, why: str) -> str:
        if not self._settings.chain_url:
            hint = "set chain_url" if why.startswith("a session") else "set chain_id or chain_url"
            raise InputError(f"{why}, and this server knows none: {hint}", code="no_chain")
        return self._settings.chain_url


class _ChainOf:
    """The chain for one request: what is loaded takes the share of its caller, and a signer has one
    start in hand. Only the next number of a signer can begin, so a second one begins nothing, but
    would load all the same."""

    def __init__(self, request: web.Request) -> None:
        self._chain = request.app[CHAIN]
        self._shares, self._token = request.app[SHARES], token_of(request)

    async def chain_id(self) -> int:
        return await self._chain.chain_id()

    async def load(self, registry: str, ostc_id: str, ostc_hash: str, starter: str) -> str:
        with self._chain.one_start(starter):
            async with self._shares.turn(self._token, "loads"):
                return await self._chain.load(registry, ostc_id, ostc_hash, starter)


CHAIN = web.AppKey("anabranch.chain", Chain)


async def rpc(request: web.Request) -> web.StreamResponse:
    _check_open(request)
    body = await _read(request)
    check_media(request)
    try:
        asked = await parse_body(request, body, Any)
    except ApiError as error:
        if error.status == 413:
            raise
        return _answer(_error(None, PARSE, error.detail, error.code))
    if not isinstance(asked, list):
        return _answer(await _one(request, asked))
    if not 0 < len(asked) <= BATCH_MAX:
        return _answer(_error(None, REQUEST, f"a batch has 1 to {BATCH_MAX} calls"))
    work = sum(work_of(each.get("method") if isinstance(each, dict) else "") for each in asked)
    if work > BATCH_MAX:
        told = f"the calls of the batch are {work} units of work, and {BATCH_MAX} are the most"
        return _answer(_error(None, REQUEST, f"{told}: send them in several batches", "batch_work"))
    replies = [await _one(request, each) for each in asked]
    return _answer([reply for reply in replies if reply is not None] or None)


async def _read(request: web.Request) -> bytes:
    limits = request.app[LIMITS]
    most = min(BODY_BYTES, limits.body_bytes)
    told = f"the body is larger than {most:,} bytes, the most that {PATH} takes"
    return await read_at_most(request, most, limits.body_seconds, told, "send less")


def _check_open(request: web.Request) -> None:
    if request.app[SETTINGS].rpc_access == "off":
        said = "this server does not answer JSON-RPC"
        hint = "start it with the setting rpc_access: token or permit"
        raise ApiError(404, "rpc_off", said, hint)
    if COOKIE in request.cookies and "Authorization" not in request.headers:
        said = "a browser that is signed in does not call methods here"
        raise ApiError(403, "csrf", said, "use a token, or no cookie")


async def _one(request: web.Request, asked: Any) -> dict[str, Any] | None:
    if not isinstance(asked, dict) or asked.get("jsonrpc") != "2.0":
        return _error(None, REQUEST, 'a call is an object with "jsonrpc": "2.0"')
    number, method, params = asked.get("id"), asked.get("method"), asked.get("params", [])
    if not _is_id(number):
        told = f"`id` is a whole number of 64 bits, or a text of at most {ID_LETTERS} letters"
        return _error(None, REQUEST, told)
    if not isinstance(method, str) or not isinstance(params, list | dict):
        return _error(number, REQUEST, "a call has a `method` and a list of `params`")
    given = params if isinstance(params, list) else [params]
    if len(given) > PARAMS_MAX:
        return _error(number, PARAMS, f"a call has at most {PARAMS_MAX} `params`")
    reply = await _called(request, number, method, given)
    return reply if "id" in asked else None


def _is_id(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= ID_LETTERS
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return value is None or (is_whole and -(1 << 63) <= value < 1 << 63)


async def _called(
    request: web.Request, number: int | str | None, method: str, params: Sequence[Any]
) -> dict[str, Any]:
    permitted = _permitted(request)
    try:
        result = await permitted.call(method, params)
        reply = {"jsonrpc": "2.0", "id": number, "result": result}
        outcome = "done"
    except AnabranchError as error:
        reply, outcome = _refused(number, error), f"refused: {error.code}"
    except ApiError as error:  # too much at once
        reply = _error(number, FAILED, error.detail, error.code)
        outcome = f"refused: {error.code}"
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("%s failed", method[:80])
        reply, outcome = _error(number, INTERNAL, "a bug in Anabranch: see the log"), "failed"
    if method in CHANGES:
        await _written(request, permitted, outcome)
    return reply


def _permitted(request: web.Request) -> RpcMethods:
    parts = request.app[PARTS]

    async def first_step(run: str) -> None:
        async for record in parts.verbs.events(run):
            if record.kind == "token.finished" and record.fields.get("token") == 1:
                return

    async def read(work: Callable[[Sessions], T]) -> T:
        return await look(request, lambda by: work(by.sessions))

    async def compute(work: Callable[[], T]) -> T:
        return await in_share(request, work)

    return RpcMethods(
        parts.sessions,
        parts.verbs,
        _ChainOf(request),
        parts.engine.clock.now,
        first_step,
        parts.store,
        read,
        compute,
    )


async def _written(request: web.Request, permitted: RpcMethods, outcome: str) -> None:
    """A line of the audit trail: who signed, with which token if there was one. Somebody of whom
    nothing is known leaves none."""
    keeper = request.app.get(GATEKEEPER)
    asked, caller = permitted.last, request.get(CALLER)
    who = asked.signer or (caller.actor if caller is not None else "")
    if keeper is None or not who:
        return
    line = entry(
        Caller(who, frozenset(), caller.token if caller is not None else ""),
        f"rpc.{asked.method.removeprefix('xgr_')}",
        keeper.now(),
        subject=asked.subject,
        outcome=outcome,
        address=address_of(request),
    )
    await keeper.audit_log.write(line)


# -- answers ---------------------------------------------------------------------------------------


def _refused(number: int | str | None, error: AnabranchError) -> dict[str, Any]:
    match error:
        case NotHere():
            return _error(number, METHOD, error.message, error.code, methods=list(METHODS))
        case PermitRefused():
            return _error(number, PERMIT, error.message, error.code)
        case InputError(code="params"):
            return _error(number, PARAMS, error.message, error.code)
        case StoreError() | AnabranchError(code="chain_unreachable" | "chain_bad_response"):
            known = isinstance(error, StoreError) and passes(error)  # the engine says it once
            log.log(logging.DEBUG if known else logging.ERROR, "%s: %s", error.code, error.message)
            return _error(number, FAILED, AWAY, error.code)  # callers do not learn where it is
        case DefinitionError():
            told = "; ".join(str(one) for one in error.problems[:5])
            return _error(number, FAILED, told or error.message, error.code)
    code = REFUSED if error.code in _REFUSALS else FAILED
    return _error(number, code, error.message, error.code)


def _error(
    number: int | str | None, code: int, message: str, name: str = "", **more: Any
) -> dict[str, Any]:
    told: dict[str, Any] = {"code": code, "message": message}
    if name:
        told["data"] = {"code": name, **more}
    return {"jsonrpc": "2.0", "id": number, "error": told}


def _answer(value: Any) -> web.Response:
    if value is None:  # nobody wants to know: notifications
        return web.Response(status=204)
    body = msgspec.json.encode(value)
    return web.Response(body=body, content_type="application/json")


def opened(routes: Sequence[Route], settings: Settings) -> tuple[Route, ...]:
    """The routes of this server: permits alone decide where the operator says so."""
    if settings.rpc_access != "permit":
        return tuple(routes)
    if settings.chain_execution == "send":
        raise InputError(
            "rpc_access is permit and chain_execution is send: the owner of any registry could "
            "send calls with the key of this server; choose rpc_access token, or chain_execution "
            "record or simulate",
            code="rpc_sends",
        )
    return tuple(replace(one, scope="open") if one.path == PATH else one for one in routes)


ROUTES = (
    Route(
        "POST",
        PATH,
        "operate",
        rpc,
        "Call a method of the `xgr_` namespace (JSON-RPC 2.0)",
        body=RpcRequest,
        returns=dict[str, Any],
        example={
            "jsonrpc": "2.0",
            "id": 1,
            "method": "xgr_getNextProcessId",
            "params": [{"from": "0x" + "a" * 40}],
        },
        errors=(403, 404, 413, 415),
    ),
)

"""Calls that fire triggers: POST /hooks/NAME.

    who calls (signature or token) → JSON → once (key, what was signed) → a run or a signal

Nothing is changed before all of that is right. What was signed identifies a signed call, and is
taken once. A key makes several calls one, such as those of a sender who signs each try anew; it
never makes another call of one that was taken, because no signature covers it.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from anabranch.errors import Denied, NotFound
from anabranch.operations.access.tokens import Caller
from anabranch.operations.triggers.firing import TriggerResult, TriggerSource
from anabranch.operations.triggers.rendering import key_of
from anabranch.operations.triggers.signatures import header_of, verify_call
from anabranch.operations.triggers.trigger import HookRules, Trigger
from anabranch.operations.triggers.triggers import names_of_call
from anabranch.surfaces.http.guard.audit import ACTION, OPEN_CALLER
from anabranch.surfaces.http.guard.auth import CALLER
from anabranch.surfaces.http.guard.idempotency import (
    KEPT_MS,
    KEY_HEADER,
    REPLAYED,
    Do,
    KeyedRequest,
    once_for,
)
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.request_body import LIMITS, check_media, parse_body, read_at_most
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.http.routes import API, PARTS, Header, Route
from anabranch.surfaces.http.traces import TRACE_HEADER, traced
from anabranch.work.evaluations import evaluate

BODY_BYTES = 1024 * 1024
NO_HOOK = "no_hook"
SIGNATURE_HEADER = Header(
    "Anabranch-Signature", "t=<unix seconds>,v1=<hex of HMAC-SHA256 over `<t>.` and the body>"
)


async def call(request: web.Request) -> web.StreamResponse:
    name = request.match_info["hook"]
    trigger, rules = await _trigger(request, name)
    body = await _body(request)
    request[ACTION] = "hooks.call"
    identity = await _identify_caller(request, rules, body)
    if trigger.paused_at is not None:
        said = f"the trigger {name} is paused; nothing was done"
        raise ApiError(409, "trigger_paused", said, f"`anabranch trigger resume {name}`")
    said = await _said(request, body)
    names = names_of_call(said, request.headers, request.query, rules)
    key = await evaluate(partial(key_of, trigger, names))
    firer = request.app[PARTS].triggering.firer

    async def fire(this: KeyedRequest) -> tuple[int, Any]:
        cause = TriggerSource(id=this.run, trace=traced(request))
        return 202, await firer.fire(trigger, names, cause)

    digest = hashlib.sha256(body).hexdigest()
    if not identity:
        return _located(await once_for(request, f"hook:{name}", key, digest, fire, again=True))
    kept_ms = rules.remember * 1000 if rules.scheme == "github" else KEPT_MS
    signed = SignedCall(name, identity, key, digest, max(kept_ms, KEPT_MS))
    return _located(await _fire_once(request, signed, fire))


class SignedCall(msgspec.Struct, frozen=True):
    hook: str
    identity: str  # digest of what was signed
    key: str  # that the sender gives it; no signature need cover it
    digest: str  # of the body
    kept_ms: int


async def _fire_once(request: web.Request, call: SignedCall, fire: Do) -> web.Response:
    """Once for its key, and once for what was signed."""
    if not call.key:
        response = await _take(request, call, fire)
        if REPLAYED in response.headers:
            raise _replayed()
        return response

    async def take(keyed: KeyedRequest) -> tuple[int, Any]:
        # The key names the run: a sender who signs anew after a crash finds it begun.
        response = await _take(request, call, lambda _own: fire(keyed))
        assert isinstance(response.body, bytes)
        return response.status, msgspec.Raw(response.body)

    return await once_for(request, f"hook:{call.hook}", call.key, call.digest, take, again=True)


async def _take(request: web.Request, call: SignedCall, fire: Do) -> web.Response:
    """What was signed is taken with one key, or with none, and never with another."""
    actor, body = f"signed:{call.hook}", [call.digest, call.key]
    try:
        return await once_for(
            request, actor, call.identity, body, fire, again=True, kept_ms=call.kept_ms
        )
    except ApiError as error:
        if error.code == "idempotency":
            raise _replayed() from None
        raise


def _replayed() -> ApiError:
    wrong = "this signed call was taken before; nothing was done again"
    return ApiError(409, "replayed", wrong, "sign it anew for another run")


async def _trigger(request: web.Request, name: str) -> tuple[Trigger, HookRules]:
    triggers = request.app[PARTS].triggering.triggers
    try:
        found = await in_thread(triggers.get, name)
    except NotFound:
        found = None
    if found is None or found.hook is None:  # which other names there are is not for everybody
        raise ApiError(404, NO_HOOK, f"there is no hook {name[:80]!r}", "look at its name")
    return found, found.hook


async def _body(request: web.Request) -> bytes:
    limits = request.app[LIMITS]
    most = min(BODY_BYTES, limits.body_bytes)
    said = f"the body is larger than {most:,} bytes, the most that a hook takes"
    hint = "send less, and let the run fetch the rest"
    return await read_at_most(request, most, limits.body_seconds, said, hint)


async def _identify_caller(request: web.Request, rules: HookRules, body: bytes) -> str:
    """What identifies a signed call; "" where a token says who calls. Raises for anybody else."""
    if rules.auth == "token":
        _require_token(request, rules)
        return ""
    return await _verify_signature(request, rules, body)


async def _verify_signature(request: web.Request, rules: HookRules, body: bytes) -> str:
    triggering, header = request.app[PARTS].triggering, header_of(rules)
    given = request.headers.getall(header, [])
    signature = given[0] if len(given) == 1 else ""
    secret = await triggering.secret_of(rules)
    now = request.app[PARTS].engine.clock.now() / 1000
    try:
        identity = await in_thread(verify_call, rules, secret, signature, body, now)
    except Denied as denied:
        hint = f"sign the call with the secret of the hook in the header {header}"
        raise ApiError(401, denied.code, denied.message, hint) from None
    request[OPEN_CALLER] = Caller(f"hook:{request.match_info['hook']}", frozenset())
    return identity


def _require_token(request: web.Request, rules: HookRules) -> None:
    """A token with the scope `hook` or `operate`. The session of a browser is none: any page could
    make it call."""
    caller = request.get(CALLER)
    if caller is None or (caller.token and "Authorization" not in request.headers):
        said = "the hook takes calls with a token"
        raise ApiError(
            401,
            "token_missing",
            said,
            "send Authorization: Bearer anb_…",
            headers={"WWW-Authenticate": 'Bearer realm="anabranch"'},
        )
    request[OPEN_CALLER] = caller
    if not (caller.may("hook") or caller.may("operate")):
        said = f"this needs the scope 'hook'; the token of {caller.actor!r} does not have it"
        raise ApiError(403, "scope", said, "`anabranch token create --scope hook` makes one")
    if rules.senders and caller.actor not in rules.senders:
        said = f"the hook takes no calls of {caller.actor!r}"
        raise ApiError(403, "sender", said, "add the name with --from where the trigger is added")


async def _said(request: web.Request, body: bytes) -> Any:
    """The body as JSON; one that is left out is null."""
    if not body.strip():
        return None
    check_media(request)
    return await parse_body(request, body, Any)


def _located(response: web.Response) -> web.Response:
    assert isinstance(response.body, bytes)
    fired = msgspec.json.decode(response.body, type=TriggerResult)
    if fired.run is not None:
        response.headers["Location"] = f"{API}/runs/{fired.run}"
    return response


ROUTES = (
    Route("POST", "/hooks/{hook}", "open", call,
          "Fire a trigger: start a run or signal runs; signed, or with a token of scope `hook`",
          body=dict[str, Any], returns=TriggerResult, example={"order": "A-17", "paid": True},
          status=202, bodiless=True, errors=(401, 403, 404, 409),
          headers=(KEY_HEADER, SIGNATURE_HEADER, TRACE_HEADER)),
)  # fmt: skip

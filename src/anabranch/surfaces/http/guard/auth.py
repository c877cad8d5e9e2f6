"""Who asks, and whether they may: every request passes here before its handler.

    token   Authorization: Bearer anb_…, or the cookie of a session that was made from a token
    scope   what the route table says of the route; pages say it in PAGE_SCOPES

A server on a loopback address asks for no token unless it is told to: whoever can reach it has an
account on the machine, and `X-Actor` says who they are. A token that is shown counts all the same.

Whoever shows wrong tokens is soon not heard. An address is shared by many, so a right token is
heard all the same: only an id that exists is looked at then, and of each id only a few times.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from aiohttp import web

from anabranch.errors import Denied, StoreError
from anabranch.operations.access.audit_log import AuditLog
from anabranch.operations.access.tokens import AccessControl, Caller, Guesses, everything, id_in
from anabranch.store.cluster_ports import Cluster
from anabranch.surfaces.http.guard.browser_sessions import (
    SESSION_MS,
    BrowserSession,
    BrowserSessions,
    OpenRequests,
)
from anabranch.surfaces.http.guard.lookups import Lookups
from anabranch.surfaces.http.guard.origins import (
    LOOPBACK_NAMES,
    SAFE,
    OriginPolicy,
    address_of,
    came_through_proxy,
    is_secure,
    network_of,
)
from anabranch.surfaces.http.io.problems import ApiError, from_error
from anabranch.surfaces.http.routes import ACTOR, API, LOCAL, Handler, Scope, route_of

__all__ = ["LOOPBACK_NAMES", "SAFE"]  # others find them here

log = logging.getLogger("anabranch.access")

CALLER = web.RequestKey("anabranch.caller", Caller)
_SESSION = web.RequestKey("anabranch.session", BrowserSession)
#: (method, path as it was added to the router) → scope, for pages that are not in the route table.
#: A page that is not named here needs `read`, and a change by it `admin`.
PAGE_SCOPES = web.AppKey("anabranch.page_scopes", dict[tuple[str, str], Scope])

COOKIE = "anabranch_session"
CSRF_HEADER = "X-CSRF-Token"
LOGIN = "/login"  # where people without a session are sent; the page is the UI's
_SOMEBODY_HERE = everything(LOCAL)
#: Whoever has no token cannot ask the server for one: the first is made beside it.
FIRST_TOKEN = (
    "the first token is made on the server's machine with "
    "`anabranch token create --scope admin --name YOU --store FILE`"
)


@dataclass(slots=True)
class Gatekeeper:
    access: AccessControl
    policy: OriginPolicy
    audit_log: AuditLog
    now: Callable[[], int]
    cluster: Cluster | None = None  # of servers that share the store
    guesses: Guesses = field(default_factory=Guesses)
    sessions: BrowserSessions = field(init=False)
    lookups: Lookups = field(init=False)
    stays: OpenRequests = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = BrowserSessions(self.now, self.cluster)
        self.lookups = Lookups(shared=self.cluster is not None)
        self.stays = OpenRequests(self.access, self.sessions, self.lookups)


GATEKEEPER = web.AppKey("anabranch.gatekeeper", Gatekeeper)


# -- tokens, sessions, scopes ----------------------------------------------------------------------


@web.middleware
async def check_caller(request: web.Request, handler: Handler) -> web.StreamResponse:
    scope = scope_of(request)
    try:
        caller, session = await _caller(request, scope)
    except StoreError as error:
        raise _nothing_told(error) from None
    if caller is None:
        if scope == "open":
            return await handler(request)
        return _ask_who(request)
    request[CALLER], request[ACTOR] = caller, caller.actor
    _check_named(request, caller)
    try:
        caller.require(scope)
    except Denied as denied:
        hint = "use a token with that scope: `anabranch token create --scope …` makes one"
        raise ApiError(403, denied.code, denied.message, hint) from None
    if not caller.token or not _may_be_cut(request, scope):
        return await handler(request)
    with request.app[GATEKEEPER].stays.staying(request, caller.token, session):
        return await handler(request)


def _nothing_told(error: StoreError) -> ApiError:
    """What is wrong with the store is not for a caller of whom it is not known who they are."""
    status = from_error(error).status  # which also writes it to the log
    said = "the store does not answer, so the server cannot tell who asks"
    hint = "the log of the server has the reason; retry later"
    return ApiError(status, error.code, said, hint)


def _may_be_cut(request: web.Request, scope: str) -> bool:
    """Whether it does no harm when nobody hears the answer: reading, and what workers repeat."""
    return request.method in SAFE or scope == "work"


def scope_of(request: web.Request) -> str:
    """What a route needs. A path that does not exist needs nothing: it is not there for anybody."""
    route = route_of(request)
    if route is not None:
        return route.scope
    resource = request.match_info.route.resource
    if resource is None:
        return "open"
    default: Scope = "read" if request.method in SAFE else "admin"
    pages = request.app.get(PAGE_SCOPES)
    return (pages or {}).get((request.method, resource.canonical), default)


async def _caller(request: web.Request, scope: str) -> tuple[Caller | None, str]:
    """Who asks, and the key of their session if they have one."""
    keeper, cookie = request.app[GATEKEEPER], _cookie(request)
    session = await keeper.lookups(lambda: keeper.sessions.find(cookie)) if cookie else None
    if session is not None:
        request[_SESSION] = session
    shown = request.headers.get("Authorization")
    if shown is not None:
        return await _by_token(request, keeper, shown), ""
    if session is not None:
        return await _by_session(request, keeper, session, scope), session.key
    if not keeper.policy.open or came_through_proxy(request):
        return None, ""
    return everything(name) if (name := _named_actor(request)) else _SOMEBODY_HERE, ""


def _cookie(request: web.Request) -> str | None:
    """Programs send none, and nothing has to be read for them."""
    return request.cookies.get(COOKIE) if "Cookie" in request.headers else None


async def _by_token(request: web.Request, keeper: Gatekeeper, shown: str) -> Caller:
    kind, _, text = shown.partition(" ")
    if kind.lower() != "bearer":
        raise _unauthorized("token_form", "the Authorization header does not start with Bearer")
    text, now = text.strip(), keeper.now()
    network = network_of(address_of(request))
    own = f"{network} {id_in(text)}"  # this token from there
    guesses, access = keeper.guesses, keeper.access
    waiting = guesses.wait_ms(network, now)
    if waiting:
        known = await keeper.lookups(lambda: access.knows(id_in(text)))
        if not known or guesses.wait_ms(own, now):
            raise _too_many(waiting)
    found, known = await keeper.lookups(lambda: _checked(access, text))
    # Of many that are looked up at once, those that come after too many wrong ones are not heard.
    waiting = guesses.wait_ms(network, now)
    if isinstance(found, Caller):
        if waiting and guesses.wait_ms(own, now):
            raise _too_many(waiting)
        return _noted(keeper, found)
    if found.code != "token_wrong":
        raise _unauthorized(found.code, found.message)
    guesses.failed(network, now)
    if known:
        guesses.failed(own, now)
    if waiting:
        raise _too_many(waiting)
    log.warning("a wrong token was shown from %s", network)
    raise _unauthorized(found.code, found.message)


def _checked(access: AccessControl, text: str) -> tuple[Caller | Denied, bool]:
    """Who the token stands for, or why nobody; and whether there is one of its id."""
    try:
        return access.check(text), True
    except Denied as denied:
        return denied, denied.code != "token_wrong" or access.knows(id_in(text))


def _too_many(waiting_ms: int) -> ApiError:
    seconds = -(-waiting_ms // 1000)
    said = f"too many wrong tokens from this address; the server checks the next in {seconds} s"
    headers = {"Retry-After": str(seconds)}
    hint = "wait, then send a valid token"
    return ApiError(429, "too_many_guesses", said, hint, headers=headers)


async def _by_session(
    request: web.Request, keeper: Gatekeeper, session: BrowserSession, scope: str
) -> Caller | None:
    try:
        caller = await keeper.lookups(lambda: keeper.access.caller_of(session.token))
    except Denied as denied:
        if scope == "open":
            return None
        if _is_for_people(request):
            _ask_who(request)
        raise _unauthorized(denied.code, denied.message) from None
    if request.method not in SAFE and request.path.startswith(f"{API}/"):
        given = request.headers.get(CSRF_HEADER, "")
        if not secrets.compare_digest(given.encode("utf-8", "replace"), session.csrf.encode()):
            said = f"a change by a session needs its secret in the header {CSRF_HEADER}"
            raise ApiError(403, "csrf", said, "reload the page, or use a token instead")
    return _noted(keeper, caller)


def _noted(keeper: Gatekeeper, caller: Caller) -> Caller:
    at = keeper.access.to_note(caller.token)
    if at is not None:
        keeper.audit_log.used(caller.token, at)
    return caller


def _check_named(request: web.Request, caller: Caller) -> None:
    """A token speaks for nobody but the one it is named after."""
    if not caller.token:
        return  # whoever sits at this machine has the name that was looked at already
    named = _named_actor(request)
    if named and named != caller.actor:
        said = f"the token speaks for {caller.actor!r}, not for {named!r}"
        raise ApiError(403, "actor", said, "leave X-Actor (--actor) out")


def _named_actor(request: web.Request) -> str:
    name = request.headers.get("X-Actor", "").strip()
    if len(name) > 100 or not name.isprintable():
        raise ApiError(400, "actor", "X-Actor is not a name", "give at most 100 printable letters")
    return name


def _ask_who(request: web.Request) -> web.StreamResponse:
    """People get the page to sign in, programs a problem."""
    if _is_for_people(request):
        raise web.HTTPSeeOther(f"{LOGIN}?next={quote(request.path_qs, safe='')}")
    if request.app[GATEKEEPER].policy.open:
        said = "the request came through a proxy: only a caller on this machine needs no token"
        raise _unauthorized("token_missing", said)
    raise _unauthorized("token_missing", "this server requires a token")


def _is_for_people(request: web.Request) -> bool:
    wants_page = "text/html" in request.headers.get("Accept", "")
    return wants_page and request.method in SAFE and not request.path.startswith(f"{API}/")


def _unauthorized(code: str, said: str) -> ApiError:
    hint = f"send Authorization: Bearer anb_…; {FIRST_TOKEN}"
    return ApiError(401, code, said, hint, headers={"WWW-Authenticate": 'Bearer realm="anabranch"'})


# -- sessions of browsers --------------------------------------------------------------------------


async def sign_in(request: web.Request, response: web.StreamResponse, token: str) -> Caller:
    """Begin a session with a token; raises `ApiError` as the API does (401, 429)."""
    keeper = request.app[GATEKEEPER]
    try:
        caller = await _by_token(request, keeper, f"Bearer {token.strip()}")
        before = request.cookies.get(COOKIE, "")  # who was signed in here no longer is
        await keeper.lookups(lambda: keeper.sessions.end(before))
        text, _ = await keeper.lookups(lambda: keeper.sessions.begin(caller.token))
    except StoreError as error:
        raise _nothing_told(error) from None
    response.set_cookie(
        COOKIE,
        text,
        httponly=True,
        samesite="Strict",
        secure=is_secure(request),
        path="/",
        max_age=SESSION_MS // 1000,
    )
    return caller


async def sign_out(request: web.Request, response: web.StreamResponse) -> Caller | None:
    """End the session, and whatever it listens to at the moment; says whose it was."""
    keeper, cookie = request.app[GATEKEEPER], request.cookies.get(COOKIE)
    if cookie:
        try:
            await keeper.lookups(lambda: keeper.sessions.end(cookie))
            await keeper.stays.look()
        except StoreError as error:
            raise _nothing_told(error) from None
    response.del_cookie(COOKIE, path="/", httponly=True, samesite="Strict")
    caller = request.get(CALLER)
    return caller if caller is not None and caller.token else None


def set_session(request: web.Request, session: BrowserSession) -> None:
    """For pages that know their people by other means than these tokens."""
    request[_SESSION] = session


def is_stranger(request: web.Request) -> bool:
    """Whether nobody knows who asks: neither by a token, nor by a session of whatever pages."""
    return CALLER not in request and _SESSION not in request


def session_csrf(request: web.Request) -> str:
    """What forms carry, and scripts send in X-CSRF-Token; empty without a session."""
    session = request.get(_SESSION) or _session_in_memory(request)
    return session.csrf if session is not None else ""


def _session_in_memory(request: web.Request) -> BrowserSession | None:
    """For a page about an error that came before the caller was known."""
    cookie, keeper = request.cookies.get(COOKIE), request.app.get(GATEKEEPER)
    if not cookie or keeper is None or keeper.cluster is not None:
        return None
    return keeper.sessions.find(cookie)


def caller_of(request: web.Request) -> Caller:
    if CALLER not in request:
        raise _unauthorized("token_missing", "this server requires a token")
    return request[CALLER]


# -- headers ---------------------------------------------------------------------------------------


HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_UNLESS_SET = (*HEADERS.items(), ("Cache-Control", "no-store"))


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """For `on_response_prepare`: also errors have them; a page may have set its own before."""
    headers = response.headers
    for name, value in _UNLESS_SET:
        headers.setdefault(name, value)
    if is_secure(request):
        headers.setdefault("Strict-Transport-Security", "max-age=31536000")
    headers["Server"] = "anabranch"

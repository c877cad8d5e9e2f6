"""Who asks, from where, and whether they may: every request passes here before its handler.

    host    on a loopback address only its own names are answered (DNS rebinding ends here)
    origin  a change that a page of another site asks for is refused
    token   Authorization: Bearer anb_…, or the cookie of a session that was made from a token
    scope   what the route table says of the route; pages say it in PAGE_SCOPES

A server on a loopback address asks for no token unless it is told to: whoever can reach it has an
account on the machine, and `X-Actor` says who they are. A token that is shown counts all the same.
"""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote, urlsplit

from aiohttp import web

from anabranch.errors import Denied
from anabranch.operations.access import Access, Caller, Guesses, everything
from anabranch.operations.trail import Trail
from anabranch.surfaces.http.problems import ApiError
from anabranch.surfaces.http.routes import ACTOR, API, LOCAL, Scope, route_of

CALLER = web.RequestKey("anabranch.caller", Caller)
#: (method, path as it was added to the router) → scope, for pages that are not in the route table.
#: A page that is not named here needs `read`, and a change by it `admin`.
PAGE_SCOPES = web.AppKey("anabranch.page_scopes", dict[tuple[str, str], Scope])

COOKIE = "anabranch_session"
CSRF_HEADER = "X-CSRF-Token"
LOGIN = "/login"  # where people without a session are sent; the page is the UI's
SAFE = ("GET", "HEAD", "OPTIONS")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SESSION_MS = 12 * 3_600_000
SESSIONS_MAX = 1000

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Policy:
    """How a server was told to behave."""

    loopback: bool = True  # it listens on a loopback address only
    tokens_required: bool = False
    hosts: frozenset[str] = frozenset()  # further names it is reached by
    proxies: frozenset[str] = frozenset()  # addresses whose X-Forwarded-For is believed

    @property
    def open(self) -> bool:
        return self.loopback and not self.tokens_required


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody at a browser, who has shown a token."""

    token: str
    csrf: str
    until: int


class Sessions:
    """In memory: after a restart people sign in again. A revoked token ends its sessions."""

    def __init__(self, now: Callable[[], int]) -> None:
        self._now = now
        self._known: OrderedDict[str, Session] = OrderedDict()

    def begin(self, token: str) -> tuple[str, Session]:
        """The text for the cookie, of which only the hash is kept, and the session."""
        text = secrets.token_urlsafe(32)
        session = Session(token, secrets.token_urlsafe(32), self._now() + SESSION_MS)
        self._known[_hash(text)] = session
        while len(self._known) > SESSIONS_MAX:
            self._known.popitem(last=False)
        return text, session

    def find(self, text: str) -> Session | None:
        session = self._known.get(_hash(text))
        return session if session is not None and session.until > self._now() else None

    def end(self, text: str) -> None:
        self._known.pop(_hash(text), None)


@dataclass(slots=True)
class Gatekeeper:
    access: Access
    policy: Policy
    trail: Trail
    now: Callable[[], int]
    guesses: Guesses = field(default_factory=Guesses)
    sessions: Sessions = field(init=False)

    def __post_init__(self) -> None:
        self.sessions = Sessions(self.now)


GATEKEEPER = web.AppKey("anabranch.gatekeeper", Gatekeeper)


def address_of(request: web.Request) -> str:
    """Where the request comes from; behind a proxy that is believed, where that one got it."""
    remote = request.remote or ""
    if remote in request.app[GATEKEEPER].policy.proxies:
        forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
        return forwarded[:64] or remote
    return remote


def _network(address: str) -> str:
    """What counts as one guesser: an IPv4 address, or a /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4:
        return str(found)
    return str(ipaddress.ip_network((found, 64), strict=False))


# -- host and origin -------------------------------------------------------------------------------


@web.middleware
async def check_site(request: web.Request, handler: Handler) -> web.StreamResponse:
    policy = request.app[GATEKEEPER].policy
    _check_host(request, policy)
    if request.method not in SAFE:
        _check_origin(request)
    return await handler(request)


def _check_host(request: web.Request, policy: Policy) -> None:
    allowed = (LOOPBACK_NAMES if policy.loopback else frozenset()) | policy.hosts
    if not allowed:
        return
    given = request.headers.getall("Host", [])
    name = (_parts(f"//{given[0]}").hostname or "") if len(given) == 1 else ""
    if name.lower().rstrip(".") not in allowed:
        said = f"this server is not called {name[:100]!r}" if name else "there is no Host header"
        hint = "use the address that `anabranch serve` printed, or name this one in serve_names"
        raise ApiError(421, "wrong_host", said, hint)


def _check_origin(request: web.Request) -> None:
    """Browsers say where a change comes from; programs do not."""
    origin = request.headers.get("Origin")
    site = request.headers.get("Sec-Fetch-Site", "none")
    foreign = origin is not None and not same_origin(origin, request.headers.get("Host", ""))
    if foreign or site not in ("same-origin", "none"):
        said = f"this change was asked for by a page of another site ({(origin or site)[:100]})"
        raise ApiError(403, "wrong_origin", said, "send it from a page of this server")


def same_origin(origin: str, host: str) -> bool:
    """Whether the page that asks was served under the name that is asked."""
    parts = _parts(origin)
    ports = {"http": ":80", "https": ":443"}
    default = ports.get(parts.scheme, "")
    if not parts.netloc or not default:
        return False
    return parts.netloc.lower().removesuffix(default) == host.lower().removesuffix(default)


def _parts(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:
        return SplitResult("", "", "", "", "")


# -- tokens, sessions, scopes ----------------------------------------------------------------------


@web.middleware
async def check_caller(request: web.Request, handler: Handler) -> web.StreamResponse:
    scope = scope_of(request)
    caller = _caller(request, scope)
    if caller is None:
        if scope == "open":
            return await handler(request)
        return _ask_who(request)
    request[CALLER], request[ACTOR] = caller, caller.actor
    try:
        caller.require(scope)
    except Denied as denied:
        hint = "use a token with that scope: `anabranch token create --scope …` makes one"
        raise ApiError(403, denied.code, denied.message, hint) from None
    return await handler(request)


def scope_of(request: web.Request) -> str:
    """What a route needs. A path that does not exist needs nothing: it is not there for anybody."""
    route = route_of(request)
    if route is not None:
        return route.scope
    resource = request.match_info.route.resource
    if resource is None or request.path.startswith(f"{API}/"):
        return "open"
    default: Scope = "read" if request.method in SAFE else "admin"
    pages = request.app.get(PAGE_SCOPES)
    return (pages or {}).get((request.method, resource.canonical), default)


def _caller(request: web.Request, scope: str) -> Caller | None:
    keeper = request.app[GATEKEEPER]
    shown = request.headers.get("Authorization")
    if shown is not None:
        return _by_token(request, keeper, shown)
    cookie = request.cookies.get(COOKIE)
    session = keeper.sessions.find(cookie) if cookie else None
    if session is not None:
        return _by_session(request, keeper, session, scope)
    if not keeper.policy.open:
        return None
    return everything(_named_actor(request) or LOCAL)


def _by_token(request: web.Request, keeper: Gatekeeper, shown: str) -> Caller:
    kind, _, text = shown.partition(" ")
    if kind.lower() != "bearer":
        raise _unauthorized("token_form", "the Authorization header does not begin with Bearer")
    network = _network(address_of(request))
    waiting = keeper.guesses.wait_ms(network, keeper.now())
    if waiting:
        seconds = -(-waiting // 1000)
        said = f"too many wrong tokens from this address; it is heard again in {seconds} s"
        headers = {"Retry-After": str(seconds)}
        raise ApiError(429, "too_many_guesses", said, "wait, then use a token that is right", headers=headers)  # fmt: skip  # noqa: E501
    try:
        caller = keeper.access.check(text.strip())
    except Denied as denied:
        if denied.code == "token_wrong":
            keeper.guesses.failed(network, keeper.now())
        raise _unauthorized(denied.code, denied.message) from None
    return _noted(request, keeper, caller)


def _by_session(
    request: web.Request, keeper: Gatekeeper, session: Session, scope: str
) -> Caller | None:
    try:
        caller = keeper.access.caller_of(session.token)
    except Denied as denied:
        if scope == "open":
            return None
        raise _unauthorized(denied.code, denied.message) from None
    if request.method not in SAFE and request.path.startswith(f"{API}/"):
        given = request.headers.get(CSRF_HEADER, "")
        if not secrets.compare_digest(given.encode(), session.csrf.encode()):
            said = f"a change by a session needs its secret in the header {CSRF_HEADER}"
            raise ApiError(403, "csrf", said, "reload the page, or use a token instead")
    return _noted(request, keeper, caller)


def _noted(request: web.Request, keeper: Gatekeeper, caller: Caller) -> Caller:
    named = _named_actor(request)
    if named and named != caller.actor:
        said = f"the token speaks for {caller.actor!r}, not for {named!r}"
        raise ApiError(403, "actor", said, "leave X-Actor (--actor) out")
    at = keeper.access.to_note(caller.token)
    if at is not None:
        keeper.trail.used(caller.token, at)
    return caller


def _named_actor(request: web.Request) -> str:
    name = request.headers.get("X-Actor", "").strip()
    if len(name) > 100 or not name.isprintable():
        raise ApiError(400, "actor", "X-Actor is not a name", "give at most 100 printable letters")
    return name


def _ask_who(request: web.Request) -> web.StreamResponse:
    """People get the page to sign in, programs a problem."""
    wants_page = "text/html" in request.headers.get("Accept", "")
    if wants_page and request.method in SAFE and not request.path.startswith(f"{API}/"):
        raise web.HTTPSeeOther(f"{LOGIN}?next={quote(request.path_qs, safe='')}")
    raise _unauthorized("token_missing", "this server asks for a token")


def _unauthorized(code: str, said: str) -> ApiError:
    hint = "send Authorization: Bearer anb_…; `anabranch token create` makes one"
    return ApiError(401, code, said, hint, headers={"WWW-Authenticate": 'Bearer realm="anabranch"'})


# -- sessions of browsers --------------------------------------------------------------------------


def sign_in(request: web.Request, response: web.StreamResponse, token: str) -> Caller:
    """Begin a session with a token; raises `ApiError` as the API does (401, 429)."""
    keeper = request.app[GATEKEEPER]
    caller = _by_token(request, keeper, f"Bearer {token.strip()}")
    text, _ = keeper.sessions.begin(caller.token)
    response.set_cookie(
        COOKIE,
        text,
        httponly=True,
        samesite="Strict",
        secure=request.secure,
        path="/",
        max_age=SESSION_MS // 1000,
    )
    return caller


def sign_out(request: web.Request, response: web.StreamResponse) -> None:
    cookie = request.cookies.get(COOKIE)
    if cookie:
        request.app[GATEKEEPER].sessions.end(cookie)
    response.del_cookie(COOKIE, path="/")


def session_csrf(request: web.Request) -> str:
    """What scripts of our pages send in X-CSRF-Token; empty without a session."""
    cookie = request.cookies.get(COOKIE)
    session = request.app[GATEKEEPER].sessions.find(cookie) if cookie else None
    return session.csrf if session is not None else ""


def caller_of(request: web.Request) -> Caller:
    if CALLER not in request:
        raise _unauthorized("token_missing", "this server asks for a token")
    return request[CALLER]


# -- headers ---------------------------------------------------------------------------------------


def content_security_policy(**more: str) -> str:
    """Nothing is loaded from anywhere, but what is named: `script_src="'self'"`."""
    parts = {"default_src": "'none'", "base_uri": "'none'", "frame_ancestors": "'none'", **more}
    return "; ".join(f"{name.replace('_', '-')} {value}" for name, value in parts.items())


HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": content_security_policy(),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """For `on_response_prepare`: also errors have them; a page may have set its own before."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if request.path.startswith(f"{API}/"):
        response.headers.setdefault("Cache-Control", "no-store")
    if request.secure:
        response.headers.setdefault("Strict-Transport-Security", "max-age=31536000")
    response.headers["Server"] = "anabranch"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

"""Where a request comes from: names, sites and proxies. Every request passes here first.

    host    on a loopback address only its own names are answered (DNS rebinding ends here)
    site    what a page of another site asks for is refused, but for links that are followed
    proxy   only proxies that were named are believed about whom they speak for

Browsers say where a request comes from, programs do not: what is not said is not held against
anybody. No answer of ours may be read by another site; that reads are refused as well keeps such a
page from learning by a status or a delay what exists here, and from holding streams open.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import SplitResult, urlsplit

import msgspec
from aiohttp import web

from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.routes import Handler

SAFE = ("GET", "HEAD", "OPTIONS")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
#: What proxies add. Without a token nobody who comes through one is taken for a local user.
FORWARDED = ("X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Forwarded", "Via")


class OriginPolicy(msgspec.Struct, frozen=True):
    """How a server was told to behave."""

    loopback: bool = True  # it listens on a loopback address only
    tokens_required: bool = False
    hosts: frozenset[str] = frozenset()  # further names it is reached by
    proxies: frozenset[str] = frozenset()  # addresses whose X-Forwarded-… is believed

    @property
    def names(self) -> frozenset[str]:
        """What the server may be called; none where any name will do."""
        return _names_of(self)

    @property
    def open(self) -> bool:
        """No token is asked for. Who names a proxy lets others in, so then one is."""
        return self.loopback and not self.tokens_required and not self.proxies


@lru_cache(maxsize=8)
def _names_of(policy: OriginPolicy) -> frozenset[str]:
    return LOOPBACK_NAMES | policy.hosts if policy.loopback else policy.hosts


POLICY = web.AppKey("anabranch.policy", OriginPolicy)


@web.middleware
async def check_site(request: web.Request, handler: Handler) -> web.StreamResponse:
    _check_host(request, request.app[POLICY])
    check_origin(request)
    return await handler(request)


# -- names -----------------------------------------------------------------------------------------


def _check_host(request: web.Request, policy: OriginPolicy) -> None:
    allowed = policy.names
    if not allowed:
        return
    given = request.headers.getall("Host", [])
    name = _host_name(given[0]) if len(given) == 1 else ""
    if name.lower().rstrip(".") not in allowed:
        said = f"this server is not called {name[:100]!r}" if name else "there is no Host header"
        hint = "use the address that `anabranch serve` printed, or name this one in serve_names"
        raise ApiError(421, "wrong_host", said, hint)


@lru_cache(maxsize=64)  # most requests come under a few names
def _host_name(host: str) -> str:
    return _parts(f"//{host}").hostname or ""


def check_origin(request: web.Request) -> None:
    """Refuse what a page of another site asks for; programs say nothing of where they are."""
    origin = request.headers.get("Origin")
    site = request.headers.get("Sec-Fetch-Site", "none")
    elsewhere = site not in ("same-origin", "none")
    if request.method in SAFE:
        refused = elsewhere and request.headers.get("Sec-Fetch-Mode") != "navigate"
    else:
        foreign = origin is not None and not same_origin(origin, request.headers.get("Host", ""))
        refused = elsewhere or foreign
    if refused:
        said = f"a page of another site sent this request ({(origin or site)[:100]})"
        raise ApiError(403, "wrong_origin", said, "ask from a page of this server")


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


# -- proxies ---------------------------------------------------------------------------------------


def came_through_proxy(request: web.Request) -> bool:
    headers = request.headers
    for name in FORWARDED:  # noqa: SIM110 - twice as quick as a generator, for every request
        if name in headers:
            return True
    return False


def address_of(request: web.Request) -> str:
    """Where the request comes from; behind proxies that are believed, whom the first one saw."""
    remote = request.remote or ""
    proxies = request.app[POLICY].proxies
    if remote not in proxies:
        return remote
    for said in reversed(_listed(request, "X-Forwarded-For")):
        if not _is_address(said):
            break
        remote = said
        if said not in proxies:
            break
    return remote


def is_secure(request: web.Request) -> bool:
    """Whether the browser speaks TLS: with us, or with a proxy that is believed."""
    if request.secure:
        return True
    policy = request.app.get(POLICY)
    if policy is None or not policy.proxies or (request.remote or "") not in policy.proxies:
        return False
    return _listed(request, "X-Forwarded-Proto")[-1:] == ["https"]


def network_of(address: str) -> str:
    """What counts as one guesser: an IPv4 address, or a /64 of IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def _listed(request: web.Request, name: str) -> list[str]:
    """All values in their order; a header that is sent twice is one list."""
    values: Iterable[str] = request.headers.getall(name, [])
    return [one.strip() for one in ",".join(values).split(",") if one.strip()]


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True

"""Sends one signed notification to a receiver, within bounds, and to no address it must not reach.

    Anabranch-Delivery   the id of the delivery, the same for every attempt
    Anabranch-Event      the kind of the event
    Anabranch-Signature  t=<unix seconds>,v1=<hex of HMAC-SHA256 over "<t>." and the body>

Redirects are refused: whoever is redirected would carry the notification to a place that nobody
entered. With `public` addresses only, names are resolved here and the very addresses that were
checked are connected to, so that a name cannot change between the look and the call.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from anabranch.errors import InputError

if TYPE_CHECKING:  # importing it takes a fifth of a second, paid with the first call
    import aiohttp

Addresses = Literal["public", "any"]
SIGNATURE = "Anabranch-Signature"
DELIVERY = "Anabranch-Delivery"
EVENT = "Anabranch-Event"
TOLERANCE_SECONDS = 300
URL_MAX = 2000
_ANSWER_BYTES = 4096  # of the answer nobody needs more
_SIGNED = re.compile(r"t=(\d{1,15}),v1=([0-9a-f]{64})")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


@dataclass(frozen=True, slots=True)
class Posted:
    """How it went: taken when the status is 2xx."""

    status: int | None
    error: str = ""

    @property
    def taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


def sign(secret: str, body: bytes, seconds: int) -> str:
    """The value of the signature header."""
    return f"t={seconds},v1={_mac(secret, body, seconds)}"


def verify(secret: str, header: str, body: bytes, now_seconds: float) -> bool:
    """For receivers: was this sent by whoever has the secret, within the last five minutes?"""
    found = _SIGNED.fullmatch(header.strip())
    if found is None or abs(now_seconds - int(found[1])) > TOLERANCE_SECONDS:
        return False
    return hmac.compare_digest(_mac(secret, body, int(found[1])), found[2])


def _mac(secret: str, body: bytes, seconds: int) -> str:
    signed = b"%d." % seconds + body
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def checked_url(url: str, addresses: Addresses) -> str:
    """An address that notifications may go to, or an `InputError` that says why not."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or len(url) > URL_MAX or not url.isprintable() or " " in url:
        raise _bad_url("a webhook needs a url such as https://host/path")
    if "@" in parts.netloc:
        raise _bad_url("the url must not hold a user or password: the signature says who calls")
    if parts.fragment:
        raise _bad_url("the url must not have a fragment (#…): it would not be sent")
    literal = _literal(parts.hostname or "")
    if literal is not None and addresses == "public" and not is_public(literal):
        raise _bad_url(_refused(literal))
    return url


def is_public(text: str) -> bool:
    """An address of the internet, also when it is wrapped in one of the ways IPv6 knows."""
    address: Any = ipaddress.ip_address(text.partition("%")[0])
    if address.version == 6:
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if address.teredo is not None or (inner is not None and not is_public(str(inner))):
            return False
        if inner is not None:
            return True
    return bool(address.is_global and not address.is_multicast and not address.is_reserved)


class Poster:
    """Keeps its connections; close it at the end."""

    def __init__(self, addresses: Addresses = "public", timeout_seconds: float = 10.0) -> None:
        self._addresses: Addresses = addresses
        self._seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> Posted:
        """Never raises for what the receiver, the network or the policy does."""
        import aiohttp

        try:
            checked_url(url, self._addresses)
        except InputError as error:
            return Posted(None, error.message)
        session = self._session or self._open()
        try:
            async with session.post(url, data=body, headers=headers, allow_redirects=False) as got:
                await got.content.read(_ANSWER_BYTES)
                got.close()
                return Posted(got.status, _words(got.status))
        except TimeoutError:
            return Posted(None, f"no answer within {self._seconds:g} s")
        except (OSError, ValueError, aiohttp.ClientError) as error:
            return Posted(None, _failure(error))

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        guarded = _guarded_resolver() if self._addresses == "public" else None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=64, resolver=guarded, ttl_dns_cache=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "anabranch", "Content-Type": "application/json"},
            timeout=aiohttp.ClientTimeout(total=self._seconds),
            auto_decompress=False,
        )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()


def _guarded_resolver() -> Any:
    """A resolver whose answers are all public; a name with any other is refused as a whole."""
    import aiohttp.abc
    import aiohttp.resolver

    class Guarded(aiohttp.abc.AbstractResolver):
        def __init__(self) -> None:
            self._inner = aiohttp.resolver.ThreadedResolver()

        async def resolve(
            self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
        ) -> list[aiohttp.abc.ResolveResult]:
            found = await self._inner.resolve(host, port, family)
            for one in found:
                if not is_public(one["host"]):
                    raise OSError(None, _refused(one["host"]))
            return found

        async def close(self) -> None:
            await self._inner.close()

    return Guarded()


def _literal(host: str) -> str | None:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return host


def _refused(address: str) -> str:
    return f"{address} is not a public address (setting webhook_addresses)"


def _bad_url(message: str) -> InputError:
    return InputError(message, code="webhook_url")


def _words(status: int) -> str:
    if 200 <= status < 300:
        return ""
    if 300 <= status < 400:
        return f"answered {status}: redirects are refused, enter the address it leads to"
    return f"answered {status}"


def _failure(error: Exception) -> str:
    """What went wrong below HTTP, without the address, which may hold a key."""
    import aiohttp

    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "the receiver could not be trusted (TLS)"
        case aiohttp.ClientConnectorDNSError():
            cause = error.os_error
            refused = not isinstance(cause, socket.gaierror) and cause.strerror
            return str(refused or "the host name is not known")
        case aiohttp.ClientConnectorError():
            return f"no connection ({error.os_error.strerror or 'failed'})"
        case aiohttp.ClientResponseError():
            return "the answer is not valid HTTP"
        case _:
            return f"the connection failed ({type(error).__name__})"

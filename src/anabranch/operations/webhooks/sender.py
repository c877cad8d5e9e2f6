"""Sends one signed notification to a receiver, within bounds, and to no address it must not reach.

    Anabranch-Delivery   the id of the delivery, the same for every attempt
    Anabranch-Event      the kind of the event
    Anabranch-Signature  see `operations/webhooks/signature.py`

Redirects are refused: whoever is redirected would carry the notification to a place that nobody
entered. With `public` addresses only, every address is checked when it is connected to, by the
policy that all calls share (`work/network/addresses.py`).
"""

from __future__ import annotations

import ipaddress
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import msgspec

from anabranch.errors import InputError
from anabranch.work.network.addresses import (
    ANY,
    connector_options,
    is_public,
    read_policy,
    refusal_in,
)

if TYPE_CHECKING:  # importing it takes a fifth of a second, paid with the first call
    import aiohttp

Addresses = Literal["public", "any"]
DELIVERY = "Anabranch-Delivery"
EVENT = "Anabranch-Event"
URL_MAX = 2000
_ANSWER_BYTES = 4096  # of the answer nobody needs more
_WAIT_MOST = 3600.0  # seconds that a receiver can ask for
#: The last label is no number. Other letters become these on the way, and numbers an address:
#: `①②⑦.0.0.1`, `0177.1`.
_NAME = re.compile(r"[A-Za-z0-9_.-]*[A-Za-z_-][0-9]*+\.?")
_PUBLIC = read_policy("public", "webhook_addresses")


class SendResult(msgspec.Struct, frozen=True):
    """How it went: taken when the status is 2xx."""

    status: int | None
    error: str = ""
    wait_seconds: float = 0.0  # how long the receiver asks to be left alone
    refused: bool = False  # for good: it is not tried again by itself

    @property
    def taken(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


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
    if literal is None and not _NAME.fullmatch(parts.hostname or ""):
        raise _bad_url("the host is neither an address nor a name in plain letters (xn--…)")
    if literal is not None and addresses == "public" and not is_public(literal):
        raise _bad_url(_PUBLIC.refusal(literal))
    if addresses == "public" and _is_this_machine(parts.hostname or ""):
        raise _bad_url(_PUBLIC.refusal(parts.hostname or ""))
    return url


class WebhookSender:
    """Keeps its connections; close it at the end."""

    def __init__(self, addresses: Addresses = "public", timeout_seconds: float = 10.0) -> None:
        self._addresses: Addresses = addresses
        self._seconds = timeout_seconds
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: bytes, headers: dict[str, str]) -> SendResult:
        """Never raises for what the receiver, the network or the policy does."""
        import aiohttp

        try:
            checked_url(url, self._addresses)
        except InputError as error:
            return SendResult(None, error.message)
        session = self._session or self._open()
        try:
            async with session.post(url, data=body, headers=headers, allow_redirects=False) as got:
                await got.content.read(_ANSWER_BYTES)
                if not got.content.at_eof():
                    got.close()  # nobody reads the rest, and the connection is of no more use
                asked = _wait_seconds(got.headers.get("Retry-After", ""))
                return SendResult(got.status, _words(got.status), asked)
        except TimeoutError:
            return SendResult(None, f"no answer within {self._seconds:g} s")
        except (OSError, ValueError, aiohttp.ClientError) as error:
            return SendResult(None, _failure(error))

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        self._session = aiohttp.ClientSession(
            # No limit of its own: the dispatcher has one a hook, so that slow receivers take no
            # connection away from the others.
            connector=aiohttp.TCPConnector(
                limit=0,
                ttl_dns_cache=30,
                **connector_options(_PUBLIC if self._addresses == "public" else ANY),
            ),
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


def _literal(host: str) -> str | None:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return host


def _is_this_machine(name: str) -> bool:
    """A name that means this machine everywhere: nobody has to look it up."""
    return name.lower().rstrip(".").rpartition(".")[2] == "localhost"


def _bad_url(message: str) -> InputError:
    return InputError(message, code="webhook_url")


def _wait_seconds(text: str) -> float:
    """What `Retry-After` says: seconds, or the instant as a date; 0 when it says nothing."""
    if text.isascii() and text.strip().isdecimal():
        return min(float(text), _WAIT_MOST)
    try:
        left = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError):
        return 0.0
    return min(max(left, 0.0), _WAIT_MOST)


def _words(status: int) -> str:
    if 200 <= status < 300:
        return ""
    if 300 <= status < 400:
        return f"answered {status}: redirects are refused, enter the address it leads to"
    return f"answered {status}"


def _failure(error: Exception) -> str:
    """What went wrong below HTTP, without the address, which may hold a key."""
    import aiohttp

    if refused := refusal_in(error):
        return refused
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "the receiver could not be trusted (TLS)"
        case aiohttp.ClientConnectorDNSError():
            return "the host name is not known"
        case aiohttp.ClientConnectorError():
            return f"no connection ({error.os_error.strerror or 'failed'})"
        case aiohttp.ClientResponseError():
            return "the answer is not valid HTTP"
        case _:
            return f"the connection failed ({type(error).__name__})"

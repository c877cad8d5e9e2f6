"""Where a directory comes from (a file or a URL, within limits of size and time), and its rows."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from anabranch import files
from anabranch.errors import InputError
from anabranch.work.network.addresses import ANY, AddressClass, class_of

if TYPE_CHECKING:
    from urllib.request import OpenerDirector

SOURCE_BYTES = 16 * 1024 * 1024
FETCH_SECONDS = 10.0
ENDPOINTS_MAX = 8  # of one row
_CHUNK = 64 * 1024

#: A passport as it is written, its endpoints that can be asked, and all others.
Row = tuple[Any, tuple[str, ...], tuple[str, ...]]


def fetch_source(place: str, seconds: float = FETCH_SECONDS) -> bytes:
    """The bytes at a path or a URL. Blocks, but no longer than that."""
    if "://" not in place:
        return files.read_limited(place, SOURCE_BYTES)
    if not place.startswith(("http://", "https://")):
        raise InputError(f"{place.partition('://')[0]} is no way to fetch a directory")
    data = _downloaded(place, seconds)
    if len(data) > SOURCE_BYTES:
        raise InputError(f"{_bare(place)} is larger than {SOURCE_BYTES:,} bytes")
    return data


def _downloaded(place: str, seconds: float) -> bytes:
    from http.client import HTTPException  # the client takes its time to load

    until = time.monotonic() + seconds
    data = bytearray()
    try:
        with _opener().open(place, timeout=seconds) as response:
            while len(data) <= SOURCE_BYTES and (chunk := response.read1(_CHUNK)):
                data += chunk
                if time.monotonic() > until:
                    raise InputError(f"{_bare(place)} takes longer than {seconds:g} s")
            announced = response.length
    except (HTTPException, OSError) as error:
        raise InputError(f"{_bare(place)}: {error}") from None
    if announced and len(data) <= SOURCE_BYTES:
        raise InputError(f"{_bare(place)} ended before its end")
    return bytes(data)


def load_source(data: bytes, place: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise InputError(f"{_bare(place)} is not JSON") from None


def _opener() -> OpenerDirector:
    """Only HTTP; redirects reach what those of any call do (`work/network/addresses.py`)."""
    from http.client import HTTPConnection, HTTPSConnection
    from urllib import request

    connect = _Connecting()

    def checked(kind: type[HTTPConnection]) -> Any:
        def make(host: str, **options: Any) -> HTTPConnection:
            made = kind(host, **options)
            setattr(made, "_create_connection", connect)  # noqa: B010 - the hook has no public name
            return made

        return make

    class HttpHandler(request.HTTPHandler):
        def http_open(self, req: request.Request) -> Any:
            return self.do_open(checked(HTTPConnection), req)

    class HttpsHandler(request.HTTPSHandler):
        def https_open(self, req: request.Request) -> Any:
            return self.do_open(checked(HTTPSConnection), req)

    opener = request.OpenerDirector()
    for handler in (
        HttpHandler(),
        HttpsHandler(),
        request.HTTPRedirectHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(),
        request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


class _Connecting:
    """Connects for one fetch: first wherever the operator says, then where a redirect may lead."""

    def __init__(self) -> None:
        self._passed: list[AddressClass] = []

    def __call__(self, address: tuple[str, int], timeout: Any = None, *_source: Any) -> Any:
        policy = ANY.after(self._passed) if self._passed else ANY
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        for *_, place in found:
            policy.check(str(place[0]))
        failure = OSError("the host name has no address")
        for *_, place in found:
            try:
                made = socket.create_connection((str(place[0]), address[1]), timeout)
            except OSError as error:
                failure = error
                continue
            self._passed.append(class_of(str(place[0])))
            return made
        raise failure


def _bare(place: str) -> str:
    """Without what may be secret in a URL."""
    return place.partition("?")[0].rpartition("@")[2]


def rows_in(value: Any) -> Iterator[Row]:
    """The passport of each row with where its node is reached.

    A row is a passport itself, or holds one under `passport`."""
    for row in documents_in(value, "passports"):
        if isinstance(row, Mapping) and "passport" in row:
            urls = _urls(row.get("endpoints"))
            yield row["passport"], *_by_transport(urls)
        else:
            yield row, (), ()


def documents_in(value: Any, part: str) -> list[Any]:
    """What a source of the directory holds: a list, one under `items` or its own name, or one
    document alone. Anything else is an error: a revocation that is overlooked lets somebody in."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        under = next((key for key in ("items", part) if key in value), None)
        if under is None and any(key in value for key in ("schema", "passport", "artifact")):
            return [value]
        value = value.get(under)
    if isinstance(value, list):
        return value
    raise InputError(
        f"`{part}` of the directory is a list of documents, a mapping with one under `items` or "
        f"`{part}`, or one document"
    )


def _by_transport(urls: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Requests are sent by HTTP; peer sessions are not spoken."""
    spoken = tuple(url for url in urls if url.startswith(("http://", "https://")))
    return spoken, tuple(url for url in urls if url not in spoken)


def _urls(value: Any) -> list[str]:
    """The URLs of a row, the one with the lowest priority number first."""
    found: list[tuple[float, int, str]] = []
    rows = value if isinstance(value, list) else []
    for position, row in enumerate(rows):
        url = row.get("endpoint/url") if isinstance(row, Mapping) else None
        if not isinstance(url, str) or not url.isprintable() or " " in url or len(url) > 2048:
            continue
        priority = row.get("endpoint/priority")
        counts = isinstance(priority, int | float) and not isinstance(priority, bool)
        found.append((priority if counts else float("inf"), position, url))
    return [url for _, _, url in sorted(found)[:ENDPOINTS_MAX]]

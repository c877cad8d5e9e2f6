"""Reads what clients send, within bounds: how large, how deep, how slow.

A body is JSON and nothing else. It is read as a stream and given up at the first byte too many or
when it takes too long; keys that stand twice, NaN and half a character are refused, because no two
readers would agree on what they mean. Query parameters are checked against the route table.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import msgspec
from aiohttp import web

from anabranch.net.problems import did_you_mean
from anabranch.surfaces.http.guard.bodies import admitted
from anabranch.surfaces.http.io.body_errors import misfit
from anabranch.surfaces.http.io.json_limits import keys_in, scan, too_deep
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.routes import Query, route_of
from anabranch.work.values import json_size

P = ParamSpec("P")
T = TypeVar("T")


class Limits(msgspec.Struct, frozen=True):
    """What one request may ask of the server."""

    body_bytes: int = 16 * 1024 * 1024
    body_seconds: float = 30.0
    depth: int = 200  # as deep as a value may be that enters a run
    thread_bytes: int = 64 * 1024  # a larger body is parsed beside the event loop
    stream_write_seconds: float = 20.0  # a follower that takes nothing for so long is dropped
    stream_beat_seconds: float = 15.0
    streams: int = 500  # followers at once


LIMITS = web.AppKey("limits", Limits)
#: A large body may become fifty times as large in memory: few are parsed at once.
PARSING = web.AppKey("parsing", asyncio.Semaphore)
PARSED_AT_ONCE = 2

_JSON_MEDIA = re.compile(r"application/(?:[\w.-]+\+)?json", re.IGNORECASE)
LARGE_BYTES = 64 * 1024
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


async def read_body(request: web.Request, kind: type[T], *, optional: bool = False) -> T:
    """The body as this type. An optional one may be left out: then the defaults count."""
    body = await read_bytes(request)
    if not body.strip():
        if optional:
            return kind()
        raise ApiError(400, "no_body", "the request has no body", "send a JSON object")
    check_media(request)
    return await parse_body(request, body, kind)


async def parse_body(request: web.Request, body: bytes, kind: type[T]) -> T:
    """What was read as this type."""
    return await taken_apart(request, len(body), parse, body, kind, request.app[LIMITS].depth)


async def taken_apart(
    request: web.Request, size: int, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """What becomes of so many bytes that were sent: many beside the event loop, few at once."""
    if size <= request.app[LIMITS].thread_bytes:
        return work(*args, **kwargs)
    async with request.app[PARSING]:
        return await asyncio.to_thread(work, *args, **kwargs)


async def read_bytes(request: web.Request) -> bytes:
    """The whole body, if it is small enough and comes in time."""
    limits = request.app[LIMITS]
    said = f"the body is larger than {limits.body_bytes:,} bytes"
    hint = "send less, or put the data where the work can fetch it"
    return await read_at_most(request, limits.body_bytes, limits.body_seconds, said, hint)


async def read_at_most(
    request: web.Request,
    most: int,
    seconds: float,
    said: str,
    hint: str,
    grow: Callable[[int], None] | None = None,
) -> bytes:
    """The whole body; `said` and `hint` are for whoever sends more than that. `grow` is told of
    every part that has come; at a server without it, whoever counts the bodies of callers."""
    if (request.content_length or 0) > most:
        raise _too_large(said, hint)
    try:
        if request.content.is_eof():  # all of it is here: nothing to wait for
            body = request.content.read_nowait()
            if len(body) > most:
                raise _too_large(said, hint)
            if grow is not None:
                grow(len(body))
            return body
        grow = await admitted(request, most, grow)
        async with asyncio.timeout(seconds):
            return await _read(request, most, _too_large(said, hint), grow)
    except TimeoutError:
        said, hint = f"the body did not arrive within {seconds:g} seconds", "send it in one go"
        raise ApiError(408, "slow_body", said, hint, headers={"Connection": "close"}) from None
    except (web.RequestPayloadError, ValueError, ConnectionError) as error:
        # Whoever has left reads no answer; but it is no failure of the server either.
        said = f"the body cannot be read: {error}"
        raise ApiError(400, "bad_body", said, "send it again") from None


def _too_large(said: str, hint: str) -> ApiError:
    return ApiError(413, "too_large", said, hint, headers={"Connection": "close"})


async def _read(
    request: web.Request, most: int, too_large: ApiError, grow: Callable[[int], None]
) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.content.iter_chunked(256 * 1024):
            size += len(part)
            if size > most:
                raise too_large
            grow(len(part))
            parts.append(part)
    except BaseException:
        parts.clear()  # the error keeps this frame, perhaps until the garbage is collected
        raise
    return parts[0] if len(parts) == 1 else b"".join(parts)


def check_media(request: web.Request) -> None:
    media = request.headers.get("Content-Type", "").partition(";")[0].strip()
    if not _JSON_MEDIA.fullmatch(media):
        said = f"the body is said to be {media[:100]!r}" if media else "the body has no media type"
        raise ApiError(415, "media_type", said, "send JSON with Content-Type: application/json")


def parse(body: bytes, kind: type[T], depth: int) -> T:
    """A value of this type, or an `ApiError` that says where it goes wrong."""
    large = len(body) > LARGE_BYTES
    seen = scan(body, depth) if large else None  # before anything is built of it
    try:
        plain = (json_size.decode if large else _decode)(body)
        value = msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise misfit(error, kind) from None
    except RecursionError:
        raise too_deep(depth) from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        said = f"the body is not JSON: {error}"
        raise ApiError(400, "not_json", said, "send one JSON object in UTF-8") from None
    seen = seen or scan(body, depth)
    if seen.keys and keys_in(plain) != seen.keys:
        raise _stands_twice(body, large)
    return value


def _stands_twice(body: bytes, large: bool) -> ApiError:
    """Of two equal keys msgspec takes the last, without a word: the value has fewer keys."""
    if not large:
        json.loads(body, object_pairs_hook=_once)  # finds which one it is, and raises
    said = "a key stands twice in one object"
    return ApiError(400, "duplicate_key", said, "keep one of them")


def _once(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            said = f"the key {key[:100]!r} stands twice in one object"
            raise ApiError(400, "duplicate_key", said, "keep one of them")
        seen.add(key)


# -- query parameters ------------------------------------------------------------------------------


def read_query(request: web.Request) -> dict[str, Any]:
    """The parameters that the route knows, each of its kind; unknown ones are refused."""
    route = route_of(request)
    known = {query.name: query for query in (route.query if route is not None else ())}
    for name in request.query:
        if name not in known:
            hint = did_you_mean(name, known) or "leave it out"
            said = f"there is no parameter {name[:100]!r} here"
            raise ApiError(400, "unknown_parameter", said, hint)
    return {name: _value(request, query) for name, query in known.items()}


def _value(request: web.Request, query: Query) -> Any:
    given = request.query.getall(query.name, [])
    if query.many:
        return [_one(query, text) for text in given]
    if len(given) > 1:
        raise bad_parameter(query.name, "is given more than once", "give it once")
    return _one(query, given[0]) if given else query.default


def _one(query: Query, text: str) -> Any:
    if "\x00" in text or not text.isprintable():
        raise bad_parameter(query.name, "has characters that cannot be printed", "leave them out")
    match query.kind:
        case "integer":
            return _integer(query, text)
        case "boolean":
            if text not in ("true", "false"):
                raise bad_parameter(query.name, "is neither true nor false", "write true or false")
            return text == "true"
        case _:
            if query.choices and text not in query.choices:
                listed = ", ".join(query.choices)
                raise bad_parameter(query.name, f"cannot be {text[:100]!r}", f"one of {listed}")
            return text


def _integer(query: Query, text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise bad_parameter(query.name, "is not a whole number", "write digits only")
    number = int(text)
    if not query.least <= number <= query.most:
        raise bad_parameter(query.name, f"is {number}", f"give {query.least} to {query.most}")
    return number


def bad_parameter(name: str, wrong: str, hint: str) -> ApiError:
    return ApiError(400, "parameter", f"the parameter {name!r} {wrong}", hint)


# -- cursors ---------------------------------------------------------------------------------------


def cursor(*values: int | str) -> str:
    """Where the next page begins, opaque to clients."""
    import base64

    return base64.urlsafe_b64encode(msgspec.json.encode(values)).decode().rstrip("=")


def page_of(
    found: list[T], limit: int, place: Callable[[T], tuple[int | str, ...]]
) -> tuple[list[T], str | None]:
    """Of what was found with a limit one higher: what fits on the page, and the cursor of the
    next."""
    if len(found) <= limit:
        return found, None
    return found[:limit], cursor(*place(found[limit - 1]))


def read_cursor(text: str, *kinds: type) -> tuple[Any, ...]:
    """What `cursor` wrote, or a clear refusal."""
    import base64

    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        values = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, msgspec.MsgspecError, RecursionError):
        values = None
    if (
        not isinstance(values, list)
        or len(values) != len(kinds)
        or not all(type(value) is kind for value, kind in zip(values, kinds, strict=True))
        or any(isinstance(value, int) and abs(value) > 2**62 for value in values)
    ):
        raise bad_parameter("cursor", "is not valid", "take it from `next` of the last page")
    return tuple(values)


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """JSON out."""
    return json_answer(_encode(value), status, headers)


def json_answer(
    document: bytes, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """The same where the JSON is there already."""
    return web.Response(
        status=status, body=document, content_type="application/json", headers=headers
    )

"""No page of another site can make a browser change something here.

Every form carries a secret that only our own pages know: that of the session, or, before somebody
has signed in, one that the browser also has in a cookie which only our own pages are sent with. A
request that says where it comes from must come from here as well. What a token allows is judged
before a page is asked for at all.

Forms are read with care: strangers may send one, too (the entrance is open to everybody). They are
UTF-8 and nothing else, whatever they claim, and neither large nor slow.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import AsyncIterator
from urllib.parse import parse_qsl

import msgspec
from aiohttp import BodyPartReader, web
from multidict import MultiDict, MultiDictProxy

from anabranch.errors import AnabranchError
from anabranch.surfaces.http.guard.auth import CALLER, GATEKEEPER, session_csrf
from anabranch.surfaces.http.guard.origins import is_secure, same_origin
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.request_body import LIMITS, read_bytes

COOKIE = "anabranch_form"
FIELD = "csrf"
FIELDS_MAX = 2000
STRANGERS_BYTES = 16 * 1024  # a token, and where to go with it
URLENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
_MADE = web.RequestKey("anabranch.ui.form_secret", str)


class Forged(AnabranchError):
    """A change that none of our pages asked for."""

    code = "forged"


class Upload(msgspec.Struct, frozen=True):
    """A file that was chosen in a form."""

    name: str
    content: bytes


Form = MultiDictProxy[str | Upload]


# -- secrets ---------------------------------------------------------------------------------------


def form_secret(request: web.Request) -> str:
    """What the forms of this browser carry."""
    own = session_csrf(request)
    if own:
        return own
    made = request.get(_MADE) or request.cookies.get(COOKIE, "")
    if len(made) < 32:
        made = secrets.token_urlsafe(32)
    request[_MADE] = made
    return made


def keep_secret(request: web.Request, response: web.Response) -> None:
    made = request.get(_MADE)
    if made is not None and request.cookies.get(COOKIE) != made:
        response.set_cookie(
            COOKIE, made, httponly=True, samesite="Strict", path="/", secure=is_secure(request)
        )


def check_form(request: web.Request, given: str) -> None:
    """Raises `Forged` unless one of our own pages sent this."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin")
    foreign = origin is not None and not same_origin(origin, request.host)
    if foreign or site not in ("same-origin", "none"):
        raise Forged("a page of another site requested this change; the server refused it")
    kept = session_csrf(request) or request.cookies.get(COOKIE, "")
    if len(kept) < 32 or not hmac.compare_digest(_bytes(kept), _bytes(given)):
        raise Forged("this form is from an earlier session: go back, reload the page and try again")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


# -- fields ----------------------------------------------------------------------------------------


async def read_form(request: web.Request, *, of_stranger: bool = False) -> Form:
    """The fields of a form that one of our own pages sent."""
    media = request.content_type
    charset = (request.charset or "utf-8").lower()
    if media not in (URLENCODED, MULTIPART) or charset not in ("utf-8", "utf8"):
        said = f"this is not a form of this server: {media[:60]}, {charset[:40]}"
        raise ApiError(415, "media_type", said, "send a form in UTF-8")
    if of_stranger or (GATEKEEPER in request.app and CALLER not in request):
        _check_stranger(request)
    form = await (_parts(request) if media == MULTIPART else _pairs(request))
    secret = form.get(FIELD, "")
    check_form(request, secret if isinstance(secret, str) else "")
    return form


def _check_stranger(request: web.Request) -> None:
    length = request.content_length
    if length is None or length > STRANGERS_BYTES or request.content_type == MULTIPART:
        said = f"before the user has signed in, a form has at most {STRANGERS_BYTES:,} bytes"
        raise ApiError(413, "too_large", said, "send less", headers={"Connection": "close"})


async def _pairs(request: web.Request) -> Form:
    body = await read_bytes(request)
    try:
        text = body.decode("utf-8")
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError:
        raise _unreadable() from None
    return MultiDictProxy(MultiDict(pairs))


async def _parts(request: web.Request) -> Form:
    """A form with files. It is put together in memory: it may not be larger than any body."""
    limits = request.app[LIMITS]
    fields: MultiDict[str | Upload] = MultiDict()
    room = limits.body_bytes
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in _plain_parts(request):
                content = bytearray()
                while chunk := await part.read_chunk():
                    content += chunk
                    if len(content) > room:
                        raise web.HTTPRequestEntityTooLarge(limits.body_bytes, len(content))
                room -= len(content) + 100  # empty fields are not for nothing
                name, file = part.name or "", part.filename
                value = content.decode("utf-8") if file is None else Upload(file, bytes(content))
                fields.add(name, value)
    except TimeoutError:
        raise ApiError(408, "slow_body", "the form did not arrive in time", "send less") from None
    except (ValueError, AssertionError, RuntimeError, web.RequestPayloadError):
        raise _unreadable() from None
    return MultiDictProxy(fields)


async def _plain_parts(request: web.Request) -> AsyncIterator[BodyPartReader]:
    """Parts as browsers make them: not packed, not encoded, not nested."""
    count = 0
    async for part in await request.multipart():
        count += 1
        if not isinstance(part, BodyPartReader) or count > FIELDS_MAX:
            raise ValueError
        if {"Content-Encoding", "Content-Transfer-Encoding"} & part.headers.keys():
            raise ValueError
        yield part


def _unreadable() -> ApiError:
    said = f"the form cannot be read: it is broken, not UTF-8, or has more than {FIELDS_MAX} fields"
    return ApiError(400, "bad_body", said, "send it from a page of this server")

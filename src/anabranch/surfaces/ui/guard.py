"""No page of another site can make a browser change something here.

Every form carries a secret that only our own pages know: that of the session, or, before somebody
has signed in, one that the browser also has in a cookie which only our own pages are sent with. A
request that says where it comes from must come from here as well. What a token allows is judged
before a page is asked for at all.

Forms are read with care: strangers may send one, too (the entrance is open to everybody). They are
UTF-8 and nothing else, whatever they claim, and neither large nor slow.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from email.message import Message
from typing import ParamSpec, TypeVar

from aiohttp import web
from multidict import MultiDictProxy

from anabranch.errors import AnabranchError
from anabranch.surfaces.http.guard.auth import is_stranger, session_csrf
from anabranch.surfaces.http.guard.origins import is_secure, same_origin
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.request_body import read_bytes, taken_apart
from anabranch.surfaces.ui.form_fields import Upload, pairs_in, parts_in

P = ParamSpec("P")
T = TypeVar("T")

COOKIE = "anabranch_form"
FIELD = "csrf"
FIELDS_MAX = 2000
BOUNDARY_MAX = 70  # letters, says RFC 2046
STRANGERS_BYTES = 16 * 1024  # a token, and where to go with it
STRANGERS_FIELDS = 20
URLENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"
_MADE = web.RequestKey("anabranch.ui.form_secret", str)
_SIZE = web.RequestKey("anabranch.ui.form_size", int)


class Forged(AnabranchError):
    """A change that none of our pages asked for."""

    code = "forged"


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


async def read_form(request: web.Request) -> Form:
    """The fields of a form that one of our own pages sent."""
    media = request.content_type
    charset = (request.charset or "utf-8").lower()
    if media not in (URLENCODED, MULTIPART) or charset not in ("utf-8", "utf8"):
        said = f"this is not a form of this server: {media[:60]}, {charset[:40]}"
        raise ApiError(415, "media_type", said, "send a form in UTF-8")
    most = FIELDS_MAX
    if is_stranger(request):
        _check_stranger(request)
        most = STRANGERS_FIELDS
    form = await _fields(request, most)
    secret = form.get(FIELD, "")
    check_form(request, secret if isinstance(secret, str) else "")
    return form


async def understood(
    request: web.Request, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """What a form that was read stands for: what is large is understood beside the event loop."""
    return await taken_apart(request, request.get(_SIZE, 0), work, *args, **kwargs)


def _check_stranger(request: web.Request) -> None:
    length = request.content_length
    if length is None or length > STRANGERS_BYTES or request.content_type == MULTIPART:
        said = f"before the user has signed in, a form has at most {STRANGERS_BYTES:,} bytes"
        raise ApiError(413, "too_large", said, "send less", headers={"Connection": "close"})


async def _fields(request: web.Request, most: int) -> Form:
    """Taken apart as every body is. It is in memory as a whole, with the files in it."""
    body = await read_bytes(request)
    request[_SIZE] = len(body)
    try:
        if request.content_type == URLENCODED:
            fields = await taken_apart(request, len(body), pairs_in, body, most)
        else:
            boundary = _boundary(request)
            fields = await taken_apart(request, len(body), parts_in, body, boundary, most)
    except ValueError:
        said = f"the form cannot be read: it is broken, not UTF-8, or has more than {most} fields"
        raise ApiError(400, "bad_body", said, "send it from a page of this server") from None
    return MultiDictProxy(fields)


def _boundary(request: web.Request) -> str:
    head = Message()
    head["Content-Type"] = request.headers.get("Content-Type", "")
    found = head.get_boundary("")
    if not 0 < len(found) <= BOUNDARY_MAX:
        raise ValueError("no boundary")
    return found

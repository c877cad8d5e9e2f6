"""No page of another site can make a browser change something here.

Every form carries a secret that the browser also has in a cookie which only our own pages are sent
with, and a request that says where it comes from must come from here. What a token allows is judged
before a page is asked for at all.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import urlsplit

from aiohttp import web

from anabranch.errors import AnabranchError

COOKIE = "anabranch_form"
FIELD = "csrf"
_MADE = web.RequestKey("anabranch.ui.form_secret", str)


class Forged(AnabranchError):
    """A change that none of our pages asked for."""

    code = "forged"


def form_secret(request: web.Request) -> str:
    """What the forms of this browser carry."""
    made = request.get(_MADE) or request.cookies.get(COOKIE, "")
    if len(made) < 32:
        made = secrets.token_urlsafe(32)
    request[_MADE] = made
    return made


def keep_secret(request: web.Request, response: web.Response) -> None:
    made = request.get(_MADE)
    if made is not None and request.cookies.get(COOKIE) != made:
        response.set_cookie(
            COOKIE, made, httponly=True, samesite="Strict", path="/", secure=request.secure
        )


def check_form(request: web.Request, given: str) -> None:
    """Raises `Forged` unless one of our own pages sent this."""
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    origin = request.headers.get("Origin")
    foreign = origin is not None and urlsplit(origin).netloc.lower() != request.host.lower()
    kept = request.cookies.get(COOKIE, "")
    if foreign or site not in ("same-origin", "none"):
        raise Forged("this change was asked for by a page of another site; nothing was done")
    if len(kept) < 32 or not hmac.compare_digest(kept.encode(), given.encode()):
        raise Forged("this form is from an earlier visit: go back, reload the page and try again")

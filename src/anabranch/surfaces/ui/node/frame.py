"""What every page of a node has at hand: questions to the node, forms, errors that become pages."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from aiohttp import web

from anabranch.errors import AnabranchError
from anabranch.market.node.api import OPERATOR, Call
from anabranch.market.node.errors import NodeError
from anabranch.market.node.node import Node
from anabranch.surfaces.http.guard.connection_limits import hold
from anabranch.surfaces.http.guard.origins import SAFE, check_site
from anabranch.surfaces.http.io.problems import ApiError
from anabranch.surfaces.http.io.request_body import parse
from anabranch.surfaces.ui import guard
from anabranch.surfaces.ui.node.sessions import OperatorSessions
from anabranch.surfaces.ui.node.views import rendered
from anabranch.surfaces.ui.rendering import html

log = logging.getLogger("anabranch.ui")

LOGIN = "/login"
DEPTH_MAX = 128
PANEL = "panel"  # ?part=panel is the part of a page that changes by itself

#: What a page may say after a change; the words are ours, the address bar only picks one.
NOTES = {
    "signed_out": "You are signed out.",
    "module_start": "The module is started.",
    "module_stop": "The module is stopped.",
    "module_restart": "The module is started again.",
    "session": "The node answered: a session is open.",
    "synced": "The seed directories were read.",
    "issued": "The passport is issued.",
    "revoked": "The passport is revoked.",
    "dropped": "The node is dropped from the directory.",
    "published": "The offer is published.",
    "withdrawn": "The offer is withdrawn.",
    "fetched": "The node answered with its offers; those that are valid are below.",
    "trusted": "Offers of this participant are trusted when they come in from now on.",
    "distrusted": "Offers of this participant are not trusted any more.",
    "placed": "The order is open, and sent to its provider.",
    "opened": "The order is open. Nothing was sent yet.",
    "dispatch": "The order is on its way to its provider.",
    "accept": "Accepted: the money goes to the provider.",
    "release": "Released: the money goes to the provider.",
    "dispute": "Disputed: the money stays on hold until the dispute is resolved.",
    "resolve": "The dispute is resolved.",
    "answered": "Answered. The result is on its way.",
    "recovered": "Deliveries that had failed for now are tried again.",
    "topped_up": "The money is in the account.",
    "run_pause": "The run pauses: what is being done goes on, and nothing new begins.",
    "run_resume": "The run goes on.",
    "run_cancel": "The run is cancelled.",
    "fulfilled": "Confirmed: the task is fulfilled.",
    "not_fulfilled": "Rejected: the task is not fulfilled.",
    "started": "The run has started.",
    "imported": "The template is kept.",
    "template_kept": "The template is kept.",
    "template_publish": "Other nodes can read the template now, with your signature.",
    "template_withdraw": "Other nodes can read the template no longer.",
    "template_delete": "The template is deleted.",
}


class Refusal(Exception):
    """The node refused what a page asked of it; nothing was changed."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class Trouble(msgspec.Struct, frozen=True):
    """What is wrong with a form, at which place of the page, and what had been typed into it."""

    place: str
    message: str
    status: int = 400
    typed: Mapping[str, str] = {}


class NodePages(msgspec.Struct):
    node: Node
    sessions: OperatorSessions


PAGES = web.AppKey("anabranch.node_pages", NodePages)
Page = Callable[[web.Request], Awaitable[web.StreamResponse]]


# -- questions to the node -------------------------------------------------------------------------


async def ask(
    request: web.Request,
    method: str,
    path: str,
    body: Any = None,
    query: Mapping[str, str] | None = None,
) -> Any:
    """What the node answers to its operator. Raises `Refusal`."""
    call = Call(method=method, path=path, caller=OPERATOR, body=body, query=query or {})
    answer = await request.app[PAGES].node.handle(call)
    if answer.status < 400:
        return answer.body
    said = answer.body if isinstance(answer.body, dict) else {}
    raise Refusal(
        answer.status,
        str(said.get("code") or answer.status),
        str(said.get("detail") or _phrase(answer.status)),
    )


def _phrase(status: int) -> str:
    """A module may answer with a number that has no name."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"answered with {status}"


async def maybe(request: web.Request, path: str, name: str | None, more: str = "") -> Any:
    """A thing that another one names; None where there is none (yet)."""
    if not name:
        return None
    try:
        return await ask(request, "GET", f"{path}/{part(name)}{more}")
    except Refusal as refusal:
        if refusal.status != 404:
            raise
        return None


def part(name: str) -> str:
    """An id as one part of a path."""
    return quote(name, safe=":")


def page_query(request: web.Request, *names: str, limit: int = 50) -> dict[str, str]:
    """The parameters of a list that this page passes on."""
    given = {name: request.query[name] for name in (*names, "before") if request.query.get(name)}
    return {**given, "limit": str(limit)}


def older(request: web.Request, found: Mapping[str, Any]) -> str:
    """The address of the next page, "" where this is the last."""
    if not found.get("next"):
        return ""
    query = {name: text for name, text in request.query.items() if name not in ("note", "part")}
    return f"{request.path}?{urlencode({**query, 'before': found['next']})}"


# -- forms -----------------------------------------------------------------------------------------


async def form_of(request: web.Request) -> dict[str, str]:
    """The fields of a form that one of our own pages sent."""
    return texts_in(await guard.read_form(request))


def texts_in(form: guard.Form) -> dict[str, str]:
    """Of a field given twice, the first; files are for other pages."""
    first = {name: form[name] for name in form}
    return {name: text.strip() for name, text in first.items() if isinstance(text, str)}


def json_in(text: str, what: str) -> Any:
    """A value that was typed. Raises `Refusal`."""
    try:
        return parse(text.encode(), Any, DEPTH_MAX)  # as strict as the API
    except ApiError as error:
        said = error.detail.replace("the body", what, 1)
        raise Refusal(400, error.code, said) from None


def number_in(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 15):
        raise Refusal(400, "number", f"{what} is a whole number, such as 250")
    return int(text)


def trouble(refusal: Refusal, place: str = "", typed: Mapping[str, str] | None = None) -> Trouble:
    return Trouble(place, refusal.message, refusal.status, typed or {})


def see(path: str, note: str = "") -> web.HTTPSeeOther:
    """Where to look next; a reload there does nothing twice."""
    mark = "&" if "?" in path else "?"
    return web.HTTPSeeOther(f"{path}{mark}note={note}" if note else path)


# -- answers ---------------------------------------------------------------------------------------


def show(
    request: web.Request, template: str, wrong: Trouble | None = None, /, **values: Any
) -> web.Response:
    """A whole page, or only the part of it that changes by itself."""
    is_panel = request.query.get("part") == PANEL
    query = [(name, text) for name, text in request.query.items() if name not in ("note", "part")]
    given = {
        "layout": "node/panel.html" if is_panel else "node/base.html",
        "panel": f"{request.path}?{urlencode([*query, ('part', PANEL)])}",
        "path": request.path,
        "csrf": guard.form_secret(request),
        "signed_in": True,
        "actor": "operator",
        "note": NOTES.get(request.query.get("note", ""), "") if wrong is None else "",
        "wrong": wrong,
        "still": False,  # a page that answers a form is not asked for again by itself
        "name": request.app[PAGES].node.context.config.name,
    }
    return html(rendered(template, given | values), wrong.status if wrong else 200)


def error_page(request: web.Request, status: int, message: str, code: str) -> web.Response:
    if status >= 500:
        log.error("%s: %s", code, message)
    wrong = Trouble("", message, status)
    here = request.app[PAGES].sessions.find(request)
    return show(request, "node/error.html", wrong, code=code, status=status, signed_in=here)


def framed(page: Page, *, is_open: bool = False) -> Page:
    """The page as a handler: for the operator alone, unless it is open, and errors are pages."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await _answered(request, page, is_open=is_open)
        if isinstance(response, web.Response):
            guard.keep_secret(request, response)
        return response

    return handler


async def _answered(request: web.Request, page: Page, *, is_open: bool) -> web.StreamResponse:
    try:
        if request.app[PAGES].sessions.find(request):
            hold(request)
        elif not is_open:
            return await check_site(request, _ask_who)
        return await check_site(request, page)
    except Refusal as refusal:
        return error_page(request, refusal.status, refusal.message, refusal.code)
    except NodeError as error:
        return error_page(request, error.status, error.message, error.code)
    except ApiError as error:
        response = error_page(request, error.status, f"{error.detail}; {error.hint}", error.code)
        response.headers.update(error.headers)
        return response
    except AnabranchError as error:
        return error_page(
            request, 403 if error.code == "forged" else 500, error.message, error.code
        )
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return error_page(request, error.status, error.reason, "http")
    except Exception as error:
        log.error("%s %.200r failed", request.method, request.path, exc_info=error)
        return error_page(request, 500, "the node failed to answer; its log says more", "internal")


async def _ask_who(request: web.Request) -> web.StreamResponse:
    """A form that comes without a session is not kept: what it was about may have changed."""
    if request.method not in SAFE:
        return error_page(request, 401, "your session has ended: sign in again", "session_ended")
    raise see(f"{LOGIN}?next={quote(request.path_qs, safe='')}")

"""Pages from templates: everything that is put into one is escaped, and a missing name is an error.

The headers say what a browser may load: scripts and styles from here and from nowhere else, none of
them inline. A text that got through the escaping by a mistake of ours would still not run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2
from aiohttp import web
from markupsafe import Markup

from anabranch.kernel.explain import Unfinished
from anabranch.operations.read.steps.step_view import does
from anabranch.operations.read.waiting import in_words, is_command, stands
from anabranch.surfaces.http.guard.unread_answers import SHARED
from anabranch.surfaces.ui.scripts import bundle
from anabranch.surfaces.ui.views import formatting

CSP = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
STATIC = files("anabranch.surfaces.ui") / "static"
STATIC_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def templates() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("anabranch.surfaces.ui", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "look": formatting.look,
        "instant": formatting.instant,
        "machine_instant": formatting.machine_instant,
        "span": formatting.span,
        "amount": formatting.amount,
        "shown_json": formatting.shown_json,
        "short_json": formatting.short_json,
        "in_words": in_words,
        "stands": _stands,
        "does": does,
        "capitalize_first": formatting.capitalize_first,
        "breakable": formatting.breakable,
    }
    made.tests["command"] = is_command
    made.tests["web_address"] = formatting.is_web_address
    made.globals["static"] = static_path
    return made


def _stands(one: Unfinished) -> str:
    return stands(one.waits_for, at_work=one.at_work, queued=one.queued)


def rendered(template: str, values: Mapping[str, Any]) -> str:
    return templates().get_template(template).render(values)


def fragment(template: str, macro: str, *given: Any) -> str:
    """One macro of a template: a part of a page that is sent on its own."""
    module = templates().get_template(template).module
    return str(getattr(module, macro)(*given))


def html(text: str, status: int = 200) -> web.Response:
    body = text.encode("utf-8", "replace")  # it may quote a path whose bytes are no UTF-8
    return web.Response(
        body=body, status=status, content_type="text/html", charset="utf-8", headers=HEADERS
    )


def as_json(value: Any, indent: int | None = None) -> web.Response:
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=str)
    return web.Response(text=text, content_type="application/json", headers=HEADERS)


def trusted(markup: str) -> Markup:
    """Only for what our own drawing code has escaped already."""
    return Markup(markup)


# -- static files ----------------------------------------------------------------------------


@cache
def _static() -> Mapping[str, bytes]:
    """The files by their plain names: what is not among them is nowhere."""
    found = {file.name: file.read_bytes() for file in STATIC.iterdir() if file.is_file()}
    modules = {name[:-3]: found.pop(name).decode() for name in list(found) if name.endswith(".js")}
    return found | {f"{name}.js": text.encode() for name, text in bundle(modules).items()}


@cache
def _version() -> str:
    """One for all of them."""
    return hashlib.sha256(repr(sorted(_static().items())).encode()).hexdigest()[:12]


def static_path(name: str) -> str:
    return f"/static/{_version()}/{name}"


async def serve_static(request: web.Request) -> web.Response:
    """The version in the path makes every answer good for ever."""
    name = request.match_info["name"]
    content = _static().get(name)
    kind = STATIC_TYPES.get(name.rpartition(".")[2])
    if content is None or kind is None:
        raise web.HTTPNotFound
    current = request.match_info["version"] == _version()
    kept = "public, max-age=31536000, immutable" if current else "no-cache"
    headers = {**HEADERS, "Cache-Control": kept}
    request[SHARED] = True
    return web.Response(body=content, content_type=kind, charset="utf-8", headers=headers)

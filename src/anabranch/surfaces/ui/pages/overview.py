"""The overview: everything at a glance, counted again while somebody looks at it."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from aiohttp import web

from anabranch.operations.overview.overview import Overview, window_of
from anabranch.operations.overview.windows import DEFAULT_WINDOW, WINDOWS
from anabranch.surfaces.http.overview import overview_of
from anabranch.surfaces.ui.context import may, show, ui_of
from anabranch.surfaces.ui.rendering import html, rendered
from anabranch.surfaces.ui.views.filters import AGES, between
from anabranch.surfaces.ui.views.formatting import STATUSES
from anabranch.surfaces.ui.views.histograms import histogram_of

PAGE = "/overview"


async def overview(request: web.Request) -> web.StreamResponse:
    return show(request, "overview.html", **await _values(request))


async def panel(request: web.Request) -> web.StreamResponse:
    """Only the cards, for a page that is looked at."""
    more = {"now": ui_of(request).now(), "may": may(request)}
    return html(rendered("overview_panel.html", {**await _values(request), **more}))


async def _values(request: web.Request) -> dict[str, Any]:
    window = window_of(request.query.get("window") or DEFAULT_WINDOW)
    found = await overview_of(request, window)
    return {
        "found": found,
        "window": window,
        "windows": {one: AGES[one][0] for one in WINDOWS},
        "statuses": STATUSES,
        "histogram": histogram_of(found.slots, found.slot_ms, between),
        "of_name": _lists_of(found),
        "server_names": {one.id: one.name for one in found.servers},
        "unfinished": sum(found.unfinished.values()),
    }


def _lists_of(found: Overview) -> dict[str, str]:
    """definition → the list of its runs in this time."""
    return {
        one.name: "/runs?" + urlencode({"name": one.name, "age": found.window})
        for one in found.definitions
    }

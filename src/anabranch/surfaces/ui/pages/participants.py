"""Participants: who can be asked, how they have answered, and whether they are there now."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from anabranch.operations.participants import rows
from anabranch.surfaces.ui.context import Ui, form_of, show, ui_of

PROBE_SECONDS = 3.0
SHOWN = 500
_ORDER = {"down": 0, "odd": 1, "unknown": 2, "up": 3}  # what needs somebody comes first


async def list_all(request: web.Request) -> web.StreamResponse:
    return _page(request, _rows(ui_of(request)), probed=False)


async def probe_all(request: web.Request) -> web.StreamResponse:
    """Look whether they are there now; nobody is asked anything, and nothing is kept."""
    from anabranch.work.participants.probe import probe  # the client takes its time to load

    await form_of(request)
    ui = ui_of(request)
    conditions = await probe(ui.parts.participants.book, PROBE_SECONDS)
    found = _rows(ui)
    for row in found:
        if (condition := conditions.get(row["participant"])) is not None:
            row |= {"state": condition.state, "problem": condition.problem}
    return _page(request, found, probed=True)


def _rows(ui: Ui) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(row) for row in rows(ui.parts.participants.book)]


def _page(request: web.Request, found: list[dict[str, Any]], *, probed: bool) -> web.Response:
    available = ui_of(request).parts.preflight.available
    found.sort(key=lambda row: _ORDER.get(row["state"], 2))
    counts = {state: sum(row["state"] == state for row in found) for state in _ORDER}
    return show(
        request,
        "participants.html",
        rows=found[:SHOWN],
        total=len(found),
        counts={state: count for state, count in counts.items() if count},
        probed=probed,
        has_book=available.participants,
        capabilities=sorted(ui_of(request).parts.participants.book.capabilities),
    )

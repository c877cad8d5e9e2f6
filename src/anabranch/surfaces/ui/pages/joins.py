"""The page of joins and fan-ins: a card for each step that gathers, with its rounds and its slots.

A card that is not settled says why, in the words of `explain`.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web

from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.operations.read.joins import GatherRound, gathered_steps, waiting_by_token
from anabranch.operations.read.timeline import Timeline
from anabranch.store.ports import Head
from anabranch.surfaces.ui.context import Ui, run_of, show
from anabranch.surfaces.ui.pages.run import frame, run_path
from anabranch.surfaces.ui.rendering import html, rendered

WHYS_SHOWN = 12


async def page(request: web.Request) -> web.StreamResponse:
    ui, head = run_of(request)
    given = await _panel(ui, head)
    return show(request, "joins.html", **given, **await frame(ui, head, "joins"))


async def panel(request: web.Request) -> web.StreamResponse:
    """Only the cards, for a page that follows the run."""
    ui, head = run_of(request)
    values = {**await _panel(ui, head), "base": run_path(head.run), "finished": head.finished}
    return html(rendered("joins_panel.html", values))


async def _panel(ui: Ui, head: Head) -> dict[str, Any]:
    timeline = await ui.timeline(head)
    return panel_of(timeline, ui.net(head), await ui.state(head))


def panel_of(timeline: Timeline, net: Net, state: State) -> dict[str, Any]:
    waiting = waiting_by_token(net, state)
    return {
        "cards": gathered_steps(timeline, net, state, waiting),
        "whys": {token: some[:WHYS_SHOWN] for token, some in waiting.items()},
        "slot_look": slot_look,
        "dropped": timeline.gathers.dropped,
    }


def slot_look(word: str, state: str, of: GatherRound) -> str:
    """The colour of a badge."""
    if word in ("winner", "counted") or (word == "in" and of.verdict == "open"):
        return "done"
    if state == "lost":
        return "failed"
    return "waiting" if word in ("late", "open", "stopping") else "quiet"

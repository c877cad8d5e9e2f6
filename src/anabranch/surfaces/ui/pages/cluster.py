"""The cluster: the servers of a shared store, the partitions they own; drain one, take it back."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from anabranch.errors import NotFound
from anabranch.operations.drain import drain, undrain
from anabranch.operations.read.cluster import (
    ClusterCard,
    ClusterReader,
    PartitionCard,
    RunOwner,
    ServerCard,
)
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.http.resources.cluster import reader_of
from anabranch.surfaces.ui import guard
from anabranch.surfaces.ui.context import Ui, form_of, may, see, show, ui_of
from anabranch.surfaces.ui.rendering import html, rendered
from anabranch.surfaces.ui.views.formatting import is_web_address

PAGE = "/cluster"
STANDING_OUT = 20  # partitions that are named above the table of all


class ServerRow(msgspec.Struct, frozen=True):
    card: ServerCard
    state: str
    may_drain: bool  # another server would take what it owns
    has_link: bool  # its URL can be opened in a browser


async def overview(request: web.Request) -> web.StreamResponse:
    run = request.query.get("run", "").strip()
    owner, problem = await _owner_asked_for(ui_of(request), run)
    values = await _values(request)
    return show(request, "cluster.html", run=run, owner=owner, problem=problem, **values)


async def panel(request: web.Request) -> web.StreamResponse:
    """Only the cards, for a page that is looked at."""
    more = {"csrf": guard.form_secret(request), "may": may(request), "now": ui_of(request).now()}
    return html(rendered("cluster_panel.html", {**await _values(request), **more}))


async def begin_drain(request: web.Request) -> web.StreamResponse:
    await form_of(request)
    store, name = ui_of(request).parts.store, request.match_info["server"]
    card = await in_thread(lambda: drain(store, name, answering=True))
    request[SUBJECT] = card.id
    raise see(PAGE, "draining")


async def end_drain(request: web.Request) -> web.StreamResponse:
    await form_of(request)
    store, name = ui_of(request).parts.store, request.match_info["server"]
    card = await in_thread(lambda: undrain(store, name, answering=True))
    request[SUBJECT] = card.id
    raise see(PAGE, "undrained")


async def owner_of(ui: Ui, run: str) -> RunOwner | None:
    """Where a run is, if servers share the store."""
    if ui.parts.store.cluster is None:
        return None
    reader = ClusterReader(ui.parts.store, answering=True)
    return await in_thread(lambda: reader.owner(run))


async def _owner_asked_for(ui: Ui, run: str) -> tuple[RunOwner | None, str]:
    if not run:
        return None, ""
    try:
        head = ui.head(run)
    except NotFound as error:
        return None, error.message
    return await owner_of(ui, head.run), ""


async def _values(request: web.Request) -> dict[str, Any]:
    reader = reader_of(request)
    card = await in_thread(reader.summary)
    partitions = await in_thread(reader.partitions)
    worth_a_look = [one for one in partitions if _stands_out(one)]
    return {
        "cluster": card,
        "servers": [_row(card, one) for one in card.servers],
        "partitions": partitions,
        "worth_a_look": worth_a_look[:STANDING_OUT],
        "more": max(0, len(worth_a_look) - STANDING_OUT),
    }


def _stands_out(one: PartitionCard) -> bool:
    return not one.alive or one.waiting > 0 or one.webhook_lag > 0


def _row(cluster: ClusterCard, card: ServerCard) -> ServerRow:
    others = (one for one in cluster.servers if one.id != card.id)
    may_drain = any(one.alive and one.takes_share and not one.draining for one in others)
    return ServerRow(card, card.state, may_drain, is_web_address(card.url))

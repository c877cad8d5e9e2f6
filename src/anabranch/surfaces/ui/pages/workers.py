"""Workers: who works for this server, where, at what, and how long the queues of the pools are."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from anabranch.operations.read.on_clusters import named
from anabranch.operations.workers.worker_cards import WorkerCards
from anabranch.pools.seen.pool_cards import PoolCard
from anabranch.surfaces.ui.context import show, ui_of
from anabranch.surfaces.ui.rendering import html, rendered

SHOWN = 200  # workers
JOBS_SHOWN = 20  # of a worker


async def overview(request: web.Request) -> web.StreamResponse:
    return show(request, "workers.html", **_values(request))


async def panel(request: web.Request) -> web.StreamResponse:
    """Only the cards, for a page that is looked at."""
    return html(rendered("workers_panel.html", _values(request)))


def _values(request: web.Request) -> dict[str, Any]:
    parts = ui_of(request).parts
    cards = WorkerCards(parts.engine, parts.performers)
    found = cards.all()
    return {
        "workers": found[:SHOWN],
        "total": len(found),
        "jobs_shown": JOBS_SHOWN,
        "server": cards.server(),
        "pools": [(card, _who(card)) for card in parts.pool_cards.all(tickets=0)],
        "now": ui_of(request).now(),
    }


def _who(card: PoolCard) -> str:
    cluster = card.cluster
    return named(cluster.engine, cluster.address) if cluster is not None else "workers"

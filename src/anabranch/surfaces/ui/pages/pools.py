"""Pools: what waits, what is out, and who does it: workers of our own, or a compute cluster."""

from __future__ import annotations

from typing import Any

import msgspec
from aiohttp import web

from anabranch.operations.read.on_clusters import named
from anabranch.operations.workers.worker_api import LeasedJob, WorkerSeen
from anabranch.pools.pool_state import OutTicket
from anabranch.pools.seen.losses import losses_in_words
from anabranch.pools.seen.pool_cards import PoolCard
from anabranch.surfaces.ui.context import show, ui_of
from anabranch.surfaces.ui.rendering import html, rendered

SHOWN = 50  # jobs and workers of a pool


class PoolRow(msgspec.Struct, frozen=True):
    """A pool with what its card shows of its lists."""

    card: PoolCard
    name: str  # of the compute cluster
    tickets: list[OutTicket]
    leased: list[LeasedJob]
    workers: list[WorkerSeen]
    lost: int
    losses: str  # in words


async def overview(request: web.Request) -> web.StreamResponse:
    return show(request, "pools.html", pools=_rows(request))


async def panel(request: web.Request) -> web.StreamResponse:
    """Only the cards, for a page that is looked at."""
    values: dict[str, Any] = {"pools": _rows(request), "now": ui_of(request).now()}
    return html(rendered("pools_panel.html", values))


def _rows(request: web.Request) -> list[PoolRow]:
    return [_row(card) for card in ui_of(request).parts.pool_cards.all(tickets=SHOWN)]


def _row(card: PoolCard) -> PoolRow:
    cluster = card.cluster
    if cluster is None:
        return PoolRow(card, "", [], card.leased[:SHOWN], card.workers[:SHOWN], 0, "")
    name, lost = named(cluster.engine, cluster.address), sum(cluster.losses.values())
    words = losses_in_words(cluster.losses)
    return PoolRow(card, name, cluster.tickets[:SHOWN], [], [], lost, words)

"""`pools`: what waits and who does it, asked at a server; or whether a cluster can be used at all.

Only a server knows what is out. Without one the clusters of `--pool` and of the setting are looked
at from here, as an engine would when it starts.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from anabranch.clock import SystemClock
from anabranch.errors import InputError
from anabranch.operations.read.on_clusters import named
from anabranch.pools.seen.losses import losses_in_words
from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.cli.output import render

NOT_USABLE = 1

POOLS = (
    *("POOL", "STATE", "WHO", "WORKERS", "AT ONCE", "WAITING"),
    *("QUEUED", "RUNNING", "CAME BACK", "LOST", "LATE"),
)
CLUSTERS = ("POOL", "STATE", "WHO", "VERSION", "WORKERS", "AT ONCE")
TICKETS = ("STEP", "RUN", "ATTEMPT", "TASK", "WORKER", "FOR")
LEASED = ("JOB", "RUN", "WORKER", "PROGRESS")
SHOWN = 20  # of the jobs of a pool


async def pools(options: argparse.Namespace, settings: Settings) -> int:
    if settings.server:
        return await _at_server(options, settings)
    return await _from_here(options, settings)


# -- at a server -----------------------------------------------------------------------------


async def _at_server(options: argparse.Namespace, settings: Settings) -> int:
    from anabranch.surfaces.cli.backend.http.backend import http_backend

    async with http_backend(options, settings) as at:
        if options.name is not None:
            card = await at.pools.one(options.name)
            return render.tell(options, card, "\n".join(_card_lines(card)))
        found = await at.pools.all()
    none = "no step of any run asked for a pool since the server started, and it has no cluster"
    if options.json or not found:
        return render.tell(options, found, none)
    print("\n".join([*render.table(map(_row, found), POOLS), *_troubles(found)]))
    return 0


def _row(card: Row) -> tuple[str, ...]:
    cluster = card.get("cluster")
    waiting = f"{card['waiting']:,}"
    name = render.clean(card["pool"])
    if cluster is None:
        asked = f"{len(card['workers']):,} asked"
        return name, "workers", "-", asked, "-", waiting, "-", f"{len(card['leased']):,}", *"---"
    lost = sum(cluster["losses"].values())
    numbers = (cluster["queued"], cluster["running"], cluster["finished"], lost, cluster["late"])
    return (
        *(name, cluster["state"], _who(cluster)),
        *(f"{cluster['workers']:,}", f"{cluster['slots']:,}", waiting),
        *(f"{number:,}" for number in numbers),
    )


def _card_lines(card: Row) -> list[str]:
    """One pool with its jobs."""
    lines = [*render.table([_row(card)], POOLS), *_troubles([card])]
    cluster = card.get("cluster")
    if cluster is None:
        return lines + _few([_leased(one) for one in card["leased"]], LEASED, len(card["leased"]))
    if cluster["dashboard"]:
        lines.append(f"its own pages: {render.clean(cluster['dashboard'])}")
    if cluster["losses"]:
        lines.append(f"lost: {render.clean(losses_in_words(cluster['losses']))}")
    jobs = [_ticket(one) for one in cluster["tickets"]]
    return lines + _few(jobs, TICKETS, cluster["queued"] + cluster["running"])


def _leased(one: Row) -> tuple[str, ...]:
    done = render.short(one.get("progress"))
    return one["job"], one["run"], render.clean(one["worker"]), done


def _ticket(one: Row) -> tuple[str, ...]:
    worker = render.clean(one["worker"]) or "in the queue"
    number, there = str(one["attempt"]), render.ago(one["since"])
    return render.clean(one["step"]), one["run"], number, one["ticket"], worker, there


def _few(rows: Sequence[Sequence[str]], head: Sequence[str], total: int) -> list[str]:
    lines = ["", *render.table(rows[:SHOWN], head)] if rows else []
    return [*lines, f"… and {total - SHOWN:,} more"] if total > SHOWN else lines


def _troubles(cards: Sequence[Row]) -> list[str]:
    """Why a cluster gets no jobs, or does none of those it has."""
    lines = []
    for card in cards:
        cluster = card.get("cluster")
        if cluster is not None and cluster["reason"]:
            state = f"{cluster['state']} for {render.ago(cluster['since'])}"
            said = render.clean(cluster["reason"])
            lines.append(f"{render.clean(card['pool'])} is {state}: {said}")
    return lines


def _who(cluster: Row) -> str:
    return render.clean(named(cluster["engine"], cluster["address"]))


# -- from here -------------------------------------------------------------------------------


async def _from_here(options: argparse.Namespace, settings: Settings) -> int:
    from anabranch.pools.given import options_of
    from anabranch.pools.seen.probe import probe

    known = options_of(None, settings)
    if options.name is not None:
        known = {name: one for name, one in known.items() if name == options.name}
    if not known:
        which = f"of pool {options.name!r}" if options.name else "of a pool"
        raise InputError(
            f"name the cluster {which} with --pool NAME=URL to look at it from here, or a server "
            "(--server URL), which knows what waits and what is out",
            code="usage",
        )
    states = await asyncio.gather(*(probe(one, SystemClock()) for one in known.values()))
    found = [msgspec.to_builtins(one) for one in states]
    text = "\n".join([*render.table(map(_cluster_row, found), CLUSTERS), *_seen(found)])
    render.tell(options, found, text)
    return 0 if all(one.state == "open" for one in states) else NOT_USABLE


def _cluster_row(one: dict[str, Any]) -> tuple[str, ...]:
    counts = (f"{one['workers']:,}", f"{one['slots']:,}")
    return render.clean(one["pool"]), one["state"], _who(one), one["version"] or "-", *counts


def _seen(found: Sequence[dict[str, Any]]) -> list[str]:
    """Beside the table: what is wrong, and where the cluster has its own pages."""
    lines = []
    for one in found:
        name = render.clean(one["pool"])
        if one["reason"]:
            lines.append(f"{name} is {one['state']}: {render.clean(one['reason'])}")
        elif one["state"] == "open" and not one["slots"]:
            lines.append(f"{name}: the cluster has no worker now, so jobs would wait")
        if one["dashboard"]:
            lines.append(f"{name}: its own pages are at {render.clean(one['dashboard'])}")
    return lines

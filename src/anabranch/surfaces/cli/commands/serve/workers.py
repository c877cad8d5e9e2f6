"""`workers`: who works for a server, where, at what, and when they were last heard."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from anabranch.errors import InputError, NotFound
from anabranch.net.problems import did_you_mean
from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.cli.output import render

WORKERS = ("WORKER", "STATE", "POOLS", "JOBS", "HOST", "PID", "VERSION", "HEARD")
JOBS = ("JOB", "RUN", "POOL", "LEASE LEFT")
HOLDERS = 10  # of processes, that are named


async def workers(options: argparse.Namespace, settings: Settings) -> int:
    from anabranch.surfaces.cli.backend.http.backend import http_backend

    if not settings.server:
        said = "only a server knows who works for it: name one with --server URL"
        raise InputError(said, code="usage")
    async with http_backend(options, settings) as at:
        found = await at.pools.workers()
    if options.name is not None:
        card = _named(found["items"], options.name)
        return render.tell(options, card, "\n".join(_card_lines(card)))
    return render.tell(options, found, "\n".join(_lines(found)))


def _named(cards: Sequence[Row], name: str) -> Row:
    for card in cards:
        if card["worker"] == name:
            return card
    hint = did_you_mean(name, [card["worker"] for card in cards])
    raise NotFound(f"no worker {name[:200]!r} has asked this server since it started; {hint}")


def _lines(found: Row) -> list[str]:
    server, cards = found["server"], found["items"]
    own = f"the server itself ({_where(server)}): {_jobs(server)} at work"
    own += f", {server['queued']:,} queued" if server["queued"] else ""
    lines = [own, *_process_lines(server.get("python"))]  # older servers do not tell
    if not cards:
        return [*lines, "no worker has asked this server since it started"]
    return [*lines, *render.table(map(_row, cards), WORKERS)]


def _process_lines(python: Row | None) -> list[str]:
    """Who has the processes of inline code, where somebody has one."""
    if python is None or not (python["jobs"] or python["queued"]):
        return []
    head = f"processes of Python code: {python['at_work']:,} of {python['places']:,} at work"
    head += f" (up to {python['most']:,}), {python['queued']:,} jobs wait for one"
    return [head, *(f"  {_held(one)}" for one in python["jobs"][:HOLDERS])]


def _held(one: Row) -> str:
    return f"{render.clean(one['step'])} of {one['run']} for {one['seconds']:,.0f} s"


def _row(card: Row) -> tuple[str, ...]:
    heard = f"{render.ago(card['seen_at'])} ago" if card["seen_at"] else "-"
    pools = ",".join(map(render.clean, card["pools"])) or "-"
    return (
        *(render.clean(card["worker"]), card["state"], pools, _jobs(card)),
        *(render.clean(card["host"]) or "-", str(card["pid"] or "-")),
        *(render.clean(card["version"]) or "-", heard),
    )


def _jobs(one: Row) -> str:
    return f"{one['at_work']:,} of {one['places']:,}" if one["places"] else f"{one['at_work']:,}"


def _where(one: Row) -> str:
    return f"{render.clean(one['host'])}, process {one['pid']}, version {one['version']}"


def _card_lines(card: Row) -> list[str]:
    """One worker with what it can do and what it has."""
    lines = render.table([_row(card)], WORKERS)
    if card["kinds"]:
        lines.append(f"can do: {', '.join(map(render.clean, card['kinds']))}")
    jobs = [
        (one["job"], one["run"], render.clean(one["pool"]), _left(one["lease_until"]))
        for one in card["jobs"]
    ]
    lines += ["", *render.table(jobs, JOBS)] if jobs else []
    more = card["at_work"] - len(jobs)
    return [*lines, f"… and {more:,} more"] if more else lines


def _left(until: int) -> str:
    left = until / 1000 - time.time()
    return render.duration(left) if left > 0 else "over"

"""`overview`: everything at a glance, as the page of that name shows it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence

from anabranch.settings import Settings
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.port import Row
from anabranch.surfaces.cli.output import render

BARS = "▁▂▃▄▅▆▇█"
REASON_SHOWN = 80
DEFINITIONS = ("DEFINITION", "RUNS", "FAILED", "RATE", "P50", "P95")
POOLS = ("POOL", "WAITING", "OLDEST", "OUT", "WORKERS", "DONE BY")


async def overview(options: argparse.Namespace, settings: Settings) -> int:
    async with open_backend(options, settings) as at:
        found = await at.runs.overview(options.window)
    return render.tell(options, found, "\n".join(_lines(found)))


def _lines(found: Row) -> list[str]:
    return [
        *_runs(found),
        *_definitions(found),
        *_oldest(found["oldest"]),
        *_pools(found["pools"]),
        *_health(found["health"]),
    ]


def _runs(found: Row) -> list[str]:
    runs = found["runs"]
    lines = [
        f"last {found['window']}: {render.counted(runs['runs'], 'run')}, {runs['ended']:,} ended, "
        f"{runs['failed']:,} failed ({_rate(runs)})"
    ]
    if runs["failed"]:
        lines[0] += f", {found.get('need_attention', runs['failed']):,} of them not redriven"
    if runs["runs"]:
        counts = [sum(slot["statuses"].values()) for slot in found["slots"]]
        lines.append(f"  {_bars(counts)}  a bar is {render.duration(found['slot_ms'] / 1000)}")
        lines.append(f"  {_amounts(runs['statuses'])}")
    lines.append(f"unfinished: {_amounts(found['unfinished']) or 'none'}")
    return lines


def _bars(counts: Sequence[int]) -> str:
    """Nothing is a space, and the most is a whole block."""
    most = max(counts)
    return "".join(BARS[(count * len(BARS) - 1) // most] if count else " " for count in counts)


def _amounts(statuses: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in statuses.items())


def _rate(counted: Row) -> str:
    rate = counted["failure_rate"]
    return "-" if rate is None else f"{rate:.1%}"


def _definitions(found: Row) -> list[str]:
    rows = [
        (render.short(one["name"], 40), f"{one['runs']:,}", f"{one['failed']:,}", _rate(one),
         _span(one["p50_ms"]), _span(one["p95_ms"]))
        for one in found["definitions"]
    ]  # fmt: skip
    if not rows:
        return []
    left = found["definitions_left_out"]
    more = [f"and {left:,} other definitions with fewer runs"] if left else []
    return ["", *render.table(rows, DEFINITIONS), *more]


def _span(milliseconds: int | None) -> str:
    return "-" if milliseconds is None else render.duration(milliseconds / 1000)


def _oldest(found: Sequence[Row]) -> list[str]:
    rows = [
        (one["run"], render.short(one["name"], 30), one["status"], render.ago(one["since"]),
         render.short(one["reason"], REASON_SHOWN))
        for one in found
    ]  # fmt: skip
    head = ("WAITS LONGEST", "NAME", "STATUS", "FOR", "REASON")
    return ["", *render.table(rows, head)] if rows else []


def _pools(found: Sequence[Row]) -> list[str]:
    rows = [
        (render.clean(one["pool"]), f"{one['waiting']:,}",
         render.ago(one["waiting_since"]) if one["waiting_since"] else "-",
         f"{one['out']:,}", f"{one['workers']:,}", render.clean(one["cluster"]) or "workers")
        for one in found
    ]  # fmt: skip
    return ["", *render.table(rows, POOLS)] if rows else []


def _health(found: Row | None) -> list[str]:
    """A store that is read without a server says nothing of one."""
    if found is None:
        return []
    reasons = [f"  {render.clean(reason)}" for reason in found["reasons"]]
    return ["", f"engine: {found['status']}", *reasons]

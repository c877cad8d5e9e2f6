"""`bulk`: one verb over all runs that a filter finds, at a store of this machine or at a server."""

from __future__ import annotations

import argparse
import time

import msgspec
from msgspec.structs import replace

from anabranch.ages import age_ms
from anabranch.operations.runs.bulk import Bulk, BulkReport
from anabranch.settings import Settings
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.factory import open_backend
from anabranch.surfaces.cli.backend.identity import who
from anabranch.surfaces.cli.output import render

SOME_REFUSED = 3
PAGE = 200


async def bulk(options: argparse.Namespace, settings: Settings) -> int:
    asked = _asked(options)
    left = options.limit
    total: BulkReport | None = None
    async with open_backend(options, settings) as at, at.runs.bulk(asked) as do:
        while left is None or left > 0:
            limit = PAGE if left is None else min(PAGE, left)
            before = total.next if total is not None else None
            wanted = replace(asked.wanted, before=before, limit=limit)
            page = await do(replace(asked, wanted=wanted))
            if not options.json:
                _print(page)
            total = page if total is None else _sum(total, page)
            left = None if left is None else left - page.found
            if page.next is None:
                break
    assert total is not None
    render.tell(options, msgspec.to_builtins(total), _counts(total))
    return SOME_REFUSED if total.refused and not total.dry_run else 0


def _asked(options: argparse.Namespace) -> Bulk:
    now = int(time.time() * 1000)
    ended = now - age_ms(options.ended_before) if options.ended_before else None
    begun = now - age_ms(options.created_before) if options.created_before else None
    wanted = replace(
        values.runs_wanted(options),
        parent=options.parent,
        ended_before=ended,
        created_before=begun,
    )
    return Bulk(
        verb=options.action,
        wanted=wanted,
        dry_run=options.dry_run,
        actor=who(options),
        reason=options.reason,
        values=values.flat_pairs(options.set),
        reducer=options.reduce,
        everything=options.all,
    )


# -- what is printed -------------------------------------------------------------------------------


def _sum(one: BulkReport, other: BulkReport) -> BulkReport:
    return replace(
        one,
        found=one.found + other.found,
        done=one.done + other.done,
        refused=one.refused + other.refused,
        items=[*one.items, *other.items],
        next=other.next,
    )


def _print(page: BulkReport) -> None:
    for item in page.items:
        what = {"done": page.verb, "would": f"would {page.verb}", "refused": "left alone"}
        more = f" -> {item.new}" if item.new else f": {item.message}" if item.message else ""
        said = f"{item.run}  {item.name}  {item.status}  {what[item.outcome]}{more}"
        print(render.one_line(said))


def _counts(total: BulkReport) -> str:
    if total.dry_run:
        would = total.found - total.refused
        return f"would {total.verb} {would:,} of {total.found:,} runs"
    return f"{total.verb}: {total.done:,} of {total.found:,} runs, {total.refused:,} left alone"

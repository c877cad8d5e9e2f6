"""The list of runs: filters in the address, counters by status."""

from __future__ import annotations

from aiohttp import web

from anabranch.surfaces.ui.context import Ui, show, ui_of
from anabranch.surfaces.ui.views.filters import AGES, DIALECTS, Filter
from anabranch.surfaces.ui.views.formatting import STATUSES

PAGE = 50


async def list_runs(request: web.Request) -> web.StreamResponse:
    ui = ui_of(request)
    asked = Filter(request.query)
    wanted = asked.wanted(ui.now(), PAGE + 1)
    heads = await ui.look(lambda by: by.store.heads(wanted))
    more, heads = len(heads) > PAGE, heads[:PAGE]
    counts = await counters(ui)
    return show(
        request,
        "runs.html",
        heads=heads,
        counts=counts,
        total=sum(counts.values()),
        statuses=STATUSES,
        dialects=DIALECTS,
        ages=AGES,
        asked=asked,
        chosen=asked.chosen,
        paged="before" in request.query,
        newest=asked.address(),
        older=asked.older(heads[-1]) if more else "",
    )


async def counters(ui: Ui) -> dict[str, int]:
    """Runs by status, over the whole store."""
    counts: dict[str, int] = {}
    for status, _, count in await ui.look(lambda by: by.store.run_counts()):
        counts[status] = counts.get(status, 0) + count
    return counts

"""The list of runs: filters in the address, counters by status, saved views."""

from __future__ import annotations

from aiohttp import web
from msgspec.structs import replace

from anabranch.operations.overview.overview import slots_of
from anabranch.operations.overview.views import Views
from anabranch.store.ports import Store
from anabranch.surfaces.http.guard.audit import SUBJECT
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.http.routes import actor_of
from anabranch.surfaces.ui.context import Ui, form_of, see, show, text_of, ui_of
from anabranch.surfaces.ui.views.filters import AGES, DIALECTS, LIST, Filter
from anabranch.surfaces.ui.views.formatting import STATUSES
from anabranch.surfaces.ui.views.histograms import Histogram, histogram_of

PAGE = 50


async def list_runs(request: web.Request) -> web.StreamResponse:
    ui = ui_of(request)
    asked = Filter(request.query)
    rendered = ui.now()  # before it is read: what begins while it is read counts as new
    wanted = asked.wanted(rendered, PAGE + 1)
    found = await ui.look(lambda by: by.store.heads(wanted))
    more, heads = len(found) > PAGE, found[:PAGE]
    redriven = await ui.look(lambda by: by.read.redriven_by(heads))
    counts = await counters(ui)
    bars, views = await ui.look(
        lambda by: (_bars(by.store, asked, rendered), Views(by.store).all())
    )
    return show(
        request,
        "runs.html",
        heads=heads,
        rendered=rendered,
        redriven=redriven,
        counts=counts,
        total=sum(counts.values()),
        statuses=STATUSES,
        dialects=DIALECTS,
        ages=AGES,
        asked=asked,
        bars=bars,
        views=views,
        chosen=asked.chosen,
        paged="before" in request.query,
        newest=asked.address(),
        older=asked.older(heads[-1]) if more else "",
    )


def _bars(store: Store, asked: Filter, now: int) -> Histogram:
    """The runs of this list over time, whichever page of it is shown."""
    begin, end, width = asked.time(now)
    first, last = begin // width, max(begin, end - 1) // width
    wanted = replace(asked.wanted(now, 0), before=None, created_after=begin, created_before=end + 1)
    slots = slots_of(store.run_slots(wanted, width), first, last, width)
    return histogram_of(slots, width, asked.between)


async def counters(ui: Ui) -> dict[str, int]:
    """Runs by status, over the whole store."""
    counts: dict[str, int] = {}
    for status, _, count in await ui.look(lambda by: by.store.run_counts()):
        counts[status] = counts.get(status, 0) + count
    return counts


async def save_view(request: web.Request) -> web.StreamResponse:
    form, ui = await form_of(request), ui_of(request)
    name, query = text_of(form, "view"), text_of(form, "query")
    request[SUBJECT] = name[:200]
    views = Views(ui.parts.store)
    kept = await in_thread(views.save, name, query, actor_of(request), ui.now())
    raise see(f"{LIST}?{kept.query}", "view_saved")


async def drop_view(request: web.Request) -> web.StreamResponse:
    form, ui = await form_of(request), ui_of(request)
    name = text_of(form, "view")
    request[SUBJECT] = name[:200]
    await in_thread(Views(ui.parts.store).drop, name)
    raise see(LIST, "view_deleted")

"""One loop of a run: counts, rate, what failed and why, its items in pages, and how to steer it."""

from __future__ import annotations

from typing import Any, cast

from aiohttp import web

from anabranch.errors import InputError, NotFound
from anabranch.kernel import stimuli as s
from anabranch.operations.items import ItemState, find_loop
from anabranch.surfaces.ui.context import actor_of, form_of, see, show, text_of, ui_of
from anabranch.surfaces.ui.run import frame, run_path

PAGE = 50
STATES = ("succeeded", "failed", "running", "pending")


async def panel(request: web.Request) -> web.StreamResponse:
    ui = ui_of(request)
    head = ui.head(request.match_info["run"])
    loop = find_loop(ui.state(head), request.match_info["loop"])
    given = frame(ui, head, "loops", loop)
    row = next((one for one in given["loops"] if one["loop"] == loop), None)
    if row is None:
        raise NotFound(f"run {head.run} has no loop {loop}")
    state, error, after = _wanted(request)
    items = await ui.look(
        lambda by: by.read.items(head.run, loop, state=state, error=error, after=after, limit=PAGE)
    )
    failures = items.failures
    if failures is None:
        failures = await _failures(request, head.run, loop, row)
    return show(
        request,
        "loop.html",
        row=row,
        items=items,
        item_state=state or "",
        error=error or "",
        after=after,
        failures=failures,
        states=STATES,
        **given,
    )


async def _failures(request: web.Request, run: str, loop: str, row: Any) -> Any:
    """How many failed of which error."""
    if not row["failed"]:
        return {}
    look = ui_of(request).look
    page = await look(lambda by: by.read.items(run, loop, state="failed", limit=1))
    return page.failures or {}


def _wanted(request: web.Request) -> tuple[ItemState | None, str | None, int]:
    query = request.query
    state, error, after = query.get("state", ""), query.get("error", ""), query.get("after", "")
    if state and state not in STATES:
        raise InputError(f"an item is {', '.join(STATES)}, not {state[:50]!r}")
    if after and (not after.isdecimal() or len(after) > 15):
        raise InputError(f"after is a number, not {after[:50]!r}")
    chosen = cast(ItemState, state) if state else None
    return chosen, error or None, int(after) if after else -1


async def tune(request: web.Request) -> web.StreamResponse:
    """Another number of shards at once, or no new items."""
    form = await form_of(request)
    ui = ui_of(request)
    head = ui.head(request.match_info["run"])
    loop = find_loop(ui.state(head), request.match_info["loop"])
    stop = text_of(form, "stop") == "yes"
    window = text_of(form, "window").strip()
    if not stop and (not window.isdecimal() or not 1 <= int(window) <= 100_000):
        raise InputError("the number of shards at once is 1 to 100,000")
    told = s.TuneLoop(
        loop,
        window=0 if stop else int(window),
        stop=stop,
        actor=actor_of(request),
        reason=text_of(form, "reason"),
    )
    await ui.parts.verbs.send(head.run, told)
    raise see(run_path(head.run, "loops", loop), "stopped" if stop else "tuned")

"""One loop of a run: counts, rate, what failed and why, its items in pages, and how to steer it."""

from __future__ import annotations

from typing import Any, cast

from aiohttp import web

from anabranch.errors import InputError, NotFound
from anabranch.kernel import stimuli as s
from anabranch.literals import ItemState
from anabranch.operations.read.items import Page, find_loop
from anabranch.surfaces.ui.context import actor_of, form_of, run_of, see, show, text_of, ui_of
from anabranch.surfaces.ui.pages.run import frame, run_path
from anabranch.surfaces.ui.rendering import html, rendered
from anabranch.surfaces.ui.views import run_facts

PAGE = 50
EXAMPLE_LETTERS = 160
WINDOW_MAX = 100_000
STATES = ("succeeded", "failed", "running", "pending")


async def panel(request: web.Request) -> web.StreamResponse:
    ui, head = run_of(request)
    state = await ui.state(head)
    loop = find_loop(state, request.match_info["loop"])
    rows = run_facts.loop_rows(state, ui.now())
    row = next((one for one in rows if one["loop"] == loop), None)
    if row is None:
        raise NotFound(f"run {head.run} has no loop {loop}")
    shown = await _items(request, head.run, row)
    if request.query.get("part") == "items":  # for a page that follows the run
        return html(rendered("loop_items.html", shown | {"row": row, "base": run_path(head.run)}))
    given = await frame(ui, head, "loops", loop)
    place = run_facts.loop_place(given["net"], state, loop, ui.clusters)
    return show(request, "loop.html", row=row, place=place, **shown, **given)


async def _items(request: web.Request, run: str, row: dict[str, Any]) -> dict[str, Any]:
    """A page of items, and how many failed of which error."""
    look, loop = ui_of(request).look, row["loop"]
    state, error, after = _wanted(request)
    items = await look(
        lambda by: by.read.items(run, loop, state=state, error=error, after=after, limit=PAGE)
    )
    failures: dict[str, dict[str, Any]] = {}
    if row["failed"]:
        bad = await look(lambda by: by.read.items(run, loop, state="failed", limit=PAGE))
        failures = _failures(bad)
    return {
        "items": items,
        "item_state": state or "",
        "error": error or "",
        "after": after,
        "failures": failures,
        "keyed": any(item.iter_key not in (None, str(item.index)) for item in items.items),
        "states": STATES,
    }


def _failures(bad: Page) -> dict[str, dict[str, Any]]:
    """kind → how many, and what the first of them said, where it is among the first failures."""
    said: dict[str, str] = {}
    for item in bad.items:
        if item.error is not None:
            said.setdefault(item.error["kind"], str(item.error["message"])[:EXAMPLE_LETTERS])
    counts = bad.failures or {}
    return {kind: {"count": count, "example": said.get(kind)} for kind, count in counts.items()}


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
    ui, head = run_of(request)
    loop = find_loop(await ui.state(head), request.match_info["loop"])
    stop = text_of(form, "stop") == "yes"
    window = text_of(form, "window").strip()
    fits = window.isdecimal() and len(window) <= 6 and 1 <= int(window) <= WINDOW_MAX
    if not stop and not fits:
        raise InputError(f"the number of shards at once is 1 to {WINDOW_MAX:,}")
    told = s.TuneLoop(
        loop,
        window=0 if stop else int(window),
        stop=stop,
        actor=actor_of(request),
        reason=text_of(form, "reason"),
    )
    await ui.parts.verbs.send(head.run, told)
    raise see(run_path(head.run, "loops", loop), "stopped" if stop else "tuned")

"""The pages of one run. Each has the same head and says why the run waits."""

from __future__ import annotations

from typing import Any, get_args
from urllib.parse import quote

from aiohttp import web
from msgspec.structs import asdict

from anabranch.errors import AnabranchError, InputError, NotFound
from anabranch.kernel import events as e
from anabranch.kernel.privacy import public
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.operations.read.event_pages import PAGE, LogPage, log_page
from anabranch.operations.read.steps.shard_lanes import shard_lanes
from anabranch.operations.read.waiting import awaited, signals_of
from anabranch.operations.runs.redrive_plan import RedrivePlan, prepare_redrive
from anabranch.store.ports import Head
from anabranch.surfaces.ui.context import (
    Ui,
    form_of,
    run_of,
    see,
    show,
    ui_of,
)
from anabranch.surfaces.ui.pages import actions
from anabranch.surfaces.ui.pages.cluster import owner_of
from anabranch.surfaces.ui.rendering import as_json, html, rendered, trusted
from anabranch.surfaces.ui.views import run_facts
from anabranch.surfaces.ui.views.lanes import lanes_of, plain_lane

LANES = 200
#: For the list of suggestions; anything that a kind contains can be asked for.
EVENT_KINDS = sorted(one.__struct_config__.tag for one in get_args(e.Event))


def run_path(run: str, *more: str) -> str:
    return "/".join(["/runs", *(quote(part, safe="") for part in (run, *more))])


async def frame(ui: Ui, head: Head, tab: str, current_loop: str = "") -> dict[str, Any]:
    """What every page of a run needs: its head, what went wrong, and why it waits."""
    state, net = await ui.state(head), ui.net(head)
    failures = await ui.failures(head, net, state)
    redriven_by = await ui.look(lambda by: by.read.redriven_by([head]))
    moving = run_facts.moving_of(state)
    return {
        "head": head,
        "base": run_path(head.run),
        "tab": tab,
        "current_loop": current_loop,
        "status": moving.status,
        "finished": moving.finished,
        "problems": moving.problems,
        "state": state,
        "net": net,
        "counts": moving.counts,
        "waits": run_facts.waits_of(net, state, ui.clusters, ui.processes, ui.now()),
        "aside": _aside(ui, head, net, state),
        "loops": run_facts.loop_rows(state, ui.now()),
        "run_failures": failures,
        "redriven_by": redriven_by[head.run],
        "owner": None if moving.finished else await owner_of(ui, head.run),
    }


def _aside(ui: Ui, head: Head, net: Net, state: State) -> str:
    """Why the engine does not touch it, if it does not."""
    missing = ui.parts.preflight.missing_for(net, state)
    if missing:
        said = "; ".join(f"{one.message} ({one.hint})" for one in missing)
        return f"This run is left as it is: {said}."
    if head.run in ui.parts.engine.set_aside:
        said = "the engine met a bug in it. The log of the server has the details."
        return f"This run is set aside: {said}"
    return ""


async def overview(request: web.Request) -> web.StreamResponse:
    ui, head = run_of(request)
    if head.run != request.match_info["run"]:
        raise see(run_path(head.run))
    drawn = await ui.graphs.of(ui.net(head))
    given = await frame(ui, head, "overview")
    return show(
        request,
        "run.html",
        graph=trusted(drawn),
        moving=asdict(run_facts.moving_of(given["state"])),
        focus=request.query.get("step", ""),
        **given,
    )


async def ways(request: web.Request) -> web.StreamResponse:
    """Which arrows of the graph were taken; asked for by the page of a run that has ended."""
    ui, head = run_of(request)
    timeline = await ui.timeline(head)
    return as_json({"ways": timeline.ways()})


async def timeline(request: web.Request) -> web.StreamResponse:
    ui, head = run_of(request)
    skip = number_of(request, "skip")
    timeline = await ui.timeline(head)
    lanes = lanes_of(timeline, skip, LANES, run_path(head.run))
    total = lanes["total"] - lanes["dropped"]
    return show(
        request,
        "timeline.html",
        lanes=lanes,
        skip=skip,
        older=skip + LANES if skip + LANES < total else None,
        newer=max(0, skip - LANES) if skip else None,
        **await frame(ui, head, "timeline"),
    )


async def timeline_table(request: web.Request) -> web.StreamResponse:
    """Only the table, for a page that follows the run."""
    ui, head = run_of(request)
    timeline = await ui.timeline(head)
    lanes = lanes_of(timeline, number_of(request, "skip"), LANES, run_path(head.run))
    return html(rendered("lanes.html", {"lanes": lanes}))


async def timeline_shards(request: web.Request) -> web.StreamResponse:
    """The shards of a loop as lanes, for the drawing."""
    ui, head = run_of(request)
    loop = request.match_info["loop"]
    found = await ui.look(lambda by: shard_lanes(by.read, head.run, loop))
    lanes = [plain_lane(lane, run_path(head.run)) for lane in found.lanes]
    return as_json({"lanes": lanes, "more": found.more})


async def timeline_data(request: web.Request) -> web.StreamResponse:
    """The lanes as JSON, for the drawing."""
    ui, head = run_of(request)
    timeline = await ui.timeline(head)
    lanes = lanes_of(timeline, number_of(request, "skip"), LANES, run_path(head.run))
    lanes |= {"now": ui.now(), "started": head.created_at, "finished": head.finished}
    lanes["ended"] = head.updated_at if head.finished else 0
    return as_json(lanes)


async def events(request: web.Request) -> web.StreamResponse:
    ui, head = run_of(request)
    found = await _events(ui, head, request)
    return show(
        request,
        "events.html",
        found=found,
        kind=request.query.get("kind", ""),
        kinds=EVENT_KINDS,
        last=max(0, head.seq - PAGE),
        previous=max(0, found.after - PAGE) if found.after else None,
        follows=found.next_after is None and not head.finished,
        **await frame(ui, head, "events"),
    )


async def event_rows(request: web.Request) -> web.StreamResponse:
    """Only the rows, for a page that follows the run."""
    ui = ui_of(request)
    found = await _events(ui, ui.head(request.match_info["run"]), request)
    response = html(rendered("event_rows.html", {"found": found}))
    end = found.records[-1].seq if found.records else found.after
    response.headers["X-After"] = str(end if found.next_after is None else found.next_after)
    return response


async def _events(ui: Ui, head: Head, request: web.Request) -> LogPage:
    private = ui.net(head).private
    after, kind = number_of(request, "after"), request.query.get("kind", "")
    return await ui.look(
        lambda by: log_page(by.store, head.run, private=private, after=after, kind=kind)
    )


async def data(request: web.Request) -> web.StreamResponse:
    """Input, output, context, and the result of each step."""
    ui, head = run_of(request)
    given = await frame(ui, head, "data")
    state, net = given["state"], given["net"]
    summary = await _summary(ui, head, state)
    return show(
        request,
        "data.html",
        input=await _whole(ui, public(dict(state.workload), net.private)),
        context=await _whole(ui, public(dict(state.ctx), net.private)),
        result=summary["result"],
        steps=summary["steps"],
        reducers=actions.REDUCERS,
        signal_names=awaited(net),
        signals=await ui.look(lambda by: signals_of(net, state, by.read.whole)),
        **given,
    )


async def _summary(ui: Ui, head: Head, state: State) -> dict[str, Any]:
    """In a thread. What is in memory moves on meanwhile, so only an end is taken from there."""
    known = state if state.finished else None
    return await ui.look(lambda by: by.read.summary(head.run, known))


async def _whole(ui: Ui, value: Any) -> Any:
    """The value with what is kept beside the log, read in a thread."""
    return await ui.look(lambda by: by.read.whole(value))


async def whole_data(request: web.Request) -> web.StreamResponse:
    """One of the values in full, as a file: a page shows only the beginning of large ones."""
    ui, head = run_of(request)
    state, net = await ui.state(head), ui.net(head)
    match request.match_info["what"]:
        case "input":
            value: Any = await _whole(ui, public(dict(state.workload), net.private))
        case "context":
            value = await _whole(ui, public(dict(state.ctx), net.private))
        case "result":
            value = (await _summary(ui, head, state))["result"]
        case _:
            raise web.HTTPNotFound
    response = as_json(value)
    name = f"{head.run}-{request.match_info['what']}.json"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


async def redrive(request: web.Request) -> web.StreamResponse:
    """What a redrive would do, before anybody asks for it."""
    ui, head = run_of(request)
    plan: RedrivePlan | None = None
    refused, step = "", request.query.get("from", "")
    try:
        plan = await ui.look(lambda by: prepare_redrive(by.read, head.run, step).plan())
    except AnabranchError as error:  # it has not ended, or nothing failed: the page says so
        refused = error.message
    return show(
        request,
        "redrive.html",
        plan=plan,
        refused=refused,
        from_step=step,
        **await frame(ui, head, "redrive"),
    )


async def definition(request: web.Request) -> web.StreamResponse:
    """The text that this run runs, at the version it began with."""
    ui, head = run_of(request)
    kept = ui.parts.store.definition(head.definition)
    if kept is None:
        raise NotFound(f"the definition of run {head.run} is not in the store")
    lines = kept.source.splitlines()
    given = await frame(ui, head, "definition")
    return show(request, "definition.html", kept=kept, lines=lines, **given)


async def do(request: web.Request) -> web.StreamResponse:
    """A verb for this run."""
    form = await form_of(request)
    ui, verb = ui_of(request), request.match_info["verb"]
    if verb not in actions.VERBS:
        raise InputError(f"there is no verb {verb[:40]!r}: {', '.join(actions.VERBS)}")
    head = ui.head(request.match_info["run"])
    came = await actions.do(request, verb, head.run, form)
    raise see(run_path(came or head.run), actions.VERBS[verb])


def number_of(request: web.Request, name: str) -> int:
    text = request.query.get(name, "") or "0"
    if not text.isdecimal() or len(text) > 15:
        raise InputError(f"{name} is a number, not {text[:50]!r}")
    return int(text)

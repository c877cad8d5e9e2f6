"""Server-sent events: pages that move. What is sent is what differs, and not too often.

A stream waits until the engine says that something is durable, tells what changed since it last
spoke, and then rests for a moment: many changes in a short time become one message.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.runtime.effects import Published
from anabranch.surfaces.ui import facts
from anabranch.surfaces.ui.context import UI, Ui, ui_of
from anabranch.surfaces.ui.rendering import HEADERS, fragment
from anabranch.surfaces.ui.run import run_path
from anabranch.surfaces.ui.runs import counters

REST_SECONDS = 0.2
LIST_REST_SECONDS = 1.0
BEAT_SECONDS = 15.0
STREAMS_MAX = 200
CHANGED_MAX = 500


Talk = Callable[["Stream"], Awaitable[None]]


class Stream:
    """One browser that follows something."""

    def __init__(self, ui: Ui, response: web.StreamResponse) -> None:
        self._ui = ui
        self._response = response
        self.news = asyncio.Event()

    @property
    def going(self) -> bool:
        return not self._ui.closing

    async def say(self, event: str, data: Any) -> None:
        text = json.dumps(data, ensure_ascii=False, default=str)
        await self._response.write(f"event: {event}\ndata: {text}\n\n".encode())

    async def wait(self) -> bool:
        """Until there is news, or for a while; then whoever is gone is noticed."""
        try:
            await asyncio.wait_for(self.news.wait(), BEAT_SECONDS)
        except TimeoutError:
            await self._response.write(b": here\n\n")
            return False
        self.news.clear()
        return True


async def _streamed(
    request: web.Request, heard: Callable[[Published], bool], talk: Talk
) -> web.StreamResponse:
    """Tell a browser something for as long as it listens; `heard` says what is news to it."""
    ui = ui_of(request)
    if len(ui.streams) >= STREAMS_MAX:
        raise web.HTTPServiceUnavailable(text="too many pages are open")
    headers = {**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    stream = Stream(ui, response)

    def listener(published: Published) -> None:
        if heard(published):
            stream.news.set()

    unlisten = ui.parts.engine.listen(listener)
    ui.streams.add(stream.news)
    try:
        await talk(stream)
    except ConnectionError:
        pass  # the page was closed
    finally:
        ui.streams.discard(stream.news)
        unlisten()
    return response


async def close_streams(app: web.Application) -> None:
    """A server that stops does not wait for pages that only listen."""
    app[UI].closing = True
    for news in app[UI].streams:
        news.set()


# -- one run -------------------------------------------------------------------------------


async def follow_run(request: web.Request) -> web.StreamResponse:
    ui = ui_of(request)
    run = ui.head(request.match_info["run"]).run
    loop = request.query.get("loop", "")

    async def talk(stream: Stream) -> None:
        await _tell_of_run(ui, stream, run, loop)

    return await _streamed(request, lambda published: published.run == run, talk)


async def _tell_of_run(ui: Ui, stream: Stream, run: str, loop: str) -> None:
    before: facts.Moving | None = None
    parts: dict[str, str] = {}
    while stream.going:
        begun = time.perf_counter()
        head = ui.head(run)
        state, net = ui.state(head), ui.net(head)
        moving = facts.moving_of(state)
        if before is None or moving.seq != before.seq:
            await stream.say("run", facts.changes(moving, before))
            before = moving
        for name, text in _parts(ui, run, loop, net, state).items():
            if parts.get(name) != text:
                parts[name] = text
                await stream.say("part", {"name": name, "html": text})
        if moving.finished:
            await stream.say("end", {})
            return
        # What is costly to tell is told less often.
        await asyncio.sleep(max(REST_SECONDS, 10 * (time.perf_counter() - begun)))
        while not await stream.wait() and not state.loops:
            pass  # rates and estimates of loops change by time alone


def _parts(ui: Ui, run: str, loop: str, net: Net, state: State) -> dict[str, str]:
    base = run_path(run)
    loops = facts.loop_rows(state, ui.now())
    said = {
        "waits": fragment("waits.html", "waits_list", facts.waits_of(net, state), base),
        "loops": fragment("loops.html", "loop_cards", loops, base),
    }
    for row in loops:
        if row["loop"] == loop:
            said["loop"] = fragment("loops.html", "loop_numbers", row)
    return said


# -- the list ------------------------------------------------------------------------------


async def follow_runs(request: web.Request) -> web.StreamResponse:
    """Counters by status, and the new status of runs that moved."""
    ui = ui_of(request)
    moved: dict[str, str] = {}

    def heard(published: Published) -> bool:
        if len(moved) < CHANGED_MAX or published.run in moved:
            moved[published.run] = published.status
        return True

    async def talk(stream: Stream) -> None:
        while stream.going:
            changed = dict(moved)
            moved.clear()
            counts = await counters(ui)
            await stream.say("runs", {"counts": counts, "moved": changed, "now": ui.now()})
            await asyncio.sleep(LIST_REST_SECONDS)
            while not await stream.wait():
                pass

    return await _streamed(request, heard, talk)

"""Server-sent events: pages that move. What is sent is what differs, and not too often.

A stream waits until the engine says that something is durable, tells what changed since it last
spoke, and then rests for a moment: many changes in a short time become one message.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from aiohttp import web

from anabranch.errors import AnabranchError, StoreError
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.operations.logs.log_lines import open_log
from anabranch.operations.read.timeline import Timeline
from anabranch.operations.runs.approvals import Approval, moves_gates
from anabranch.runtime.effects import DurableEvents
from anabranch.runtime.engine import EngineLoop
from anabranch.store.cluster_ports import RunMoved
from anabranch.store.outages import passes
from anabranch.store.ports import Head, HeadFilter, Store
from anabranch.surfaces.http.guard.shares import long_request
from anabranch.surfaces.http.io.readers import ReadHandle
from anabranch.surfaces.ui import guard
from anabranch.surfaces.ui.context import UI, Ui, actor_of, may, run_of, ui_of
from anabranch.surfaces.ui.pages import logs
from anabranch.surfaces.ui.pages.run import number_of, run_path
from anabranch.surfaces.ui.pages.runs import counters
from anabranch.surfaces.ui.rendering import HEADERS, fragment
from anabranch.surfaces.ui.views import run_facts

log = logging.getLogger("anabranch.http")

REST_SECONDS = 0.2
LIST_REST_SECONDS = 1.0
BEAT_SECONDS = 15.0
BEAT = b": here\n\n"
AWAY_SECONDS = 1.0  # between two looks at a store that is away
STREAMS_MAX = 200
CHANGED_MAX = 500
BEGUN_MAX = 10_000  # new runs that are counted for one page
REASONS_MAX = 50  # runs that moved whose reasons are looked up
GATES_MAX = 500
LOGS_REST_SECONDS = 1.0  # between two looks at logs that another server may write
LAST_LOOKS = 3  # after the end of a run: its last lines may be on their way at another server


Talk = Callable[["Stream"], Awaitable[None]]


class Heard(msgspec.Struct, frozen=True):
    """What is news to a page: of what becomes durable here, and of what other servers record."""

    here: Callable[[DurableEvents], bool]
    elsewhere: Callable[[RunMoved], bool]
    run: str = ""  # the only one that it is about


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
            await self._response.write(BEAT)
            return False
        self.news.clear()
        return True

    async def rest(self, seconds: float) -> None:
        """Until there is news, or for so long."""
        try:
            await asyncio.wait_for(self.news.wait(), seconds)
        except TimeoutError:
            await self._response.write(BEAT)
        self.news.clear()

    async def tell(self, talk: Talk) -> None:
        """Until the talk is over; while the store is away it begins again and again."""
        while True:
            try:
                return await talk(self)
            except ConnectionError:
                return None  # the page was closed
            except AnabranchError as error:
                if not (isinstance(error, StoreError) and passes(error) and self.going):
                    log.warning("a page is not told of more: %s", error.message)
                    return None
            await asyncio.sleep(AWAY_SECONDS)
            if not await self._beat():
                return None

    async def _beat(self) -> bool:
        """False when the page was closed."""
        try:
            await self._response.write(BEAT)
        except ConnectionError:
            return False
        return True


async def _streamed(request: web.Request, heard: Heard, talk: Talk) -> web.StreamResponse:
    """Tell a browser something for as long as it listens; `heard` says what is news to it."""
    with long_request(request, "streams"):
        return await _listened(request, heard, talk)


async def _listened(request: web.Request, heard: Heard, talk: Talk) -> web.StreamResponse:
    ui = ui_of(request)
    if len(ui.streams) >= STREAMS_MAX:
        raise web.HTTPServiceUnavailable(text="too many pages are open")
    headers = {**HEADERS, "Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    stream = Stream(ui, response)

    def listener(published: DurableEvents) -> None:
        if heard.here(published):
            stream.news.set()

    def listener_elsewhere(moved: RunMoved) -> None:
        if heard.elsewhere(moved):
            stream.news.set()

    engine = ui.parts.engine
    unlisten = engine.listen(listener)
    unlisten_elsewhere = engine.listen_elsewhere(listener_elsewhere, heard.run)
    ui.streams.add(stream.news)
    try:
        await response.prepare(request)  # from now on the page says that it is live
        await stream.tell(partial(_talk_when_ready, engine, talk))
    finally:
        ui.streams.discard(stream.news)
        unlisten()
        unlisten_elsewhere()
    return response


async def _talk_when_ready(engine: EngineLoop, talk: Talk, stream: Stream) -> None:
    """What is looked up at first, and what is heard of then, is everything together."""
    if engine.member is not None:
        await engine.member.news.ready()
    await talk(stream)


async def follow_logs(request: web.Request) -> web.StreamResponse:
    """What the work of a run prints, as it is written."""
    ui, head = run_of(request)
    wanted, after = logs.query_of(request), number_of(request, "after")
    reader = await ui.look(lambda by: open_log(by.read, head.run, wanted))
    watch = logs.LogWatch(reader, after)

    async def talk(stream: Stream) -> None:
        loop = asyncio.get_running_loop()

        def heard() -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(stream.news.set)

        stop = ui.parts.engine.logs.follow(head.run, heard)
        try:
            await _tell_logs(stream, ui, watch)
        finally:
            stop()

    return await _streamed(request, Heard(lambda _news: False, lambda _moved: False), talk)


async def _tell_logs(stream: Stream, ui: Ui, watch: logs.LogWatch) -> None:
    left = LAST_LOOKS
    while stream.going and left:
        found, finished = await ui.look(watch.look)
        if found.last != watch.after:
            watch.after = found.last
            if found.items:
                await stream.say("logs", {"html": logs.rows(found), "last": found.last})
            continue
        if finished and left == LAST_LOOKS:
            await asyncio.to_thread(ui.parts.engine.logs.flush)
        left = left - 1 if finished else LAST_LOOKS
        await stream.rest(LOGS_REST_SECONDS)
    await stream.say("end", {})


async def close_streams(app: web.Application) -> None:
    """A server that stops does not wait for pages that only listen."""
    app[UI].closing = True
    for news in app[UI].streams:
        news.set()


# -- one run -------------------------------------------------------------------------------


class Watch(msgspec.Struct):
    """One page of a run that is open somewhere."""

    ui: Ui
    run: str
    loop: str  # the loop whose panel it shows
    csrf: str  # for the forms in its parts
    may: Mapping[str, bool]
    before: run_facts.Moving | None = None  # how the run stood when it was last told of
    parts: dict[str, str] = {}
    timeline: Timeline | None = None
    ways: dict[tuple[str, ...], int] | None = None  # those that it was told of, and how often

    def see_ways(self, head: Head, by: ReadHandle) -> tuple[int, list[list[Any]]]:
        """Those that tokens took, from the log, and the event up to which it is read."""
        if self.timeline is None:
            self.timeline = by.read.timeline(head)
        else:
            self.timeline.catch_up(by.store, self.run)
        return self.timeline.seq, self.timeline.ways()


async def follow_run(request: web.Request) -> web.StreamResponse:
    ui, head = run_of(request)
    loop, csrf = request.query.get("loop", ""), guard.form_secret(request)
    watch = Watch(ui, head.run, loop, csrf, may(request))

    async def talk(stream: Stream) -> None:
        await _tell_of_run(watch, stream)

    heard = Heard(lambda published: published.run == head.run, lambda _moved: True, head.run)
    return await _streamed(request, heard, talk)


async def _tell_of_run(watch: Watch, stream: Stream) -> None:
    ui = watch.ui
    while stream.going:
        begun = time.perf_counter()
        head = ui.head(watch.run)
        state, net = await ui.state(head), ui.net(head)
        moving = run_facts.moving_of(state)
        if watch.before is None or moving.seq != watch.before.seq:
            await stream.say("run", run_facts.changes(moving, watch.before))
            watch.before = moving
        for name, text in (await _parts(watch, head, net, state)).items():
            if watch.parts.get(name) != text:
                watch.parts[name] = text
                await stream.say("part", {"name": name, "html": text})
        seen = await _tell_ways(watch, head, stream)
        if moving.finished and seen >= moving.seq:
            await stream.say("end", {})
            return
        # What is costly to tell is told less often.
        await asyncio.sleep(max(REST_SECONDS, 10 * (time.perf_counter() - begun)))
        while not (moving.finished or await stream.wait() or _changes_by_time(watch, state)):
            pass


def _changes_by_time(watch: Watch, state: State) -> bool:
    """The estimates of loops do, and where a job is on a cluster or waits for a process."""
    ui = watch.ui
    waits = ui.processes is not None and ui.processes.queued(watch.run) > 0
    return bool(state.loops) or ui.clusters is not None or waits


async def _tell_ways(watch: Watch, head: Head, stream: Stream) -> int:
    """Those that were taken since the page was last told, at first all of them.

    They are in the log, which the state goes ahead of: the answer is how far that is read.
    """
    seq, ways = await watch.ui.look(partial(watch.see_ways, head))
    told, watch.ways = watch.ways, {tuple(way): count for *way, count in ways}
    before = told or {}
    new = [[*way, count - before.get(way, 0)] for way, count in watch.ways.items()]
    new = [one for one in new if one[-1]]
    if new:
        await stream.say("ways", {"ways": new, "moved": told is not None})
    return seq


async def _parts(watch: Watch, head: Head, net: Net, state: State) -> dict[str, str]:
    ui, base = watch.ui, run_path(watch.run)
    loops = run_facts.loop_rows(state, ui.now())
    waits = run_facts.waits_of(net, state, ui.clusters, ui.processes, ui.now())
    failures = await ui.failures(head, net, state)
    given = (base, watch.csrf, watch.may)
    how = (status_of(state), state.finished)
    said = {
        "waits": fragment("waits.html", "waits_list", waits, *given),
        "loops": fragment("loops.html", "loop_cards", loops, base),
        "troubles": fragment("failures.html", "failure_card", failures, *how, *given),
    }
    for row in loops:
        if row["loop"] == watch.loop:
            place = run_facts.loop_place(net, state, watch.loop, ui.clusters)
            said["loop"] = fragment("loops.html", "loop_numbers", row, place)
    return said


# -- lists ---------------------------------------------------------------------------------


class ListWatch(msgspec.Struct):
    """One list of runs that is open somewhere."""

    since: int  # when it was rendered; 0 for a page that does not say it
    shown: Sequence[str]  # its rows
    moved: dict[str, dict[str, Any]] = {}  # since the last message
    begun: set[str] = set()  # since the page was rendered

    def hear(self, published: DurableEvents) -> bool:
        return self.hear_elsewhere(
            RunMoved(
                run=published.run,
                seq=published.first_seq + len(published.events) - 1,
                status=published.status,
                at=published.at,
                finished=published.final is not None,
                begun=published.first_seq == 1,
            )
        )

    def hear_elsewhere(self, one: RunMoved) -> bool:
        if one.begun and len(self.begun) < BEGUN_MAX:
            self.begun.add(one.run)
        if len(self.moved) < CHANGED_MAX or one.run in self.moved:
            self.moved[one.run] = _row(one.status, one.seq, one.at if one.finished else 0)
        return True

    def catch_up(self, by: ReadHandle) -> None:
        """See what happened before this connection: since the page was rendered, or while it had
        lost the one before."""
        if self.since:
            wanted = HeadFilter(created_after=self.since, limit=BEGUN_MAX)
            self.begun.update(head.run for head in by.store.heads(wanted))
        for head in _heads(by.store, self.shown):
            ended = head.updated_at if head.finished else 0
            told = {**_row(head.status, head.seq, ended), "reason": head.reason}
            self.moved.setdefault(head.run, told)


def _row(status: str, events: int, ended: int) -> dict[str, Any]:
    """What a list shows of a run that moves; 0 for one that has not ended."""
    return {"status": status, "events": events, "ended": ended}


async def follow_runs(request: web.Request) -> web.StreamResponse:
    """Counters by status, what runs that moved have come to, and how many began."""
    ui = ui_of(request)
    shown = request.query.getall("run", [])[:CHANGED_MAX]
    watch = ListWatch(number_of(request, "since"), shown)

    async def talk(stream: Stream) -> None:
        await ui.look(watch.catch_up)
        while stream.going:
            await _tell_of_list(watch, ui, stream)
            await asyncio.sleep(LIST_REST_SECONDS)
            while not await stream.wait():
                pass

    return await _streamed(request, Heard(watch.hear, watch.hear_elsewhere), talk)


async def _tell_of_list(watch: ListWatch, ui: Ui, stream: Stream) -> None:
    counts = await counters(ui)  # before anything counts as told: this may fail
    unknown = [run for run, told in watch.moved.items() if "reason" not in told]
    heads = await ui.look(lambda by: _heads(by.store, unknown[:REASONS_MAX]))
    for head in heads:
        if head.run in watch.moved:
            watch.moved[head.run]["reason"] = head.reason
        if head.created_at < watch.since:  # the news of its begin came late
            watch.begun.discard(head.run)
    moved, watch.moved = watch.moved, {}
    begun = len(watch.begun)
    await stream.say("runs", {"moved": moved, "begun": begun, "now": ui.now(), "counts": counts})


def _heads(store: Store, runs: Iterable[str]) -> list[Head]:
    """Of those that there are."""
    found = (store.head(run) for run in runs)
    return [head for head in found if head is not None]


async def follow_approvals(request: web.Request) -> web.StreamResponse:
    """The gates that are open, whenever they are others than before."""
    ui = ui_of(request)
    actor = actor_of(request) if request.query.get("mine") == "yes" else None
    told: list[str] | None = None

    def page(by: ReadHandle) -> list[Approval]:
        return ui.approvals.page(by.store, actor=actor, limit=GATES_MAX, answers=False)

    async def talk(stream: Stream) -> None:
        nonlocal told
        while stream.going:
            rows = await ui.look(page)
            keys = [f"{row.run}/{row.gate}" for row in rows]
            if keys != told:
                told = keys
                await stream.say("gates", {"open": keys, "more": len(keys) == GATES_MAX})
            await asyncio.sleep(LIST_REST_SECONDS)
            while not await stream.wait():
                pass

    return await _streamed(request, Heard(moves_gates, lambda _moved: True), talk)

"""`GET /metrics` for Prometheus, and the counting of requests.

What the engine counts is in `runtime.pulse`. Here are the requests, the process, and what has to be
asked of the store: how many runs there are by status, how the queues of webhooks stand, how large
it is. The store is asked at most every ten seconds, however many look.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from anabranch import __version__
from anabranch.errors import StoreError
from anabranch.operations.read.cluster import ClusterCard
from anabranch.runtime.metrics.registry import Registry
from anabranch.store.hook_ports import Backlog
from anabranch.surfaces.http.guard.connection_limits import is_stream
from anabranch.surfaces.http.io.readers import look
from anabranch.surfaces.http.io.threads import in_thread
from anabranch.surfaces.http.resources.cluster import reader_of
from anabranch.surfaces.http.resources.events import STREAMS
from anabranch.surfaces.http.routes import API, PARTS, SETTINGS, Handler, Route, route_of

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
ASKED_SECONDS = 10.0
REQUEST_SERIES_MAX = 1000  # routes times methods times statuses


class Meters:
    """What one application counts."""

    def __init__(self) -> None:
        self.registry = put = Registry()
        self.requests = put.counter(
            "anabranch_http_requests_total",
            "requests answered, by route, method and status",
            ["route", "method", "status"],
            REQUEST_SERIES_MAX,
        )
        self.seconds = put.histogram(
            "anabranch_http_request_seconds",
            "how long an answer took, by route; streams are not in it",
            ["route"],
        )
        self.asked_at = 0.0
        self.store_bytes = 0
        self.runs: list[tuple[str, str, int]] = []
        self.backlog: Mapping[str, Backlog] = {}
        self.cluster: ClusterCard | None = None  # of a store that servers share
        put.gauge(
            "anabranch_runs",
            "runs in the store, by status and dialect",
            lambda: [((status, dialect), count) for status, dialect, count in self.runs],
            ["status", "dialect"],
        )
        put.gauge(
            "anabranch_webhook_deliveries",
            "deliveries that wait or are dead, by webhook",
            lambda: [
                ((hook, state), getattr(backlog, state))
                for hook, backlog in self.backlog.items()
                for state in ("pending", "dead")
            ],
            ["webhook", "state"],
        )
        put.gauge(
            "anabranch_store_bytes",
            "size of the file of the store with its log of writes",
            lambda: self.store_bytes,
        )
        _watch_process(put)

    def watch_cluster(self) -> None:
        """What the store says of all servers; each also tells what it owns itself."""
        self.registry.gauge(
            "anabranch_partitions_unowned",
            "partitions without an owner whose lease is good",
            lambda: self.cluster.unowned if self.cluster is not None else 0,
        )
        self.registry.gauge(
            "anabranch_messages_waiting",
            "messages between servers that no owner has answered",
            lambda: self.cluster.waiting if self.cluster is not None else 0,
        )


def _watch_process(put: Registry) -> None:
    """Names as the clients of Prometheus have them, so that common dashboards fit."""
    put.gauge(
        "anabranch_build_info",
        "the version that runs; always 1",
        lambda: [((__version__,), 1)],
        ["version"],
    )
    begun = time.time()
    put.gauge("process_start_time_seconds", "when counting started", lambda: begun)
    put.gauge("process_cpu_seconds_total", "processor time", time.process_time, kind="counter")
    put.gauge("process_resident_memory_bytes", "memory in use", _resident_bytes)
    put.gauge("process_open_fds", "open files and connections", _open_files)


def _resident_bytes() -> float:
    with suppress(OSError, ValueError, IndexError):  # only Linux has it
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return float("nan")


def _open_files() -> float:
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return float("nan")


def _size_of(store: str) -> int:
    """With what is written and not yet in its place."""
    size = 0
    for suffix in ("", "-wal"):
        with suppress(OSError):
            size += os.stat(f"{store}{suffix}").st_size
    return size


METERS = web.AppKey("meters", Meters)


async def metrics(request: web.Request) -> web.StreamResponse:
    meters = request.app[METERS]
    if not meters.asked_at or time.monotonic() - meters.asked_at >= ASKED_SECONDS:
        meters.asked_at = time.monotonic()
        with suppress(StoreError):  # while it is away the others tell so; these stay as they were
            found = await look(request, lambda by: (by.store.run_counts(), by.store.backlog()))
            meters.runs, meters.backlog = found
            if request.app[PARTS].store.cluster is not None:
                meters.cluster = await in_thread(reader_of(request).summary)
        meters.store_bytes = _size_of(request.app[SETTINGS].store)
    text = request.app[PARTS].engine.engine_metrics.registry.text() + meters.registry.text()
    return web.Response(body=text.encode(), headers={"Content-Type": MEDIA})


@web.middleware
async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost one, so that it sees the status that the client sees."""
    begin = time.perf_counter()
    status = "cancelled"  # the client has gone
    streamed = False
    try:
        response = await handler(request)
        status, streamed = str(response.status), is_stream(response)
        return response
    except web.HTTPException as error:
        status = str(error.status)
        raise
    finally:
        meters = request.app[METERS]
        route = route_of(request)
        path = route.path if route is not None else _page(request)
        method = request.method if route is not None or path else ""
        meters.requests.add((path, method, status))
        if not streamed:
            meters.seconds.observe(time.perf_counter() - begin, (path,))


def _page(request: web.Request) -> str:
    """The pattern of a page; paths that do not exist are all one."""
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else ""


def mount(app: web.Application) -> None:
    app[METERS] = Meters()
    if app[PARTS].store.cluster is not None:
        app[METERS].watch_cluster()
    streams = app.get(STREAMS)
    if streams is not None:
        app[METERS].registry.gauge(
            "anabranch_event_streams", "clients that follow a run", lambda: len(streams)
        )
    app.middlewares.insert(0, count)


ROUTES = tuple(
    Route(
        "GET", path, "read", metrics, "Metrics in the text format of Prometheus", media="text/plain"
    )
    for path in (f"{API}/metrics", "/metrics")
)

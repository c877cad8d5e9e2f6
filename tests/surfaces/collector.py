"""A collector of OTLP over HTTP in this process, an HTTP service beside it, and a real server."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from hangs import HANG_SECONDS

from .quick_process import QuickProcess, started

SERVER_SECONDS = HANG_SECONDS
_numbers = count(1)  # of the files with what servers complained of


def run(work: Coroutine[Any, Any, None], seconds: float = HANG_SECONDS) -> None:
    """To the end, with a limit so that a hang becomes a failure."""

    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await work

    asyncio.run(limited())


@dataclass(frozen=True, slots=True)
class Seen:
    """A span as it came over the wire."""

    trace: str
    span: str
    parent: str
    name: str
    begin: int
    end: int
    status: int  # 1 is ok, 2 is an error
    message: str
    attributes: Mapping[str, Any]
    events: tuple[tuple[str, Mapping[str, Any]], ...]
    links: tuple[tuple[str, str], ...]
    service: str


class Collector:
    def __init__(self) -> None:
        self.spans: list[Seen] = []
        self.headers: list[Mapping[str, str]] = []
        self.called: list[tuple[str, str]] = []  # path and traceparent of calls to the service
        self.refuse = 0  # so many calls to /flaky yet to be refused
        self.held = asyncio.Event()  # lets /held answer
        self.delay = 0.0  # of /slow
        self.url = ""

    async def export(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        told = ExportTraceServiceRequest()
        told.ParseFromString(body)
        for group in told.resource_spans:
            service = _plain(group.resource.attributes).get("service.name", "")
            for scope in group.scope_spans:
                self.spans.extend(_seen(span, service) for span in scope.spans)
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")

    async def service(self, request: web.Request) -> web.Response:
        self.called.append((request.path, request.headers.get("traceparent", "")))
        if request.path == "/held":
            await self.held.wait()
        if request.path == "/slow":
            await asyncio.sleep(self.delay)
        if request.path == "/flaky" and self.refuse > 0:
            self.refuse -= 1
            return web.Response(status=503)
        return web.json_response({"fine": True})

    def named(self, name: str) -> list[Seen]:
        return [span for span in self.spans if span.name == name]

    async def until(self, fits: Callable[[], object]) -> None:
        async with asyncio.timeout(SERVER_SECONDS):
            while not fits():
                await asyncio.sleep(0.02)


def _seen(span: Any, service: str) -> Seen:
    return Seen(
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        name=span.name,
        begin=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        status=span.status.code,
        message=span.status.message,
        attributes=_plain(span.attributes),
        events=tuple((one.name, _plain(one.attributes)) for one in span.events),
        links=tuple((one.trace_id.hex(), one.span_id.hex()) for one in span.links),
        service=service,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@asynccontextmanager
async def collector() -> AsyncIterator[Collector]:
    made = Collector()
    app = web.Application()
    app.router.add_post("/v1/traces", made.export)
    app.router.add_route("*", "/{rest:.*}", made.service)
    runner = web.AppRunner(app, shutdown_timeout=0.2)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        made.held.set()
        await runner.cleanup()


@dataclass(slots=True)
class Process:
    """A server of its own."""

    process: QuickProcess
    url: str
    session: aiohttp.ClientSession
    errors_file: Path

    @property
    def errors(self) -> bytes:
        return self.errors_file.read_bytes()

    async def post(self, path: str, body: Any, **headers: str) -> Any:
        address = f"{self.url}/api/v1{path}"
        async with self.session.post(address, json=body, headers=headers) as answer:
            assert answer.status < 300, await answer.text()
            return await answer.json()

    async def get(self, path: str) -> Any:
        async with self.session.get(f"{self.url}/api/v1{path}") as answer:
            return await answer.json()

    async def start(self, definition: str, **headers: str) -> str:
        return str((await self.post("/runs", {"definition": definition}, **headers))["run"])

    async def ended(self, run: str) -> str:
        while (found := await self.get(f"/runs/{run}/wait?seconds=20"))["status"] == "running":
            pass
        return str(found["status"])

    def kill(self) -> None:
        self.process.kill()

    async def stop(self) -> int:
        self.process.terminate()
        return await self.process.wait()


def told(endpoint: str, **more: str) -> dict[str, str]:
    """The standard variables; spans are sent five times a second."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
        "OTEL_BSP_SCHEDULE_DELAY": "200",
        **more,
    }


def untold() -> dict[str, str]:
    """What a process finds around it, without a word about traces."""
    return {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}


@asynccontextmanager
async def worker(url: str, pool: str) -> AsyncIterator[None]:
    """`anabranch worker`, called w1, without a word about traces."""
    words = ("worker", "--server", url, "--pool", pool, "--name", "w1")
    async with started("-m", "anabranch", *words, env=untold()):
        yield


@asynccontextmanager
async def process(
    store: Path, environment: Mapping[str, str], *words: str
) -> AsyncIterator[Process]:
    """`anabranch serve`; what is left of it at the end is killed."""
    errors = store.parent / f"errors-{next(_numbers)}"
    serve = ("-m", "anabranch", "serve", "--port", "0", "--json", "--store", str(store), *words)
    env = {**untold(), **environment}
    async with started(*serve, env=env, cwd=store.parent, errors=errors) as made:
        async with asyncio.timeout(SERVER_SECONDS):
            line = await made.read_line()
        if b'"url"' not in line:
            await made.wait()
            raise AssertionError((line + errors.read_bytes()).decode())
        async with aiohttp.ClientSession() as session:
            yield Process(made, json.loads(line)["url"], session, errors)

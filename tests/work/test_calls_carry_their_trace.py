"""Whatever work calls over HTTP carries the span of its job, and nothing where nobody traces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from anabranch.work import tracing
from anabranch.work.kinds.http.performer import Http
from anabranch.work.participants.http import HttpParticipant, ParticipantClient
from anabranch.work.participants.limits import HttpLimits
from anabranch.work.participants.port import ParticipantRequest
from anabranch.work.port import Task
from anabranch.work.rule.api import ApiCaller, ApiRequest, request_for
from anabranch.work.secrets.redaction import Redactor

PLACE = tracing.traceparent("r1", "1.0", 1)


@asynccontextmanager
async def service() -> AsyncIterator[tuple[str, list[str | None]]]:
    """An address, and the `traceparent` of every call to it."""
    heard: list[str | None] = []

    async def take(request: web.Request) -> web.Response:
        heard.append(request.headers.get("traceparent"))
        return web.json_response({"dispatch_id": "d1", "fine": True})

    app = web.Application()
    app.router.add_route("*", "/", take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/", heard
    finally:
        await runner.cleanup()


async def call_task(url: str, **more: Any) -> None:
    http = Http()
    inputs = {"url": url, "method": "GET", **more}
    task = Task(run="r1", step="a", job="1.0", attempt=1, key="k", kind="http", inputs=inputs)
    assert (await http.perform(task)).status == "ok"
    await http.close()


async def call_rule(url: str) -> None:
    class Call:
        body, headers, method, timeout_ms = None, dict[str, Any](), "GET", None

        class url:  # noqa: N801 - stands for a template
            @staticmethod
            def render(_names: Any, _encode: Any) -> str:
                return address

    address = url
    caller = ApiCaller()
    request: ApiRequest = request_for(Call, {}, "k")  # type: ignore[arg-type]
    await caller.call(request)
    await caller.close()


async def call_participant(url: str) -> None:
    sessions = ParticipantClient(HttpLimits())
    one = HttpParticipant(url, sessions, {}, Redactor())
    asked = ParticipantRequest(
        participant="p", dispatch_id="d1", run_id="r1", step_id="a", service_type="x", input={}
    )
    await one.ask(asked)
    await sessions.close()


@pytest.mark.parametrize("call", [call_task, call_rule, call_participant])
def test_calls_carry_the_span_of_their_job_where_there_is_one(call: Any) -> None:
    async def work() -> None:
        async with service() as (url, heard):
            await call(url)
            with tracing.working_in(PLACE):
                await call(url)
            await call(url)
            assert heard == [None, PLACE, None]

    asyncio.run(work())


def test_a_task_that_names_a_span_of_its_own_keeps_it() -> None:
    async def work() -> None:
        own = tracing.traceparent("other", "1.0", 1)
        async with service() as (url, heard):
            with tracing.working_in(PLACE):
                await call_task(url, headers={"traceparent": own})
            assert heard == [own]

    asyncio.run(work())

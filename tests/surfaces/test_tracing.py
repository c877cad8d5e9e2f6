"""Spans follow from committed events: one for each run, step run and execution of a job."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from anabranch import Engine, Toolbox
from anabranch.surfaces.spans import Builder
from anabranch.surfaces.tracing import Tracer, standard_endpoint
from anabranch.work import tracing as ids

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: traced}
workflow:
  - {step: first, tool: {kind: noop}, next: {arcs: [{step: second}]}}
  - {step: second, tool: {kind: flaky}, spec: {retry: {attempts: 2, delay: 1ms}}}
"""


def box() -> Toolbox:
    made = Toolbox()
    calls: list[int] = []

    @made.tool("flaky")
    async def flaky() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("not yet")
        return len(calls)

    return made


def by_name(exporter: InMemorySpanExporter) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


async def traced(engine: Engine, exporter: InMemorySpanExporter, definition: str) -> str:
    parts = engine._open
    tracer = Tracer(parts.store, exporter)
    stop = parts.engine.listen(tracer.hear)
    tracer.start()
    try:
        run = await engine.start(definition, labels={"tenant": "a"})
        await engine.wait(run)
    finally:
        stop()
        await asyncio.to_thread(tracer.close)
    return run


def test_a_run_its_steps_and_every_attempt_of_a_job_are_spans_of_one_trace() -> None:
    async def work() -> None:
        exporter = InMemorySpanExporter()
        async with Engine(":memory:", toolbox=box()) as engine:
            run = await traced(engine, exporter, PLAYBOOK)
        spans = by_name(exporter)
        assert {name: len(found) for name, found in spans.items()} == {
            "traced": 1, "first": 1, "second": 1, "first job": 1, "second job": 2,
        }  # fmt: skip
        (root,) = spans["traced"]
        assert root.parent is None
        assert root.attributes["anabranch.run"] == run
        assert root.attributes["anabranch.status"] == "completed"
        assert root.attributes["anabranch.label.tenant"] == "a"
        everything = exporter.get_finished_spans()
        assert {span.context.trace_id for span in everything} == {ids.trace_id(run)}
        (second,) = spans["second"]
        assert second.parent.span_id == root.context.span_id
        failed, good = spans["second job"]
        assert failed.parent.span_id == second.context.span_id
        assert (failed.status.status_code, good.status.status_code) == (
            StatusCode.ERROR,
            StatusCode.OK,
        )
        assert "not yet" in failed.status.description
        assert root.start_time <= failed.start_time <= failed.end_time <= root.end_time
        assert len({span.context.span_id for span in everything}) == len(everything)

    asyncio.run(work())


def test_a_run_whose_beginning_this_process_has_not_seen_is_read_from_its_log() -> None:
    """As after a restart: the spans are the same, from wherever it is heard."""

    async def work() -> None:
        async with Engine(":memory:", toolbox=box()) as engine:
            parts = engine._open
            heard: list[Any] = []
            stop = parts.engine.listen(heard.append)
            run = await engine.start(PLAYBOOK)
            await engine.wait(run)
            stop()
            whole = Builder(parts.store)
            spans = [span for news in heard for span in whole.hear(news)]
            assert len(heard) > 2
            for begin in range(1, len(heard)):
                late = Builder(parts.store)
                found = [span for news in heard[begin:] for span in late.hear(news)]
                assert found == spans[len(spans) - len(found) :]
                assert found[-1].name == "traced"

    asyncio.run(work())


def test_a_redriven_run_is_linked_to_its_origin() -> None:
    async def work() -> None:
        exporter = InMemorySpanExporter()
        failing = PLAYBOOK.replace("attempts: 2", "attempts: 1")
        async with Engine(":memory:", toolbox=box()) as engine:
            origin = await traced(engine, exporter, failing)
            (root,) = by_name(exporter)["traced"]
            assert root.status.status_code is StatusCode.ERROR
            exporter = InMemorySpanExporter()  # closing the first tracer has ended its exporter
            tracer = Tracer(engine._open.store, exporter)
            stop = engine._open.engine.listen(tracer.hear)
            tracer.start()
            redriven = await engine.redrive(origin)
            await engine.wait(redriven)
            stop()
            await asyncio.to_thread(tracer.close)
        again, *_ = (
            span
            for span in by_name(exporter)["traced"]  # the first run's is sent once more
            if span.attributes["anabranch.run"] == redriven
        )
        (link,) = again.links
        assert (link.context.trace_id, link.context.span_id) == (
            ids.trace_id(origin),
            ids.run_span(origin),
        )

    asyncio.run(work())


@pytest.mark.parametrize("on", [False, True])
def test_http_calls_carry_the_trace_of_their_job_where_traces_are_on(on: bool) -> None:
    headers: list[dict[str, str]] = []

    async def take(request: web.Request) -> web.Response:
        headers.append({name.lower(): value for name, value in request.headers.items()})
        return web.json_response({})

    async def work() -> None:
        app = web.Application()
        app.router.add_get("/", take)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
        definition = (
            "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: call}\nworkflow:\n"
            f"  - {{step: call, tool: {{kind: http, url: '{url}'}}}}\n"
        )
        try:
            async with Engine(":memory:") as engine:
                engine._open.engine.traces = on
                run = await engine.start(definition)
                assert (await engine.wait(run)).status == "completed"
        finally:
            await runner.cleanup()
        (sent,) = headers
        assert sent.get("traceparent") == (ids.traceparent(run, "1.0", 1) if on else None)

    asyncio.run(work())


def test_what_happens_in_a_span_is_a_moment_of_it() -> None:
    asking = PLAYBOOK.replace("{kind: noop}", "{kind: decision, ask: Go on?}", 1)

    async def work() -> None:
        exporter = InMemorySpanExporter()
        async with Engine(":memory:", toolbox=box()) as engine:
            parts = engine._open
            tracer = Tracer(parts.store, exporter)
            stop = parts.engine.listen(tracer.hear)
            tracer.start()
            run = await engine.start(asking)
            await engine.wait(run, standing=True)
            await engine.pause(run, actor="ann", reason="lunch")
            await engine.resume(run, actor="ann")
            await engine.decide(run, "first", "fulfil", actor="ben")
            await engine.wait(run)
            stop()
            await asyncio.to_thread(tracer.close)
        spans = by_name(exporter)
        (root,), (first,), (second,) = spans["traced"], spans["first"], spans["second"]
        assert [event.name for event in root.events] == ["run.paused", "run.resumed"]
        assert root.events[0].attributes["anabranch.reason"] == "lunch"
        assert [event.name for event in first.events] == ["gate.opened", "gate.decided"]
        assert first.events[1].attributes["anabranch.actor"] == "ben"
        (retrying,) = second.events
        assert (retrying.name, retrying.attributes["anabranch.attempt"]) == ("job.retrying", 2)
        assert first.start_time <= first.events[0].timestamp <= first.end_time

    asyncio.run(work())


def test_what_waits_is_bounded_and_what_does_not_fit_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.surfaces.tracing.QUEUE_MAX", 3)

    async def work() -> None:
        async with Engine(":memory:", toolbox=box()) as engine:
            parts = engine._open
            tracer = Tracer(parts.store, InMemorySpanExporter())  # nobody takes anything from it
            stop = parts.engine.listen(tracer.hear)
            heard: list[Any] = []
            parts.engine.listen(heard.append)
            for _ in range(3):
                await engine.wait(await engine.start(PLAYBOOK))
            stop()
            assert tracer.dropped.value() == len(heard) - 3 > 0

    asyncio.run(work())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", True),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", False),
        ("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-later", True),
        ("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", None),
        ("ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", None),
        ("00-00000000000000000000000000000000-b7ad6b7169203331-01", None),
        ("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", None),
        ("00-0AF7651916CD43DD8448EB211C80319C-B7AD6B7169203331-01", None),
        ("nonsense", None),
        ("", None),
    ],
)
def test_a_traceparent_is_read_as_the_standard_says(text: str, said: bool | None) -> None:
    place = ids.read(text)
    assert (place.sampled if place is not None else None) is said
    if place is not None and text.startswith("00"):
        assert str(place) == text


@pytest.mark.parametrize(
    ("given", "endpoint"),
    [
        ({}, ""),
        ({"OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/traces"),
        ({"OTLP_ENDPOINT": "http://c", "OTLP_TRACES_ENDPOINT": "http://t/x"}, "http://t/x"),
        ({"OTLP_ENDPOINT": "http://c:4318", "SDK_DISABLED": "true"}, ""),
        ({"OTLP_ENDPOINT": "http://c:4318", "TRACES_EXPORTER": "none"}, ""),
        ({"TRACES_EXPORTER": "otlp"}, "http://localhost:4318/v1/traces"),
    ],
)
def test_the_variables_of_opentelemetry_say_where_traces_go(
    given: dict[str, str], endpoint: str
) -> None:
    names = {
        key if key.startswith(("SDK", "TRACES")) else f"EXPORTER_{key}": value
        for key, value in given.items()
    }
    assert standard_endpoint({f"OTEL_{key}": value for key, value in names.items()}) == endpoint

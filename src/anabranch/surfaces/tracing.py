"""Traces for OpenTelemetry: a span for every run, step run and execution of a job.

They are built from committed events and from nothing else, on a thread of their own: the engine
hands over what became durable and goes on. A run that this process has not seen from its beginning
is read from its log, so a restart leaves no hole. Spans are exported when they end; their ids
follow from the run (`work.tracing`), and a run's children and redrives are linked to it.

Needs the extra `otel`. Without the setting `otel_endpoint` none of this is imported.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Full, Queue
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, InputError
from anabranch.kernel import events as e
from anabranch.runtime.core import history
from anabranch.runtime.effects import Published
from anabranch.store.ports import Store
from anabranch.work import tracing as ids

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("anabranch.tracing")

QUEUE_MAX = 10_000  # changes that wait to be looked at; more are dropped, with a warning
RUNS_MAX = 10_000  # runs with open spans in memory; the others are read again when they move
SCOPE = "anabranch"

Attributes = dict[str, str | int | bool]


@dataclass(slots=True)
class _Open:
    """A span that has begun."""

    name: str
    since: int
    parent: int | None
    attributes: Attributes


@dataclass(slots=True)
class _Trace:
    """What is known of a run."""

    run: str
    seq: int = 0
    root: _Open | None = None
    links: list[tuple[int, int]] = field(default_factory=list)  # trace, span
    tokens: dict[int, _Open] = field(default_factory=dict)
    jobs: dict[tuple[str, int], _Open] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """One that is over, before it becomes OpenTelemetry's."""

    trace: int
    span: int
    parent: int | None
    name: str
    begin: int  # milliseconds
    end: int
    error: str
    attributes: Attributes
    links: Sequence[tuple[int, int]] = ()


class Builder:
    """Events in, finished spans out. No thread, no clock, no OpenTelemetry."""

    def __init__(self, read: Callable[[str], Sequence[Any]]) -> None:
        self._read = read
        self._traces: OrderedDict[str, _Trace] = OrderedDict()

    def hear(self, news: Published) -> list[Span]:
        trace = self._traces.pop(news.run, None)
        if trace is None or trace.seq != news.first_seq - 1:
            trace = self._caught_up(news)
        spans: list[Span] = []
        for event in news.events:
            self._apply(trace, event, news.at, spans)
        trace.seq = news.first_seq + len(news.events) - 1
        if news.final is None:
            self._traces[news.run] = trace
            if len(self._traces) > RUNS_MAX:
                self._traces.popitem(last=False)
        return spans

    def _caught_up(self, news: Published) -> _Trace:
        """The run as it stood before this news; its spans that ended then were exported then."""
        trace = _Trace(news.run)
        if news.first_seq > 1:
            for at, event in history(self._read(news.run))[: news.first_seq - 1]:
                self._apply(trace, event, at, [])
        return trace

    def _apply(self, trace: _Trace, event: e.Event, at: int, spans: list[Span]) -> None:
        match event:
            case e.RunStarted():
                trace.root = _Open(event.name, at, None, _run_attributes(event))
                trace.links = _links(event)
            case e.TokenCreated():
                parent = ids.run_span(trace.run)
                known: Attributes = {"anabranch.step": event.step, "anabranch.token": event.token}
                trace.tokens[event.token] = _Open(event.step, at, parent, known)
            case e.TokenFinished():
                self._end_token(trace, event, at, spans)
            case e.JobStarted():
                self._begin_job(trace, event, at)
            case e.JobReported():
                fault = event.answer.fault
                error = f"{fault.kind}: {fault.message}" if fault is not None else ""
                self._end_job(trace, event.job, at, error, spans)
            case e.JobTimedOut():
                self._end_job(trace, event.job, at, "timed out", spans)
            case e.JobLost():
                self._end_job(trace, event.job, at, f"lost: {event.reason}", spans)
            case e.JobParked() | e.JobDischarged():
                self._end_job(trace, event.job, at, "", spans)
            case e.RunFinished():
                self._end_run(trace, event, at, spans)
            case _:
                pass

    def _begin_job(self, trace: _Trace, event: e.JobStarted, at: int) -> None:
        token = int(event.job.partition(".")[0])
        step = trace.tokens.get(token)
        known: Attributes = {"anabranch.job": event.job, "anabranch.attempt": event.attempt}
        known["anabranch.worker"] = event.worker
        name = f"{step.name} job" if step is not None else "job"
        parent = ids.token_span(trace.run, token)
        trace.jobs[event.job, event.attempt] = _Open(name, at, parent, known)
        trace.attempts[event.job] = event.attempt

    def _end_job(self, trace: _Trace, job: str, at: int, error: str, spans: list[Span]) -> None:
        attempt = trace.attempts.pop(job, 0)
        begun = trace.jobs.pop((job, attempt), None)
        if begun is not None:
            spans.append(_span(trace, ids.job_span(trace.run, job, attempt), begun, at, error))

    def _end_token(self, trace: _Trace, event: e.TokenFinished, at: int, spans: list[Span]) -> None:
        begun = trace.tokens.pop(event.token, None)
        if begun is None:
            return
        begun.attributes["anabranch.ending"] = event.ending
        error = f"{event.fault.kind}: {event.fault.message}" if event.fault is not None else ""
        spans.append(_span(trace, ids.token_span(trace.run, event.token), begun, at, error))

    def _end_run(self, trace: _Trace, event: e.RunFinished, at: int, spans: list[Span]) -> None:
        if trace.root is None:
            return
        trace.root.attributes["anabranch.status"] = event.status
        error = ""
        if event.status != "completed":
            error = event.problem.message if event.problem is not None else event.status
        span = ids.run_span(trace.run)
        spans.append(_span(trace, span, trace.root, at, error, links=trace.links))


def _run_attributes(event: e.RunStarted) -> Attributes:
    known: Attributes = {
        "anabranch.run": event.run,
        "anabranch.definition": event.definition,
        "anabranch.name": event.name,
    }
    return {**known, **{f"anabranch.label.{key}": text for key, text in event.labels.items()}}


def _links(event: e.RunStarted) -> list[tuple[int, int]]:
    links = []
    if event.parent:
        run, _, job = event.parent.partition("/")
        name, _, attempt = job.partition("#")
        number = int(attempt) if attempt.isdecimal() else 1
        links.append((ids.trace_id(run), ids.job_span(run, name, number)))
    if event.origin:
        links.append((ids.trace_id(event.origin), ids.run_span(event.origin)))
    return links


def _span(
    trace: _Trace,
    span: int,
    begun: _Open,
    at: int,
    error: str,
    *,
    links: Sequence[tuple[int, int]] = (),
) -> Span:
    attributes: Attributes = {**begun.attributes, "anabranch.run": trace.run}
    trace_id = ids.trace_id(trace.run)
    end = max(at, begun.since)
    return Span(
        trace_id, span, begun.parent, begun.name, begun.since, end, error, attributes, links
    )


class Tracer:
    """Listens to an engine and exports. `hear` is the listener; it never waits."""

    def __init__(self, store: Store, exporter: SpanExporter, service: str = "anabranch") -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._resource = Resource.create({"service.name": service})
        self._processor = BatchSpanProcessor(exporter)
        self._builder = Builder(store.read)
        self._queue: Queue[Published | None] = Queue(QUEUE_MAX)
        self.dropped = 0
        self._thread = threading.Thread(target=self._work, name="anabranch-traces", daemon=True)
        self._thread.start()

    def hear(self, news: Published) -> None:
        try:
            self._queue.put_nowait(news)
        except Full:
            if not self.dropped:
                log.warning("traces cannot keep up: some spans are left out")
            self.dropped += 1

    def close(self) -> None:
        """Export what has ended; blocks for a moment."""
        self._queue.put(None)
        self._thread.join()
        self._processor.shutdown()  # type: ignore[no-untyped-call, unused-ignore]

    def _work(self) -> None:
        while (news := self._queue.get()) is not None:
            try:
                for span in self._builder.hear(news):
                    self._processor.on_end(_readable(span, self._resource))
            except AnabranchError as error:
                log.warning("run %s is not traced: %s", news.run, error.message)
            except Exception:
                log.exception("run %s is not traced", news.run)


def _readable(span: Span, resource: Any) -> Any:
    """The finished span as the exporters of OpenTelemetry want it."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    def context(trace: int, number: int) -> SpanContext:
        return SpanContext(trace, number, is_remote=False, trace_flags=TraceFlags(1))

    attributes: Mapping[str, Any] = span.attributes
    status = Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK)
    return ReadableSpan(
        name=span.name,
        context=context(span.trace, span.span),
        parent=context(span.trace, span.parent) if span.parent is not None else None,
        resource=resource,
        attributes=attributes,
        links=[Link(context(*each)) for each in span.links],
        kind=SpanKind.INTERNAL,
        instrumentation_scope=InstrumentationScope(SCOPE),
        status=status,
        start_time=span.begin * 1_000_000,
        end_time=span.end * 1_000_000,
    )


def otlp_exporter(endpoint: str) -> SpanExporter:
    """The exporter for an OTLP collector over HTTP, such as http://localhost:4318/v1/traces."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise InputError(
            "otel_endpoint is set, but OpenTelemetry is not installed: "
            "pip install 'anabranch[otel]'",
            code="no_otel",
        ) from None
    return OTLPSpanExporter(endpoint=endpoint)

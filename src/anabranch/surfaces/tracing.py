"""Traces for OpenTelemetry: what `surfaces.spans` works out, exported over OTLP.

All of it happens on threads of their own. The engine hands over what became durable and goes on;
whatever waits is bounded, and what does not fit is left out and counted. A collector that is away
costs spans and nothing else, also when the server stops.

Spans wait for some seconds before they are sent, and a crash loses those that wait. So the first
thing a tracer does is to send again what ended just before the last event that is in the log when
it begins: spans have the same ids whoever makes them.

Needs the extra `otel`. Where nobody asks for traces nothing of it is imported.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Full, Queue
from typing import TYPE_CHECKING, Any

from anabranch.errors import AnabranchError, InputError
from anabranch.runtime.effects import DurableEvents
from anabranch.runtime.metrics.registry import Counter
from anabranch.store.ports import Store
from anabranch.surfaces.spans import Builder, Span

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger("anabranch.tracing")

QUEUE_MAX = 5_000  # changes that wait to be looked at; more are left out, with a warning
CLOSE_SECONDS = 5.0  # how long a server that stops waits for the collector
AGAIN_MS = 15_000  # spans that ended so shortly before a crash may not have been sent
AGAIN_ROWS = 2_000  # of the log, at most
DEFAULT_ENDPOINT = "http://localhost:4318"
INSTALL = "pip install 'anabranch[otel]'"


def standard_endpoint(environment: Mapping[str, str] | None = None) -> str:
    """Where the variables of OpenTelemetry say that traces go; empty: nowhere."""
    env = os.environ if environment is None else environment

    def given(name: str) -> str:
        return env.get(name, "").strip()

    exporter = given("OTEL_TRACES_EXPORTER").lower()
    if given("OTEL_SDK_DISABLED").lower() == "true" or exporter == "none":
        return ""
    whole, base = given("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), given("OTEL_EXPORTER_OTLP_ENDPOINT")
    if whole:
        return whole
    if not base and exporter == "otlp":
        base = DEFAULT_ENDPOINT
    return f"{base.rstrip('/')}/v1/traces" if base else ""


def otlp_exporter(endpoint: str) -> SpanExporter:
    """The exporter for an OTLP collector over HTTP, such as http://localhost:4318/v1/traces.

    Its headers, certificates, compression and timeout come from `OTEL_EXPORTER_OTLP_…`.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        said = f"traces are configured, but OpenTelemetry is not installed: {INSTALL}"
        raise InputError(said, code="no_otel") from None
    return OTLPSpanExporter(endpoint=endpoint)


class Tracer:
    """Listens to an engine and exports. `hear` is the listener; it never waits."""

    def __init__(self, store: Store, exporter: SpanExporter) -> None:
        self._store = store
        self._exporter = exporter
        self._builder = Builder(store)
        self._known_to = store.positions()  # rows that somebody before us has heard of
        self._queue: Queue[DurableEvents | None] = Queue(QUEUE_MAX)
        self._thread: threading.Thread | None = None
        self.dropped = Counter(
            "anabranch_trace_changes_dropped_total",
            "changes of runs that are in no trace, because too many waited",
        )

    def start(self) -> None:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._processor = BatchSpanProcessor(self._exporter)
        self._readable = converter()
        self._thread = threading.Thread(target=self._work, name="anabranch-traces", daemon=True)
        self._thread.start()

    def hear(self, news: DurableEvents) -> None:
        try:
            self._queue.put_nowait(news)
        except Full:
            if not self.dropped.value():
                log.warning("traces cannot keep up: some spans are left out")
            self.dropped.add()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Export what has ended, if that is done in time; blocks for so long at most."""
        if self._thread is None:
            return
        ending = threading.Thread(target=self._end, name="anabranch-traces-end", daemon=True)
        ending.start()
        ending.join(seconds)
        if ending.is_alive():
            log.warning("the collector does not answer: the last spans are left out")

    def _end(self) -> None:
        assert self._thread is not None
        self._queue.put(None)
        self._thread.join()
        self._processor.shutdown()  # type: ignore[no-untyped-call, unused-ignore]

    # -- on the thread -----------------------------------------------------------------------

    def _work(self) -> None:
        with suppress(AnabranchError):  # the log cannot be read: then nothing is sent again
            self._send_again()
        while (news := self._queue.get()) is not None:
            try:
                self._send(self._builder.hear(news))
            except AnabranchError as error:
                log.warning("run %s is not traced: %s", news.run, error.message)
            except Exception:
                log.exception("run %s is not traced", news.run)

    def _send_again(self) -> None:
        """What ended shortly before the last event of our predecessor."""
        if self._store.cluster is not None:
            return  # the others have traced what they did
        last = self._known_to[0]
        rows = self._store.feed(max(0, last - AGAIN_ROWS), AGAIN_ROWS)
        rows = [row for row in rows if row.position <= last]
        if not rows:
            return
        after = rows[-1].at - AGAIN_MS
        ends = {row.run: row.first_seq + row.count - 1 for row in rows if row.at >= after}
        for run, seq in ends.items():
            self._send(self._builder.ended_since(run, after, seq))

    def _send(self, spans: list[Span]) -> None:
        for span in spans:
            self._processor.on_end(self._readable(span))


def converter() -> Callable[[Span], ReadableSpan]:
    """Makes finished spans what the exporters of OpenTelemetry want."""
    from opentelemetry.sdk.trace import Event, ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
    from opentelemetry.trace.status import Status, StatusCode

    from anabranch import __version__

    resource, scope = _resource(), InstrumentationScope("anabranch", __version__)

    def context(trace: int, number: int, *, remote: bool = False) -> SpanContext:
        return SpanContext(trace, number, is_remote=remote, trace_flags=TraceFlags(1))

    def converted(span: Span) -> ReadableSpan:
        parent = None
        if span.parent is not None:
            parent = context(span.trace, span.parent, remote=span.from_outside)
        moments = [Event(one.name, one.attributes, one.at * 1_000_000) for one in span.moments]
        failed = Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.OK)
        attributes: Mapping[str, Any] = span.attributes
        return ReadableSpan(
            name=span.name,
            context=context(span.trace, span.span),
            parent=parent,
            resource=resource,
            attributes=attributes,
            events=moments,
            links=[Link(context(*each)) for each in span.links],
            kind=SpanKind.INTERNAL,
            instrumentation_scope=scope,
            status=failed,
            start_time=span.begin * 1_000_000,
            end_time=span.end * 1_000_000,
        )

    return converted


def _resource() -> Resource:
    """Who sends them: `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES`, or just our name."""
    from opentelemetry.sdk.resources import Resource

    named = os.environ.get("OTEL_SERVICE_NAME") or any(
        pair.strip().startswith("service.name=")
        for pair in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    )
    return Resource.create({} if named else {"service.name": "anabranch"})

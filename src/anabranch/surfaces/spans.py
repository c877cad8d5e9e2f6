"""Spans of runs, step runs and executions of jobs, worked out from committed events.

    events of a run ─▶ Builder ─▶ finished spans

Nothing else goes in: no clock, no thread, no OpenTelemetry. A run that is not known from its
beginning is read from its log, so it does not matter which process saw the beginning. What happens
within a span without being one itself (a retry is due, a gate opens, somebody pauses the run) is a
moment of it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from anabranch.errors import DamagedRun
from anabranch.kernel import events as e
from anabranch.kernel.jobs import token_of
from anabranch.kernel.values import Fault
from anabranch.runtime.effects import DurableEvents
from anabranch.runtime.live_run import history
from anabranch.store.ports import Store
from anabranch.work import tracing as ids

RUNS_MAX = 10_000  # with open spans in memory; the others are read again when they move
DIALECTS_MAX = 1_000
MOMENTS_MAX = 128  # of one span; OpenTelemetry's own limit
TEXT_MAX = 2_000  # letters of an error

Attributes = dict[str, str | int | bool]


class Moment(NamedTuple):
    name: str
    at: int  # milliseconds
    attributes: Attributes


class _Open(msgspec.Struct):
    """A span that has begun."""

    span: int
    name: str
    since: int
    parent: int | None
    attributes: Attributes
    moments: list[Moment] = []

    def note(self, name: str, at: int, **attributes: str | int) -> None:
        if len(self.moments) < MOMENTS_MAX:
            known: Attributes = {f"anabranch.{key}": value for key, value in attributes.items()}
            self.moments.append(Moment(name, at, known))


class _Trace(msgspec.Struct):
    """What is known of a run."""

    run: str
    trace: int
    sampled: bool = True
    dialect: str = ""
    seq: int = 0
    root: _Open | None = None
    links: Sequence[tuple[int, int]] = ()  # trace, span
    tokens: dict[int, _Open] = {}
    jobs: dict[str, _Open] = {}
    gates: dict[str, int] = {}  # gate → token


class Span(msgspec.Struct, frozen=True):
    """One that is over, before it becomes OpenTelemetry's."""

    trace: int
    span: int
    parent: int | None
    name: str
    begin: int  # milliseconds
    end: int
    error: str
    attributes: Attributes
    moments: Sequence[Moment] = ()
    links: Sequence[tuple[int, int]] = ()
    from_outside: bool = False  # its parent is a span of somebody else


class Builder:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._traces: OrderedDict[str, _Trace] = OrderedDict()
        self._dialects: OrderedDict[str, str] = OrderedDict()

    def hear(self, news: DurableEvents) -> list[Span]:
        """The spans that end with this."""
        trace = self._traces.pop(news.run, None)
        if trace is None or trace.seq != news.first_seq - 1:
            trace = self._caught_up(news.run, news.first_seq - 1)
        spans: list[Span] = []
        for event in news.events:
            self._apply(trace, event, news.at, spans)
        trace.seq = news.first_seq + len(news.events) - 1
        if news.final is None:
            self._traces[news.run] = trace
            if len(self._traces) > RUNS_MAX:
                self._traces.popitem(last=False)
        return spans if trace.sampled else []

    def ended_since(self, run: str, after: int, seq: int) -> list[Span]:
        """The spans of a run up to its event `seq` that ended at this instant or later."""
        spans: list[Span] = []
        trace = self._caught_up(run, seq, spans)
        return [span for span in spans if span.end >= after] if trace.sampled else []

    def _caught_up(self, run: str, seq: int, spans: list[Span] | None = None) -> _Trace:
        """The run as it stood after its event `seq`."""
        trace = _Trace(run, ids.trace_id(run))
        if seq > 0:
            with suppress(DamagedRun):  # then its trace begins with what is heard from now on
                for at, event in history(self._store.read(run), run=run)[:seq]:
                    self._apply(trace, event, at, [] if spans is None else spans)
        trace.seq = seq
        return trace

    # -- one event ---------------------------------------------------------------------------

    def _apply(self, trace: _Trace, event: e.Event, at: int, spans: list[Span]) -> None:
        match event:
            case e.RunStarted():
                self._begin_run(trace, event, at)
            case e.TokenCreated():
                _begin_token(trace, event, at)
            case e.JobStarted():
                _begin_job(trace, event, at)
            case e.JobReported(job=job, answer=answer):
                _end_job(trace, job, at, answer.status, spans, answer.fault)
            case e.JobTimedOut(job=job):
                _end_job(trace, job, at, "timeout", spans, Fault("timeout", "timed out"))
            case e.JobLost(job=job, reason=reason):
                _end_job(trace, job, at, "lost", spans, Fault("lost", f"lost: {reason}"))
            case e.JobContinued(job=job):
                _end_job(trace, job, at, "parked", spans)
            case e.JobDischarged(job=job):
                _end_job(trace, job, at, "cancelled", spans)
            case e.TokenFinished():
                _end_token(trace, event, at, spans)
            case e.RunFinished():
                _end_run(trace, event, at, spans)
            case _:
                _note(trace, event, at)

    def _begin_run(self, trace: _Trace, event: e.RunStarted, at: int) -> None:
        outer = ids.read(event.trace)
        if outer is not None:
            trace.trace, trace.sampled = outer.trace, outer.sampled
        trace.dialect = self._dialect(event.definition)
        labels = {f"anabranch.label.{key}": text for key, text in event.labels.items()}
        known: Attributes = {
            "anabranch.definition": event.definition,
            "anabranch.name": event.name,
            **labels,
        }
        parent = outer.span if outer is not None else None
        trace.root = _Open(ids.run_span(event.run), event.name, at, parent, known)
        trace.links = self._links(event, begun_outside=outer is not None)

    def _links(self, event: e.RunStarted, *, begun_outside: bool) -> list[tuple[int, int]]:
        """To the run that is done again, and to the job that waits for this one."""
        links = []
        if event.origin:
            links.append((self._trace_of(event.origin), ids.run_span(event.origin)))
        if event.parent and not begun_outside:  # else it stands in that very span
            run, _, job = event.parent.partition("/")
            name, _, attempt = job.partition("#")
            number = int(attempt) if attempt.isdecimal() else 1
            links.append((self._trace_of(run), ids.job_span(run, name, number)))
        return links

    def _trace_of(self, run: str) -> int:
        with suppress(DamagedRun):
            for _, event in history(self._store.read(run, limit=1), run=run):
                outer = ids.read(event.trace) if isinstance(event, e.RunStarted) else None
                return outer.trace if outer is not None else ids.trace_id(run)
        return ids.trace_id(run)

    def _dialect(self, definition: str) -> str:
        known = self._dialects.get(definition)
        if known is None:
            found = self._store.definition(definition)
            known = self._dialects[definition] = found.dialect if found is not None else ""
            if len(self._dialects) > DIALECTS_MAX:
                self._dialects.popitem(last=False)
        return known


# -- beginnings ------------------------------------------------------------------------------


def _begin_token(trace: _Trace, event: e.TokenCreated, at: int) -> None:
    known: Attributes = {"anabranch.step": event.step, "anabranch.token": event.token}
    span = ids.token_span(trace.run, event.token)
    trace.tokens[event.token] = _Open(span, event.step, at, ids.run_span(trace.run), known)


def _begin_job(trace: _Trace, event: e.JobStarted, at: int) -> None:
    token = token_of(event.job)
    step = trace.tokens.get(token)
    known: Attributes = {
        "anabranch.job": event.job,
        "anabranch.attempt": event.attempt,
        "anabranch.worker": event.worker,
    }
    if step is not None:
        known["anabranch.step"] = step.name
    name = f"{step.name} job" if step is not None else "job"
    span = ids.job_span(trace.run, event.job, event.attempt)
    trace.jobs[event.job] = _Open(span, name, at, ids.token_span(trace.run, token), known)


# -- ends ------------------------------------------------------------------------------------


def _end_job(
    trace: _Trace,
    job: str,
    at: int,
    status: str,
    spans: list[Span],
    fault: Fault | None = None,
) -> None:
    begun = trace.jobs.pop(job, None)
    if begun is not None:
        spans.append(_ended(trace, begun, at, status, fault))


def _end_token(trace: _Trace, event: e.TokenFinished, at: int, spans: list[Span]) -> None:
    begun = trace.tokens.pop(event.token, None)
    if begun is not None:
        spans.append(_ended(trace, begun, at, event.ending, event.fault))


def _end_run(trace: _Trace, event: e.RunFinished, at: int, spans: list[Span]) -> None:
    """With it everything that is still open: what only drained, for instance."""
    for left in (*trace.jobs.values(), *trace.tokens.values()):
        spans.append(_ended(trace, left, at, "unfinished"))
    trace.jobs.clear()
    trace.tokens.clear()
    if trace.root is None:
        return
    fault = event.problem
    if fault is None and event.status != "completed":
        fault = Fault(event.status, event.status)
    elif fault is not None and event.status == "completed":
        fault = None
    spans.append(_ended(trace, trace.root, at, event.status, fault, root=True))


def _ended(
    trace: _Trace,
    begun: _Open,
    at: int,
    status: str,
    fault: Fault | None = None,
    *,
    root: bool = False,
) -> Span:
    attributes: Attributes = {
        "anabranch.run": trace.run,
        "anabranch.dialect": trace.dialect,
        **begun.attributes,
        "anabranch.status": status,
    }
    error = ""
    if fault is not None:
        attributes["error.type"] = fault.kind
        said = fault.message
        told = said if said.startswith(fault.kind) else f"{fault.kind}: {said}"
        error = told[:TEXT_MAX]
    return Span(
        trace=trace.trace,
        span=begun.span,
        parent=begun.parent,
        name=begun.name,
        begin=begun.since,
        end=max(at, begun.since),
        error=error,
        attributes=attributes,
        moments=tuple(begun.moments),
        links=tuple(trace.links) if root else (),
        from_outside=root and begun.parent is not None,
    )


# -- moments ---------------------------------------------------------------------------------


def _note(trace: _Trace, event: e.Event, at: int) -> None:
    """What happens in a span; nothing of what runs carry is in it, only names and reasons."""
    found = _moment(trace, event, at)
    if found is not None:
        where, attributes = found
        if where is not None:
            where.note(e.kind_of(event), at, **attributes)


def _moment(trace: _Trace, event: e.Event, at: int) -> tuple[_Open | None, dict[str, Any]] | None:
    tokens = trace.tokens
    match event:
        case e.JobRetrying(job=job, attempt=attempt, due=due):
            more = {"job": job, "attempt": attempt, "delay_ms": max(0, due - at)}
            return tokens.get(token_of(job)), more
        case e.TokenRetrying(token=token, round=number, due=due, reason=reason):
            more = {"round": number, "delay_ms": max(0, due - at), "reason": reason[:TEXT_MAX]}
            return tokens.get(token), more
        case e.JobParked(job=job, ticket=ticket):
            return trace.jobs.get(job), {"ticket": ticket}
        case e.JobReused(job=job, token=token):
            return tokens.get(token), {"job": job}
        case e.TokenHeld(token=token, reason=reason):
            return tokens.get(token), {"reason": reason[:TEXT_MAX]}
        case e.TokenAdmitted(token=token, by=by) | e.TokenWoken(token=token, by=by):
            return tokens.get(token), {"by": by}
        case e.GateOpened(gate=gate, token=token):
            trace.gates[gate] = token
            return tokens.get(token), {"gate": gate}
        case e.GateDecided(gate=gate, verdict=verdict, actor=actor):
            known = {"gate": gate, "verdict": verdict, "actor": actor}
            return tokens.get(trace.gates.pop(gate, 0)), known
        case e.GateAskedAgain(gate=gate, actor=actor):
            return tokens.get(trace.gates.pop(gate, 0)), {"gate": gate, "actor": actor}
        case e.RunPaused(actor=actor, reason=reason):
            return trace.root, {"actor": actor, "reason": reason[:TEXT_MAX]}
        case e.RunResumed(actor=actor):
            return trace.root, {"actor": actor}
        case e.RunEnding(status=status, reason=reason):
            return trace.root, {"status": status, "reason": reason[:TEXT_MAX]}
        case _:
            return None

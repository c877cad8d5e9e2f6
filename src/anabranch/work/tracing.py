"""Traces: ids that are worked out and never drawn, and the span that work is done in.

A run is a span. It belongs to the trace of whoever began it, where they told (`traceparent`), and
else to one of its own. Ids follow from the run, the token, the job and the attempt, so whoever
holds a job can name its span before it exists, and an engine that takes over after a crash goes on
with the same trace.

Work finds the span of its job in `current`, and hands it on with whatever it calls over HTTP.
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from contextvars import ContextVar
from hashlib import sha256

import msgspec

from anabranch.work.scoped import scoped

TRACEPARENT = "traceparent"
_WRITTEN = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1

_current: ContextVar[str] = ContextVar("anabranch_traceparent", default="")


class TraceParent(msgspec.Struct, frozen=True):
    """A span in its trace, as W3C Trace Context writes it."""

    trace: int
    span: int
    sampled: bool = True

    def __str__(self) -> str:
        return f"00-{self.trace:032x}-{self.span:016x}-{self.sampled:02x}"


def read(text: str) -> TraceParent | None:
    """What a `traceparent` says; None for one that says nothing, as the standard wants it."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    trace, span = int(found[2], 16), int(found[3], 16)
    if not trace or not span:
        return None
    return TraceParent(trace, span, bool(int(found[4], 16) & _SAMPLED))


def trace_id(run: str) -> int:
    """The trace of a run that nobody else's trace has begun."""
    return int.from_bytes(sha256(f"trace {run}".encode()).digest()[:16], "big") or 1


def run_span(run: str) -> int:
    return _span(f"run {run}")


def token_span(run: str, token: int) -> int:
    return _span(f"token {run}/{token}")


def job_span(run: str, job: str, attempt: int) -> int:
    return _span(f"job {run}/{job}#{attempt}")


def traceparent(run: str, job: str, attempt: int, begun_by: str = "") -> str:
    """The header for what is called on behalf of a job; `begun_by` is the one the run came with."""
    outer = read(begun_by)
    span = job_span(run, job, attempt)
    if outer is None:
        return str(TraceParent(trace_id(run), span))
    return str(TraceParent(outer.trace, span, outer.sampled))


def _span(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") or 1


# -- the span that work is done in -----------------------------------------------------------


def current() -> str:
    """The `traceparent` of the job at work here; empty where nobody traces."""
    return _current.get()


def headers() -> dict[str, str]:
    """What a call over HTTP carries, so that whoever answers it goes on with the trace."""
    found = _current.get()
    return {TRACEPARENT: found} if found else {}


def working_in(place: str) -> AbstractContextManager[None]:
    """The work inside belongs to this span."""
    return scoped(_current, place)

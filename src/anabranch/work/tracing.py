"""Ids of traces, worked out and never drawn.

A trace is a run. Its id and those of its spans follow from the run, the token, the job and the
attempt, so whoever holds a job can name its span before it exists, and an engine that takes over
after a crash goes on with the same trace.
"""

from __future__ import annotations

from hashlib import sha256

TRACEPARENT = "traceparent"


def trace_id(run: str) -> int:
    return int.from_bytes(sha256(f"trace {run}".encode()).digest()[:16], "big") or 1


def run_span(run: str) -> int:
    return _span(f"run {run}")


def token_span(run: str, token: int) -> int:
    return _span(f"token {run}/{token}")


def job_span(run: str, job: str, attempt: int) -> int:
    return _span(f"job {run}/{job}#{attempt}")


def traceparent(run: str, job: str, attempt: int) -> str:
    """The header (W3C Trace Context) for what is called on behalf of a job."""
    return f"00-{trace_id(run):032x}-{job_span(run, job, attempt):016x}-01"


def _span(name: str) -> int:
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big") or 1

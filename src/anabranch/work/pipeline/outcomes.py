"""The outcome of a task as the rules after it see it.

    {status, result, error: {kind, message, code, retryable, …}, meta: {attempt, duration_ms}}

and, by kind of work, `http: {status, headers}`, `pg: {code, sqlstate}`, `py: {exception_type, …}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.kernel.values import Answer, Fault

#: Details that also stand beside the kind and the message.
_LIFTED = ("http_status", "retry_after", "pg_code", "exception_type", "source")


def outcome_of(answer: Answer, attempt: int, milliseconds: int) -> dict[str, Any]:
    """The envelope that rules look at."""
    outcome = {
        "status": answer.status,
        "result": answer.result,
        "error": None if answer.fault is None else error_of(answer.fault),
        "meta": {"attempt": attempt, "duration_ms": milliseconds},
    }
    return outcome | _by_kind(answer)


def _by_kind(answer: Answer) -> dict[str, Any]:
    """What some rules look for under the name of the kind of work: `http`, `pg`, `py`."""
    given = answer.result if answer.fault is None else answer.fault.details
    if not isinstance(given, Mapping):
        return {}
    found: dict[str, Any] = {}
    status = given.get("http_status", given.get("status_code"))
    if status is not None:
        found["http"] = {"status": status, "headers": given.get("headers", {})}
    if answer.fault is not None and "pg_code" in given:
        found["pg"] = {"code": given["pg_code"], "sqlstate": given["pg_code"]}
    if answer.fault is not None and "exception_type" in given:
        found["py"] = {name: given.get(name) for name in ("exception_type", "traceback")}
    return found


def error_of(fault: Fault) -> dict[str, Any]:
    """The fault as rules see it: what its kind of work knows more stands beside the rest."""
    details = fault.details if isinstance(fault.details, Mapping) else {}
    return {
        "kind": fault.kind,
        "message": fault.message,
        "code": fault.code,
        "retryable": fault.retryable,
        "details": fault.details,
        "status": details.get("http_status"),
        **{name: details[name] for name in _LIFTED if name in details},
    }

"""What a playbook sees of something that ended: a step while routing, a task in its rules.

Two small kinds of text equal more than one spelling: `event.name` is both `step.done` and
`call.done`, an outcome's status both `ok` and `success`. Everything is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from datetime import UTC, datetime
from typing import Any, TypeGuard

from anabranch.dialects.noetl.error_kinds import OLDER
from anabranch.errors import ExpressionError
from anabranch.expressions.port import Envelope

Given = Mapping[str, Any]
EMPTY: Mapping[str, Any] = {}
REF = "_ref"  # a result that stands for a larger one has this key
MANIFEST = "_manifest"  # and the result of a loop this one


class Synonym(str):
    """A text that equals several spellings; it shows as the first."""

    __slots__ = ("spellings",)
    spellings: frozenset[str]

    def __new__(cls, *spellings: str) -> Synonym:
        text = super().__new__(cls, spellings[0])
        text.spellings = frozenset(spellings)
        return text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and str.__str__(other) in self.spellings

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)


DONE = Synonym("step.done", "call.done", "step.exit")
LOOP_DONE = Synonym("loop.done", "step.done", "call.done", "step.exit")
FAILED = Synonym("step.failed", "call.error")
OK = Synonym("ok", "success")
ERROR = Synonym("error", "failed")

#: Details of a fault that can also be read from the error itself.
ERROR_DETAILS = ("http_status", "retry_after", "pg_code", "exception_type", "source")


class Layered(Mapping[str, Any]):
    """One mapping before another."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: Given, second: Given) -> None:
        self._first = first
        self._second = second

    def __getitem__(self, key: str) -> Any:
        try:
            return self._first[key]
        except KeyError:
            return self._second[key]

    def __iter__(self) -> Iterator[str]:
        return iter({**self._second, **self._first})

    def __len__(self) -> int:
        return len({**self._second, **self._first})


class StepResult(Mapping[str, Any]):
    """A step's result; `.data` and `.result` mean the whole of it unless it has such a key.

    `.body` is the body of an HTTP answer; a child run has the fields of its result. The answer of a
    query is also the list of its rows: by position, by length, and to whoever goes through it; by
    key it is what it always was.
    """

    __slots__ = ("_value",)

    def __init__(self, value: Given) -> None:
        self._value = value

    def __getitem__(self, key: Any) -> Any:
        try:
            return self._value[key]
        except KeyError:
            if key in ("data", "result"):
                return StepResult(self._value) if is_child(self._value) else self._value
            if key == "body" and is_response(self._value):
                return self._value["data"]
            if isinstance(key, int) and (rows := rows_of(self._value)) is not None:
                return rows[key]
            if is_child(self._value) and key in self._value["result"]:
                return self._value["result"][key]
            if REF in self._value or MANIFEST in self._value:
                raise _not_here(key) from None
            raise

    def __iter__(self) -> Iterator[str]:
        rows = rows_of(self._value)
        return iter(self._value if rows is None else rows)

    def __len__(self) -> int:
        rows = rows_of(self._value)
        return len(self._value if rows is None else rows)

    def __reversed__(self) -> Iterator[str]:
        rows = rows_of(self._value)
        return iter((list(self._value) if rows is None else rows)[::-1])

    def __bool__(self) -> bool:
        return bool(self._value)

    def keys(self) -> KeysView[str]:
        return self._value.keys()

    def items(self) -> ItemsView[str, Any]:
        return self._value.items()

    def values(self) -> ValuesView[Any]:
        return self._value.values()

    def __eq__(self, other: object) -> bool:
        theirs = other._value if isinstance(other, StepResult) else other
        if isinstance(theirs, list | tuple):
            return rows_of(self._value) == list(theirs)
        return isinstance(theirs, Mapping) and dict(self._value) == dict(theirs)

    __hash__ = None  # type: ignore[assignment]  # as of any mapping that is compared by value


class Body(StepResult):
    """The body of an HTTP answer where some look for the answer: `output.data.data` is it, and
    `output.data.status_code` is there too."""

    __slots__ = ("_response",)

    def __init__(self, response: Given) -> None:
        super().__init__(response["data"])
        self._response = response

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except KeyError:
            if key == "body":
                return self._value
            if key in ("status_code", "headers", "url", "elapsed"):
                return self._response[key]
            raise


class Response(StepResult):
    """An HTTP answer as older playbooks look at it: `status`, and what its body has."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        try:
            return super().__getitem__(key)
        except KeyError:
            if key == "status":
                return self._value["status_code"]
            body = self._value["data"]
            if isinstance(body, Mapping):
                return body[key]
            raise


def is_response(value: Any) -> TypeGuard[Given]:
    """Whether it is the answer of an HTTP call."""
    return isinstance(value, Mapping) and "status_code" in value and "data" in value


def is_child(value: Any) -> TypeGuard[Given]:
    """Whether it is what became of a child run that gave a mapping: its fields are read as those
    of the child's result, too."""
    return (
        isinstance(value, Mapping)
        and {"run", "status"} <= value.keys()
        and isinstance(value.get("result"), Mapping)
    )


def rows_of(value: Any) -> list[Any] | None:
    """The rows that a query answered with, where it is such an answer."""
    if not isinstance(value, Mapping) or "command_0" not in value or "row_count" not in value:
        return None
    rows = value.get("rows")
    return rows if isinstance(rows, list) else None


class Lazy(Mapping[str, Any]):
    """A mapping whose values are worked out from a source when asked for."""

    __slots__ = ("_makers", "_source")
    _makers: Mapping[str, Callable[[Any], Any]]
    _source: Any

    def __init__(self, makers: Mapping[str, Callable[[Any], Any]], source: Any) -> None:
        self._makers = makers
        self._source = source

    def __getitem__(self, key: str) -> Any:
        return self._makers[key](self._source)

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


class Output(Lazy, Envelope):
    """The later name of an outcome: by its own keys the envelope, by any other the result, and as
    a whole (`{{ output }}`) the result itself."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if key in self._makers:
            return self._makers[key](self._source)
        result = self._source.get("result")
        if isinstance(result, Mapping):
            return as_result(result)[key]
        if isinstance(result, list | tuple) and isinstance(key, int):
            return result[key]
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        result = self._source.get("result")
        return iter(result if isinstance(result, Mapping) else self._makers)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def whole(self) -> Any:
        return as_result(self._source.get("result"))


def _not_here(key: str) -> ExpressionError:
    """A guard must not take a field that was too large to travel for one that is not there."""
    return ExpressionError(
        f"{key!r} is in a result that is too large to travel (over ANABRANCH_INLINE_BYTES_MAX): "
        "guards see only its small fields; let the step return what they need beside it"
    )


def as_result(value: Any) -> Any:
    return StepResult(value) if isinstance(value, Mapping) else value


# -- while routing ---------------------------------------------------------------------------


def event_name(event: Given) -> str:
    ending = event.get("ending")
    if ending == "done":
        return DONE if event.get("fanin") is None else LOOP_DONE
    return FAILED if ending == "failed" else f"step.{ending}"


def _timestamp(event: Given) -> str:
    moment = datetime.fromtimestamp(event.get("at", 0) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _status(event: Given) -> str:
    ending = event.get("ending")
    if ending == "done":
        return OK
    return ERROR if ending == "failed" else str(ending)


def _response(event: Given) -> Given | None:
    """The result, when it is an HTTP answer."""
    result = event.get("result")
    return result if is_response(result) else None


def _data(event: Given) -> Any:
    """The body of an HTTP response, the whole result of anything else."""
    response = _response(event)
    if response is None:
        return as_result(event.get("result"))
    return Body(response) if isinstance(response["data"], Mapping) else response["data"]


def _ref(event: Given) -> Any:
    """Where the whole result is, when it was too large to travel."""
    result = event.get("result")
    return result.get("_ref") if isinstance(result, Mapping) else None


def _http(event: Given) -> Any:
    """Status and headers, of an answer or of a refusal."""
    response, error = _response(event), _error(event)
    if response is not None:
        return {"status": response["status_code"], "headers": response.get("headers")}
    status = error.get("http_status") if isinstance(error, Mapping) else None
    return None if status is None else {"status": status, "headers": None}


def _python(event: Given) -> Any:
    """What a Python task raised."""
    details = _details(event)
    found = {key: details[key] for key in ("exception_type", "traceback") if key in details}
    return found or None


def _postgres(event: Given) -> Any:
    details = _details(event)
    code = details.get("pg_code", details.get("sqlstate"))
    return None if code is None else {"code": code, "sqlstate": code}


def _details(event: Given) -> Given:
    error = event.get("error")
    details = error.get("details") if isinstance(error, Mapping) else None
    return details if isinstance(details, Mapping) else EMPTY


def _error(event: Given) -> Any:
    """The fault, with what its details say also where some playbooks look for it."""
    error, details = event.get("error"), _details(event)
    if isinstance(error, Mapping) and error.get("kind") in OLDER:  # of a log of then
        error = {**error, "kind": OLDER[error["kind"]]}
    found = {key: details[key] for key in ERROR_DETAILS if key in details}
    if not found or not isinstance(error, Mapping):
        return error
    if "http_status" in found:
        found["status"] = found["http_status"]
    return {**found, **{key: value for key, value in error.items() if value is not None}}


def _payload(event: Given) -> Mapping[str, Any]:
    return {"result": as_result(event.get("result")), "error": _error(event)}


EVENT: Mapping[str, Callable[[Any], Any]] = {
    "name": event_name,
    "step": lambda event: event.get("step"),
    "payload": _payload,
    "timestamp": _timestamp,
}

_OF_RESULT: Mapping[str, Callable[[Any], Any]] = {
    "result": lambda event: as_result(event.get("result")),
    "data": _data,
    "ref": _ref,
    "error": _error,
    "http": _http,
    "py": _python,
    "pg": _postgres,
}
OUTCOME: Mapping[str, Callable[[Any], Any]] = {"status": _status, **_OF_RESULT}
#: The outcome of a task, as the rules after it see it.
TASK_OUTCOME: Mapping[str, Callable[[Any], Any]] = {
    "status": lambda outcome: OK if outcome.get("status") == "ok" else ERROR,
    "meta": lambda outcome: outcome.get("meta", EMPTY),
    **_OF_RESULT,
}

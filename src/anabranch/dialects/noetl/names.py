"""The names a playbook's templates see, laid over those the kernel gives.

    workload, ctx, args          as in the kernel; `ctx` also shows workload keys it does not have
    event                        while routing: name, step, payload {result, error}, timestamp
    outcome, output              while routing: status, result, data, error
    <step>, steps.<step>         the last result of a step
    execution_id, job            the run
    anything else                looked for in args, then ctx, then workload, then step results

Reserved names come first. Everything is made when it is asked for, because a guard asks for one
name or two. Two small kinds of text equal more than one spelling: `event.name` is both `step.done`
and `call.done`, an outcome's status both `ok` and `success`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

Given = Mapping[str, Any]
_EMPTY: Mapping[str, Any] = {}


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
FAILED = Synonym("step.failed", "call.error")
OK = Synonym("ok", "success")
ERROR = Synonym("error", "failed")


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
    """A step's result; `.data` and `.result` mean the whole of it unless it has such a key."""

    __slots__ = ("_value",)

    def __init__(self, value: Given) -> None:
        self._value = value

    def __getitem__(self, key: str) -> Any:
        try:
            return self._value[key]
        except KeyError:
            if key in ("data", "result"):
                return self._value
            raise

    def __iter__(self) -> Iterator[str]:
        return iter(self._value)

    def __len__(self) -> int:
        return len(self._value)


class Lazy(Mapping[str, Any]):
    """A mapping whose values are worked out from a source when asked for."""

    __slots__ = ("_makers", "_source")

    def __init__(self, makers: Mapping[str, Callable[[Any], Any]], source: Any) -> None:
        self._makers = makers
        self._source = source

    def __getitem__(self, key: str) -> Any:
        return self._makers[key](self._source)

    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    def __len__(self) -> int:
        return len(self._makers)


def as_result(value: Any) -> Any:
    return StepResult(value) if isinstance(value, Mapping) else value


# -- while routing ---------------------------------------------------------------------------


def event_name(event: Given) -> str:
    ending = event.get("ending")
    if ending == "done":
        return DONE
    return FAILED if ending == "failed" else f"step.{ending}"


def _timestamp(event: Given) -> str:
    moment = datetime.fromtimestamp(event.get("at", 0) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _status(event: Given) -> str:
    ending = event.get("ending")
    if ending == "done":
        return OK
    return ERROR if ending == "failed" else str(ending)


def _data(event: Given) -> Any:
    """The body of an HTTP response, the whole result of anything else."""
    result = event.get("result")
    if isinstance(result, Mapping) and "status_code" in result and "data" in result:
        return result["data"]
    return result


def _error(event: Given) -> Any:
    """The fault, with the HTTP status also where some playbooks look for it."""
    error = event.get("error")
    details = error.get("details") if isinstance(error, Mapping) else None
    if not isinstance(details, Mapping) or "http_status" not in details:
        return error
    status = details["http_status"]
    return {"http_status": status, "status": status, **(error or {})}


def _payload(event: Given) -> Mapping[str, Any]:
    return {"result": event.get("result"), "error": _error(event)}


EVENT: Mapping[str, Callable[[Any], Any]] = {
    "name": event_name,
    "step": lambda event: event.get("step"),
    "payload": _payload,
    "timestamp": _timestamp,
}

OUTCOME: Mapping[str, Callable[[Any], Any]] = {
    "status": _status,
    "result": lambda event: event.get("result"),
    "data": _data,
    "error": _error,
}


# -- all names -------------------------------------------------------------------------------


def _steps(given: Given) -> Mapping[str, Any]:
    results: Given = given.get("results", _EMPTY)
    event = given.get("event")
    if event is not None and event.get("result") is not None:
        # The step that just ended is its own latest result, whatever was there before.
        results = Layered({event["step"]: event["result"]}, results)
    return results


class _Steps(Mapping[str, Any]):
    __slots__ = ("_results",)

    def __init__(self, results: Given) -> None:
        self._results = results

    def __getitem__(self, key: str) -> Any:
        return as_result(self._results[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._results)

    def __len__(self) -> int:
        return len(self._results)


def _job(given: Given) -> Mapping[str, Any]:
    run = given.get("run")
    return {"uuid": run, "id": run, "execution_id": run}


RESERVED: Mapping[str, Callable[[Given], Any]] = {
    "workload": lambda given: given.get("workload", _EMPTY),
    "ctx": lambda given: Layered(given.get("ctx", _EMPTY), given.get("workload", _EMPTY)),
    "args": lambda given: given.get("args", _EMPTY),
    "event": lambda given: Lazy(EVENT, given["event"]),
    "outcome": lambda given: Lazy(OUTCOME, given["event"]),
    "output": lambda given: Lazy(OUTCOME, given["event"]),
    "steps": lambda given: _Steps(_steps(given)),
    "execution_id": lambda given: given.get("run"),
    "job": _job,
}


class Names(Mapping[str, Any]):
    __slots__ = ("_given",)

    def __init__(self, given: Given) -> None:
        self._given = given

    def __getitem__(self, key: str) -> Any:
        given = self._given
        make = RESERVED.get(key)
        if make is not None:
            return make(given)
        for layer in ("args", "ctx", "workload"):
            found = given.get(layer, _EMPTY)
            if key in found:
                return found[key]
        return as_result(_steps(given)[key])

    def __iter__(self) -> Iterator[str]:
        layers = (self._given.get(layer, _EMPTY) for layer in ("args", "ctx", "workload"))
        found = [name for name in RESERVED if name in self]
        return iter(dict.fromkeys([*found, *(key for layer in layers for key in layer)]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def view(names: Given) -> Given:
    """Lay the playbook's names over the kernel's; laying them twice changes nothing."""
    return names if type(names) is Names else Names(names)

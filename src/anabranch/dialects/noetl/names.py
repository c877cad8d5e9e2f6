"""The names a playbook's templates see, laid over those the kernel gives.

    workload, ctx, args          as in the kernel; `ctx` also shows workload keys it does not have
    event                        while routing: name, step, payload {result, error}, timestamp
    fanin                        while routing after a loop: status, succeeded, failed, refs …
    outcome, output              while routing and in the rules of a task: status, result, error …
    _prev, _task, _attempt       in a pipeline: the last result, the task's label, its attempt
    results                      in a pipeline: results so far by label, also as bare names
    iter, loop_index, loop       in a loop: the item, what `set_iter` wrote, the index
    keychain                     on a worker: the secrets of the playbook
    <step>, steps.<step>         the last result of a step
    execution_id, job            the run
    anything else                looked for in iter, args, ctx, workload, task results, step results

Reserved names come first. Everything is made when it is asked for, because a guard asks for one
name or two. Two small kinds of text equal more than one spelling: `event.name` is both `step.done`
and `call.done`, an outcome's status both `ok` and `success`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from anabranch.errors import ExpressionError

Given = Mapping[str, Any]
_EMPTY: Mapping[str, Any] = {}
REF = "_ref"  # a result that stands for a larger one has this key


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
            if REF in self._value:
                raise _not_here(key) from None
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
    wraps = isinstance(result, Mapping) and "status_code" in result and "data" in result
    return result if wraps else None


def _data(event: Given) -> Any:
    """The body of an HTTP response, the whole result of anything else."""
    response = _response(event)
    return as_result(event.get("result")) if response is None else response["data"]


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
    return details if isinstance(details, Mapping) else _EMPTY


def _error(event: Given) -> Any:
    """The fault, with what its details say also where some playbooks look for it."""
    error, details = event.get("error"), _details(event)
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
    "meta": lambda outcome: outcome.get("meta", _EMPTY),
    **_OF_RESULT,
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


# -- in a pipeline and in a loop -------------------------------------------------------------


def _local(given: Given) -> Given:
    found: Given = given.get("local", _EMPTY)
    return found


def _iter(given: Given) -> Given:
    """What belongs to the item, or to the step run where there is no loop."""
    found: Given = _local(given).get("iter") or _EMPTY
    return found


def _variables(given: Given) -> Given:
    return Layered(_iter(given), given.get("ctx", _EMPTY))


def _outcome(given: Given) -> Given:
    outcome = _local(given).get("outcome")
    return Lazy(OUTCOME, given["event"]) if outcome is None else Lazy(TASK_OUTCOME, outcome)


def _fanin(given: Given) -> Given:
    found: Given | None = given["event"].get("fanin")
    if found is None:
        raise KeyError("fanin")
    return found


LOOP: Mapping[str, Callable[[Any], Any]] = {
    "index": lambda given: _iter(given).get("index"),
    "first": lambda given: _iter(given).get("_first"),
    "length": lambda given: (given.get("event") or _EMPTY).get("fanin", _EMPTY).get("total"),
    "done": lambda given: (given.get("event") or _EMPTY).get("fanin", _EMPTY).get("done"),
}


def _loop(given: Given) -> Given:
    if "index" not in _iter(given) and (given.get("event") or _EMPTY).get("fanin") is None:
        raise KeyError("loop")
    return Lazy(LOOP, given)


RESERVED: Mapping[str, Callable[[Given], Any]] = {
    "workload": lambda given: given.get("workload", _EMPTY),
    "ctx": lambda given: Layered(given.get("ctx", _EMPTY), given.get("workload", _EMPTY)),
    "args": lambda given: given.get("args", _EMPTY),
    "event": lambda given: Lazy(EVENT, given["event"]),
    "fanin": _fanin,
    "outcome": _outcome,
    "output": _outcome,
    "steps": lambda given: _Steps(_steps(given)),
    "execution_id": lambda given: given.get("run"),
    "job": _job,
    "iter": _iter,
    "vars": _variables,
    "loop": _loop,
    "loop_index": lambda given: _iter(given)["index"],
    "_prev": lambda given: as_result(_local(given)["prev"]),
    "_task": lambda given: _local(given)["task"],
    "_attempt": lambda given: _local(given)["attempt"],
    "results": lambda given: _Steps(_local(given)["results"]),
    "keychain": lambda given: given["keychain"],
}
#: Read from the environment; there only while the keychain is resolved.
ENV = "env"


class Names(Mapping[str, Any]):
    __slots__ = ("_given",)

    def __init__(self, given: Given) -> None:
        self._given = given

    def __getitem__(self, key: str) -> Any:
        given = self._given
        make = RESERVED.get(key)
        if make is not None:
            return make(given)
        if key == ENV and ENV in given:
            return given[ENV]
        local = _local(given)
        if local:
            own = local.get("iter") or _EMPTY
            if key in own:
                return own[key]
        for layer in ("args", "ctx", "workload"):
            found = given.get(layer, _EMPTY)
            if key in found:
                return found[key]
        labels = local.get("results", _EMPTY)
        return as_result(labels[key] if key in labels else _steps(given)[key])

    def __iter__(self) -> Iterator[str]:
        layers = [self._given.get(layer, _EMPTY) for layer in ("args", "ctx", "workload")]
        layers += [_iter(self._given), _local(self._given).get("results", _EMPTY)]
        found = [name for name in RESERVED if name in self]
        return iter(dict.fromkeys([*found, *(key for layer in layers for key in layer)]))

    def __len__(self) -> int:
        return len(list(iter(self)))


def view(names: Given) -> Given:
    """Lay the playbook's names over the kernel's; laying them twice changes nothing."""
    return names if type(names) is Names else Names(names)

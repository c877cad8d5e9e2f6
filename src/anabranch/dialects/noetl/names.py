"""The names a playbook's templates see, laid over those the kernel gives.

    workload, ctx, args          as in the kernel; `ctx` also shows workload keys it does not have,
                                 `args` which item of a loop this is (`iter_key`, `loop_id` …)
    event                        while routing: name, step, payload {result, error}, timestamp
    fanin                        while routing after a loop: status, succeeded, failed, refs …
    outcome                      while routing and in the rules of a task: status, result, error …
    output                       the same, and what the result has; as a whole the result itself
    result, response, error      the result alone, or the fault, where nothing else is called that
    _prev, _task, _attempt       in a pipeline: the last result, the task's label, its attempt
    results                      in a pipeline: results so far by label, also as bare names
    iter, vars, step             the item or the step run: what `set_iter` and `vars` wrote, what
                                 an arc handed on in `args.iter`; `iter.parent` is the loop around
    loop_index, loop             in a loop: the index, the size
    keychain                     on a worker: the secrets of the playbook
    <step>, steps.<step>         the last result of a step
    execution_id, run_id, job    the run: its number, and the id that we gave it
    anything else                looked for in iter, args, ctx, workload, task results, step results

Reserved names come first. Everything is made when it is asked for, because a guard asks for one
name or two. What is said about
outcomes is in `outcomes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from anabranch.dialects.noetl.outcomes import (
    EMPTY,
    EVENT,
    OUTCOME,
    TASK_OUTCOME,
    Given,
    Layered,
    Lazy,
    Output,
    Response,
    as_result,
    is_response,
)
from anabranch.ids import run_number

# -- all names -------------------------------------------------------------------------------


def _steps(given: Given) -> Mapping[str, Any]:
    results: Given = given.get("results", EMPTY)
    event = given.get("event")
    return results if event is None else _LatestResults(event, results)


class _LatestResults(Mapping[str, Any]):
    """The step that just ended is its own latest result, whatever was there before."""

    __slots__ = ("_event", "_results")

    def __init__(self, event: Given, results: Given) -> None:
        self._event = event
        self._results = results

    def __getitem__(self, key: str) -> Any:
        if key == self._event["step"]:  # looked at only then: it may have to be fetched
            result = self._event.get("result")
            if result is not None:
                return result
        return self._results[key]

    def __iter__(self) -> Iterator[str]:
        latest = () if self._event.get("result") is None else (self._event["step"],)
        return iter(dict.fromkeys([*self._results, *latest]))

    def __len__(self) -> int:
        return sum(1 for _ in self)


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


def _execution_id(given: Given) -> int | None:
    """The redrives of a run find what it wrote under this number."""
    run = given.get("first_run") or given.get("run")
    return None if run is None else run_number(run)


def _job(given: Given) -> Mapping[str, Any]:
    run = given.get("run")
    return {"uuid": run, "id": run, "execution_id": _execution_id(given)}


# -- in a pipeline and in a loop -------------------------------------------------------------

#: Which item of which loop a task is about.
IDENTITY = ("iter_index", "iter_key", "loop_id", "shard_id")


def _local(given: Given) -> Given:
    found: Given = given.get("local", EMPTY)
    return found


def _own(given: Given) -> Given:
    """What belongs to the item, or to the step run where there is no loop."""
    found: Given | None = _local(given).get("iter")
    if found is None and given.get("event") is not None:
        found = given["event"].get("locals")
    return found or EMPTY


class _Iter(Mapping[str, Any]):
    """The same, and what the arc that led here handed on."""

    __slots__ = ("_given", "_values")

    def __init__(self, given: Given) -> None:
        self._given = given
        self._values = _own(given)

    def __getitem__(self, key: str) -> Any:
        if key in self._values:
            return self._values[key]
        return _handed(self._given)[key]

    def __iter__(self) -> Iterator[str]:
        return iter({**_handed(self._given), **self._values})

    def __len__(self) -> int:
        return len({**_handed(self._given), **self._values})


def _handed(given: Given) -> Given:
    """What the arc that led here set for the `iter` of this step run."""
    found = given.get("args", EMPTY).get("iter")
    return found if isinstance(found, Mapping) else EMPTY


def identity_of(own: Given) -> dict[str, Any]:
    """The ids of the item of a step's loop, by what its `iter` holds; none outside of one."""
    while own and "shard_id" not in own:
        own = own.get("parent") or EMPTY  # an inner loop is part of the item around it
    return {name: own[name] for name in IDENTITY} if own else {}


def item_of(names: Given) -> dict[str, Any]:
    """The same, by the names that work is given."""
    return identity_of((names.get("local") or EMPTY).get("iter") or EMPTY)


def _args(given: Given) -> Given:
    """What the arc handed on, and which item this is, where the arc has no such name."""
    args: Given = given.get("args", EMPTY)
    item = identity_of(_own(given))
    return Layered(args, item) if item else args


def _variables(given: Given) -> Given:
    return Layered(_Iter(given), given.get("ctx", EMPTY))


def _around(own: Given, key: str) -> Given | None:
    """The nearest item around this one that has such a name."""
    while own:
        own = own.get("parent") or EMPTY
        if key in own:
            return own
    return None


def _outcome(given: Given) -> Given:
    outcome = _local(given).get("outcome")
    return Lazy(OUTCOME, given["event"]) if outcome is None else Lazy(TASK_OUTCOME, outcome)


def _output(given: Given) -> Given:
    """Of what has just ended; in the inputs of a task, of the task before it."""
    local = _local(given)
    outcome = local.get("outcome")
    if outcome is None and given.get("event") is None and local.get("results"):
        outcome = {"status": "ok", "result": local["prev"]}
    return Output(OUTCOME, given["event"]) if outcome is None else Output(TASK_OUTCOME, outcome)


def _result(given: Given) -> Any:
    """`result` where nothing else is called that: of what has just ended, or of the task before."""
    local = _local(given)
    outcome = local.get("outcome") or given.get("event")
    if outcome is not None:
        return as_result(outcome.get("result"))
    if not local.get("results"):
        raise KeyError(RESULT)
    return as_result(local["prev"])


def _response(given: Given) -> Any:
    """What a call answered, where nothing else is called that; not there after an error."""
    local = _local(given)
    outcome = local.get("outcome") or given.get("event")
    if outcome is not None and (outcome.get("error") is not None or outcome.get("result") is None):
        raise KeyError(RESPONSE)
    result = _result(given) if outcome is None else outcome["result"]
    return Response(result) if is_response(result) else as_result(result)


def _error(given: Given) -> Any:
    """The fault of what has just ended, where nothing else is called that."""
    outcome = _outcome(given) if given.get("event") or _local(given).get("outcome") else EMPTY
    error = outcome.get("error")
    if error is None:
        raise KeyError(ERROR)
    return error


def _fanin(given: Given) -> Given:
    found: Given | None = given["event"].get("fanin")
    if found is None:
        raise KeyError("fanin")
    return found


LOOP: Mapping[str, Callable[[Any], Any]] = {
    "index": lambda given: _own(given).get("index"),
    "first": lambda given: _own(given).get("_first"),
    "length": lambda given: (given.get("event") or EMPTY).get("fanin", EMPTY).get("total"),
    "done": lambda given: (given.get("event") or EMPTY).get("fanin", EMPTY).get("done"),
}


def _loop(given: Given) -> Given:
    if "index" not in _own(given) and (given.get("event") or EMPTY).get("fanin") is None:
        raise KeyError("loop")
    return Lazy(LOOP, given)


RESERVED: Mapping[str, Callable[[Given], Any]] = {
    "workload": lambda given: given.get("workload", EMPTY),
    "ctx": lambda given: Layered(given.get("ctx", EMPTY), given.get("workload", EMPTY)),
    "args": _args,
    "event": lambda given: Lazy(EVENT, given["event"]),
    "fanin": _fanin,
    "outcome": _outcome,
    "output": _output,
    "steps": lambda given: _Steps(_steps(given)),
    "execution_id": _execution_id,
    "job": _job,
    "iter": _Iter,
    "vars": _variables,
    "loop": _loop,
    "loop_index": lambda given: _own(given)["index"],
    "_prev": lambda given: as_result(_local(given)["prev"]),
    "_task": lambda given: _local(given)["task"],
    "_attempt": lambda given: _local(given)["attempt"],
    "results": lambda given: _Steps(_local(given)["results"]),
    "keychain": lambda given: given["keychain"],
}
#: Read from the environment; there only while the keychain is resolved.
ENV = "env"
LAYERS = ("args", "ctx", "workload")
#: Another word for `iter`, where nothing else is called that.
STEP = "step"
#: The result of what has just ended, where nothing else is called that.
RESULT = "result"
#: Older names for the result and the fault of what has just ended.
RESPONSE, ERROR = "response", "error"
#: What the run was given, where nothing else is called that.
PAYLOAD = "payload"
#: The number of the run and our own id of it, where nothing else is called that.
NUMBER, RUN = "execution_number", "run_id"


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
        own = _own(given)
        if key in own:
            return own[key]
        if "parent" in own and (around := _around(own, key)) is not None:
            return around[key]
        args = given.get("args", EMPTY)
        if "iter" in args and key in (handed := _handed(given)):
            return handed[key]
        for layer in LAYERS:
            found = given.get(layer, EMPTY)
            if key in found:
                return found[key]
        labels = _local(given).get("results", EMPTY)
        if key in labels:
            return as_result(labels[key])
        steps = _steps(given)
        if key in FALLBACKS and key not in steps:
            return FALLBACKS[key](given)
        return as_result(steps[key])

    def __iter__(self) -> Iterator[str]:
        layers = [self._given.get(layer, EMPTY) for layer in LAYERS]
        layers += [
            _handed(self._given),
            _own(self._given),
            _local(self._given).get("results", EMPTY),
            {name: None for name in _steps(self._given) if name not in RESERVED},
        ]
        found = [name for name in RESERVED if name in self]
        return iter(dict.fromkeys([*found, *(key for layer in layers for key in layer)]))

    def __len__(self) -> int:
        return len(list(iter(self)))


FALLBACKS: Mapping[str, Callable[[Given], Any]] = {
    STEP: _Iter,
    RESULT: _result,
    RESPONSE: _response,
    ERROR: _error,
    PAYLOAD: lambda given: Layered(given.get("args", EMPTY), given.get("workload", EMPTY)),
    NUMBER: _execution_id,
    RUN: lambda given: given["run"],
}


def view(names: Given) -> Given:
    """Lay the playbook's names over the kernel's; laying them twice changes nothing."""
    return names if isinstance(names, Names) else Names(names)

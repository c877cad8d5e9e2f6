"""Which child run a worker may ask for: what the recorded task says, and nothing else.

The server works out path and input from the definition itself, with what is recorded of the job.
Parts that depend on what only the worker knows (the tasks before in its pipeline, its item, its
secrets) are taken from the worker, for those keys of the input that the task has. A path like that
has to be named by the definition or the input of the run, or lie in the folder of the definition.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from anabranch.errors import ExpressionError, Refused
from anabranch.expressions.jinja.jinja import Jinja, TemplateTree
from anabranch.expressions.port import Constant, Expression
from anabranch.kernel.jobs import DEFAULT_WORK
from anabranch.kernel.state import Job
from anabranch.literals import AWAIT_CHILD
from anabranch.net.net import Net, child_target
from anabranch.operations.definitions.catalog import plain_path
from anabranch.operations.workers.recorded_names import OnlyThere, recorded_names
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.values.loading import Fetch
from anabranch.work.evaluations import evaluate_with
from anabranch.work.kinds.child import Child, child_tasks

SUFFIXES = (".yaml", ".yml", ".json")
_UNKNOWN: Any = object()  # only the worker can say
_RETURNS = ("result_step", "return_step")
_TARGET = ("path", "version", "catalog_id")  # inputs that say which definition it is
_REST = ("args", *AWAIT_CHILD)


class ChildRequest(NamedTuple):
    """A child as a worker asks for it, or as it is begun."""

    path: str
    given: Mapping[str, Any]
    waits: bool = False
    returns: str = ""


def has_children(net: Net, step: str) -> bool:
    return bool(list(_tasks(net, step)))


async def agreed(
    live: LiveRun,
    job: Job,
    asked: ChildRequest,
    fetch: Fetch,
    near: Callable[[str], Awaitable[bool]],
) -> ChildRequest:
    """The child that is begun; raises `Refused` where no task of the step says so. `near` says
    whether a path that only the worker knows may be taken from it."""
    candidates = []
    names = recorded_names(live, job, fetch)
    for inputs, alone in _tasks(live.net, job.step):
        known = {**names, "keychain": OnlyThere()}
        if not alone:
            known |= {"local": OnlyThere(), "ctx": OnlyThere()}
        target = await evaluate_with(known, partial(_parts, inputs, _TARGET))
        path = _target(target)
        left_to_it = path is _UNKNOWN and _fits(target, asked)
        if path == asked.path or (left_to_it and await near(asked.path)):
            rest = await evaluate_with(known, partial(_parts, inputs, _REST))
            candidates.append(_merged({**target, **rest}, asked))
    if not candidates:
        raise Refused(
            f"no playbook task of step {job.step!r} starts the definition {asked.path[:200]!r}; a "
            "path that depends on what the worker knows has to be in the input of the run, or in "
            "the folder of the definition",
            code="child_path",
        )
    return next((one for one in candidates if one == asked), candidates[0])


def _tasks(net: Net, step: str) -> Iterator[tuple[Expression | None, bool]]:
    return child_tasks(net.steps[step].work or DEFAULT_WORK)


def _parts(
    inputs: Expression | None, wanted: Sequence[str], names: Mapping[str, Any]
) -> dict[str, Any]:
    """Inputs of a task, each worked out by itself; of the args, each by itself."""
    structure = inputs.structure if isinstance(inputs, TemplateTree) else None
    if isinstance(inputs, Constant):
        structure = inputs.value
    if not isinstance(structure, Mapping):
        found = {"path": _UNKNOWN, "args": _UNKNOWN}
        if "args" in wanted:
            found["args"] = _value(inputs, names)
        return {name: value for name, value in found.items() if name in wanted}
    parts = {name: _value(structure[name], names) for name in wanted if name in structure}
    args = structure.get("args")
    if parts.get("args") is _UNKNOWN and isinstance(args, Mapping):
        parts["args"] = {name: _value(part, names) for name, part in args.items()}
    return parts


def _target(parts: Mapping[str, Any]) -> Any:
    named = [parts.get(name) for name in _TARGET]
    if parts.get("catalog_id") is None and parts.get("path", _UNKNOWN) is _UNKNOWN:
        return _UNKNOWN
    return _UNKNOWN if any(one is _UNKNOWN for one in named) else child_target(parts)


def _fits(parts: Mapping[str, Any], asked: ChildRequest) -> bool:
    """Where only the version is the worker's to say, the path is not."""
    known = parts.get("path")
    if not isinstance(known, str) or not known or parts.get("catalog_id") is not None:
        return True
    return plain_path(asked.path) == plain_path(known)


def _value(part: Any, names: Mapping[str, Any]) -> Any:
    if part is None:
        return None
    try:
        return Jinja().compose(part).evaluate(names)
    except ExpressionError:
        return _UNKNOWN


def _merged(parts: Mapping[str, Any], asked: ChildRequest) -> ChildRequest:
    """What the task says; what it leaves to the worker, as the worker says."""
    args = parts.get("args") or {}
    if args is _UNKNOWN:
        given = asked.given
    elif isinstance(args, Mapping):
        given = {
            name: asked.given.get(name) if value is _UNKNOWN else value
            for name, value in args.items()
        }
    else:
        given = {}
    flags = {name: parts[name] for name in AWAIT_CHILD if name in parts}
    if any(value is _UNKNOWN for value in flags.values()):
        return ChildRequest(asked.path, given, asked.waits, asked.returns)
    waits = Child.parks(flags)
    returns = next((flags[name] for name in _RETURNS if flags.get(name)), "")
    return ChildRequest(
        asked.path, given, waits, returns if waits and isinstance(returns, str) else ""
    )


def beside(origin: str | None, path: str) -> bool:
    """Whether the file lies with the definition that came from `origin`. Looks at the disk."""
    if not origin or not path.endswith(SUFFIXES):
        return False
    try:
        if not Path(origin).is_file():
            return False  # a definition that came as text lies nowhere
        return Path(path).resolve().is_relative_to(Path(origin).resolve().parent)
    except (OSError, RuntimeError, ValueError):  # no such name can be, or its links lead in circles
        return False

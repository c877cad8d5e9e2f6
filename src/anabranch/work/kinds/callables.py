"""Python callables as kinds of work.

    @toolbox.tool("price")
    def price(sku: str, quantity: int = 1) -> dict[str, float]:
        return {"total": 3.5 * quantity}

makes `kind: price` a task kind. Inputs are matched to parameters by name; `**rest` takes what is
left. A parameter annotated as `Task`, or one called `task` that no input fills, receives the task
itself (its `key` is the idempotency key). Where the call runs:

    async def                     in the event loop
    def                           in a thread, because it may block
    def, with blocking=False      in place; only for calls that compute a moment and never wait

The value returned is the result and must be plain JSON; an `Answer` is taken as it is. An exception
is a failure: TimeoutError gives the kind `timeout`, ConnectionError `connection`, others `python`.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from anabranch.dialects.port import ToolSignature
from anabranch.errors import ExpressionError, InputError
from anabranch.expressions.jinja.jinja import ValueTemplate, all_plain, made_from
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.work.faults import fault, misconfigured, raised
from anabranch.work.kinds.threads import Threads
from anabranch.work.logs.attempt_log import PrintTarget, print_target
from anabranch.work.logs.listening import heard, listen
from anabranch.work.port import Performer, Task
from anabranch.work.values.json_values import require_json

F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)

Place = Literal["loop", "thread", "here"]
Caught = type[BaseException] | tuple[type[BaseException], ...]
Stop = Sequence[object]
_CAUGHT: Caught = (Exception, SystemExit)  # of what is called in the thread of the event loop

BREATHE_SECONDS = 0.005  # calls in place let the event loop turn that often
UNSEEN = 32  # calls in place from one look at the clock to the next, where they are quick
TRIP_SECONDS = 0.02  # after that the results of a thread go back, and the rest is a trip of its own


class CallOfItem(NamedTuple):
    """How a tool is called for an item of a loop."""

    given: Callable[[Any], Any] | None  # what of the item; raises `ExpressionError`; None: itself
    call: Callable[[Any], Any]
    alone: bool = False  # the item is the one argument

    def for_items(self, values: Sequence[Any]) -> CallOfItem:
        """The same for these items: plain ones are given as they are, without a look at each."""
        return self._replace(given=None) if self.alone and all_plain(values) else self


class Tool:
    """A registered callable and what has to be known to call it."""

    def __init__(self, name: str, call: Callable[..., Any], place: Place) -> None:
        self.name = name
        self.call = call
        self.place = place
        self.origin = f"{call.__module__}:{getattr(call, '__qualname__', type(call).__name__)}"
        self._read_parameters()

    @property
    def signature(self) -> ToolSignature:
        """What a definition may write as its arguments."""
        required = self._required - {self._task_name or ""}
        if self._takes_rest or "args" in self._names:
            return ToolSignature(self.name, frozenset(required))
        return ToolSignature(self.name, frozenset(required), frozenset(self._names))

    def call_of_item(self, inputs: Any, path: tuple[str, ...]) -> CallOfItem | None:
        """How to call it for an item that templates find at this path, where the inputs are made of
        nothing else."""
        arguments = self._structure(inputs) if isinstance(inputs, Mapping) else None
        if arguments is None:
            return None
        for name, only in arguments.items():
            alone = len(arguments) == 1 and name == self._first
            if alone and isinstance(only, ValueTemplate) and only.looks_up(path):
                return CallOfItem(only.given, self.call, alone=True)
        make = made_from(arguments, path)
        return CallOfItem(make, lambda given: self.call(**given)) if make is not None else None

    def _structure(self, inputs: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The arguments of every call for inputs of this form, whatever their values. None where
        the values matter, a call is told of its task, or an argument is wrong: `arguments` says."""
        given = dict(inputs)
        if "args" in given and "args" not in self._names:
            if not isinstance(given["args"], Mapping):
                return None
            given |= given.pop("args")
        if self._task_name is not None or not given.keys() >= self._required:
            return None
        return given if self._takes_rest or given.keys() <= self._names else None

    def arguments(self, task: Task) -> dict[str, Any]:
        """The keyword arguments for one call, or an `InputError` that names the parameter."""
        given = dict(task.inputs)
        if "args" in given and "args" not in self._names and isinstance(given["args"], Mapping):
            given |= given.pop("args")  # playbooks write the arguments of a tool under `args`
        if self._task_name is not None and (self._task_forced or "task" not in given):
            given[self._task_name] = task
        if not given.keys() >= self._required:
            raise InputError(self._missing(given))
        if not self._takes_rest and not given.keys() <= self._names:
            raise InputError(self._unexpected(given))
        return given

    def call_each(
        self,
        how: CallOfItem,
        items: Iterator[Any],
        seconds: float,
        caught: Caught,
        stop: Stop,
        unseen: int = 1,
        numbers: Sequence[int] = (),
    ) -> list[Any]:
        """Call it for one item after the other, for so long or until there is something in `stop`:
        the results, which are plain JSON. An `Answer` is the last of them: of an item that failed,
        or that said more than its result. `unseen` is how many quick ones there may be from one
        look at the clock to the next; `numbers` are their indexes, for what they print."""
        given, call, _ = how
        clock, found = time.perf_counter, list[Any]()
        target = print_target.get()
        if target is not None:
            print_target.set(PrintTarget(target.log).follow(numbers, found))
        until, done, look = clock() + seconds, 0, 1
        for item in items:
            try:
                arguments = item if given is None else given(item)
            except ExpressionError as error:
                found.append(failed("transform", str(error), retryable=False))
                break
            try:
                result = call(arguments)
                if result is not None and type(result) is not int:
                    answer = self.answer(result)
                    if answer.status != "ok" or isinstance(result, Answer):
                        found.append(answer)
                        break
                    result = answer.result
            except caught as error:
                found.append(self.failure(error))
                break
            found.append(result)
            done += 1
            if done < look and not stop:
                continue
            left = until - clock()
            if left <= 0 or stop:
                break
            look = done + (min(done, unseen) if 2 * left > seconds else 1)
        return found

    def call_one(self, how: CallOfItem, item: Any, caught: Caught) -> Any:
        """The same for one item: its result, or an `Answer`."""
        try:
            arguments = item if how.given is None else how.given(item)
        except ExpressionError as error:
            return failed("transform", str(error), retryable=False)
        try:
            result = how.call(arguments)
            if result is None or type(result) is int:
                return result
            answer = self.answer(result)
        except caught as error:
            return self.failure(error)
        said_more = answer.status != "ok" or isinstance(result, Answer)
        return answer if said_more else answer.result

    def answer(self, value: Any) -> Answer:
        """What the engine records for the value the callable returned."""
        what = f"the result of tool '{self.name}'"
        try:
            if isinstance(value, Answer):
                return _plain_answer(value, what)
            return succeeded(require_json(value, what))
        except InputError as error:
            return fault("result", error.message)

    def failure(self, error: BaseException) -> Answer:
        return raised(error, outside=__file__)

    def _read_parameters(self) -> None:
        parameters = inspect.signature(self.call).parameters.values()
        for parameter in parameters:
            if parameter.kind in _BY_POSITION:
                raise TypeError(
                    f"tool '{self.name}': parameter '{parameter.name}' has no name to match inputs "
                    "with; make it an ordinary parameter"
                )
        self._takes_rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
        named = [p for p in parameters if p.kind is not p.VAR_KEYWORD]
        self._names = {p.name for p in named}
        self._first = next((p.name for p in named if p.kind is p.POSITIONAL_OR_KEYWORD), "")
        self._required = {p.name for p in named if p.default is p.empty}
        annotated = [p.name for p in named if _is_task(p.annotation)]
        self._task_forced = bool(annotated)
        self._task_name = annotated[0] if annotated else "task" if "task" in self._names else None

    def _missing(self, given: Mapping[str, Any]) -> str:
        names = sorted(self._required - given.keys())
        plural = "s" if len(names) > 1 else ""
        return f"tool '{self.name}' needs the input{plural} {_listed(names)}" + (
            f"; it was given {_listed(sorted(given))}" if given else "; it was given none"
        )

    def _unexpected(self, given: Mapping[str, Any]) -> str:
        name = min(given.keys() - self._names)
        near = difflib.get_close_matches(name, self._names, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"it takes {_listed(sorted(self._names))}"
        return f"tool '{self.name}' has no parameter '{name}'; {hint}"


class LoopTool:
    """Performs an `async def` tool in the event loop."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    async def perform(self, task: Task) -> Answer:
        try:
            arguments = self._tool.arguments(task)
        except InputError as error:
            return misconfigured(error)
        if print_target.get() is not None:
            listen()
        try:
            outcome: Awaitable[Any] = self._tool.call(**arguments)
            return self._tool.answer(await outcome)
        except asyncio.CancelledError as error:
            if _being_cancelled():
                raise
            return self._tool.failure(error)  # something the tool awaited was cancelled, not we
        except (Exception, SystemExit) as error:
            return self._tool.failure(error)


class ThreadTool:
    """Performs a blocking tool in a thread."""

    def __init__(self, tool: Tool, threads: Threads) -> None:
        self._tool = tool
        self._threads = threads

    async def perform(self, task: Task) -> Answer:
        return await self._threads.run(heard(partial(self._call, task)))

    async def close(self) -> None:
        await self._threads.close()

    def _call(self, task: Task) -> Answer:
        return _called(self._tool, task, BaseException)  # nothing may end the thread

    def call_of_item(self, inputs: Any, path: tuple[str, ...]) -> CallOfItem | None:
        return self._tool.call_of_item(inputs, path)

    async def call_each(
        self, how: CallOfItem, items: Iterator[Any], numbers: Sequence[int] = ()
    ) -> list[Any]:
        """Some of the items, in one trip to the thread."""
        stop: list[object] = []  # until nobody waits for the rest
        each = self._tool.call_each
        try:
            return await self._threads.run(
                heard(lambda: each(how, items, TRIP_SECONDS, BaseException, stop, 1, numbers))
            )
        finally:
            stop.append(True)


class ImmediateTool:
    """Performs a tool that never waits, in place."""

    prints = True  # perhaps: whoever calls `perform_now` says where that goes

    def __init__(self, tool: Tool) -> None:
        self._tool = tool

    async def perform(self, task: Task) -> Answer:
        return self.perform_now(task)

    def perform_now(self, task: Task) -> Answer:
        if print_target.get() is not None:
            listen()
        return _called(self._tool, task, _CAUGHT)

    def call_of_item(self, inputs: Any, path: tuple[str, ...]) -> CallOfItem | None:
        return self._tool.call_of_item(inputs, path)

    async def call_each(
        self, how: CallOfItem, items: Iterator[Any], numbers: Sequence[int] = ()
    ) -> list[Any]:
        """Some of the items; the event loop turns before the others."""
        if print_target.get() is not None:
            listen()
        each = self._tool.call_each
        found = each(how, items, BREATHE_SECONDS, _CAUGHT, (), UNSEEN, numbers)
        await asyncio.sleep(0)
        return found

    def call_one(self, how: CallOfItem, item: Any, number: int) -> Any:
        """The result of one item, or an `Answer`, for a caller that sees to the event loop."""
        target = print_target.get()
        if target is not None:
            listen()
            print_target.set(PrintTarget(target.log, number))
        return self._tool.call_one(how, item, _CAUGHT)


def _called(tool: Tool, task: Task, caught: Caught) -> Answer:
    try:
        arguments = tool.arguments(task)
    except InputError as error:
        return misconfigured(error)
    try:
        return tool.answer(tool.call(**arguments))
    except caught as error:
        return tool.failure(error)


class Toolbox:
    """The tools of one program (or of one test), by name."""

    def __init__(self) -> None:
        self._tools: dict[str, Tool] = {}
        self.imported: dict[str, None] = {}  # modules that were named to be imported for tools

    def tool(self, name: str, *, blocking: bool | None = None) -> Callable[[F], F]:
        """Makes a callable the task kind `name`; the callable itself stays what it was."""

        def register(call: F) -> F:
            self.add(name, call, blocking=blocking)
            return call

        return register

    def add(self, name: str, call: Callable[..., Any], *, blocking: bool | None = None) -> None:
        """Make the function a kind of task; a name that is taken by another one is refused."""
        if not _NAME.fullmatch(name):
            raise InputError(f"'{name}' cannot name a tool: use letters, digits and _ . -")
        tool = Tool(name, call, _place(name, call, blocking))
        known = self._tools.get(name)
        if known is not None and known.origin != tool.origin:  # a reloaded module is no conflict
            raise InputError(f"tool '{name}' is already {known.origin}; choose another name")
        self._tools[name] = tool

    @property
    def modules(self) -> list[str]:
        """Those that have to be imported for the tools to be there: as they were named, or else
        those that the callables are from. What a script registers itself is in no module."""
        found = (tool.origin.partition(":")[0] for tool in self)
        return list(self.imported or dict.fromkeys(one for one in found if one != "__main__"))

    def find(self, name: str) -> Tool | None:
        """The tool of this name, if there is one."""
        return self._tools.get(name)

    def signatures(self) -> list[ToolSignature]:
        """What definitions are checked with."""
        return [tool.signature for tool in self]

    def performers(self, threads: Threads) -> dict[str, Performer]:
        """A performer for every tool known now; the blocking ones share `threads`."""
        return {tool.name: performer_for(tool, threads) for tool in self}

    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._tools.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)


#: What `anabranch.tool` registers.
default_toolbox = Toolbox()


def performer_for(tool: Tool, threads: Threads) -> Performer:
    match tool.place:
        case "loop":
            return LoopTool(tool)
        case "here":
            return ImmediateTool(tool)
        case "thread":
            return ThreadTool(tool, threads)


def _place(name: str, call: Callable[..., Any], blocking: bool | None) -> Place:
    if inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - the method itself is wanted
    ):
        if blocking:
            raise TypeError(f"tool '{name}' is async; blocking=True fits only a plain def")
        return "loop"
    return "here" if blocking is False else "thread"


def _is_task(annotation: Any) -> bool:
    """Annotations are text in modules that postpone them: `Task`, `port.Task`."""
    return annotation is Task or (
        isinstance(annotation, str) and annotation.rpartition(".")[2] == "Task"
    )


def _plain_answer(answer: Answer, what: str) -> Answer:
    fault = answer.fault
    if fault is not None:
        details = require_json(fault.details, f"the failure in {what}", root="details")
        fault = msgspec.structs.replace(fault, details=details)
    for patch in answer.patches:
        require_json(patch.value, f"the patch of '{patch.key}' in {what}", root=patch.key)
    result = require_json(answer.result, what)
    return msgspec.structs.replace(answer, result=result, fault=fault)


def _being_cancelled() -> bool:
    current = asyncio.current_task()
    return current is None or current.cancelling() > 0


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"

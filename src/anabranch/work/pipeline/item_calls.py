"""The shortest way through a program: one call of a tool whose arguments are made from the item.

Large loops are often `tool: {kind: price, args: {sku: "{{ iter.sku }}"}}` and nothing else, or with
one rule that shares the result. Nothing has to be rendered then, and no task to be made: the tool
is called for one item after the other, in place or in one thread, and only an item that fails is
looked at by itself. What comes out is the same as by the longer ways; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from anabranch.errors import ExpressionError, InputError
from anabranch.expressions.jinja.jinja import ValueTemplate
from anabranch.expressions.port import Constant
from anabranch.kernel.reducers import check_patch, reduce_into
from anabranch.kernel.values import Answer, ContextPatch, succeeded
from anabranch.net.program import Iteration, Program, TaskSpec, Write
from anabranch.work.kinds.callables import CallOfItem, ImmediateTool, ThreadTool
from anabranch.work.pipeline.fast_path import FastPath, only_goes_on
from anabranch.work.pipeline.services import Services
from anabranch.work.port import Task

_PLAIN = frozenset({int, str, bool, type(None)})


class CallPlan:
    """How the items of a loop are called, whichever of its shards they are in."""

    def __init__(
        self,
        spec: TaskSpec,
        tool: ImmediateTool | ThreadTool,
        how: CallOfItem,
        writes: tuple[Write, ...],
    ) -> None:
        self._spec = spec
        self._tool = tool
        self._how = how
        self._writes = writes
        self.labels = (spec.label,)
        #: For items that are called one by one and in place, each in a shard of its own.
        self.single = SingleCall(tool, how, writes) if isinstance(tool, ImmediateTool) else None

    def of(self, task: Task) -> ItemCalls:
        sharing = SharedResults(self._writes, self._how.call) if self._writes else None
        return ItemCalls(self._tool, self._how, FastPath(self._spec, _never, task), sharing)


def call_plan(iteration: Iteration, services: Services) -> CallPlan | None:
    """How its items are called, where that is all there is to do."""
    writes = _shared(iteration.program, iteration.result)
    if writes is None or not iteration.item or services.keyring is not None:
        return None
    spec = iteration.program.tasks[0]
    tool = services.performers.get(spec.kind)
    if not isinstance(tool, ImmediateTool | ThreadTool):
        return None
    if iteration.parallel and isinstance(tool, ThreadTool):
        return None  # its items do not wait for each other
    how = tool.call_of_item(getattr(spec.inputs, "structure", None), iteration.item)
    return CallPlan(spec, tool, how, writes) if how is not None else None


def _shared(program: Program, result: tuple[str, ...]) -> tuple[Write, ...] | None:
    """What every item that ended well shares of its result; None where more follows a task, or
    where it takes more than a look at the result to tell."""
    if len(program.tasks) != 1 or program.variables is not None:
        return None
    spec = program.tasks[0]
    rule = spec.rules[0] if spec.rules else None
    if len(spec.rules) > 1 or not only_goes_on(spec):
        return None
    if rule is not None and (rule.when is not None or rule.do == "fail"):
        return None
    writes = spec.set_shared if rule is None else (*spec.set_shared, *rule.set_shared)
    return writes if all(_looks_at(write, result) for write in writes) else None


def _looks_at(write: Write, result: tuple[str, ...]) -> bool:
    value = write.value
    if isinstance(value, Constant):
        return type(value.value) in _PLAIN
    return bool(result) and isinstance(value, ValueTemplate) and value.looks_up(result)


class SharedResults:
    """What items share of their results, taken at once: a result that does not fit is that of the
    last item that was called, and is looked at by itself."""

    def __init__(self, writes: tuple[Write, ...], call: Callable[[Any], Any]) -> None:
        self._writes = writes
        self._call = call
        self._sum = writes[0].key if len(writes) == 1 and writes[0].reducer == "sum" else None
        self._given = [_giving(write) for write in writes]
        self.so_far: dict[str, Any] = {}

    def begin(self, shared: Mapping[str, Any]) -> None:
        """By the items before. It stays as it is until the results of these items are taken: then
        it says as much as their number does."""
        self.so_far = dict(shared)

    def call(self, arguments: Any) -> Any:
        """Call the tool and share what it gives; an `Answer` where that has to be looked at."""
        result = self._call(arguments)
        if type(result) in _PLAIN and _is_json(result) and self._take(result):
            return result
        return result if isinstance(result, Answer) else succeeded(result)

    def _take(self, result: Any) -> bool:
        try:
            if self._sum is not None and type(result) is int:
                value, old = self._given[0](result), self.so_far.get(self._sum, 0)
                if type(value) is int and type(old) is int:
                    self.so_far[self._sum] = old + value
                    return True
            patches = [
                ContextPatch(write.key, give(result), write.reducer)
                for write, give in zip(self._writes, self._given, strict=True)
            ]
            for patch in patches:
                check_patch(self.so_far, patch)
        except (ExpressionError, InputError):
            return False
        for patch in patches:
            reduce_into(self.so_far, patch)
        return True


def _is_json(plain: Any) -> bool:
    """Of these values only a text may be none, where it has half of a character."""
    if type(plain) is not str or plain.isascii():
        return True
    try:
        plain.encode()
    except UnicodeEncodeError:
        return False
    return True


def _giving(write: Write) -> Callable[[Any], Any]:
    value = write.value
    if isinstance(value, ValueTemplate):
        return value.given
    constant = value.value if isinstance(value, Constant) else None
    return lambda _result: constant


class ItemCalls:
    def __init__(
        self,
        tool: ImmediateTool | ThreadTool,
        how: CallOfItem,
        path: FastPath,
        sharing: SharedResults | None,
    ) -> None:
        self._tool = tool
        self._how = how if sharing is None else how._replace(call=sharing.call)
        self.path = path  # for an item that has to be looked at by itself
        self.sharing = sharing

    def see(self, values: Sequence[Any]) -> None:
        """These are the items to come."""
        self._how = self._how.for_items(values)

    async def some(self, items: Iterator[Any], numbers: Sequence[int]) -> list[Any]:
        """The results of one or more of the items, whose indexes are these; an `Answer` can be the
        last of them."""
        return await self._tool.call_each(self._how, items, numbers)


class SingleCall:
    """Items of a tool that is called in place, each by itself."""

    def __init__(self, tool: ImmediateTool, how: CallOfItem, writes: tuple[Write, ...]) -> None:
        self._tool = tool
        self._sharing = SharedResults(writes, how.call) if writes else None
        self._how = how if self._sharing is None else how._replace(call=self._sharing.call)

    def made(self, item: Any, number: int) -> tuple[Any, dict[str, Any]]:
        """The result of the item, or an `Answer`; and what it shares of that."""
        if self._sharing is None:
            return self._tool.call_one(self._how, item, number), {}
        self._sharing.so_far = {}
        result = self._tool.call_one(self._how, item, number)
        return result, self._sharing.so_far


def _never(task: Task) -> Any:
    raise AssertionError(f"items of {task.loop} are called together")

"""Loops inside a pipeline: a task's program once per item, in the job of the pipeline itself.

The items are listed before the first one begins: a list, the pairs of a mapping or a range. Every
item has an `iter` of its own, whose `parent` is the `iter` around it. The result is that of a loop
of a step: `{results, stats}`, in the order of the items whatever order they ended in. Writes to the
context are taken in that order too, when all items are done.

Collections that are read piece by piece need the durable loop of a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from anabranch.errors import AnabranchError, ExpressionError, InputError
from anabranch.kernel.loops import window_of
from anabranch.kernel.values import Answer, ContextPatch, Fault, failed, succeeded
from anabranch.net.program import InnerLoop
from anabranch.work.evaluations import evaluate_with
from anabranch.work.faults import unexpected
from anabranch.work.secrets.redaction import head_of, render_with

ITEMS_MAX = 100_000
MESSAGE_MAX = 500


class Done(NamedTuple):
    """What an item, or the whole loop, came to, with what it shares."""

    answer: Answer
    shared: Sequence[ContextPatch] = ()


#: Carries out one item, given its number and its `iter`.
OneItem = Callable[[int, Mapping[str, Any]], Awaitable[Done]]


class InnerCrossing:
    """One inner loop on its way."""

    def __init__(self, loop: InnerLoop, label: str, names: Mapping[str, Any]) -> None:
        self._loop = loop
        self._label = label
        self._names = names
        self._done: dict[int, Done] = {}
        self._stopped = False

    async def run(self, one: OneItem) -> Done:
        try:
            items = items_of(await render_with(self._names, self._loop.over.evaluate))
            window = await evaluate_with(self._names, partial(window_of, self._loop))
        except ExpressionError as error:
            return Done(failed("transform", str(error), retryable=False))
        except AnabranchError as error:
            return Done(failed("collection", f"task {self._label}: {error}", retryable=False))
        except Exception as error:
            return Done(unexpected(error, f"task {self._label}: the items cannot be listed"))
        waiting = iter(enumerate(items))
        count = len(items)
        if window == 1 or count < 2:
            await self._in_turn(waiting, count, one)
        else:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(window, count)):
                    group.create_task(self._in_turn(waiting, count, one))
        return self._whole(count)

    async def _in_turn(self, waiting: Iterator[tuple[int, Any]], count: int, one: OneItem) -> None:
        for index, value in waiting:
            if self._stopped:
                return
            done = self._done[index] = await one(index, self._iter(index, value, count))
            if done.answer.status != "ok" and not self._loop.best_effort:
                self._stopped = True
            if index % 64 == 63:
                await asyncio.sleep(0)  # work that never waits must not keep others waiting

    def _iter(self, index: int, value: Any, count: int) -> dict[str, Any]:
        local: Mapping[str, Any] = self._names.get("local", {})
        return {
            self._loop.iterator: value,
            "item": value,
            "index": index,
            "_index": index,
            "_first": index == 0,
            "_last": index == count - 1,
            "iter_index": index,
            "iter_key": str(index),
            "parent": local.get("iter", {}),
        }

    # -- what it comes to --------------------------------------------------------------------

    def _whole(self, count: int) -> Done:
        """In the order of the items; of those that failed only what a rule wrote that said so."""
        good = {index: done for index, done in self._done.items() if done.answer.status == "ok"}
        if len(good) < len(self._done) and not self._loop.best_effort:
            return Done(self._failed(len(good), count))
        ordered = [good[index] for index in sorted(good)]
        found = [good[index].answer.result if index in good else None for index in range(count)]
        stats = {"total": count, "success": len(good), "failed": count - len(good)}
        everything = [self._done[index] for index in sorted(self._done)]
        patches = tuple(patch for done in everything for patch in done.answer.patches)
        shared = [patch for done in ordered for patch in done.shared]
        return Done(succeeded({"results": found, "stats": stats}, patches=patches), shared)

    def _failed(self, succeeded_ones: int, count: int) -> Answer:
        bad = [index for index in sorted(self._done) if self._done[index].answer.status != "ok"]
        fault = self._done[bad[0]].answer.fault or Fault("unknown", "the item failed")
        why = head_of(fault.message, MESSAGE_MAX)
        answer = failed(
            "loop",
            f"task {self._label}: item {bad[0]} of {count} failed ({fault.kind}): {why}",
            code="LOOP_FAILED",
            retryable=fault.retryable,
            details={
                "index": bad[0],
                "total": count,
                "succeeded": succeeded_ones,
                "failed": len(bad),
            },
        )
        said = tuple(patch for index in bad for patch in self._done[index].answer.patches)
        return msgspec.structs.replace(answer, patches=said)


def items_of(value: Any) -> Sequence[Any]:
    """What an inner loop goes through, all of it."""
    if isinstance(value, Mapping) and set(value) == {"range"}:
        value = _range(value["range"])
    elif isinstance(value, Mapping):
        value = [{"key": key, "value": each} for key, each in value.items()]
    if not isinstance(value, list | tuple | range):
        kind = "nothing" if value is None else type(value).__name__
        raise InputError(
            f"a loop inside a pipeline needs a list, not {kind}: check what `in` comes to"
        )
    if len(value) > ITEMS_MAX:
        raise InputError(
            f"{len(value):,} items are too many for a loop inside a pipeline (at most "
            f"{ITEMS_MAX:,}): give it a step of its own"
        )
    return value


def _range(given: Any) -> range:
    numbers = given if isinstance(given, list | tuple) else [given]
    whole = all(isinstance(each, int) and not isinstance(each, bool) for each in numbers)
    if not whole or not 1 <= len(numbers) <= 3 or (len(numbers) == 3 and not numbers[2]):
        raise InputError("range must be a number, or [start, stop] or [start, stop, step]")
    return range(*numbers)

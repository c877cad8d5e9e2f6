"""Shards: the items of one part of a loop, one after the other or several at once.

Every item goes through the same program with its own `iter`. An item that fails is reported by its
index and key; the others go on, and the kernel decides what the failures mean. The shard's answer
carries counts, failures, the results in item order and what was shared, reduced over the items.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from anabranch.errors import AnabranchError, ExpressionError, InputError
from anabranch.kernel.reducers import check_patch, reduce_into
from anabranch.kernel.tracker import ItemFailure, Shard, ShardReport
from anabranch.kernel.values import Answer, ContextPatch, Fault, failed, succeeded
from anabranch.net.program import Iteration, TaskSpec
from anabranch.work.pipeline import Means, Passage
from anabranch.work.port import Parked, Task
from anabranch.work.reading import CollectionReader

BREATHE_EVERY = 64  # items done in place between two turns of the event loop
MESSAGE_MAX = 500

Item = tuple[int, str, Any]  # index, key, value


class Items(Protocol):
    """How the items of a shard are found."""

    async def items(self, source: Any, shard: Shard) -> Sequence[Item]: ...


class ReadAhead:
    """The performer for the job that cuts a collection without an index into shards."""

    def __init__(self, reader: CollectionReader) -> None:
        self._reader = reader

    async def perform(self, task: Task) -> Answer:
        given = task.inputs
        keyring = task.names.get("keychain") or {}
        try:
            found = await self._reader.ahead(
                task.source, given["cursor"], given["count"], given["shards"], keyring=keyring
            )
        except InputError as error:
            retryable = bool(getattr(error, "retryable", False))
            return failed("collection", str(error), retryable=retryable)
        return succeeded(found)


class Shards:
    """The performer for the jobs of a loop."""

    def __init__(self, means: Means, reader: Items) -> None:
        self._means = means
        self._reader = reader

    async def perform(self, task: Task) -> Answer:
        begin = time.monotonic()
        iteration: Iteration = task.program
        try:
            items = await self._reader.items(task.source, task.shard)
            crossing = Crossing(task, iteration, self._means)
            await crossing.run(_keyed(items, iteration, task))
        except AnabranchError as error:
            return failed("collection", str(error), retryable=False)
        return crossing.answer(int((time.monotonic() - begin) * 1000))


def _keyed(items: Sequence[Item], iteration: Iteration, task: Task) -> Sequence[Item]:
    """Items with the keys the definition gives them; two of one key are refused."""
    if iteration.key is None:
        return items
    keyed: list[Item] = []
    seen: dict[str, int] = {}
    for index, _, value in items:
        names = {**task.names, "local": {"iter": _iter(iteration, index, "", value, task)}}
        key = str(iteration.key.evaluate(names))
        if key in seen:
            raise InputError(f"items {seen[key]} and {index} have the same iter_key {key!r}")
        seen[key] = index
        keyed.append((index, key, value))
    return keyed


def _iter(iteration: Iteration, index: int, key: str, value: Any, task: Task) -> dict[str, Any]:
    shard: Shard = task.shard
    return {
        iteration.iterator: value,
        "item": value,
        "index": index,
        "_index": index,
        "_first": index == 0,
        "iter_index": index,
        "iter_key": key,
        "loop_id": task.loop,
        "shard_id": f"{task.loop}/{shard.first}+{shard.count}",
    }


class Crossing:
    """One shard on its way."""

    def __init__(self, task: Task, iteration: Iteration, means: Means) -> None:
        self._task = task
        self._iteration = iteration
        self._means = means
        self._results: dict[int, Any] = {}
        self._failures: list[ItemFailure] = []
        self._patches: list[ContextPatch] = []
        self._shared: dict[str, Any] = {}
        self._succeeded = 0
        self._quick = self._in_place()

    def _in_place(self) -> tuple[TaskSpec, Callable[[Task], Answer]] | None:
        """Work that never waits is called directly: no task, no trip through the loop."""
        program = self._iteration.program
        if not program.plain:
            return None
        spec = program.tasks[0]
        perform_now = getattr(self._means.performers.get(spec.kind), "perform_now", None)
        return (spec, perform_now) if perform_now is not None else None

    async def run(self, items: Sequence[Item]) -> None:
        if self._quick is not None:
            await self._run_quick(items, *self._quick)
        elif self._iteration.concurrency == 1:
            for item in items:
                await self._one(item)
        else:
            await self._several(items)

    async def _run_quick(
        self, items: Sequence[Item], spec: TaskSpec, perform_now: Callable[[Task], Answer]
    ) -> None:
        base = msgspec.structs.replace(self._task, kind=spec.kind, program=None)
        for count, (index, key, value) in enumerate(items, start=1):
            self._take(index, key, self._now(base, spec, perform_now, index, key, value))
            if count % BREATHE_EVERY == 0:
                await asyncio.sleep(0)

    def _now(
        self,
        base: Task,
        spec: TaskSpec,
        perform_now: Callable[[Task], Answer],
        index: int,
        key: str,
        value: Any,
    ) -> Answer:
        names = {
            **base.names,
            "local": {"iter": _iter(self._iteration, index, key, value, self._task)},
        }
        try:
            inputs = spec.inputs.evaluate(names) if spec.inputs is not None else {}
        except ExpressionError as error:
            return failed("transform", str(error), retryable=False)
        return perform_now(
            msgspec.structs.replace(base, inputs=inputs, names=names, key=self._key(index, key))
        )

    def _key(self, index: int, key: str) -> str:
        """The same for every attempt at this item, wherever and whenever it is made."""
        return f"{self._task.run}/{self._task.loop}/{key or index}"

    async def _several(self, items: Sequence[Item]) -> None:
        """As many at once as allowed; the next begins as soon as one is done."""
        waiting = iter(items)

        async def worker() -> None:
            for item in waiting:
                await self._one(item)

        count = min(self._iteration.concurrency, len(items))
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(worker())

    async def _one(self, item: Item) -> None:
        index, key, value = item
        task = msgspec.structs.replace(self._task, key=self._key(index, key))
        iteration = _iter(self._iteration, index, key, value, self._task)
        passage = Passage(self._iteration.program, task, self._means, iteration)
        answer = await passage.run()
        if isinstance(answer, Parked):
            answer = failed("config", "an item of a loop cannot wait outside", retryable=False)
        self._take(index, key, answer, passage.shared)

    def _take(
        self, index: int, key: str, answer: Answer, shared: Sequence[ContextPatch] = ()
    ) -> None:
        self._patches.extend(answer.patches)
        fault = answer.fault
        if answer.status == "ok":
            try:
                self._share(shared)
            except InputError as error:
                fault = Fault(error.code, str(error), retryable=False)
            else:
                self._succeeded += 1
                self._results[index] = answer.result
                return
        fault = fault or Fault("unknown", "the item failed")
        message = fault.message[:MESSAGE_MAX]
        self._failures.append(ItemFailure(index, key, fault.kind, message, fault.retryable))

    def _share(self, shared: Sequence[ContextPatch]) -> None:
        for patch in shared:
            check_patch(self._shared, patch)
        for patch in shared:
            reduce_into(self._shared, patch)

    def answer(self, milliseconds: int) -> Answer:
        report = ShardReport(self._succeeded, tuple(self._failures), milliseconds, self._shared)
        return Answer(
            status="ok",
            outcome="ok",
            result=self._kept() if self._iteration.keep_results else None,
            patches=tuple(self._patches),
            shard=report,
        )

    def _kept(self) -> Any:
        """A list for a whole shard; index → result where only some items were tried."""
        shard: Shard = self._task.shard
        if shard.only:
            return {str(index): value for index, value in self._results.items()}
        wanted = range(shard.first, shard.first + shard.count)
        return [self._results.get(index) for index in wanted]

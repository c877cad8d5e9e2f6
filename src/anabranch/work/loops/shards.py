"""Shards: the items of one part of a loop, one after the other or several at once.

Every item goes through the same program with its own `iter`. An item that fails is reported by its
index and key; the others go on, and the kernel decides what the failures mean. Only where the first
failure ends the loop, the items that have not begun are left alone and reported as such. The
shard's answer carries counts, failures, the results in item order and what was shared, reduced over
the items.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from anabranch.errors import AnabranchError, InputError
from anabranch.kernel.reducers import check_patch, reduce_into
from anabranch.kernel.tracker import SHARD_MAX, ItemFailure, Shard, ShardReport, TaskRun
from anabranch.kernel.values import Answer, ContextPatch, Fault, failed, succeeded
from anabranch.net.program import Iteration
from anabranch.work.faults import unexpected
from anabranch.work.loops import checkpoints
from anabranch.work.loops.busy_time import BusyMeter, Stopwatch
from anabranch.work.loops.checkpoints import Checkpoint
from anabranch.work.loops.collection_reader import CollectionReader
from anabranch.work.loops.permits import LoopPermits, Permits
from anabranch.work.pipeline.fast_path import FastPath, short_way
from anabranch.work.pipeline.pipeline import PipelineRun, Services
from anabranch.work.pipeline.scope import PipelineScope
from anabranch.work.port import Parked, Task
from anabranch.work.secrets.redaction import head_of

BREATHE_SECONDS = 0.005  # items done in place let the event loop turn that often
MESSAGE_MAX = 500
WAYS_KEPT = 1000  # items of a shard of which it is told what their tasks did, where that is unusual

Item = tuple[int, str, Any]  # index, key, value


class Underway(Protocol):
    """A shard that is being worked on."""

    @property
    def done(self) -> int: ...

    @property
    def size(self) -> int: ...

    def checkpoint(self) -> Checkpoint: ...


Heed = Callable[[Task, Underway], None]


class ShardItems(Protocol):
    """How the items of a shard are found."""

    async def items(
        self, source: Any, shard: Shard, /, *, keyring: Mapping[str, Any] = ...
    ) -> Sequence[Item]: ...


class ReadAhead:
    """The performer for the job that cuts a collection without an index into shards."""

    def __init__(self, reader: CollectionReader) -> None:
        self._reader = reader

    async def perform(self, task: Task) -> Answer:
        given = task.inputs
        keyring = task.names.get("keychain", {})
        try:
            found = await self._reader.ahead(
                _owned(task),
                given["cursor"],
                given["count"],
                given["shards"],
                keyring=keyring,
                run=task.run,
            )
        except InputError as error:
            retryable = bool(getattr(error, "retryable", False))
            return failed("collection", str(error), retryable=retryable)
        except Exception as error:
            return unexpected(error, "the collection cannot be read")
        return succeeded(found)


def _owned(task: Task) -> Any:
    """The collection; one whose rows are claimed also knows for whom."""
    source = task.source
    claim = source.get("claim") if isinstance(source, Mapping) else None
    if not isinstance(claim, Mapping):
        return source
    return {**source, "claim": {**claim, "owner": task.loop}}


class Shards:
    """The performer for the jobs of a loop."""

    def __init__(
        self,
        services: Services,
        reader: ShardItems,
        heed: Heed | None = None,
        *,
        alone: bool = True,
    ) -> None:
        """`heed` hears of every shard that begins, and may ask it at any time how far it is.

        `alone` says that every shard of a loop is worked on here. Where others work on it too,
        nobody can count items over all of them: each shard then does one item at a time.
        """
        self._services = services
        self._reader = reader
        self._heed = heed
        self._meter = BusyMeter()
        self._permits = LoopPermits() if alone else None

    async def perform(self, task: Task) -> Answer | Parked:
        watch = Stopwatch(self._meter)
        iteration: Iteration = task.program
        try:
            keyring = task.names.get("keychain", {})
            items = await self._reader.items(task.source, task.shard, keyring=keyring)
            crossing = Crossing(task, iteration, self._services, watch)
            if self._heed is not None:
                self._heed(task, crossing)
            await self._cross(crossing, _keyed(items, iteration, task), task)
        except AnabranchError as error:
            retryable = bool(getattr(error, "retryable", False))
            return failed("collection", str(error), retryable=retryable)
        except Exception as error:
            return unexpected(error, "the items cannot be read")
        return crossing.parked or crossing.answer(round(watch.seconds * 1000))

    async def _cross(self, crossing: Crossing, items: Sequence[Item], task: Task) -> None:
        if not task.program.parallel or self._permits is None:
            await crossing.run(items)
            return
        with self._permits.of(task.loop, task.inputs.get("at_once", 1)) as permits:
            await crossing.run(items, permits)


def _keyed(items: Sequence[Item], iteration: Iteration, task: Task) -> Sequence[Item]:
    """Items with the keys the definition gives them; two of one key are refused."""
    if iteration.key is None:
        return items
    keyed: list[Item] = []
    seen: dict[str, int] = {}
    shard_id = _shard_id(task)
    for index, _, value in items:
        given = _iter(iteration, task, shard_id, index, "", value)
        names = {**task.names, "local": {"iter": given}}
        key = str(iteration.key.evaluate(names))
        if key in seen:
            raise InputError(f"items {seen[key]} and {index} have the same iter_key {key!r}")
        seen[key] = index
        keyed.append((index, key, value))
    return keyed


def _shard_id(task: Task) -> str:
    return f"{task.loop}/{task.shard.first}+{task.shard.count}"


def _iter(
    iteration: Iteration, task: Task, shard_id: str, index: int, key: str, value: Any
) -> dict[str, Any]:
    """What templates see as `iter`."""
    return {
        iteration.iterator: value,
        "item": value,
        "index": index,
        "_index": index,
        "_first": index == 0,
        "iter_index": index,
        "iter_key": key,
        "loop_id": task.loop,
        "shard_id": shard_id,
    }


class Crossing:
    """One shard on its way."""

    def __init__(
        self,
        task: Task,
        iteration: Iteration,
        services: Services,
        watch: Stopwatch,
    ) -> None:
        self._task = task
        self._iteration = iteration
        self._services = services
        self._watch = watch
        self._results = _room(task.shard) if iteration.keep_results else None
        self._failures: list[ItemFailure] = []
        self._patches: list[ContextPatch] = []
        self._shared: dict[str, Any] = {}
        self._unbegun: list[int] = []
        self._succeeded = 0
        self._stopped = False  # an item failed, and that ends the loop
        self.parked: Parked | None = None  # its one item waits for an answer from outside
        self._shard_id = _shard_id(task)
        #: As the next item sees it; made of the context of the run by the first that writes.
        self._context: Mapping[str, Any] = task.names.get("ctx", {})
        self._written: PipelineScope | None = None
        self._fast_path = short_way(iteration.program, services, task)
        self._labels = tuple([spec.label for spec in iteration.program.tasks])
        self._usual = () if self._fast_path is not None else tuple(map(TaskRun, self._labels))
        self._ways: dict[str, tuple[TaskRun, ...]] = {}
        self._keys: tuple[str, ...] | None = None
        self._over: list[int] = []  # items that have an end, in the order in which they had it
        self._before: Checkpoint | None = None  # where another worker stood when it was lost
        if task.progress is not None:
            self._go_on(checkpoints.read(task.progress, task.shard.first, task.shard.count))

    def _go_on(self, before: Checkpoint | None) -> None:
        """Take over what is over already."""
        kept = before is not None and isinstance(before.results, type(self._results))
        if before is None or not kept:
            return
        self._before = before
        self._over = sorted(before.indexes)
        self._succeeded = before.succeeded
        self._failures = list(before.failed)
        self._shared = dict(before.shared)
        self._write(before.patches)
        self._stopped = before.stopped
        self._ways = dict(before.ways)
        if isinstance(self._results, list):
            self._results[: len(before.results)] = before.results
        else:
            self._results = before.results

    @property
    def done(self) -> int:
        return len(self._over)

    @property
    def size(self) -> int:
        return int(self._task.shard.size)

    def checkpoint(self) -> Checkpoint:
        results = self._results
        if isinstance(results, list):  # nothing of items that are not over
            last = max(self._over, default=self._task.shard.first - 1)
            results = results[: last + 1 - self._task.shard.first]
        return Checkpoint(
            over=checkpoints.ranges(self._over),
            succeeded=self._succeeded,
            failed=tuple(self._failures),
            shared=dict(self._shared),
            patches=tuple(self._patches),
            results=dict(results) if isinstance(results, dict) else results,
            stopped=self._stopped,
            ways=dict(self._ways),
        )

    async def run(self, items: Sequence[Item], permits: Permits | None = None) -> None:
        if self._results is not None and len(items) <= SHARD_MAX:
            keys = tuple([key for _, key, _ in items])
            same = keys == tuple([str(index) for index, _, _ in items])
            self._keys = () if same else keys
        if self._before is not None:
            over = self._before.indexes
            items = [item for item in items if item[0] not in over]
        if self._fast_path is not None:
            await self._watch.timed(self._run_quick(items, self._fast_path))
        elif permits is None:
            await self._watch.timed(self._in_turn(items))
        else:
            await self._several(items, permits)

    async def _run_quick(self, items: Sequence[Item], way: FastPath) -> None:
        breath = time.perf_counter() + BREATHE_SECONDS
        for index, key, value in items:
            if self._stopped:
                self._unbegun.append(index)
                continue
            given = self._iter(index, key, value)
            self._take(index, key, *way.perform(self._key(index, key), given))
            if time.perf_counter() > breath:
                await asyncio.sleep(0)
                breath = time.perf_counter() + BREATHE_SECONDS

    def _iter(self, index: int, key: str, value: Any) -> dict[str, Any]:
        return _iter(self._iteration, self._task, self._shard_id, index, key, value)

    def _key(self, index: int, key: str) -> str:
        """The same for every attempt at this item, wherever and whenever it is made."""
        return f"{self._task.loop}/{key or index}"

    async def _several(self, items: Sequence[Item], permits: Permits) -> None:
        """As many at once as allowed; the next begins as soon as one is done."""
        waiting = iter(items)

        async def some() -> None:
            for item in waiting:
                async with permits:
                    await self._watch.timed(self._in_turn((item,)))

        async with asyncio.TaskGroup() as group:
            for _ in range(min(permits.limit, len(items))):
                group.create_task(some())

    async def _in_turn(self, items: Iterable[Item]) -> None:
        breath = time.perf_counter() + BREATHE_SECONDS
        for item in items:
            if self._stopped:
                self._unbegun.append(item[0])
                continue
            await self._one(item)
            if time.perf_counter() > breath:  # work that never waits must not keep others waiting
                await asyncio.sleep(0)
                breath = time.perf_counter() + BREATHE_SECONDS

    async def _one(self, item: Item) -> None:
        index, key, value = item
        task = msgspec.structs.replace(self._task, key=self._key(index, key))
        given = self._iter(index, key, value)
        scope = PipelineScope(self._context, given)
        answer = await PipelineRun(self._iteration.program, task, self._services, scope).run()
        if isinstance(answer, Parked) and self._task.shard.size == 1:
            self.parked = answer
            return
        if isinstance(answer, Parked):
            message = "only an item that is alone in its shard can wait for an answer from outside"
            answer = failed("config", message, retryable=False)
        self._take(index, key, answer, scope.shared)

    def _take(
        self, index: int, key: str, answer: Answer, shared: Sequence[ContextPatch] = ()
    ) -> None:
        self._over.append(index)
        if answer.tasks != self._usual and len(self._ways) < WAYS_KEPT:
            self._ways[str(index)] = answer.tasks
        fault = answer.fault
        if answer.status == "ok":
            try:
                self._share(shared)
            except InputError as error:
                fault = Fault(error.code, str(error), retryable=False)
            else:
                self._succeeded += 1
                if answer.patches:
                    self._write(answer.patches)
                self._keep(index, answer.result)
                return
        fault = fault or Fault("unknown", "the item failed")
        message = head_of(fault.message, MESSAGE_MAX)
        self._failures.append(ItemFailure(index, key, fault.kind, message, fault.retryable))
        if not self._for_good(fault):
            return
        self._stopped = self._iteration.stops
        if answer.status == "error":
            self._write(answer.patches)  # a rule said fail, and wrote that

    def _write(self, patches: Sequence[ContextPatch]) -> None:
        self._patches.extend(patches)
        if not patches or not self._iteration.ordered:
            return
        if self._written is None:
            self._written = PipelineScope(self._context, None)
        self._written.take(patches)
        self._context = self._written.ctx
        if self._fast_path is not None:
            self._fast_path.see(self._context)

    def _for_good(self, fault: Fault) -> bool:
        """No further try will follow."""
        return not fault.retryable or self._task.shard.tries >= self._iteration.retries

    def _share(self, shared: Sequence[ContextPatch]) -> None:
        for patch in shared:
            check_patch(self._shared, patch)
        for patch in shared:
            reduce_into(self._shared, patch)

    def _keep(self, index: int, result: Any) -> None:
        if isinstance(self._results, list):
            self._results[index - self._task.shard.first] = result
        elif self._results is not None:
            self._results[str(index)] = result

    def answer(self, milliseconds: int) -> Answer:
        unbegun = tuple(sorted(self._unbegun))
        report = ShardReport(
            self._succeeded,
            tuple(self._failures),
            milliseconds,
            self._shared,
            unbegun,
            self._labels,
            self._ways,
            self._keys,
        )
        results = self._results
        if unbegun and isinstance(results, list):  # items begin in order: it is the end that lacks
            results = results[: unbegun[0] - self._task.shard.first]
        return Answer(
            status="ok",
            outcome="ok",
            result=results,
            patches=tuple(self._patches),
            shard=report,
        )


def _room(shard: Shard) -> list[Any] | dict[str, Any]:
    """For the results: a list of a whole shard; index → result where only some items are tried."""
    return {} if shard.only else [None] * shard.count

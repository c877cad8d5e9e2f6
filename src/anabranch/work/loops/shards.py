"""Shards: the items of one part of a loop, one after the other or several at once.

Every item goes through the same program with its own `iter`. An item that fails is reported by its
index and key; the others go on, and the kernel decides what the failures mean. Only where the first
failure ends the loop, or where items go in order and one comes before the next whenever it is done
(`Iteration.ends_at`), those that have not begun are left alone and reported as such. The shard's
answer carries counts, failures, the results in item order and what was shared, reduced over the
items.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

import msgspec

from anabranch.errors import AnabranchError, InputError
from anabranch.expressions.budget import TakesLong
from anabranch.kernel.reducers import check_patch, reduce_into
from anabranch.kernel.tracker import SHARD_MAX, ItemFailure, Shard, ShardReport, TaskRun
from anabranch.kernel.values import Answer, ContextPatch, Fault, failed, succeeded
from anabranch.net.program import Iteration
from anabranch.work.evaluations import evaluate, share_of_loop
from anabranch.work.faults import unexpected
from anabranch.work.logs.attempt_log import PrintTarget, print_target
from anabranch.work.loops import checkpoints
from anabranch.work.loops.busy_time import BusyMeter, Stopwatch
from anabranch.work.loops.checkpoints import Checkpoint
from anabranch.work.loops.collection_reader import CollectionReader
from anabranch.work.loops.items import (
    Item,
    indexes_of,
    iter_names,
    keyed,
    keys_of,
    shard_id,
    values_of,
)
from anabranch.work.loops.permits import LoopPermits, Permits
from anabranch.work.pipeline.fast_path import Done, FastPath, short_wait, short_way
from anabranch.work.pipeline.held_bytes import HeldBytes, TooMuchHeld, keep_answer
from anabranch.work.pipeline.item_batches import ItemBatches, ItemRequest, item_batches
from anabranch.work.pipeline.item_calls import CallPlan, ItemCalls, call_plan
from anabranch.work.pipeline.pipeline import PipelineRun, Services
from anabranch.work.pipeline.scope import PipelineScope
from anabranch.work.port import Parked, Task
from anabranch.work.secrets.redaction import head_of

BREATHE_SECONDS = 0.005  # items done in place let the event loop turn that often
MESSAGE_MAX = 500
WAYS_KEPT = 1000  # items of a shard of which it is told what their tasks did, where that is unusual
PLANS_KEPT = 64  # of the loops seen last


class Underway(Protocol):
    """A shard that is being worked on."""

    @property
    def done(self) -> int: ...

    @property
    def size(self) -> int: ...

    def checkpoint(self) -> Checkpoint: ...


Heed = Callable[[Task, Underway], None]
AtHand = Callable[[Any, Shard], Sequence[Item] | None]


class ShardItems(Protocol):
    """How the items of a shard are found. One that has some at hand, which need not be read, also
    has `at_hand(source, shard)`."""

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
        self._plans: dict[int, tuple[Iteration, CallPlan | None]] = {}
        self._at_hand: AtHand | None = getattr(reader, "at_hand", None)

    def perform_at_once(self, task: Task) -> Answer | None:
        """One item that is called in place, without a task of its own; None for any other."""
        iteration: Iteration = task.program
        shard: Shard = task.shard
        plan = self._plan(iteration)
        if plan is None or plan.single is None or shard.size != 1 or task.trace:
            return None
        if iteration.key is not None or task.progress is not None or self._heed is not None:
            return None
        begin = time.perf_counter()
        try:
            items = self._at_hand(task.source, shard) if self._at_hand is not None else None
        except AnabranchError:  # said by the longer way
            return None
        if items is None or len(items) != 1:
            return None
        index, _, value = item = items[0]
        result, shared = plan.single.made(value, index)
        taken = time.perf_counter() - begin
        self._meter.seconds += taken
        if isinstance(result, Answer):
            crossing = Crossing(task, iteration, self._services, None, plan)
            crossing.take_one(item, result, time.monotonic() - taken)
            return crossing.answer(round(taken * 1000))
        keys = keys_of(items) if iteration.keep_results else None
        report = ShardReport(1, (), round(taken * 1000), shared, (), plan.labels, {}, keys)
        found: Any = {str(index): result} if shard.only else [result]
        kept = found if iteration.keep_results else None
        return Answer(status="ok", outcome="ok", result=kept, shard=report)

    async def perform(self, task: Task) -> Answer | Parked:
        watch = Stopwatch(self._meter)
        iteration: Iteration = task.program
        try:
            keyring = task.names.get("keychain", {})
            items = await self._reader.items(task.source, task.shard, keyring=keyring)
            crossing = Crossing(task, iteration, self._services, watch, self._plan(iteration))
            if self._heed is not None:
                self._heed(task, crossing)
            await self._cross(crossing, await keyed(items, iteration, task), task)
        except AnabranchError as error:
            kind = error.code if isinstance(error, TooMuchHeld) else "collection"
            retryable = bool(getattr(error, "retryable", False))
            return failed(kind, str(error), retryable=retryable)
        except Exception as error:
            return unexpected(error, "the items cannot be read")
        return crossing.parked or crossing.answer(round(watch.seconds * 1000))

    def _plan(self, iteration: Iteration) -> CallPlan | None:
        """How the items of a loop are called; found once, as a loop may have a million shards."""
        known = self._plans.get(id(iteration))
        if known is None:
            if len(self._plans) >= PLANS_KEPT:
                self._plans.clear()
            known = self._plans[id(iteration)] = iteration, call_plan(iteration, self._services)
        return known[1]

    async def _cross(self, crossing: Crossing, items: Sequence[Item], task: Task) -> None:
        if not task.program.parallel or self._permits is None:
            await crossing.run(items)
            return
        with self._permits.of(task.loop, task.inputs.get("at_once", 1)) as permits:
            await crossing.run(items, permits)


class Crossing:
    """One shard on its way."""

    def __init__(
        self,
        task: Task,
        iteration: Iteration,
        services: Services,
        watch: Stopwatch | None,
        plan: CallPlan | None = None,
    ) -> None:
        self._task = task
        self._iteration = iteration
        self._services = services
        self._watch = watch
        self._results = _room(task.shard) if iteration.keep_results else None
        self._held = HeldBytes(services.held_bytes_max)
        self._failures: list[ItemFailure] = []
        self._patches: list[ContextPatch] = []
        self._shared: dict[str, Any] = {}
        self._unbegun: list[int] = []
        self._succeeded = 0
        self._stopped = False  # an item failed, and that ends the loop
        self.parked: Parked | None = None  # its one item waits for an answer from outside
        self._shard_id = shard_id(task)
        #: As the next item sees it; made of the context of the run by the first that writes.
        self._context: Mapping[str, Any] = task.names.get("ctx", {})
        self._written: PipelineScope | None = None
        self._calls = plan.of(task) if plan is not None else None
        self._fast_path = (
            self._calls.path
            if self._calls is not None
            else short_way(iteration.program, services, task)
        )
        self._batches = item_batches(iteration, services, task) if self._fast_path is None else None
        self._waits = (
            short_wait(iteration.program, services, task)
            if self._fast_path is None and self._batches is None
            else None
        )
        self._labels = tuple([spec.label for spec in iteration.program.tasks])
        short = self._fast_path is not None or self._waits is not None
        self._usual = () if short else tuple(map(TaskRun, self._labels))
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
        self._held.add(before.results)
        self._held.add_patches(before.patches)
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

    def take_one(self, item: Item, answer: Answer, begin: float) -> None:
        """The one item of the shard was called in place, and has to be looked at by itself."""
        assert self._calls is not None
        index, key, _ = item
        if self._results is not None:
            self._keys = keys_of((item,))
        self._take(index, key, *self._calls.path.done(self._iter(*item), answer, begin))

    async def run(self, items: Sequence[Item], permits: Permits | None = None) -> None:
        assert self._watch is not None
        if self._results is not None and len(items) <= SHARD_MAX:
            self._keys = keys_of(items)
        if self._before is not None:
            over = self._before.indexes
            items = [item for item in items if item[0] not in over]
        if self._calls is not None:
            await self._watch.timed(self._run_calls(items, self._calls))
        elif self._fast_path is not None:
            await self._watch.timed(self._run_quick(items, self._fast_path))
        elif permits is None and self._batches is not None:
            await self._watch.timed(self._run_batches(items, self._batches))
        elif permits is None:
            await self._watch.timed(self._in_turn(items))
        else:
            await self._several(items, permits)

    async def _run_calls(self, items: Sequence[Item], calls: ItemCalls) -> None:
        """The same for items that are one call each: many in one go, until one fails."""
        found = values_of(items)
        calls.see(found)
        values, indexes, at = iter(found), indexes_of(items), 0
        while at < len(items) and not self._stopped:
            begin = time.monotonic()
            if calls.sharing is not None:
                calls.sharing.begin(self._shared)
            results = await calls.some(values, indexes[at:])
            last = results.pop() if isinstance(results[-1], Answer) else None
            if calls.sharing is not None:
                self._shared = calls.sharing.so_far
            self._take_results(indexes[at : at + len(results)], results)
            at += len(results)
            if last is not None:
                index, key, value = items[at]
                given = self._iter(index, key, value)
                self._take(index, key, *calls.path.done(given, last, begin))
                at += 1
        self._unbegun.extend(indexes[at:])

    async def _run_batches(self, items: Sequence[Item], batches: ItemBatches) -> None:
        """The same for items that a process does many of; an odd one is done by itself."""
        items, at, begin = list(items), 0, time.monotonic()
        later: list[tuple[Item, Answer, float]] = []  # to look at these takes a while

        def take(answers: Sequence[Answer]) -> None:
            nonlocal at, begin
            results = self._plain_results(answers) if batches.simple and not later else None
            if results is not None:
                self._take_results([item[0] for item in items[at : at + len(results)]], results)
                at += len(results)
                return
            for answer in answers:
                if later or not self._take_briefly(items[at], answer, batches, begin):
                    later.append((items[at], answer, begin))
                begin = time.monotonic()
                at += 1

        while at < len(items) and not self._stopped:
            for item in islice(items, at + batches.ready, None):
                if batches.full or not batches.add(await self._request(item, batches)):
                    break
            numbers = [item[0] for item in items[at : at + batches.ready]]
            begin = time.monotonic()
            begun = batches.ready > 1 and await batches.perform(numbers, take)
            for item, answer, since in later:
                self._take_done(item, await evaluate(self._judge(item, answer, batches, since)))
            later.clear()
            if begun:
                continue
            batches.forget()
            await self._one(items[at])
            at += 1
        self._unbegun.extend([index for index, _, _ in items[at:]])

    async def _request(self, item: Item, batches: ItemBatches) -> ItemRequest | None:
        index, key, value = item
        if batches.of_item is not None:
            return batches.of_item(value)
        given = self._iter(index, key, value)
        return await evaluate(partial(batches.request, self._key(index, key), given))

    @staticmethod
    def _plain_results(answers: Sequence[Answer]) -> list[Any] | None:
        """Of items that ended well and said no more than that; None where one did not."""
        results = [one.result for one in answers if one.status == "ok" and not one.patches]
        return results if len(results) == len(answers) else None

    def _judge(
        self, item: Item, answer: Answer, batches: ItemBatches, begin: float
    ) -> Callable[[], Done]:
        """What finds out what the item comes to."""
        return partial(batches.path.done, self._iter(*item), answer, begin)

    def _take_briefly(self, item: Item, answer: Answer, batches: ItemBatches, begin: float) -> bool:
        """False where that would hold the event loop."""
        share = share_of_loop()
        if share.is_used_up:
            return False
        try:
            done = share.evaluate(self._judge(item, answer, batches, begin))
        except TakesLong:
            return False
        self._take_done(item, done)
        return True

    def _take_done(self, item: Item, done: Done) -> None:
        found, shared = done
        if not found.tasks:
            found = msgspec.structs.replace(found, tasks=self._usual)
        self._take(item[0], item[1], found, shared)

    def _take_results(self, indexes: Sequence[int], results: list[Any]) -> None:
        """Of items that ended well."""
        if self._results is not None or (self._calls and self._calls.sharing):
            self._held.add(results)
        self._over.extend(indexes)
        self._succeeded += len(indexes)
        if isinstance(self._results, list):
            for index, result in zip(indexes, results, strict=True):
                self._results[index - self._task.shard.first] = result
        elif self._results is not None:
            self._results.update(zip(map(str, indexes), results, strict=True))

    async def _run_quick(self, items: Sequence[Item], way: FastPath) -> None:
        clock = asyncio.get_running_loop().time
        breath = clock() + BREATHE_SECONDS
        before = print_target.get()
        target = PrintTarget(before.log) if before is not None else None
        print_target.set(target)
        for index, key, value in items:
            if self._stopped:
                self._unbegun.append(index)
                continue
            given = self._iter(index, key, value)
            if target is not None:
                target.item = index
            self._take(index, key, *await way.perform(self._key(index, key), given))
            if clock() > breath:
                await asyncio.sleep(0)
                breath = clock() + BREATHE_SECONDS

    def _iter(self, index: int, key: str, value: Any) -> dict[str, Any]:
        return iter_names(self._iteration, self._task, self._shard_id, index, key, value)

    def _key(self, index: int, key: str) -> str:
        """The same for every attempt at this item, wherever and whenever it is made."""
        return f"{self._task.item_keys or self._task.loop}/{key or index}"

    async def _several(self, items: Sequence[Item], permits: Permits) -> None:
        """As many at once as allowed; the next begins as soon as one is done."""
        waiting, watch = iter(items), self._watch
        assert watch is not None

        async def some() -> None:
            for item in waiting:
                async with permits:
                    if self._stopped:
                        self._unbegun.append(item[0])
                        continue
                    await watch.timed(self._one(item))
                if watch.unbroken > BREATHE_SECONDS:  # it never waits, and others must have a turn
                    await watch.breathe()

        if len(items) == 1:
            await some()
            return
        async with asyncio.TaskGroup() as group:
            for _ in range(min(permits.limit, len(items))):
                group.create_task(some())

    async def _in_turn(self, items: Iterable[Item]) -> None:
        clock = asyncio.get_running_loop().time
        breath = clock() + BREATHE_SECONDS
        for item in items:
            if self._stopped:
                self._unbegun.append(item[0])
                continue
            await self._one(item)
            if clock() > breath:  # work that never waits must not keep others waiting
                await asyncio.sleep(0)
                breath = clock() + BREATHE_SECONDS

    async def _one(self, item: Item) -> None:
        index, key, value = item
        target = print_target.get()
        if target is not None:  # items may be done side by side, each in a context of its own
            print_target.set(PrintTarget(target.log, index))
        given = self._iter(index, key, value)
        if self._waits is not None:
            self._take(index, key, *await self._waits.perform_waiting(self._key(index, key), given))
            return
        task = msgspec.structs.replace(self._task, key=self._key(index, key))
        scope = PipelineScope(self._context, given, HeldBytes(self._services.held_bytes_max))
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
        if answer.status == "ok":
            answer = keep_answer(self._held, answer, shared, result=self._results is not None)
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
        if (target := print_target.get()) is not None:
            target.log.failed(fault, index)
        message = head_of(fault.message, MESSAGE_MAX)
        self._failures.append(ItemFailure(index, key, fault.kind, message, fault.retryable))
        for_good = self._for_good(fault)
        self._stopped = self._iteration.ends_at(for_good=for_good)
        if for_good and answer.status == "error":
            self._write(answer.patches)  # a rule said fail, and wrote that

    def _write(self, patches: Sequence[ContextPatch]) -> None:
        self._patches.extend(patches)
        if not patches or not self._iteration.ordered:
            return
        if self._written is None:
            self._written = PipelineScope(self._context, None)
        self._written.take(patches)
        self._context = self._written.ctx
        for path in (self._fast_path, self._waits):
            if path is not None:
                path.see(self._context)

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

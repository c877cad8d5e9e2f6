"""Composed work inside a play: pipelines, shards of loops and the reading of their collections.

These are coroutines, and a play has no event loop of its own, so they run on one behind the stage:
in the same thread, or, where the play is called inside a running loop, in another. They take no
virtual time: waits inside a pipeline end at once, and whatever would reach outside answers with
nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from anabranch.kernel.values import Answer, succeeded
from anabranch.net.program import Iteration, Program, TaskSpec
from anabranch.runtime.values.step_results import StepResults
from anabranch.store.ports import Store
from anabranch.testing.scripted.answers import Planned
from anabranch.work.loops.collection_reader import CollectionReader
from anabranch.work.loops.collections.all import Collections
from anabranch.work.loops.results import LoopResults
from anabranch.work.loops.shards import ReadAhead, Shards
from anabranch.work.pipeline.pipeline import Pipeline, Services
from anabranch.work.port import Parked, Performer, Task
from anabranch.work.values.payloads import StoredPayloads

COMPOSED = ("pipeline", "loop.shard", "loop.cut")
_SCRIPTED = "scripted"

Perform = Callable[[Task], Answer | Parked]


_of_thread = threading.local()


def _loop_here() -> asyncio.AbstractEventLoop:
    """One for each thread that plays."""
    loop: asyncio.AbstractEventLoop | None = getattr(_of_thread, "loop", None)
    if loop is None:
        loop = _of_thread.loop = asyncio.new_event_loop()
    return loop


@cache
def _loop_elsewhere() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="backstage", daemon=True).start()
    return loop


def backstage(work: Coroutine[Any, Any, Answer | Parked]) -> Answer | Parked:
    """Do it on a loop behind the stage. To change threads takes longer than most of the work."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _loop_here().run_until_complete(work)
    return asyncio.run_coroutine_threadsafe(work, _loop_elsewhere()).result()


class Inside:
    """The performer of every kind at once: it asks `perform` and never waits."""

    def __init__(self, perform: Perform) -> None:
        self.perform_now = perform

    async def perform(self, task: Task) -> Answer | Parked:
        return self.perform_now(task)


class EveryKind(Mapping[str, Performer]):
    def __init__(self, performer: Performer) -> None:
        self._performer = performer

    def __getitem__(self, kind: str) -> Performer:
        return self._performer

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


async def _at_once(_seconds: float) -> None:
    """Waiting inside a pipeline takes no virtual time."""


def perform_composed(task: Task, store: Store, perform: Perform) -> Answer | Parked:
    """What a composed task comes to when the tasks it is made of answer by `perform`."""
    payloads = StoredPayloads(store)
    services = Services(performers=EveryKind(Inside(perform)), payloads=payloads, sleep=_at_once)
    if task.kind == "pipeline":
        return backstage(Pipeline(services).perform(task))
    loops = LoopResults(store, payloads, StepResults(store))
    answer = backstage(_with_collections(task, services, payloads, loops))
    return answer if isinstance(answer, Parked) else timed(answer, 0)


def timed(answer: Answer, milliseconds: int) -> Answer:
    """A shard's report with the virtual time it took: by the real one no two plays are the same."""
    if answer.shard is None:
        return answer
    report = msgspec.structs.replace(answer.shard, milliseconds=milliseconds)
    return msgspec.structs.replace(answer, shard=report)


async def _with_collections(
    task: Task, services: Services, payloads: StoredPayloads, loops: LoopResults
) -> Answer | Parked:
    collections = Collections(payloads=payloads, performers={}, loops=loops, threads=1)
    reader = CollectionReader(collections)
    try:
        if task.kind == "loop.cut":
            return await ReadAhead(reader).perform(task)
        return await Shards(services, reader).perform(task)
    finally:
        await collections.close()


def perform_scripted_shard(
    task: Task, store: Store, take: Callable[[Task], Planned]
) -> tuple[Answer | None, int]:
    """A shard whose items answer by script, one entry each; with the milliseconds they take."""
    delays, silent = [0], [False]

    def perform(item: Task) -> Answer:
        plan = take(item)
        delays.append(plan.delay_ms)
        if plan.answer is None:
            silent[0] = True
            return succeeded(None)
        return plan.answer

    iteration: Iteration = task.program
    program = Program((TaskSpec(_SCRIPTED, _SCRIPTED),))
    scripted = replace(iteration, program=program, parallel=False, reducers={})
    answer = perform_composed(msgspec.structs.replace(task, program=scripted), store, perform)
    assert isinstance(answer, Answer), "what is scripted does not park"
    return (None if silent[0] else timed(answer, sum(delays))), sum(delays)

"""A real engine in memory, with a function in the place of the rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from anabranch.clock import SystemClock
from anabranch.kernel.values import Answer
from anabranch.operations.definitions.prepare import compiler, prepare
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.nets import Nets
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch
from anabranch.work.port import Task
from hangs import HANG_SECONDS

T = TypeVar("T")
Perform = Callable[[Task], Awaitable[Answer]]


def to_the_end(work: Coroutine[Any, Any, T], seconds: float = HANG_SECONDS) -> T:
    """With a limit, so that a hang becomes a failure."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(limited())


class Rules:
    """The performer of the kind `rule`."""

    def __init__(self, perform: Perform) -> None:
        self._perform = perform

    async def perform(self, task: Task) -> Answer:
        return await self._perform(task)


class Kept(MemoryStore):
    """A store that remembers what was committed."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Batch] = []

    def commit(self, batch: Batch) -> None:
        super().commit(batch)
        self.batches.append(batch)


@asynccontextmanager
async def engine(store: Kept, perform: Perform, **settings: Any) -> AsyncIterator[EngineLoop]:
    chosen = Settings(**settings)
    made = EngineLoop(
        store,
        Nets(store, compiler()),
        {"rule": Rules(perform)},
        clock=SystemClock(),
        settings=chosen,
    )
    await made.open()
    try:
        yield made
    finally:
        await made.close(0)


async def start(made: EngineLoop, orchestration: dict[str, Any], **given: Any) -> str:
    prepared = prepare(json.dumps(orchestration) + "\n")
    return await made.start(prepared.definition, prepared.net, **given)

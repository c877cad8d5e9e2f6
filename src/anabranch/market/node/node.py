"""A node: its state, its parts, and the order in which they come and go."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from anabranch.cancel import cancel_and_wait
from anabranch.clock import Clock
from anabranch.errors import StoreError
from anabranch.market.node.api import Answer, Api, Call
from anabranch.market.node.entities import Entities, Family
from anabranch.market.node.ports import NodeConfig, NodeContext, Part, PeerTransport, Signer
from anabranch.runtime.writer import Writer
from anabranch.store.ports import Store

logger = logging.getLogger("anabranch.node")

WAKE_SECONDS_MAX = 30.0  # a look at the clock now and then, should it have been set
WAKE_AGAIN_MS = 30_000  # until what could not be woken is tried again

#: How a part is made, and which families are its own.
MakePart = tuple[Callable[[NodeContext], Part], tuple[Family[Any], ...]]


class Node:
    """Open it, let it handle calls, close it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        signer: Signer,
        config: NodeConfig,
        transport: PeerTransport,
        makers: Sequence[MakePart],
        *,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._writer = Writer(store)
        families = tuple(family for _, own in makers for family in own)
        self.entities = Entities(store, clock, self._writer, families)
        self._tasks: set[asyncio.Task[None]] = set()
        self.context = NodeContext(
            entities=self.entities,
            clock=clock,
            signer=signer,
            config=config,
            transport=transport,
            random_bytes=random_bytes,
            spawn=self._spawn,
        )
        self._owners: dict[str, Part] = {}
        self._opened: list[Part] = []  # to be closed, the last one first
        self.parts: list[Part] = []
        for make, own in makers:
            part = make(self.context)
            self.parts.append(part)
            self._owners.update({family.name: part for family in own})
        self.api = Api(
            (endpoint for part in self.parts for endpoint in part.endpoints()),
            self.entities.durable,
        )
        self.context.api = self.api
        self._loaded = False
        self._news = asyncio.Event()
        self.entities.listen(lambda _changed: self._news.set())

    def load(self) -> None:
        """Read what is open, once; before anything can be asked of the node."""
        if not self._loaded:
            self.entities.load()
            self._loaded = True

    async def open(self) -> None:
        """All of it, or nothing is left that runs."""
        try:
            self.load()
            for part in self.parts:
                self._opened.append(part)
                await part.open()
        except BaseException:
            await self.close()
            raise
        self._spawn(self._keep_time())

    async def close(self) -> None:
        """Every part, also after one that fails to; the first failure is raised in the end."""
        failures: list[BaseException] = []
        while self._opened:
            await _noted(failures, self._opened.pop().close())
        await _noted(failures, cancel_and_wait(*self._tasks))
        if self.entities.failure is None:
            await _noted(failures, self.entities.durable())
        self._writer.close()
        for failure in failures:
            if self.entities.failure is None or not isinstance(failure, StoreError):
                raise failure

    async def handle(self, call: Call) -> Answer:
        return await self.api.handle(call)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (defect := task.exception()) is not None:
            self._defect("a task of the node failed", defect)

    def _defect(self, message: str, error: BaseException) -> None:
        """Logged by the loop; a world for tests hears of it. After a failed write all that waits
        for the state fails, too: `failure` says why."""
        if self.entities.failure is not None and isinstance(error, StoreError):
            logger.error("%s: %s", message, error.message)
            return
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": message, "exception": error})

    async def _keep_time(self) -> None:
        """Wake what is due, and sleep until the next instant or the next change. What cannot be
        woken is left alone for a while, and holds nothing else up."""
        later: dict[tuple[str, str], int] = {}  # what could not be woken, and until when
        while self.entities.failure is None:
            self._news.clear()
            now = self.context.clock.now()
            later = {key: until for key, until in later.items() if until > now}
            for family, thing in self.entities.due(now):
                key = family.name, thing
                if key in later:
                    continue
                try:
                    await self._owners[family.name].wake(family, thing)
                except Exception as error:
                    later[key] = now + WAKE_AGAIN_MS
                    self._defect(f"{family.stream(thing):.200} could not be woken", error)
            wake = self.entities.next_wake(after=now if later else None)
            delay = WAKE_SECONDS_MAX if wake is None else (wake - self.context.clock.now()) / 1000
            try:
                async with asyncio.timeout(min(max(delay, 0.001), WAKE_SECONDS_MAX)):
                    await self._news.wait()
            except TimeoutError:
                pass


async def _noted(failures: list[BaseException], ending: Coroutine[Any, Any, None]) -> None:
    try:
        await ending
    except Exception as error:
        failures.append(error)

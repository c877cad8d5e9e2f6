"""The modules of a node of the world: each is a process of its own, with its own event loop.

The host calls a module, and a module its host, across the two loops, as over HTTP: values pass as
JSON, a process that is killed hears and writes nothing more, and whoever waits for its answer is
told that the connection is gone. What `keep` of a `LastingModule` makes is the disk of a module: it
outlives its processes and those of its node.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from anabranch.clock import Clock
from anabranch.market.node.api import Answer
from anabranch.market.node.modules.part import HostCall
from anabranch.market.node.modules.transport import InProcessModule
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Store
from anabranch.testing.market.disk import Died, Disk
from anabranch.testing.virtual.event_loop import VirtualLoop

logger = logging.getLogger("anabranch.testing")

FAILED, KILLED = 1, -9  # how a process has ended

Kept = TypeVar("Kept")

#: Makes a module that keeps nothing, given how it asks its host.
MakeModule = Callable[[HostCall], InProcessModule]


class ModuleLife(NamedTuple):
    """What a process of a module begins with."""

    host: HostCall
    clock: Clock
    disk: Callable[[MemoryStore], Store]  # over a store, until this process ends


class LastingModule(Generic[Kept]):
    """How a module is made whose processes have something in common: what they keep.

    `executor` has what its row in the configuration of the node says besides, such as `acceptors`.
    """

    def __init__(
        self,
        keep: Callable[[Clock], Kept],
        make: Callable[[ModuleLife, Kept], InProcessModule],
        executor: Mapping[str, Any] | None = None,
    ) -> None:
        self._keep = keep
        self._make = make
        self.executor: Mapping[str, Any] = executor or {}

    def begin(self, clock: Clock) -> tuple[Callable[[ModuleLife], InProcessModule], Kept]:
        """Once for each node: what makes its processes, and what they keep."""
        kept = self._keep(clock)
        return (lambda life: self._make(life, kept)), kept


class Surroundings(Protocol):
    """What a node is to its modules."""

    loop: VirtualLoop

    def new_loop(self) -> VirtualLoop: ...


class WorldModule:
    """One module over all its processes. It is what the host calls, on the loop of the node."""

    def __init__(
        self, node: Surroundings, clock: Clock, given: MakeModule | LastingModule[Any]
    ) -> None:
        self._node = node
        self._clock = clock
        self._host: HostCall
        self.kept: Any = None
        if isinstance(given, LastingModule):
            self._make, self.kept = given.begin(clock)
        else:
            self._make = lambda life: given(life.host)
        self.loop = node.new_loop()
        self.lives = 0
        self.commits = 0
        #: Told "before" and "after" every commit of its disks, with its number; may kill it.
        self.on_commit: Callable[[str, int], None] = lambda _when, _number: None
        self.module: InProcessModule | None = None  # None while no process of it runs
        self._listens = False
        self._callers: list[asyncio.Future[Any]] = []  # those who came before it listened
        self._disks: list[Disk] = []
        self._waiting: set[asyncio.Future[Any]] = set()  # answers that others wait for
        self._ended: asyncio.Future[int] | None = None

    def hosted_by(self, host: HostCall) -> WorldModule:
        """In this life of the node."""
        self._host = host
        return self

    # -- its processes: what the launcher of the node asks for -----------------------------------

    async def start(self) -> None:
        self.lives += 1
        self.loop = self._node.new_loop()
        self._disks = []
        self._callers = []
        self._ended = self._node.loop.create_future()
        self._listens = False
        self.module = self._make(ModuleLife(self._asking(self.lives), self._clock, self._disk))
        self.loop.create_task(self._begin(self.module, self.lives))

    async def _begin(self, module: InProcessModule, life: int) -> None:
        """It can be called once it has begun; one that cannot begin ends."""
        try:
            if (begin := getattr(module, "start", None)) is not None:
                await begin()
        except Exception as error:
            logger.warning("a module could not begin: %s", error)
            self._node.loop.call_soon(self._give_up, life)
        else:
            self._listens = True
            callers, self._callers = self._callers, []
            for answered in callers:
                self._node.loop.call_soon(_settle, answered, (None, None))

    def _give_up(self, life: int) -> None:
        if self.lives == life:
            self._end(FAILED)

    async def exited(self) -> int:
        assert self._ended is not None
        return await asyncio.shield(self._ended)

    async def close(self) -> None:
        """In order."""
        end = getattr(self.module, "close", None)
        try:
            if end is not None:
                await self._carried(end(), self._node.loop)
        except ConnectionError:
            pass  # it was killed meanwhile
        self.kill()

    def kill(self) -> None:
        """Nothing of this process writes or is heard any more."""
        self._end(KILLED)

    def _end(self, status: int) -> None:
        self.module = None
        for disk in self._disks:
            disk.dead = True
        self.loop.shut_down()
        waiting, self._waiting = self._waiting, set()
        for answered in waiting:
            if not answered.done():
                answered.set_exception(ConnectionResetError("the process has ended"))
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(status)

    # -- calls -----------------------------------------------------------------------------------

    async def handle(
        self, method: str, path: str, headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        if self.module is not None and not self._listens:
            await self._listening()  # it may need no time to begin
        if self.module is None or not self._listens:
            raise ConnectionRefusedError("no process of the module listens")
        work = self.module.handle(method, path, headers, body)
        answered: tuple[int, Any] = await self._carried(work, self._node.loop)
        return answered

    async def _listening(self) -> None:
        """Until its process listens; raises where that ends."""
        answered = self._node.loop.create_future()
        self._waiting.add(answered)
        self._callers.append(answered)
        try:
            await answered
        finally:
            self._waiting.discard(answered)

    def _asking(self, life: int) -> HostCall:
        async def ask(method: str, path: str, body: Any, query: Mapping[str, str]) -> Answer:
            """The host answers on its own loop, wherever it is asked from."""
            here = asyncio.get_running_loop()
            answered: asyncio.Future[Answer] = here.create_future()
            task = self._node.loop.create_task(self._answer(method, path, body, query))

            def tell(done: asyncio.Task[Answer]) -> None:
                said = _said(done)
                if self.lives == life and self.module is not None:
                    here.call_soon(_settle, answered, said)

            task.add_done_callback(tell)
            return await answered

        return ask

    async def _answer(self, method: str, path: str, body: Any, query: Mapping[str, str]) -> Answer:
        return await self._host(method, path, body, query)

    async def _carried(self, work: Any, here: VirtualLoop) -> Any:
        """Carry out a coroutine of the module on its own loop; the answer is awaited `here`."""
        answered = here.create_future()
        self._waiting.add(answered)
        task = self.loop.create_task(work)
        task.add_done_callback(lambda done: here.call_soon(_settle, answered, _said(done)))
        try:
            return await answered
        finally:
            self._waiting.discard(answered)

    # -- its disk --------------------------------------------------------------------------------

    def _disk(self, store: MemoryStore) -> Store:
        disk = Disk(store, self._committing)
        self._disks.append(disk)
        return disk.as_store

    def _committing(self, when: str) -> None:
        self.commits += when == "before"
        self.on_commit(when, self.commits)


def _said(done: asyncio.Task[Any]) -> tuple[Any, BaseException | None]:
    """What a task came to: its result, or its error."""
    if done.cancelled():
        return None, ConnectionResetError("the process has ended")
    error = done.exception()
    if isinstance(error, Died):
        return None, ConnectionResetError("the process has ended")
    return (None, error) if error is not None else (done.result(), None)


def _settle(answered: asyncio.Future[Any], said: tuple[Any, BaseException | None]) -> None:
    if answered.done():
        return  # it is not awaited any more
    result, error = said
    if error is not None:
        answered.set_exception(error)
    else:
        answered.set_result(result)

"""A cluster inside the test, behind the port of the real ones: it runs `worker_entry` in threads of
this process, and goes wrong as a test says."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from anabranch.kernel import events as e
from anabranch.parts import Parts
from anabranch.pools import worker_entry
from anabranch.pools.assignment import decode_assignment
from anabranch.pools.backend import (
    BackendAway,
    CameBack,
    Capacity,
    Event,
    Finished,
    Lost,
    Progressed,
    Started,
    WentAway,
)
from anabranch.pools.dispatcher import PoolDispatcher
from anabranch.runtime.live_run import history
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.store.ports import Store
from anabranch.work.kinds.callables import Toolbox
from hangs import HANG_SECONDS

Perform = Callable[[bytes, Callable[[str, bytes], None]], bytes]


class LocalCluster:
    """`held`: what has been accepted waits until it is let go."""

    engine = "dask"
    address = "dask://here:8786"

    def __init__(self, slots: int = 2, perform: Perform = worker_entry.perform) -> None:
        self.slots = slots
        self.perform = perform
        self.held = False
        self.deaf = False  # nobody hears that they should stop
        self.refuses: Exception | None = None
        self.queue: deque[tuple[str, bytes]] = deque()
        self.running: dict[str, asyncio.Task[None]] = {}
        self._begun: set[str] = set()  # also those whose end is of no interest any more
        self.submitted: list[str] = []
        self.blobs: dict[str, bytes] = {}
        self.cancelled: list[tuple[str, bool]] = []
        self.asked = 0  # how often for its capacity
        self.most_out = 0
        self.closed = False
        self._threads = ThreadPoolExecutor(50)  # of its own: the engine needs those of the loop
        self._told: list[Event] = []
        self._news = asyncio.Event()

    # -- the port ----------------------------------------------------------------------------

    async def open(self) -> Capacity:
        return await self.capacity()

    async def capacity(self) -> Capacity:
        self.asked += 1
        if self.refuses is not None:
            raise self.refuses
        return Capacity(slots=self.slots, workers=self.slots, queued=len(self.queue))

    async def submit(self, ticket: str, blob: bytes) -> None:
        if isinstance(self.refuses, BackendAway):
            raise self.refuses
        self.submitted.append(ticket)
        self.blobs[ticket] = blob
        self.queue.append((ticket, blob))
        self.most_out = max(self.most_out, len(self.queue) + len(self.running))
        self.go_on()

    async def cancel(self, tickets: Collection[str], *, force: bool = False) -> None:
        self.cancelled += [(ticket, force) for ticket in tickets]
        for one in [one for one in self.queue if one[0] in tickets]:
            self.queue.remove(one)
        running = [ticket for ticket in tickets if ticket in self.running]
        if not self.deaf:
            worker_entry.stop(running)
        for ticket in running if force else ():
            self.running.pop(ticket).cancel()
            self.tell(Lost(ticket, "stopped by force", worker=False))

    async def events(self) -> AsyncIterator[Sequence[Event]]:
        while not self.closed:
            self._news.clear()
            if self._told:
                told, self._told = self._told, []
                yield told
            else:
                await self._news.wait()

    async def close(self) -> None:
        """Returns when no thread is at work: the next test may end the entry of this process."""
        self.closed = True
        worker_entry.stop(list(self._begun))
        for task in self.running.values():
            task.cancel()
        self.running.clear()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._news.set()

    # -- what a test does with it ------------------------------------------------------------

    def tell(self, *events: Event) -> None:
        self._told.extend(events)
        self._news.set()

    def go_on(self) -> None:
        while self.queue and len(self.running) < self.slots and not self.held:
            ticket, blob = self.queue.popleft()
            worker = f"worker-{len(self.submitted)}"
            self.tell(Started(ticket, worker, worker))
            doing = asyncio.get_running_loop().create_task(self._do(ticket, blob, worker))
            self.running[ticket] = doing

    async def _do(self, ticket: str, blob: bytes, worker: str) -> None:
        loop = asyncio.get_running_loop()

        def tell(verb: str, words: bytes) -> None:
            if verb == "progress":
                loop.call_soon_threadsafe(self.tell, Progressed(ticket, words))

        self._begun.add(ticket)
        said = await loop.run_in_executor(self._threads, self._perform, ticket, blob, tell)
        if self.running.pop(ticket, None) is not None:
            self.tell(Finished(ticket, worker, said))
            self.go_on()

    def _perform(self, ticket: str, blob: bytes, tell: Callable[[str, bytes], None]) -> bytes:
        """In one of the threads."""
        try:
            return self.perform(blob, tell)
        finally:
            self._begun.discard(ticket)

    def kill_worker(self, ticket: str) -> None:
        """Its thread goes on, as some do: nobody hears of it."""
        self.running.pop(ticket).cancel()
        worker_entry.stop([ticket])
        self.tell(Lost(ticket, "the worker died", worker=True))
        self.go_on()

    def go_away(self) -> None:
        self.refuses = BackendAway("nobody answers")
        out = [*self.running, *(ticket for ticket, _ in self.queue)]
        for task in self.running.values():
            task.cancel()
        worker_entry.stop(list(self.running))
        self.running.clear()
        self.queue.clear()
        self.tell(*(Lost(ticket, "the scheduler is gone", worker=False) for ticket in out))
        self.tell(WentAway("nobody answers"))

    def come_back(self) -> None:
        self.refuses = None
        self.tell(CameBack())

    def job_of(self, ticket: str) -> Any:
        return decode_assignment(self.blobs[ticket]).job


class Site:
    """An engine whose pool `gpu` is done by a `LocalCluster`."""

    def __init__(self, parts: Parts, cluster: LocalCluster) -> None:
        self.parts = parts
        self.cluster = cluster

    @property
    def dispatcher(self) -> PoolDispatcher:
        return self.parts.clusters[0]

    def events(self, run: str, *kinds: type) -> list[Any]:
        found = [event for _, event in history(self.parts.store.read(run))]
        return [event for event in found if isinstance(event, kinds or (object,))]

    def losses(self, run: str) -> list[tuple[str, bool, bool]]:
        lost = self.events(run, e.JobLost)
        return [(event.reason, event.counted, event.worker) for event in lost]

    async def start(self, text: str, **given: Any) -> str:
        return await self.parts.verbs.start(text, given)

    async def ended(self, run: str) -> dict[str, Any]:
        async with asyncio.timeout(HANG_SECONDS):
            await self.parts.verbs.wait(run)
        return dict(self.parts.verbs.read.show(run))

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while not holds():
                await asyncio.sleep(0.005)


@asynccontextmanager
async def site(
    cluster: LocalCluster,
    options: str = "",
    *,
    store: Store | None = None,
    toolbox: Toolbox | None = None,
    **given: Any,
) -> AsyncIterator[Site]:
    """The queue of the pool is as long as there are slots, where the options say no other."""
    settings = replace(Settings(store=":memory:", grace_seconds=1.0), **given)
    kept = store or open_store(settings)
    if "queue=" not in options:
        options = "&".join(filter(None, [options, f"queue={cluster.slots}"]))
    pools = {"gpu": f"{cluster.address}?{options}"}
    parts = Parts(kept, settings, toolbox or Toolbox(), workers=False, pools=pools)
    assert parts._clusters is not None
    parts._clusters._backend_of = lambda _options: cluster
    await parts.open()
    try:
        yield Site(parts, cluster)
    finally:
        await parts.close()
        if store is None:
            kept.close()

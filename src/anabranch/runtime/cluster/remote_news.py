"""News of runs that other servers own, for whoever follows runs at this one.

What becomes durable here is told by the engine itself, with its events. Of what another server
writes only this is told: that a run has moved, and how it stands; who wants its events reads the
log. The store is looked at when a server says that it has written, and every now and then in any
case; and only while somebody listens.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping

from anabranch.errors import AnabranchError
from anabranch.runtime.cluster.remote_runs import RemoteRuns
from anabranch.runtime.effects import DurableEvents
from anabranch.store.cluster_ports import Cluster, RunMoved
from anabranch.store.ports import Store

log = logging.getLogger("anabranch.cluster")

MovedListener = Callable[[RunMoved], None]

REST_ALL_SECONDS = 0.25  # between two looks for all runs: those who list them look once a second


class RemoteNews:
    """`owned` are the partitions whose runs the engine itself tells of."""

    def __init__(
        self,
        store: Store,
        cluster: Cluster,
        remote: RemoteRuns,
        owned: Callable[[], Collection[int]],
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._remote = remote
        self._owned = owned
        self._of_runs: dict[str, list[MovedListener]] = {}
        self._seen: dict[str, int] = {}  # run → its last event that was told
        self._of_all: list[MovedListener] = []
        self._numbers: Mapping[int, int] | None = None  # partition → its last row that was told
        self._owned_before: frozenset[int] = frozenset()
        self._looked_at_all = 0.0
        self._looking_at_all = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    # -- who listens -----------------------------------------------------------------------------

    def listen(self, listener: MovedListener, run: str = "") -> Callable[[], None]:
        """Hear of this run, or of all; returns how to stop that. What is known of a run so far is
        told first: something may have been recorded just before."""
        if run:
            self._of_runs.setdefault(run, []).append(listener)
            self._seen[run] = 0
        else:
            self._of_all.append(listener)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())
        return lambda: self._leave(listener, run)

    async def ready(self) -> None:
        """From here on, whoever listens for all runs is told whatever is recorded."""
        async with self._looking_at_all:
            if self._of_all and self._numbers is None:
                await asyncio.to_thread(self._moved_elsewhere)

    def _leave(self, listener: MovedListener, run: str) -> None:
        listeners = self._of_runs.get(run, []) if run else self._of_all
        if listener in listeners:
            listeners.remove(listener)
        if run and not listeners:
            self._of_runs.pop(run, None)
            self._seen.pop(run, None)
        if not self._of_all:
            self._numbers = None

    def told(self, news: DurableEvents) -> None:
        """The engine has told this itself."""
        if news.run in self._seen:
            self._seen[news.run] = news.first_seq + len(news.events) - 1

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    # -- looking ---------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while self._of_runs or self._of_all:
            news = self._remote.news
            try:
                await self._look()
            except AnabranchError as error:  # the store is away: the next look tells
                log.debug("runs of other servers cannot be looked at: %s", error.message)
            await self._remote.changed(news)
        self._task = None

    async def _look(self) -> None:
        if self._of_runs:
            for moved in await asyncio.to_thread(self._cluster.moved_runs, dict(self._seen)):
                if moved.seq > self._seen.get(moved.run, moved.seq):
                    self._seen[moved.run] = moved.seq
                    _tell(self._of_runs.get(moved.run, ()), moved)
        now = asyncio.get_running_loop().time()
        if self._of_all and now - self._looked_at_all >= REST_ALL_SECONDS:
            self._looked_at_all = now
            async with self._looking_at_all:
                found = await asyncio.to_thread(self._moved_elsewhere)
            for moved in found:
                _tell(self._of_all, moved)

    def _moved_elsewhere(self) -> list[RunMoved]:
        """In a thread. A partition that has just become ours still has rows of another server. Rows
        count as told when they were read: a look that fails is made again."""
        before, numbers, owned = self._numbers, self._store.positions(), frozenset(self._owned())
        found: list[RunMoved] = []
        if before is not None:
            ours = self._owned_before & owned
            moved = {
                partition: before.get(partition, 0)
                for partition, number in numbers.items()
                if partition not in ours and number > before.get(partition, 0)
            }
            found = self._cluster.moved_since(moved) if moved else []
        self._numbers, self._owned_before = numbers, owned
        return found


def _tell(listeners: Collection[MovedListener], moved: RunMoved) -> None:
    for listener in list(listeners):
        listener(moved)

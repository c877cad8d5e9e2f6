"""The shared store as simulated servers reach it: over connections that are lost now and then, and
with notifications that come late or never.

A connection that is lost during a commit leaves three possibilities: the commit has happened, it
never will, or the database has yet to finish it, and keeps its partitions locked until then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from anabranch.errors import StoreError
from anabranch.store.cluster_ports import ALL_NEWS, ServerRecord
from anabranch.store.memory.cluster import MemoryCluster, MemoryServer, SharedMemory
from anabranch.store.outages import AWAY, UNSURE
from anabranch.store.partition_moves import Move
from anabranch.store.ports import Batch

T = TypeVar("T")


class Trouble(Protocol):
    """What goes wrong between a server and the store."""

    def strikes(self, name: str) -> bool: ...

    def either(self) -> bool:
        """One way or the other."""
        ...

    def tell(self, server: str) -> None:
        """This server has written something: perhaps others hear of it."""
        ...


class _Unfinished(msgspec.Struct):
    """A transaction whose client is gone."""

    server: UnreliableServer
    batch: Batch
    moves: Mapping[int, Move]


class UnreliableStore(SharedMemory):
    """`trouble` decides what happens to connections."""

    def __init__(self, partitions: int, now: Callable[[], int], trouble: Trouble) -> None:
        super().__init__(partitions, now)
        self.trouble = trouble
        self.heard: dict[str, Callable[[], None]] = {}  # server → how to tell it of news
        self._unfinished: list[_Unfinished] = []

    def leave_unfinished(self, one: _Unfinished) -> None:
        self._unfinished.append(one)
        self.locked.update(one.moves)

    def finish(self, partitions: Collection[int] | None = None) -> None:
        """What holds a lock on these partitions, or on any, comes to its end."""
        for one in list(self._unfinished):
            if partitions is None or not one.moves.keys().isdisjoint(partitions):
                self._unfinished.remove(one)
                self.locked.difference_update(one.moves)
                if self.trouble.either():
                    one.server.write(one.batch, one.moves)


class UnreliableCluster(MemoryCluster):
    """A question whose answer is lost has been carried out or not."""

    _shared: UnreliableStore
    opened = False  # a server that cannot be opened ends with an error: that is no news

    def _ask(self, question: Callable[[], T]) -> T:
        trouble = self._shared.trouble
        if self.opened and trouble.strikes("answer_lost"):
            if trouble.either():
                question()
            raise StoreError("the connection is lost", code=AWAY)
        return question()

    def join(self, name: str, url: str, lease_seconds: float, **more: Any) -> None:
        mine = [n for n, one in enumerate(self._shared.partitions) if self._owns(one)]
        self._shared.finish(mine)  # as long as they are locked, it waits
        super().join(name, url, lease_seconds, **more)

    def leave(self) -> None:
        self._shared.finish(list(self.owned))
        super().leave()

    def extend_lease(self, lease_seconds: float) -> bool:
        return self._ask(lambda: MemoryCluster.extend_lease(self, lease_seconds))

    def servers(self) -> list[ServerRecord]:
        return self._ask(lambda: MemoryCluster.servers(self))

    def claim(self, most: int) -> Collection[int]:
        before = dict(self.owned)
        try:
            return self._ask(lambda: MemoryCluster.claim(self, most))
        except StoreError:
            self.owned = before
            raise

    def hand_over(self, partitions: Collection[int]) -> None:
        self._shared.finish(partitions)
        self._ask(lambda: MemoryCluster.hand_over(self, partitions))
        self._shared.trouble.tell(self.server)

    def listen(self, heard: Callable[[Collection[str]], None]) -> Callable[[], None]:
        self._shared.heard[self.server] = lambda: heard(ALL_NEWS)
        return lambda: self._shared.heard.pop(self.server, None) and None


class UnreliableServer(MemoryServer):
    _shared: UnreliableStore

    def __init__(self, shared: UnreliableStore, server: str) -> None:
        super().__init__(shared, server)
        self.cluster: UnreliableCluster = UnreliableCluster(shared, server)
        self.takes_time: Callable[[], None] = lambda: None  # called for every commit

    def commit(self, batch: Batch) -> None:
        self.takes_time()
        super().commit(batch)

    def _send(self, batch: Batch, moves: Mapping[int, Move]) -> None:
        shared = self._shared
        if not shared.locked.isdisjoint(moves):  # the try before holds them: it ends first
            shared.finish(moves)
            if self._happened(moves):
                return
        if moves and shared.trouble.strikes("connection_lost"):
            self._lose_connection(batch, moves)
        self.write(batch, moves)
        shared.trouble.tell(self.cluster.server)

    def _lose_connection(self, batch: Batch, moves: Mapping[int, Move]) -> None:
        for partition, move in moves.items():
            self._require_owned(partition, move)
        if self._shared.trouble.either():
            self._shared.leave_unfinished(_Unfinished(self, batch, moves))
        elif self._shared.trouble.either():
            self.write(batch, moves)
        raise StoreError("the connection is lost", code=AWAY)

    def post(self, run: str, body: bytes, now: int, nonce: str = "") -> int:
        trouble = self._shared.trouble
        lost = trouble.strikes("post_lost")
        if not lost or trouble.either():
            number = super().post(run, body, now, nonce)
            trouble.tell(self.cluster.server)
        if lost:
            raise StoreError("the connection is lost", code=UNSURE)
        return number

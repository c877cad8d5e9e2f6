"""A memory store that several servers share: the oracle of partitions and leases.

`SharedMemory` is the database, with its clock; `MemoryServer` is the store as one server sees it.
Like the memory store, every method does the obvious thing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.errors import Conflict
from anabranch.store.checks import no_streams
from anabranch.store.cluster_ports import (
    PARTITION_LOST,
    Owned,
    PartitionLag,
    PartitionRecord,
    RunMoved,
    ServerRecord,
    SharedSession,
)
from anabranch.store.hook_ports import Entry, WebhookDelivery
from anabranch.store.memory.store import MemoryStore
from anabranch.store.partition_moves import Move, happened, moves_of, taken_by_others
from anabranch.store.ports import Batch, Forgotten, Head, HeadFilter, Message


class _Partition(msgspec.Struct):
    owner: str | None = None
    epoch: int = 0
    number: int = 0


class _Server(msgspec.Struct):
    name: str
    url: str
    joined_at: int
    lease_until: int
    draining: bool = False
    takes_share: bool = True


class Written(msgspec.Struct, frozen=True):
    """One commit to a partition, in the order in which they became visible."""

    partition: int
    epoch: int
    before: int
    number: int
    server: str


class SharedMemory:
    def __init__(self, partitions: int, now: Callable[[], int]) -> None:
        self.store = MemoryStore()
        self.store.answered_by_others = True
        self.now = now
        self.partitions = [_Partition() for _ in range(partitions)]
        self.servers: dict[str, _Server] = {}
        self.places: dict[str, int] = {}
        self.locked: set[int] = set()  # partitions that a transaction holds; a claim skips them
        self.written: list[Written] = []
        self.sessions: dict[str, SharedSession] = {}
        self.message_places: dict[int, int] = {}
        self.posted: dict[str, int] = {}  # nonce → message
        self.cursors: dict[tuple[str, int], int] = {}  # hook and partition → position
        self.committed: Callable[[Batch], None] = lambda _batch: None  # told of every commit

    def place(self, run: str) -> int:
        return self.places.get(run, zlib.crc32(run.encode()) % len(self.partitions))

    def alive(self, server: str | None) -> bool:
        known = self.servers.get(server or "")
        return known is not None and known.lease_until >= self.now()


class MemoryCluster:
    """What one server does with the partitions."""

    def __init__(self, shared: SharedMemory, server: str) -> None:
        self._shared = shared
        self.server = server
        self.partitions = len(shared.partitions)
        self.owned: dict[int, Owned] = {}

    def place(self, run: str) -> int:
        return self._shared.place(run)

    def place_with(self, run: str, other: str) -> None:
        self._shared.places[run] = self.place(other)

    def place_root(self, run: str) -> None:
        """Nothing has to be remembered: places are found at once."""

    def partition_of(self, run: str) -> int:
        return zlib.crc32(run.encode()) % self.partitions

    def join(
        self,
        name: str,
        url: str,
        lease_seconds: float,
        *,
        draining: bool = False,
        takes_share: bool = True,
    ) -> None:
        self._release([n for n, one in enumerate(self._shared.partitions) if self._owns(one)])
        self.owned.clear()
        now = self._shared.now()
        until = now + round(lease_seconds * 1000)
        known = self._shared.servers.setdefault(
            self.server, _Server(name, url, now, until, draining, takes_share)
        )
        known.lease_until = until

    def _owns(self, partition: _Partition) -> bool:
        return partition.owner == self.server

    def extend_lease(self, lease_seconds: float) -> bool:
        mine = self._shared.servers.get(self.server)
        if mine is None:
            return False
        mine.lease_until = self._shared.now() + round(lease_seconds * 1000)
        return True

    def servers(self) -> list[ServerRecord]:
        shared = self._shared
        owners = [partition.owner for partition in shared.partitions]
        for name in [name for name in shared.servers if not shared.alive(name)]:
            if name not in owners:
                del shared.servers[name]
        return [
            ServerRecord(
                id=name,
                name=known.name,
                url=known.url,
                version="",
                joined_at=known.joined_at,
                lease_ms=known.lease_until - shared.now(),
                draining=known.draining,
                partitions=owners.count(name),
                takes_share=known.takes_share,
            )
            for name, known in sorted(shared.servers.items())
        ]

    def partition_records(self) -> list[PartitionRecord]:
        return [
            PartitionRecord(partition=number, owner=one.owner, epoch=one.epoch, number=one.number)
            for number, one in enumerate(self._shared.partitions)
        ]

    def partition_lags(self) -> Mapping[int, PartitionLag]:
        posted: dict[int, list[int]] = {}
        for one in self._shared.store.unanswered(1_000_000):
            posted.setdefault(self._shared.message_places[one.id], []).append(one.posted_at)
        return {
            partition: PartitionLag(waiting=len(instants), waiting_since=min(instants))
            for partition, instants in posted.items()
        }

    def claim(self, most: int) -> Collection[int]:
        shared = self._shared
        if self.server not in shared.servers:
            return []
        for name in [name for name in shared.servers if name != self.server]:
            if not shared.alive(name):
                del shared.servers[name]
        taken: list[int] = []
        numbered = list(enumerate(self._shared.partitions))
        # First those that are this server's already: the answer to an earlier claim was lost.
        for number, one in sorted(numbered, key=lambda each: each[1].owner != self.server):
            free = one.owner not in shared.servers
            if one.owner == self.server:
                free = number not in self.owned
            if free and number not in shared.locked and len(taken) < most:
                one.owner, one.epoch = self.server, one.epoch + 1
                self.owned[number] = Owned(one.epoch, one.number)
                taken.append(number)
        return taken

    def hand_over(self, partitions: Collection[int]) -> None:
        self._release(partitions)

    def _release(self, partitions: Collection[int]) -> None:
        for number in partitions:
            self.owned.pop(number, None)
            one = self._shared.partitions[number]
            if one.owner == self.server:
                one.owner, one.epoch = None, one.epoch + 1

    def drain(self, server: str, *, draining: bool) -> bool:
        known = self._shared.servers.get(server)
        if known is not None:
            known.draining = draining
        return known is not None

    def leave(self) -> None:
        self._release(list(self.owned))
        self._shared.servers.pop(self.server, None)

    failed_reads = 0

    def clock(self) -> int:
        return self._shared.now()

    def keep_session(self, session: SharedSession, now: int, most: int) -> None:
        known = self._shared.sessions
        own = [one for one in known.values() if one.token == session.token]
        for one in sorted(own, key=lambda each: each.until)[: max(0, len(own) - most + 1)]:
            del known[one.key]
        for key in [key for key, one in known.items() if one.until <= now]:
            del known[key]
        known[session.key] = session

    def session(self, key: str) -> SharedSession | None:
        return self._shared.sessions.get(key)

    def end_session(self, key: str) -> None:
        self._shared.sessions.pop(key, None)

    def keep_sealed(self, name: str, values: Mapping[str, bytes]) -> None:
        self._shared.store.commit(Batch(sealed={name: dict(values)}))

    def moved_since(self, numbers: Mapping[int, int]) -> list[RunMoved]:
        """Numbers here count commits, so all runs of these partitions may have moved."""
        heads = self._shared.store.heads(HeadFilter(limit=1_000_000))
        return [moved(head) for head in heads if self.place(head.run) in numbers]

    def moved_runs(self, seen: Mapping[str, int]) -> list[RunMoved]:
        heads = [self._shared.store.head(run) for run in seen]
        return [moved(head) for head in heads if head is not None and head.seq > seen[head.run]]

    def listen(
        self,
        heard: Callable[[Collection[str]], None],  # noqa: ARG002
    ) -> Callable[[], None]:
        """Every notification is lost: looking at the store must be enough."""
        return lambda: None


def moved(head: Head) -> RunMoved:
    return RunMoved(
        run=head.run,
        seq=head.seq,
        status=head.status,
        at=head.updated_at,
        finished=head.finished,
        begun=False,
    )


class MemoryServer:
    """The store as one server sees it; whatever is not said here is that of the shared one."""

    def __init__(self, shared: SharedMemory, server: str) -> None:
        self._shared = shared
        self._store = shared.store
        self.cluster = MemoryCluster(shared, server)
        self.node_streams = None
        self._unsure: Batch | None = None  # perhaps written: the connection was lost meanwhile

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, batch: Batch) -> None:
        """A batch whose end was not seen is not written again before it is known what became of
        it."""
        if batch.streams:
            raise no_streams()
        moves = self._moves_of(batch)
        if not (self._unsure is batch and self._happened(moves)):
            self._unsure = batch
            self._send(batch, moves)
        self._unsure = None
        for partition, move in moves.items():
            self.cluster.owned[partition] = Owned(move.epoch, move.after)

    def _send(self, batch: Batch, moves: Mapping[int, Move]) -> None:
        """One transaction; a connection that is lost meanwhile can end anywhere in here."""
        self.write(batch, moves)

    def write(self, batch: Batch, moves: Mapping[int, Move]) -> None:
        for partition, move in moves.items():
            self._require_owned(partition, move)
        self._store.commit(msgspec.structs.replace(batch, messages=[]))
        for partition, move in moves.items():
            self._shared.partitions[partition].number = move.after
            written = Written(partition, *move, self.cluster.server)
            self._shared.written.append(written)
        for run, body, now in batch.messages:
            self._put_message(run, body, now)
        self._shared.committed(batch)

    def _happened(self, moves: Mapping[int, Move]) -> bool:
        at = [(n, self._shared.partitions[n]) for n in moves]
        found = [(n, one.owner, one.epoch, one.number) for n, one in at]
        if taken := taken_by_others(moves, found, self.cluster.server):
            raise self._lost(taken[0])  # what happened is in the log
        return happened(moves, found)

    def _moves_of(self, batch: Batch) -> dict[int, Move]:
        """Of the partitions that a batch writes to: those of its runs and of the messages it
        answers. The owner of a run alone answers what is said to it."""
        shared, owned = self._shared, self.cluster.owned
        for commit in batch.commits:
            head = commit.head
            if head.run not in shared.places:
                parent = (head.parent or "").partition("/")[0]
                shared.places[head.run] = shared.place(parent or head.run)
        rows = [shared.place(commit.head.run) for commit in batch.commits]
        answered = [shared.message_places[number] for number in batch.answers]
        for partition in (*rows, *answered):
            if partition not in owned:
                raise self._lost(partition)
        return moves_of(rows, answered, owned)

    def _require_owned(self, partition: int, move: Move) -> None:
        one = self._shared.partitions[partition]
        believed = (self.cluster.server, move.epoch, move.before)
        if (one.owner, one.epoch, one.number) != believed:
            self.cluster.owned.pop(partition, None)
            raise self._lost(partition)

    def _lost(self, partition: int) -> Conflict:
        return Conflict(
            f"this server does not own partition {partition} any more; nothing was written",
            code=PARTITION_LOST,
        )

    def post(self, run: str, body: bytes, now: int, nonce: str = "") -> int:
        known = self._shared.posted.get(nonce)
        if known is None:
            known = self._put_message(run, body, now)
        if nonce:
            self._shared.posted[nonce] = known
        return known

    def _put_message(self, run: str, body: bytes, now: int) -> int:
        number = self._store.post(run, body, now)
        self._shared.message_places[number] = self._shared.place(run)
        return number

    def changed(self) -> bool:
        return False  # what another server posts may stay unnoticed: an engine has to look

    def unanswered(self, limit: int = 100) -> list[Message]:
        places, owned = self._shared.message_places, self.cluster.owned
        found = self._store.unanswered(1_000_000)
        return [one for one in found if places.get(one.id) in owned][:limit]

    def unfinished(
        self, after: str = "", limit: int = 1000, partitions: Collection[int] | None = None
    ) -> list[Head]:
        found = self._store.unfinished(after, 1_000_000)
        if partitions is not None:
            found = [head for head in found if self._shared.place(head.run) in partitions]
        return found[: max(limit, 0)]

    def forget(self, runs: Sequence[str], *, dry_run: bool = False) -> Forgotten:
        forgotten = self._store.forget(runs, dry_run=dry_run)
        for run in runs:
            if self._store.head(run) is None:
                self._shared.places.pop(run, None)
        return forgotten

    # -- webhooks: a cursor for each partition, and the owner sends -------------------------------

    def feed(self, after: int, limit: int = 200, partition: int = 0) -> list[Entry]:
        place = self._shared.place
        found = [one for one in self._store.feed(after, 1_000_000) if place(one.run) == partition]
        return found[: max(limit, 0)]

    def positions(self) -> Mapping[int, int]:
        place = self._shared.place
        return {place(one.run): one.position for one in self._store.feed(0, 1_000_000)}

    def cursors(self, hook_id: str) -> Mapping[int, int]:
        begin = self._store.cursors(hook_id)
        if not begin:
            return {}
        cursors = self._shared.cursors
        return {n: cursors.get((hook_id, n), begin[0]) for n in range(self.cluster.partitions)}

    def advance_hook(
        self,
        hook_id: str,
        seen: int,
        to: int,
        found: Sequence[WebhookDelivery],
        partition: int = 0,
    ) -> bool:
        if self.cursors(hook_id).get(partition) != seen:
            return False
        (begin,) = self._store.cursors(hook_id).values()
        self._shared.cursors[hook_id, partition] = to
        return self._store.advance_hook(hook_id, begin, begin, found)

    def due_deliveries(self, hook_id: str, now: int, limit: int) -> list[WebhookDelivery]:
        place, owned = self._shared.place, self.cluster.owned
        found = self._store.due_deliveries(hook_id, now, 1_000_000)
        return [one for one in found if place(one.run) in owned][: max(limit, 0)]

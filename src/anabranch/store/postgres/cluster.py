"""The servers of a PostgreSQL store and the partitions they own.

Everything here is one statement on a connection of its own, which no commit can hold up: a lease
that waited behind a large batch would end.
"""

from __future__ import annotations

import os
import secrets
import socket
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from threading import Lock, RLock, local
from typing import Any

import msgspec

from anabranch.store.cluster_ports import (
    SERVERS,
    Owned,
    PartitionLag,
    PartitionRecord,
    RunMoved,
    ServerRecord,
    SharedSession,
)
from anabranch.store.outages import READ_ONLY
from anabranch.store.postgres.address import Address
from anabranch.store.postgres.connections import DRIVER_ERRORS, Plain, connect
from anabranch.store.postgres.errors import translate
from anabranch.store.postgres.notifications import Listener
from anabranch.store.relational.connection import Connection, Row
from anabranch.version import __version__

_PLACES_KEPT = 500_000  # runs of which the partition is remembered


class PostgresCluster:
    """One server's handle. `read` asks a statement of the store for the rows it finds; `tell` lets
    the other servers know of a change."""

    def __init__(
        self,
        address: Address,
        sql: Mapping[str, str],
        partitions: int,
        read: Callable[[str, Mapping[str, Any]], list[Row]],
        tell: Callable[[str], None],
        *,
        writable: bool = True,
        write: Callable[[], AbstractContextManager[Connection]],
        joined: Callable[[], Plain | None],
    ) -> None:
        """`write` is a transaction of the store, for what need not be quick; `joined` the
        connection of several writes that are one, if this thread is at them."""
        self._address = address
        self._writable = writable
        self._write = write
        self._joined = joined
        self._sql = sql
        self._read = read
        self._tell = tell
        self.partitions = partitions
        self.server = secrets.token_hex(8)
        self.owned: dict[int, Owned] = {}
        self._places: dict[str, int] = {}
        self._message_places: dict[int, int] = {}  # of messages that were read and not answered
        self._db: Plain | None = None
        self._asking = RLock()
        self._remembering = Lock()
        self._here = local()
        self.joined = False
        self.alone = False  # no other server had a good lease at the last look

    # -- what could not be read ----------------------------------------------------------------

    def missed(self) -> None:
        """A read of this thread has failed."""
        self._here.failed = self.failed_reads + 1

    @property
    def failed_reads(self) -> int:
        return getattr(self._here, "failed", 0)

    # -- where runs are ------------------------------------------------------------------------

    def partition_of(self, run: str) -> int:
        """Of a run that is the root of its family."""
        return zlib.crc32(run.encode()) % self.partitions

    def place(self, run: str) -> int:
        place = self._places.get(run)
        if place is None:
            place = self.find([run]).get(run)
        return self.partition_of(run) if place is None else place

    def place_with(self, run: str, other: str) -> None:
        self.remember({run: self.place(other)})

    def place_root(self, run: str) -> None:
        if run not in self._places:
            self.remember({run: self.partition_of(run)})

    def find(self, runs: Collection[str]) -> dict[str, int]:
        """The partitions of those of the runs that exist. What is remembered now may be forgotten a
        moment later, by another thread or for what is read here."""
        known = {run: place for run in runs if (place := self._places.get(run)) is not None}
        if len(known) < len(runs) and (unknown := [run for run in runs if run not in known]):
            given = {"runs": msgspec.json.encode(unknown).decode()}
            read: dict[str, int] = dict(self._read(self._sql["where_runs_are"], given))
            self.remember(read)
            known |= read
        return known

    def remember(self, places: Mapping[str, int]) -> None:
        if places.items() <= self._places.items():
            return
        with self._remembering:
            self._places.update(places)
            if len(self._places) > _PLACES_KEPT:
                for run in list(islice(self._places, len(self._places) - _PLACES_KEPT * 9 // 10)):
                    del self._places[run]

    def forget_places(self, runs: Iterable[str]) -> None:
        """Of runs that were purged: another one may begin under the same id, elsewhere."""
        with self._remembering:
            for run in runs:
                self._places.pop(run, None)

    def found_message(self, message: int, partition: int) -> None:
        self._message_places[message] = partition

    def places_of_messages(self, messages: Iterable[int]) -> set[int]:
        """The partitions of the runs that these messages are for."""
        unknown = [one for one in messages if one not in self._message_places]
        if unknown:
            given = {"ids": msgspec.json.encode(unknown).decode()}
            self._message_places.update(self._read(self._sql["where_messages_are"], given))
        return {self._message_places[one] for one in messages if one in self._message_places}

    def forget_messages(self, messages: Iterable[int]) -> None:
        for message in messages:
            self._message_places.pop(message, None)

    # -- servers -------------------------------------------------------------------------------

    def join(
        self,
        name: str,
        url: str,
        lease_seconds: float,
        *,
        draining: bool = False,
        takes_share: bool = True,
    ) -> None:
        with self._asking:  # `owned` changes with the table, whichever thread asks beside this one
            try:
                self._ask(
                    "join",
                    id=self.server,
                    name=f"{name} (pid {os.getpid()} on {socket.gethostname()})",
                    url=url,
                    version=__version__,
                    lease=lease_seconds,
                    draining=draining,
                    takes_share=takes_share,
                )
            finally:  # also where its end was not seen
                self.owned.clear()
        self.joined = True
        self._tell(SERVERS)

    def extend_lease(self, lease_seconds: float) -> bool:
        return bool(self._ask("extend_lease", id=self.server, lease=lease_seconds))

    def servers(self) -> list[ServerRecord]:
        found = [
            ServerRecord(
                id=row[0],
                name=row[1],
                url=row[2],
                version=row[3],
                joined_at=row[4],
                lease_ms=row[5],
                draining=row[6],
                partitions=row[7],
                takes_share=row[8],
            )
            for row in self._ask_joined("servers")
        ]
        self.alone = self.joined and not any(one.alive for one in found if one.id != self.server)
        return found

    def drain(self, server: str, *, draining: bool) -> bool:
        with self._write() as db:
            marked = db.execute(self._sql["drain"], {"id": server, "draining": draining})
            known = bool(marked.rowcount)
        self._tell(SERVERS)
        return known

    def leave(self) -> None:
        if not self.joined:
            return
        self.hand_over(list(self.owned))
        self._ask("leave", id=self.server)
        self.joined = False
        self._tell(SERVERS)

    def clock(self) -> int:
        """Milliseconds, by the clock of the database."""
        ((now,),) = self._ask("clock")
        return int(now)

    # -- partitions ----------------------------------------------------------------------------

    def partition_records(self) -> list[PartitionRecord]:
        return [
            PartitionRecord(partition=row[0], owner=row[1], epoch=row[2], number=row[3])
            for row in self._ask("partitions")
        ]

    def partition_lags(self) -> Mapping[int, PartitionLag]:
        rows = self._read(self._sql["partition_lags"], {})
        return {
            partition: PartitionLag(waiting=waiting, waiting_since=since, webhook_lag=lag)
            for partition, waiting, since, lag in rows
        }

    def claim(self, most: int) -> Collection[int]:
        with self._asking:
            known = msgspec.json.encode(list(self.owned)).decode()
            self._ask("remove_others", id=self.server)
            rows = self._ask("claim", id=self.server, most=most, known=known)
            taken = {partition: Owned(epoch, number) for partition, epoch, number in rows}
            self.owned.update(taken)
        return sorted(taken)

    def hand_over(self, partitions: Collection[int]) -> None:
        given = msgspec.json.encode(list(partitions)).decode()
        with self._asking:
            self._ask("hand_over", id=self.server, given=given)
            for partition in partitions:
                self.owned.pop(partition, None)
        self._tell(SERVERS)

    def owners(self) -> list[str]:
        """The names of the servers with a good lease that own partitions."""
        return [str(row[0]) for row in self._ask("owners")]

    def keep_session(self, session: SharedSession, now: int, most: int) -> None:
        self._ask("keep_session", **msgspec.structs.asdict(session), now=now, most=most)

    def session(self, key: str) -> SharedSession | None:
        rows = self._read(self._sql["session"], {"key": key})
        return SharedSession(*rows[0]) if rows else None

    def end_session(self, key: str) -> None:
        self._ask("end_session", key=key)

    def keep_sealed(self, name: str, values: Mapping[str, bytes]) -> None:
        keys, contents = list(values), list(values.values())
        self._ask("keep_sealed", run=name, keys=keys, contents=contents)

    def moved_since(self, numbers: Mapping[int, int]) -> list[RunMoved]:
        given = {"numbers": msgspec.json.encode(numbers).decode()}
        return [_moved(row) for row in self._read(self._sql["moved_since"], given)]

    def moved_runs(self, seen: Mapping[str, int]) -> list[RunMoved]:
        given = {"seen": msgspec.json.encode(seen).decode()}
        return [_moved(row) for row in self._read(self._sql["moved_runs"], given)]

    def listen(self, heard: Callable[[Collection[str]], None]) -> Callable[[], None]:
        listener = Listener(self._address, self.server, heard)
        listener.start()
        return listener.stop

    def close(self) -> None:
        with self._asking:
            if self._db is not None:
                self._db.close()
                self._db = None

    def _ask_joined(self, statement: str) -> list[Row]:
        """Where this thread has written of servers, and others do not see it yet, also of that."""
        db = self._joined()
        return self._ask(statement) if db is None else db.execute(self._sql[statement]).fetchall()

    def _ask(self, statement: str, /, **given: Any) -> list[Row]:
        """One statement. A connection that was lost is replaced once: each can be repeated."""
        with self._asking:
            for last in (False, True):
                try:
                    if self._db is None or self._db.closed:
                        self._db = connect(self._address, writable=self._writable)
                    cursor = self._db.execute(self._sql[statement], given)
                    return cursor.fetchall() if cursor.description else []
                except DRIVER_ERRORS as error:
                    lost = self._db is None or self._db.closed
                    told = translate(error, self._address.shown)
                    if told.code == READ_ONLY and self._db is not None:
                        self._db.close()  # the primary may be another server by now
                    if last or not lost:
                        raise told from error
        raise AssertionError("either a result or an error")  # pragma: no cover


def _moved(row: Row) -> RunMoved:
    run, seq, status, at, finished, begun = row
    return RunMoved(run=run, seq=seq, status=status, at=at, finished=finished, begun=begun)

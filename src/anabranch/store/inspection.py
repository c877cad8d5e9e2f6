"""What `store check` reads of a store: everything in it, as it is at one moment.

Each database has its own; all of them read in one transaction, beside whoever writes, and keep
nothing in memory but the row at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import msgspec

from anabranch.store.credential_ports import StoredCredential
from anabranch.store.hook_ports import Hook
from anabranch.store.ports import Definition, Head, Message, Record, StateSnapshot
from anabranch.store.record_ports import NamedRecord
from anabranch.store.stream_ports import StreamCard, StreamEvents

#: Called now and then while the database is busy; may raise to give up.
Tick = Callable[[], None]


class Disagreement(msgspec.Struct, frozen=True):
    """Two tables that do not say the same. `run` is empty where it belongs to none."""

    part: str  # head | log | partition | webhook | message | counter
    run: str
    message: str


class Inspection(Protocol):
    shown: str  # the store, for people

    def integrity(self, tick: Tick) -> list[str]:
        """What the database itself finds wrong with its files."""

    def notes(self) -> list[str]:
        """What is no damage, and worth knowing."""

    def count(self, table: str) -> int: ...

    def heads(self) -> Iterator[Head]: ...

    def records(self, run: str) -> Iterator[Record]: ...

    def snapshot(self, run: str) -> StateSnapshot | None: ...

    def sealed(self, run: str) -> Mapping[str, bytes]: ...

    def definitions(self) -> Iterator[Definition]: ...

    def has_definition(self, fingerprint: str) -> bool: ...

    def payloads(self) -> Iterator[tuple[str, bytes]]: ...

    def holders(self, sha256: str, limit: int = 5) -> list[str]:
        """Some of the runs that need this payload."""

    def headless(self, limit: int) -> list[tuple[str, str]]:
        """(table, run) of rows that belong to no run."""

    def holds_on_nothing(self, limit: int) -> list[tuple[str, str]]:
        """(run, sha256) of holds whose payload is not there."""

    def messages(self) -> Iterator[Message]:
        """Those that wait for an answer."""

    def credentials(self) -> list[StoredCredential]: ...

    def hooks(self) -> list[Hook]: ...

    def has_streams(self) -> bool:
        """Whether it can keep the state of a node."""

    def streams(self) -> Iterator[StreamCard]: ...

    def stream_events(self, stream: str) -> Iterator[StreamEvents]: ...

    def cardless_streams(self, limit: int) -> list[str]:
        """Streams of events that have no card."""

    def named_records(self) -> Iterator[NamedRecord]:
        """Those of every family."""

    def disagreements(self, limit: int) -> list[Disagreement]:
        """Where tables contradict each other: partitions and numbers, cursors, counters."""

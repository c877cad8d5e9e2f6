"""What a node needs from a store: streams of events, each with a card of what they come to.

A stream is the history of one thing: an order, a hold, a record of a module. Its events have
consecutive numbers from 1; one that begins anew forgets those before and counts from 1 again. The
card is written in the transaction of the events it sums up, so opening a node costs what is open,
not what has ever been; the events remain the truth, and a card can be rebuilt from them. Events are
written by `Journal.commit` alone (`Batch.streams`), in one transaction with each other and with
their cards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec


class StreamCard(msgspec.Struct, frozen=True, kw_only=True):
    """A stream as it stands."""

    stream: str  # state/service-order/order:r1-s1-a1
    family: str  # what kind of thing it is: service-order
    seq: int  # number of the last event
    state: bytes  # JSON: what the events come to
    created_at: int
    updated_at: int
    open: bool = False  # something about it is left to be done
    wake: int | None = None  # the instant at which that is, where it is known
    group: str = ""  # for lists: the module, the account or the peer it belongs to


class StreamCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The events `card.seq - count + 1 … card.seq` of one stream."""

    card: StreamCard
    events: bytes  # a JSON array of `count` events
    count: int
    at: int
    #: Where the stream begins anew with these: the number of the last one that is forgotten.
    forgets: int | None = None

    @property
    def expected(self) -> int:
        """The number of the event that it follows."""
        return self.card.seq - self.count if self.forgets is None else self.forgets


class StreamEvents(msgspec.Struct, frozen=True):
    """One row of a stream: `count` events, the first of which has number `first_seq`."""

    first_seq: int
    count: int
    at: int
    events: bytes


class StreamFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which streams to list, newest first."""

    family: str
    group: str | None = None
    open: bool | None = None
    before: tuple[int, str] | None = None  # (created_at, stream) of the last one seen
    limit: int = 50


class Streams(Protocol):
    def stream(self, name: str) -> StreamCard | None: ...

    def streams(self, wanted: StreamFilter) -> list[StreamCard]: ...

    def open_streams(self, after: str = "", limit: int = 1000) -> list[StreamCard]:
        """Those with something left to do, in order of name, for recovery in pages."""

    def stream_names(self, after: str = "", limit: int = 1000) -> list[str]:
        """All of them, in order of name, for checks in pages."""

    def stream_events(
        self, name: str, after: int = 0, limit: int | None = None
    ) -> list[StreamEvents]:
        """The rows of a stream with events numbered above `after`, in order."""

    def renew_cards(self, cards: Sequence[StreamCard]) -> None:
        """Write cards anew, as they were made from the same events: in one transaction, and
        `Conflict` where a stream ends elsewhere meanwhile. When it was created stays."""

    def forget_streams(
        self, family: str, before: int, limit: int = 1000, group: str | None = None
    ) -> int:
        """Delete streams of a family, or of a group of it, that are not open and were last written
        before that instant, with their events; returns how many."""

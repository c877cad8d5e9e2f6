"""What webhooks need from a store: the log of all runs in one order, hooks, and their deliveries.

Every row of the log has a position. Positions grow in the order in which rows become visible, and
none is ever given out twice, also not after a purge; so a hook needs to remember one number to know
what it has seen. What it found is written in the transaction that moves that number. A store that
several servers share has such an order for each partition; every other store has one partition, 0.

Of the deliveries of one run to one hook at most one is out at a time: it alone has an instant in
`due`, those behind it have none and get theirs when it is over. So the next ones to send are found
by an index, however long the queue of one run is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from anabranch.literals import DeliveryState

INTERNAL = "trigger:"  # how the url of such a hook begins


class Entry(msgspec.Struct, frozen=True):
    """One row of the log, seen among those of all runs."""

    position: int
    run: str
    first_seq: int
    count: int
    at: int
    events: bytes


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """Whom to tell of what. Whoever shows it to people leaves out `secret`."""

    id: str
    url: str
    secret: str  # what the secret is made from, or where it is: see `operations.webhooks.secrets`
    kinds: tuple[str, ...]  # event kinds; `run.*` and `*` are possible
    labels: Mapping[str, str] = {}
    dialect: str | None = None
    name: str | None = None
    enabled: bool = True
    created_at: int = 0
    cursor: int = 0  # position of the last row looked at; in partition 0, where there are more

    @property
    def internal(self) -> bool:
        """Whether it is that of a trigger, which the engine itself takes the deliveries of."""
        return self.url.startswith(INTERNAL)


class WebhookDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event to tell one hook of; `hook`, `run` and `seq` name it."""

    hook: str
    run: str
    seq: int
    kind: str
    body: bytes
    found_at: int
    state: DeliveryState = "pending"
    attempts: int = 0
    due: int | None = None  # None: behind another one of its run, or over
    last_at: int | None = None
    last_status: int | None = None  # what the receiver answered, if it did
    last_error: str = ""


class Backlog(msgspec.Struct, frozen=True):
    """How a hook stands."""

    pending: int = 0
    dead: int = 0
    oldest: int | None = None  # when the oldest pending one was found


class DeliveryFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which deliveries to list, newest first."""

    hook: str
    state: DeliveryState | None = None
    run: str | None = None
    before: tuple[int, str, int] | None = None  # (found_at, run, seq) of the last one seen
    limit: int = 50


class Feed(Protocol):
    def feed(self, after: int, limit: int = 200, partition: int = 0) -> list[Entry]:
        """Rows of the log of all runs with a position above `after`, in order."""

    def probe_write(self) -> None:
        """Write something that changes nothing; raises when that cannot be, or there is no room."""

    def positions(self) -> Mapping[int, int]:
        """By partition the highest position ever given out; 0 when there was none."""

    def runs_after(self, position: int, partition: int = 0) -> set[str]:
        """Runs that have a row above this position."""

    def run_counts(self) -> list[tuple[str, str, int]]:
        """How many runs there are by (status, dialect); looks at all of them."""


class Hooks(Protocol):
    def add_hook(self, hook: Hook, *, from_now: bool = False) -> None:
        """Raises `Conflict` when there is one of this id. With `from_now` its cursors begin where
        the log ends."""

    def cursors(self, hook_id: str) -> Mapping[int, int]:
        """By partition how far the hook has looked; what is not in it was not looked at."""

    def hook(self, hook_id: str) -> Hook | None: ...

    def hooks(self) -> list[Hook]:
        """All of them, oldest first; there are few."""

    def change_hook(self, hook: Hook) -> bool:
        """Everything but its cursor and its birth; False when there is none."""

    def drop_hook(self, hook_id: str) -> bool:
        """With all its deliveries."""

    def advance_hook(
        self,
        hook_id: str,
        seen: int,
        to: int,
        found: Sequence[WebhookDelivery],
        partition: int = 0,
    ) -> bool:
        """Move the cursor from `seen` to `to` and write what was found, or do neither (False)."""

    def due_deliveries(self, hook_id: str, now: int, limit: int) -> list[WebhookDelivery]:
        """Pending ones that may go out, longest due first; at most one a run. Of a shared store
        those of runs in partitions that this server owns."""

    def settle_delivery(self, after: WebhookDelivery, now: int) -> bool:
        """Write how an attempt went; when it is over, the next one of its run is due `now`.

        False when it is not pending any more, or others have tried it meanwhile.
        """

    def redeliver(self, hook_id: str, run: str, seq: int, now: int) -> bool:
        """Make a delivery that is over due once more, and one that waits for its next attempt due
        now; False when there is none, or it is out or behind another one of its run."""

    def redeliver_dead(self, hook_id: str, now: int, limit: int) -> int:
        """The same for all dead ones, oldest first: how many. Of each run only one is due, the
        others follow in order. What waits for its next attempt is due now, too."""

    def delivery(self, hook_id: str, run: str, seq: int) -> WebhookDelivery | None: ...

    def deliveries(self, wanted: DeliveryFilter) -> list[WebhookDelivery]: ...

    def backlog(self) -> Mapping[str, Backlog]:
        """By hook; every hook is in it."""

    def forget_deliveries(self, before: int, limit: int = 1000) -> int:
        """Drop deliveries that were over before that instant; returns how many."""

"""What the engine needs from a store, as narrow ports.

The log is the truth: per run, rows of events with consecutive sequence numbers. A head is the
index card of a run and is written in the same transaction as the events it summarises. Everything
is synchronous: the engine decides whether to call in place or from its writer thread. Instants are
whole milliseconds since the epoch and always come from the caller.

A store is supported when `anabranch.testing.stores` passes on it, nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from anabranch.store.access_ports import Access, RequestRecord
from anabranch.store.admission_ports import Admissions
from anabranch.store.catalog_ports import CatalogStore
from anabranch.store.cluster_ports import Cluster
from anabranch.store.credential_ports import CredentialStore
from anabranch.store.grant_ports import Grants
from anabranch.store.hook_ports import Feed, Hooks
from anabranch.store.record_ports import Records
from anabranch.store.stream_ports import StreamCommit, Streams
from anabranch.store.work_log_ports import WorkLogs


class Head(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The index card of a run."""

    run: str
    definition: str  # fingerprint of the definition it runs
    name: str  # like its labels the same from its first commit to its last
    dialect: str
    status: str
    seq: int  # sequence number of the last recorded event
    created_at: int
    updated_at: int
    next_wake: int | None = None  # earliest timer; None when only the outside can move the run
    labels: Mapping[str, str] = {}
    parent: str | None = None  # the run whose parked job this one answers
    origin: str | None = None  # the run this one redrives
    finished: bool = False
    damage: str = ""  # what of the stored row cannot be read; never written
    problems: int = 0  # step runs that did not end as they should: `kernel.summary.problems_of`
    reason: str = ""  # its problem, or what it waits for, in one line: `kernel.reason`


class Commit(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One run's part of a turn: the events `head.seq - count + 1 … head.seq`, made at `at`."""

    head: Head
    at: int
    events: bytes  # a JSON array of `count` events
    count: int
    snapshot: bytes | None = None  # the state after these events; replaces an older one


class Record(msgspec.Struct, frozen=True, gc=False):
    """One row of the log: `count` events, the first of which has number `first_seq`."""

    first_seq: int
    count: int
    at: int
    events: bytes


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    fingerprint: str
    dialect: str
    name: str
    source: str
    origin: str = ""  # where the source came from, for messages (a path, an address)
    created_at: int = 0


class DefinitionCard(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as it is listed: all but its source, which may be long."""

    fingerprint: str
    dialect: str
    name: str
    origin: str = ""
    created_at: int = 0


class DefinitionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which definitions to list, newest first."""

    name: str | None = None
    dialect: str | None = None
    before: tuple[int, str] | None = None  # (created_at, fingerprint) of the last one seen
    limit: int = 50


class StateSnapshot(msgspec.Struct, frozen=True):
    seq: int
    state: bytes


#: The newest snapshot of a run, and the rows of its log after it.
Tail: TypeAlias = tuple[StateSnapshot | None, list[Record]]


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A stimulus posted by a process that does not own the engine, and later its answer."""

    id: int
    run: str
    body: bytes  # JSON
    posted_at: int
    answer: bytes | None = None  # JSON; None while nobody has taken it


class Hold(msgspec.Struct, frozen=True):
    """Somebody needs a payload: it is not deleted while a hold on it is left.

    `job` is for what work has stored and nothing recorded yet. A hold of scope `permanent` belongs
    to no run (""), and one of scope `workflow` to the parent of the run that stored the payload.
    """

    sha256: str
    run: str
    scope: str = "execution"  # job | step | execution | workflow | permanent
    until: int = 0  # an instant; 0 is without end. Of two holds on the same the longer counts


class Batch(msgspec.Struct, kw_only=True):
    """Everything one turn writes, in one transaction: all of it or nothing."""

    commits: list[Commit] = []
    payloads: dict[str, bytes] = {}  # sha256 hex → content
    answers: dict[int, bytes] = {}  # message id → answer
    messages: list[tuple[str, bytes, int]] = []  # run, body, now: to runs that others own
    holds: list[Hold] = []
    #: Runs that end: the holds of their jobs and steps are over now, those of scope `execution`
    #: at the second instant, unless they end sooner.
    ended: dict[str, tuple[int, int]] = {}
    #: run → key → value, for runs that begin; kept until the run is named in `unsealed`.
    sealed: dict[str, dict[str, bytes]] = {}
    unsealed: list[str] = []
    streams: list[StreamCommit] = []  # of a node; at most one for each stream
    #: Of what was asked for and is in this batch. An answer replaces what stands under its key:
    #: whoever hands it in knows that no other request has the key.
    requests: list[RequestRecord] = []
    #: Runs that wait, and have news that whoever writes this cannot take in for them: those whose
    #: head says `waiting` are `running` from here on, so that recovery brings them back. None of
    #: them has a commit in this batch.
    to_recover: list[str] = []


class Forgotten(msgspec.Struct, frozen=True):
    """What a purge deleted, or would delete."""

    runs: int = 0
    payloads: int = 0
    bytes: int = 0  # of their events, snapshots and payloads


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """Room in a store that nothing uses."""

    given_back: int = 0  # bytes that the store takes less now
    unused: int = 0  # bytes that it still takes, and will use again
    in_steps: bool = True  # False: only a rebuild of the store can give them back


class HeadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list, newest first. `run_prefix` serves people who type the first letters."""

    statuses: Sequence[str] = ()
    dialect: str | None = None
    name: str | None = None
    labels: Mapping[str, str] = {}
    run_prefix: str = ""
    #: Words. Each must be part of the id, the name, a label (`key=value`) or the reason of a run;
    #: A to Z are the same as a to z.
    search: str = ""
    parent: str | None = None
    redriven: bool | None = None  # only runs that another redrives, or only those that none does
    before: tuple[int, str] | None = None  # (created_at, run) of the last one already seen
    ended_before: int | None = None  # only finished runs, last touched before that
    created_after: int | None = None  # only runs begun at that instant or later
    created_before: int | None = None  # only runs begun before that instant
    limit: int = 50


class DefinitionRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of definitions of one name. Of those that have ended, half took `p50_ms` at most, and
    nineteen of twenty `p95_ms`; None where none has."""

    name: str
    statuses: Mapping[str, int]  # status → how many
    p50_ms: int | None = None
    p95_ms: int | None = None


class RunHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that began since an instant, counted."""

    slots: Mapping[tuple[int, str], int]  # (created_at // width, status) → how many
    definitions: Sequence[DefinitionRuns]  # in the order of their names


class Journal(Protocol):
    def commit(self, batch: Batch) -> None:
        """Write the batch durably.

        Raises `Conflict` and writes nothing when some run's log does not end just before the
        commit's first event (a commit whose events start at 1 creates the run). The same holds for
        streams.
        """

    def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Record]:
        """The rows of a run with events numbered above `after`, in order; empty if none.

        With `limit` only the first so many of them, for logs too long to be read at once.
        """

    def weight(self, run: str, after: int, limit: int) -> tuple[int, int]:
        """How many rows, and how many bytes of events, that `read` would return."""

    def read_many(self, runs: Sequence[str]) -> Mapping[str, Tail]:
        """For each run its newest snapshot and the rows after it, in few statements."""


class Heads(Protocol):
    def head(self, run: str) -> Head | None: ...

    def heads(self, wanted: HeadFilter) -> list[Head]: ...

    def runs_known(self, runs: Sequence[str]) -> Mapping[str, bool]:
        """Of those of these runs that are here, whether they have finished."""

    def unfinished(
        self, after: str = "", limit: int = 1000, partitions: Collection[int] | None = None
    ) -> list[Head]:
        """Heads of unfinished runs in order of run id, for recovery in pages; with `partitions`
        only those of a shared store that are in these."""

    def redrives(self, runs: Sequence[str]) -> list[Head]:
        """The runs that redrive one of these, newest first."""

    def run_slots(self, wanted: HeadFilter, width: int) -> Mapping[tuple[int, str], int]:
        """How many of the runs that the filter finds began in which slot of so many milliseconds
        (`created_at // width`), by status; `before` and `limit` of the filter do not count."""

    def run_history(self, since: int, width: int) -> RunHistory:
        """All runs that began at that instant or later."""

    def unfinished_counts(self) -> Mapping[str, int]:
        """status → how many runs that have not ended (served by an index)."""

    def waiting_longest(self, limit: int) -> list[Head]:
        """Unfinished runs that wait for something, those first that have not moved for longest."""

    def due(self, now: int, limit: int = 1000) -> list[Head]:
        """Unfinished runs with `next_wake <= now`, earliest first (served by an index)."""


class Definitions(Protocol):
    def put_definition(self, definition: Definition) -> None:
        """Keep it by fingerprint; a second put of the same fingerprint changes nothing."""

    def definition(self, fingerprint: str) -> Definition | None: ...

    def definitions(self, wanted: DefinitionFilter) -> list[DefinitionCard]: ...


class Payloads(Protocol):
    def put_payload(self, sha256: str, content: bytes, hold: Hold | None = None) -> None:
        """Refuses content that does not match its hash (`StoreError`).

        The hold is written with it, also when the content is there already. A payload that nobody
        ever held stays for good.
        """

    def payload(self, sha256: str) -> bytes | None:
        """The content, checked against its hash on the way out (`UnusableStore` if it differs)."""

    def holds_payload(self, sha256: str, runs: Sequence[str]) -> bool:
        """Whether one of these runs has a hold on it; the run "" stands for what is permanent."""

    def held(self, run: str, after: str = "", limit: int = 1000) -> list[Hold]:
        """The holds of a run on payloads with a hash above `after`, in order, in pages of whole
        hashes: a hash whose holds would not fit is left to the next page."""


class Retention(Protocol):
    """Deleting what is not needed any more. Content is shared: the last hold decides."""

    def expire(self, now: int, limit: int = 1000) -> int:
        """Drop up to `limit` holds that are over, and the payloads that nobody holds since then;
        returns how many payloads are gone. Costs next to nothing when there are none."""

    def forget(self, runs: Sequence[str], *, dry_run: bool = False) -> Forgotten:
        """Delete finished runs with everything that belongs to them; unfinished ones are left."""

    def give_back(self, most: int) -> Space:
        """Give up to so many bytes of unused room back, in one short transaction."""


class Seals(Protocol):
    """Secrets of runs. They are in no log, no snapshot and no statistics."""

    def sealed(self, run: str) -> Mapping[str, bytes]:
        """What was sealed for this run; empty when it has ended. Written by `commit` alone.

        What is unsealed is wiped as far as the store can: not only unlinked, overwritten.
        """


class SessionNumbers(Protocol):
    """Which session of an owner has which number: 1, 2, 3 …, each given out once and for good,
    whatever becomes of the run."""

    def next_session_number(self, owner: str) -> int:
        """The number that the next session of this owner gets."""

    def take_session_number(self, owner: str, run: str, wanted: int | None = None) -> int | None:
        """Give the next number to this run; None when another than the next one is wanted."""

    def give_back_session_number(self, owner: str, number: int, run: str) -> None:
        """The run did not begin after all. Only the newest number can be given back."""

    def session_run(self, owner: str, number: int) -> str | None: ...


class MailboxStore(Protocol):
    """How a second process reaches the engine that owns the store."""

    def post(self, run: str, body: bytes, now: int, nonce: str = "") -> int:
        """Raises `StoreError` with the code `no_answer` where it may have been written all the
        same: who says it again with the same nonce says it once, and gets the same id. (A store
        whose every end is seen has no use for a nonce.)"""

    def unanswered(self, limit: int = 100) -> list[Message]:
        """Oldest first; of a shared store those to runs in partitions that this server owns."""

    def message(self, message_id: int) -> Message | None: ...

    def changed(self) -> bool:
        """Cheap: may somebody else have written since the last call? (True when unsure.)"""


class Store(
    Journal, Heads, Definitions, Payloads, Retention, Seals, SessionNumbers, Grants, MailboxStore,
    Feed, Hooks, Access, CredentialStore, CatalogStore, WorkLogs, Records, Admissions, Protocol,
):  # fmt: skip
    #: Where several servers share the store: the partitions, and who owns them.
    cluster: Cluster | None

    @property
    def node_streams(self) -> Streams | None:
        """The state of a node; None where several servers share the store, which a node cannot."""

    def acquire(self, owner: str) -> None:
        """Become the one engine on this store, or raise `StoreInUse` naming the owner."""

    def release(self) -> None: ...

    def owner(self) -> str | None:
        """Who holds the store now, if anybody does."""

    def statistics(self) -> Mapping[str, Any]:
        """Numbers for people: runs by status, rows, bytes."""

    def close(self) -> None: ...


def total_events(records: Iterable[Record]) -> int:
    return sum(record.count for record in records)

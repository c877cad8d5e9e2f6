"""A run in memory, and how the log brings it there: snapshot plus tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from anabranch.errors import DamagedRun
from anabranch.expressions.budget import do_beside
from anabranch.kernel import events as e
from anabranch.kernel.empty import EMPTY
from anabranch.kernel.replay import replay
from anabranch.kernel.state import State, encode_state
from anabranch.net.net import Net
from anabranch.runtime.metrics.job_counters import JobCounters
from anabranch.runtime.nets import Nets
from anabranch.runtime.values.sealing import Sealed, opened
from anabranch.store.damage import events_of, require_end, require_next, require_sound, state_in
from anabranch.store.ports import Head, Record, StateSnapshot, Store, Tail

T = TypeVar("T")
SHORT_LOG = 100  # events

#: What an event takes in the log, about. Snapshots are as rare as makes them no larger together.
BYTES_PER_EVENT = 64


class LiveRun(msgspec.Struct, gc=False):
    """A run in memory."""

    net: Net
    state: State
    snapshot_seq: int = 0
    snapshot_bytes: int = 0
    log_bytes: int = 0  # of all its events
    overrun: bool = False  # it was told so
    idle_since: int = 0
    holds_refs: bool = False  # some result of it is too large to travel
    sealed: Sealed = msgspec.field(default_factory=Sealed)
    fresh: list[e.Event] | tuple[()] = ()  # recorded in this turn, not yet sealed
    at_work: dict[str, tuple[JobCounters, int]] = EMPTY  # job → kind, since when


class StoredRuns:
    """Unfinished runs of the store, as an engine has them in memory."""

    def __init__(self, store: Store, nets: Nets) -> None:
        self._store = store
        self._nets = nets

    def read(self, head: Head) -> Tail:
        return self._do(head, lambda: self._store.read_many([head.run])[head.run])

    def load(self, head: Head, snapshot: StateSnapshot | None, tail: Sequence[Record]) -> LiveRun:
        """Raises `DamagedRun` where they do not agree."""
        require_sound(head)
        net, state = self._do(
            head, lambda: (self._nets.get(head.definition), load_state(snapshot, tail, head.run))
        )
        require_end(head, state)
        live = LiveRun(net, state)
        if net.sealed or state.sealed:
            live.sealed = opened(self._store.sealed(head.run), head.run)
        live.holds_refs = True  # perhaps; whoever builds its tasks looks
        return live

    def _do(self, head: Head, work: Callable[[], T]) -> T:
        """A short log of a known definition is read before another thread would begin with it."""
        short = head.seq <= SHORT_LOG and self._store.cluster is None
        near = short and self._nets.known(head.definition) is not None
        return work() if near else do_beside(work)


def take_snapshot(live: LiveRun, every: int) -> bytes | None:
    """Worth taking when replaying the tail would cost more than decoding the state. None of a state
    that no store holds: its log brings it back."""
    worth = max(every, live.snapshot_bytes // BYTES_PER_EVENT)
    if live.state.seq - live.snapshot_seq < worth:
        return None
    snapshot = encode_state(live.state)
    live.snapshot_seq, live.snapshot_bytes = live.state.seq, len(snapshot)
    return snapshot if len(snapshot) <= e.VALUE_BYTES_MAX else None


def load_state(snapshot: StateSnapshot | None, tail: Sequence[Record], run: str) -> State:
    """Snapshot plus tail; raises `DamagedRun` where they are not what was written."""
    state = state_in(run, snapshot) if snapshot is not None else State()
    return replayed(tail, state, run)


def replayed(tail: Sequence[Record], state: State, run: str) -> State:
    """The state with the events of these rows that it does not have yet."""
    pairs = history(tail, state.seq, run)
    try:
        return replay(pairs, state)
    except Exception as error:  # events that decode, and that never follow each other
        what = f"its log cannot be replayed behind event {state.seq} ({error!r:.120})"
        raise DamagedRun(run, what) from error


def history(records: Sequence[Record], after: int = 0, run: str = "") -> list[tuple[int, e.Event]]:
    """The (instant, event) pairs of log rows, without those up to number `after`.

    Raises `DamagedRun` for a row that cannot be decoded or does not follow the one before it.
    """
    pairs: list[tuple[int, e.Event]] = []
    for record in records:
        require_next(run, record, after)
        skip = after + 1 - record.first_seq
        pairs.extend((record.at, event) for event in events_of(run, record)[skip:])
        after = record.first_seq + record.count - 1
    return pairs

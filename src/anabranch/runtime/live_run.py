"""A run in memory, and how the log brings it there: snapshot plus tail."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anabranch.errors import DamagedRun
from anabranch.kernel import events as e
from anabranch.kernel.empty import EMPTY
from anabranch.kernel.replay import replay
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.runtime.metrics.job_counters import JobCounters
from anabranch.runtime.values.sealing import Sealed
from anabranch.store.damage import events_of, require_next, state_in
from anabranch.store.ports import Record, StateSnapshot


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

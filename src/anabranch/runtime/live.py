"""A run in memory, and how the log brings it there: snapshot plus tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.kernel import events as e
from anabranch.kernel.replay import replay
from anabranch.kernel.state import State, decode_state
from anabranch.net.net import Net
from anabranch.runtime.sealing import Sealed
from anabranch.store.ports import Record, Snapshot

if TYPE_CHECKING:
    from anabranch.runtime.pulse import Kind


@dataclass(slots=True)
class LiveRun:
    """A run in memory."""

    net: Net
    state: State
    snapshot_seq: int = 0
    snapshot_bytes: int = 0
    idle_since: int = 0
    holds_refs: bool = False  # some result of it is too large to travel
    sealed: Sealed = field(default_factory=Sealed)
    fresh: list[e.Event] = field(default_factory=list)  # recorded in this turn, not yet sealed
    at_work: dict[str, tuple[Kind, int]] = field(default_factory=dict)  # job → kind, since when


def load_state(snapshot: Snapshot | None, tail: Sequence[Record]) -> State:
    """Snapshot plus tail."""
    state = decode_state(snapshot.state) if snapshot is not None else State()
    return replay(history(tail, after=state.seq), state)


def history(records: Sequence[Record], after: int = 0) -> list[tuple[int, e.Event]]:
    """The (instant, event) pairs of log rows, without those up to number `after`."""
    pairs: list[tuple[int, e.Event]] = []
    for record in records:
        skip = max(0, after + 1 - record.first_seq)
        pairs.extend((record.at, event) for event in e.decode_events(record.events)[skip:])
    return pairs

"""Rows that cannot be what was written: recognised in one place, with the run named.

A disk, a copy of a live file or a hand at the database can change a row in ways that SQLite does
not notice. Whoever reads a row through these functions gets what it stands for, or `DamagedRun`.
"""

from __future__ import annotations

from typing import get_args

from anabranch.errors import DamagedRun
from anabranch.kernel import events as e
from anabranch.kernel.state import State, decode_state
from anabranch.literals import RunStatus
from anabranch.store.ports import Head, Record, StateSnapshot

_STATUSES = frozenset(get_args(RunStatus))
_QUOTED = 120  # letters of what the decoder says


def events_of(run: str, record: Record) -> list[e.Event]:
    """The events of one row of the log."""
    try:
        events = e.decode_events(record.events)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise DamagedRun(run, f"{_row(record)} cannot be decoded ({error!s:.{_QUOTED}})") from error
    if len(events) != record.count:
        raise DamagedRun(run, f"{_row(record)} holds {len(events)} events")
    return events


def require_next(run: str, record: Record, after: int) -> None:
    """Raises unless event `after + 1` is in this row: the log has no gaps."""
    if not record.first_seq <= after + 1 < record.first_seq + record.count:
        raise DamagedRun(run, f"{_row(record)} stands where event {after + 1} is expected")


def state_in(run: str, snapshot: StateSnapshot) -> State:
    """The state that was kept in a snapshot."""
    try:
        state = decode_state(snapshot.state)
    except (ValueError, RecursionError) as error:
        what = f"its snapshot at event {snapshot.seq} cannot be decoded"
        raise DamagedRun(run, f"{what} ({error!s:.{_QUOTED}})") from error
    if (state.run, state.seq) != (run, snapshot.seq):
        what = f"its snapshot says event {snapshot.seq}, and holds run {state.run!r:.80}"
        raise DamagedRun(run, f"{what} at event {state.seq}")
    return state


def damage_of(head: Head) -> str:
    """What is wrong with the index card of a run, or nothing."""
    if head.damage:
        return head.damage
    if head.status not in _STATUSES:
        return f"its head has the status {head.status!r:.80}, which does not exist"
    return ""


def require_sound(head: Head) -> None:
    if what := damage_of(head):
        raise DamagedRun(head.run, what)


def require_end(head: Head, state: State) -> None:
    """Raises unless the log ends where the index card says; for the engine, which writes both."""
    if state.seq != head.seq:
        what = f"its head says that the log ends at event {head.seq}, and it ends at {state.seq}"
        raise DamagedRun(head.run, what)


def require_reached(head: Head, state: State) -> None:
    """The same for those who read beside an engine: the log may have grown since the head."""
    if state.seq < head.seq:
        require_end(head, state)


def _row(record: Record) -> str:
    last = record.first_seq + record.count - 1
    return f"the row of its log with events {record.first_seq} to {last}"

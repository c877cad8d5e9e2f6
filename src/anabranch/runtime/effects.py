"""What must be done in the world once a turn is durable, and never before."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from anabranch.errors import AnabranchError
from anabranch.kernel.events import Event
from anabranch.kernel.state import State
from anabranch.store.admission_ports import Admission
from anabranch.store.ports import Batch


class Execute(msgspec.Struct, frozen=True, gc=False):
    """Carry out this attempt of this job."""

    run: str
    job: str
    attempt: int


class Stop(msgspec.Struct, frozen=True, gc=False):
    """Whoever carries it out stops; `discharge` says whether the kernel waits to hear of it."""

    run: str
    job: str
    attempt: int
    ticket: str = ""
    discharge: bool = True
    outside: bool = False  # a worker elsewhere has it, and hears of it when it asks
    abandoned: bool = False  # it was told, and did not: whatever its attempt, it is left behind


class DurableEvents(msgspec.Struct, frozen=True, gc=False):
    """These events of a run are durable now."""

    run: str
    first_seq: int
    at: int
    events: Sequence[Event]
    status: str
    final: State | None  # the state of a run that has just finished
    row: bytes  # the events as they are in the log


class Replied(msgspec.Struct, frozen=True):
    """The answer to whoever sent a stimulus: nothing, or why it was refused."""

    ticket: int
    error: AnabranchError | None = None
    run: str = ""
    message: int = 0  # of another process; its answer is in the same batch as the effect


class SeekPlaces(msgspec.Struct, frozen=True):
    """The run is recorded as queued: it may ask for its places."""

    run: str
    asked: Sequence[Admission]


class LeavePlaces(msgspec.Struct, frozen=True):
    """A run with limits has ended: others may have its places."""

    run: str
    keys: Sequence[str]


Effect = Execute | Stop | DurableEvents | Replied | SeekPlaces | LeavePlaces


class Turned(msgspec.Struct):
    """What a turn of the engine came to: what is written, and what leaves once it is."""

    batch: Batch
    effects: list[Effect]

    @property
    def empty(self) -> bool:
        """Nothing is to be written, and nothing to leave."""
        batch = self.batch
        written = batch.commits or batch.answers or batch.payloads or batch.requests
        return not (written or self.effects)

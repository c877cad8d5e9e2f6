"""Lanes: how many jobs of a kind may be at work at once, and who is next.

A job waits here as `scheduled`; its timeout starts only when it leaves. Within a lane the job of
the run with the highest priority goes first; otherwise it is first come, first served. Nothing
here is durable: the log says what is scheduled, and recovery reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from functools import partial
from heapq import heappop, heappush
from typing import Protocol

import msgspec

from anabranch.settings import Settings
from anabranch.work.kinds.callables import ThreadTool
from anabranch.work.kinds.python.places import places_of
from anabranch.work.port import Performer

THREADS = "(threads)"  # no kind is called that
LANES_KEPT = 1000  # without jobs: where pools are served here, a kind may have any name


class Room(Protocol):
    """How many jobs of a lane may be at work, where that changes with what they do."""

    @property
    def size(self) -> int: ...

    def watch(self, is_wanted: Callable[[], bool], on_room: Callable[[], None]) -> None: ...

    def look_soon(self) -> None: ...


class ReadyJob(msgspec.Struct, frozen=True, gc=False):
    run: str
    job: str
    attempt: int


class RankedQueue:
    """A queue of which some jobs are more urgent: the highest priority first, then first come."""

    def __init__(self, waiting: Iterable[ReadyJob] = ()) -> None:
        self._heap: list[tuple[int, int, ReadyJob]] = []
        self._count = 0
        for ready in waiting:
            self.push(ready, 0)

    def push(self, ready: ReadyJob, priority: int) -> None:
        self._count += 1
        heappush(self._heap, (-priority, self._count, ready))

    def popleft(self) -> ReadyJob:
        return heappop(self._heap)[2]

    def __len__(self) -> int:
        return len(self._heap)


class JobQueues:
    """`shared` names the lane of kinds that share one; every other kind has its own. A lane has a
    limit, or a room that says how many may be at work just now, or neither."""

    def __init__(
        self,
        total: int = 1000,
        limits: Mapping[str, int] | None = None,
        shared: Mapping[str, str] | None = None,
        rooms: Mapping[str, Room] | None = None,
    ) -> None:
        self._total = total
        self._limits = dict(limits or {})
        self._shared = dict(shared or {})
        self._rooms = dict(rooms or {})
        self._queues: dict[str, deque[ReadyJob] | RankedQueue] = {}
        self._used: dict[str, int] = {}
        self._holders: dict[tuple[str, str], str] = {}  # (run, job) → lane

    def watch_rooms(self, on_room: Callable[[], None]) -> None:
        """`on_room` is called when a room has grown for which jobs wait."""
        for lane, room in self._rooms.items():
            room.watch(partial(self._is_wanted, lane), on_room)

    def _is_wanted(self, lane: str) -> bool:
        return bool(self._queues.get(lane))

    def add(self, run: str, job: str, attempt: int, kind: str, priority: int = 0) -> None:
        lane = self._shared.get(kind, kind)
        queue = self._queues.get(lane)
        if queue is None:
            queue = self._queues[lane] = deque()
        if not priority and isinstance(queue, deque):
            queue.append(ReadyJob(run, job, attempt))
            return
        if isinstance(queue, deque):
            queue = self._queues[lane] = RankedQueue(queue)
        queue.push(ReadyJob(run, job, attempt), priority)

    def can_start(self) -> bool:
        for lane, queue in self._queues.items():  # noqa: SIM110 - asked twice a turn
            if queue and self._room(lane):
                return True
        return False

    def _room(self, lane: str) -> bool:
        if len(self._holders) >= self._total:
            return False
        room = self._rooms.get(lane)
        limit = self._limits.get(lane) if room is None else room.size
        if limit is None or self._used.get(lane, 0) < limit:
            return True
        if room is not None:
            room.look_soon()
        return False

    def take(self) -> Iterator[ReadyJob]:
        """Jobs that may start now; each holds a place until it is freed."""
        for lane in list(self._queues):  # places are freed meanwhile
            queue = self._queues[lane]
            while queue and self._room(lane):
                ready = queue.popleft()
                if (ready.run, ready.job) in self._holders:
                    continue  # queued twice: once by its event, once by a resume
                self._holders[ready.run, ready.job] = lane
                self._used[lane] = self._used.get(lane, 0) + 1
                yield ready

    def free(self, run: str, job: str) -> None:
        lane = self._holders.pop((run, job), None)
        if lane is not None:
            self._used[lane] -= 1
            if len(self._queues) > LANES_KEPT and not (self._used[lane] or self._queues[lane]):
                del self._used[lane], self._queues[lane]

    def forget(self, runs: Set[str]) -> None:
        """The runs are set aside, or another server's: whatever places they still hold are free."""
        for holder in [key for key in self._holders if key[0] in runs]:
            self.free(*holder)

    def in_use(self) -> dict[str, int]:
        """Places taken, by lane."""
        return dict(self._used)

    def waiting(self) -> dict[str, int]:
        """Jobs that wait for a place, by lane; some may be over already."""
        return {lane: len(queue) for lane, queue in self._queues.items()}

    @property
    def at_work(self) -> int:
        return len(self._holders)

    @property
    def places(self) -> int:
        """How many jobs there may be at work at once."""
        return self._total

    @property
    def queued(self) -> int:
        return sum(len(queue) for queue in self._queues.values())


def job_queues_for(settings: Settings, performers: Mapping[str, Performer]) -> JobQueues:
    """Some kinds occupy something scarce while they run; blocking callables share the threads."""
    limits = {
        "python": settings.processes_max,
        "shell": settings.shells_max,
        THREADS: settings.threads_max,
    }
    inner = {kind: getattr(one, "inner", one) for kind, one in performers.items()}
    places = {kind: places_of(one) for kind, one in performers.items()}
    rooms = {kind: room for kind, room in places.items() if room is not None}
    shared = {kind: THREADS for kind, one in inner.items() if isinstance(one, ThreadTool)}
    shared |= dict.fromkeys(("script", "container"), "shell")
    return JobQueues(settings.jobs_max, limits, shared, rooms)

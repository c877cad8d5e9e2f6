"""How many processes of inline code may be at work at once, and who is next.

As many as there are cores may compute. One that waits for something else (an answer, a file, the
clock) takes no core from the others, so there is a place more for each of these, up to a bound.
They are looked at now and then, as long as somebody wants a place: a process waits that sleeps and
has used less than half of a core since the last look. One that is only kept from a core by others
does not sleep.

Runs take turns: each has a queue of its own, so that a run with a thousand jobs does not keep out
the one job of another.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable

import msgspec

from anabranch.work.kinds.commands.descendants import ProcessorUse, processor_use
from anabranch.work.run_at_work import run_at_work

LOOK_SECONDS = 0.05
#: Where nothing tells how much a process computes, one that takes so long is held to be waiting.
LONG_SECONDS = 1.0


class Place(msgspec.Struct, eq=False):
    """Of a process at work, from the moment in which its job may have one."""

    run: str
    step: str
    since: float  # of the clock that only goes forward, as event loops have it
    pid: int = 0
    waits: bool = False  # for something else than a core


class Places:
    """The places of one event loop: one at least, `most` at most."""

    def __init__(self, most: int, cores: int | None = None) -> None:
        self.most = most
        self.cores = min(cores or max(2, os.cpu_count() or 1), most)
        self._taken: set[Place] = set()
        self._queue = _TurnQueue()
        self._uses: dict[int, ProcessorUse | None] = {}  # at the last look, by pid
        self._waiting_pids: set[int] = set()  # at the last look
        self._looked_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_wanted: Callable[[], bool] = bool
        self._on_room: Callable[[], None] = _do_nothing

    def watch(self, is_wanted: Callable[[], bool], on_room: Callable[[], None]) -> None:
        """Somebody keeps jobs back until there is a place: `is_wanted` says whether there are any,
        and `on_room` is called when there may be one."""
        self._is_wanted, self._on_room = is_wanted, on_room

    @property
    def size(self) -> int:
        """How many there are just now."""
        return min(self.most, self.cores + sum([place.waits for place in self._taken]))

    @property
    def taken(self) -> list[Place]:
        """The longest first. Any thread may ask."""
        return sorted(self._taken.copy(), key=lambda place: place.since)

    def queued(self, run: str | None = None, step: str | None = None) -> int:
        """How many jobs wait here for a place, of a run or of a step of it. Any thread may ask."""
        return self._queue.count(run, step)

    async def take(self, step: str) -> Place:
        """A place, as soon as it is the turn of the run at work."""
        place: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        ticket = _Ticket(run_at_work.get(), step, place)
        self._queue.add(ticket)
        self._let_in()
        if not place.done():
            self.look_soon()
        try:
            return await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.free(place.result())  # it came too late
            raise

    def begin(self, place: Place, pid: int) -> None:
        """The job goes to this process."""
        place.pid, place.waits = pid, pid in self._waiting_pids

    def free(self, place: Place) -> None:
        self._taken.discard(place)
        self._let_in()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def look_soon(self) -> None:
        """Somebody wants a place and there is none."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._timer, loop = None, asyncio.get_running_loop()
        self._see_who_waits(loop.time())
        self._let_in()
        if len(self._taken) < self.size:
            self._on_room()
        if self._queue.count() or self._is_wanted():
            self.look_soon()

    def _see_who_waits(self, now: float) -> None:
        passed = now - self._looked_at
        before = self._uses if passed < LONG_SECONDS else {}
        self._looked_at = now
        self._uses = {place.pid: processor_use(place.pid) for place in self._taken if place.pid}
        for place in self._taken:
            use, last = self._uses.get(place.pid), before.get(place.pid)
            if use is None:
                place.waits = place.pid > 0 and now - place.since > LONG_SECONDS
            elif last is not None:
                place.waits = use.sleeps and use.seconds - last.seconds < passed / 2
        self._waiting_pids = {place.pid for place in self._taken if place.waits}

    def _let_in(self) -> None:
        while len(self._taken) < self.size and (ticket := self._queue.next()) is not None:
            place = Place(ticket.run, ticket.step, ticket.place.get_loop().time())
            self._taken.add(place)
            ticket.place.set_result(place)


class _Ticket(msgspec.Struct, eq=False):
    run: str
    step: str
    place: asyncio.Future[Place]


class _TurnQueue:
    """One queue for each run; the runs take turns."""

    def __init__(self) -> None:
        self._tickets: dict[str, deque[_Ticket]] = {}  # the run whose turn it is comes first

    def add(self, ticket: _Ticket) -> None:
        self._tickets.setdefault(ticket.run, deque()).append(ticket)

    def next(self) -> _Ticket | None:
        """Taken out of the queue; those whose job was stopped meanwhile go by the board."""
        while self._tickets:
            run = next(iter(self._tickets))
            tickets = self._tickets.pop(run)
            ticket = tickets.popleft()
            if tickets:
                self._tickets[run] = tickets
            if not ticket.place.done():
                return ticket
        return None

    def count(self, run: str | None = None, step: str | None = None) -> int:
        queues = list(self._tickets.values()) if run is None else [self._tickets.get(run, ())]
        waiting = [one for queue in queues for one in list(queue) if not one.place.done()]
        return len(waiting) if step is None else sum([one.step == step for one in waiting])


def places_of(performer: object) -> Places | None:
    """Of one that has some; it may be wrapped in another that limits its rate."""
    places: Places | None = getattr(getattr(performer, "inner", performer), "places", None)
    return places


def _do_nothing() -> None:
    pass

"""A compute cluster in virtual time, behind the port of the real ones, with all that goes wrong.

`SimulatedCluster` is the scheduler with its workers, `SimulatedBackend` the client of one engine.
What the work does is for `Work` to say: `Answering` answers each job with a function, without doing
anything, so that loops of any size can be played; `cluster_work.Entries` does jobs with the entry
that real clusters run.

Workers die, the cluster begins by itself again what it has lost, results come twice, late, or after
they were said to be lost, nobody hears that they should stop, the scheduler restarts, the cluster
is gone for an hour, or accepts and begins nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from random import Random
from typing import Protocol

import msgspec

from anabranch.pools.answers import JobAnswer, worded
from anabranch.pools.assignment import Assignment, Outcome, decode_assignment, encode_outcome
from anabranch.pools.backend import (
    BackendAway,
    CameBack,
    Capacity,
    Event,
    Finished,
    Lost,
    Progressed,
    Started,
    WentAway,
)

#: Do this after so many seconds.
Later = Callable[[float, Callable[[], None]], object]


class ClusterFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities, of each job that begins, is told to stop, or ends."""

    worker_dies: float = 0.0  # with the job, somewhere in its middle
    begins_again: float = 0.0  # of those: the cluster begins the job again by itself
    forgotten: float = 0.0  # said to be lost, and comes to its end all the same
    result_slow: float = 0.0  # on its way for up to a minute
    result_twice: float = 0.0
    stop_unheard: float = 0.0


class Running(Protocol):
    """A job at work in a process."""

    def stop(self) -> None:
        """It is told to; it ends soon, or when it likes."""

    def kill(self) -> None:
        """Its process is gone: nothing is heard of it any more."""


class Work(Protocol):
    """What the processes of a cluster do."""

    def begin(
        self,
        process: str,
        blob: bytes,
        tell: Callable[[bytes], None],
        end: Callable[[bytes], None],
    ) -> Running:
        """`tell` takes its progress, `end` what it came to."""

    def lose(self, process: str) -> None:
        """The process is gone."""


class Answering:
    """Jobs are answered by a function when their time is over, and never done."""

    def __init__(
        self,
        later: Later,
        answer: Callable[[Assignment], JobAnswer],
        seconds: Callable[[Assignment], float] = lambda _given: 1.0,
    ) -> None:
        self._later = later
        self._answer = answer
        self._seconds = seconds

    def begin(
        self,
        process: str,
        blob: bytes,
        tell: Callable[[bytes], None],  # noqa: ARG002 - it has nothing to tell
        end: Callable[[bytes], None],
    ) -> Running:
        given = decode_assignment(blob)
        verb, body = worded(self._answer(given))
        had = [given.definition, given.names, *given.needs]  # a process keeps what it has seen
        said = encode_outcome(Outcome(verb=verb, body=body, process=process, had=had))
        job = _Answered(end)
        self._later(self._seconds(given), lambda: job.over(said))
        return job

    def lose(self, process: str) -> None:
        pass


class _Answered:
    def __init__(self, end: Callable[[bytes], None]) -> None:
        self._end: Callable[[bytes], None] | None = end

    def over(self, said: bytes) -> None:
        if self._end is not None:
            self._end(said)

    def stop(self) -> None:
        if self._end is not None:
            self._end(encode_outcome(Outcome(verb="release", body={"reason": "told to stop"})))
        self._end = None

    def kill(self) -> None:
        self._end = None


class _Task:
    """A ticket of one client, as the scheduler has it."""

    def __init__(self, client: SimulatedBackend, ticket: str, blob: bytes) -> None:
        self.client = client
        self.ticket = ticket
        self.blob = blob
        self.worker: _Worker | None = None
        self.job: Running | None = None
        self.known = True  # the scheduler has it; otherwise its worker goes on alone
        self.withdrawn = False  # its client believes so


class _Worker:
    def __init__(self, name: str, process: str) -> None:
        self.name = name
        self.process = process
        self.task: _Task | None = None


class SimulatedCluster:
    """`slots` workers, each a process that does one job at a time."""

    def __init__(
        self,
        later: Later,
        work: Work,
        *,
        slots: int = 2,
        dice: Random | None = None,
        faults: Callable[[], ClusterFaults] = ClusterFaults,
        began: Callable[[str], None] = lambda _ticket: None,
    ) -> None:
        """`faults` are asked for whenever one may strike; `began` hears of each start."""
        self._later = later
        self._work = work
        self._dice = dice or Random(0)
        self._faults = faults
        self._began = began
        self.tally: Counter[str] = Counter()
        self.stuck = False  # accepts, and begins nothing
        self.away = False
        self.life = 0  # how often the scheduler was restarted
        self._processes = 0
        self._names = 0
        self._queue: OrderedDict[_Task, None] = OrderedDict()
        self._idle: dict[_Worker, None] = {}
        self._tasks: dict[tuple[int, str], _Task] = {}
        self._clients: dict[int, SimulatedBackend] = {}
        self._workers: dict[_Worker, None] = {}
        self.resize(slots)

    # -- for its clients ---------------------------------------------------------------------

    def capacity(self) -> Capacity:
        count = len(self._workers)
        return Capacity(slots=count, workers=count, queued=len(self._queue), version="0")

    @property
    def out(self) -> int:
        """Tickets that the scheduler has."""
        return len(self._tasks)

    def out_of(self, client: SimulatedBackend) -> int:
        """Those that this client believes to be out."""
        mine = (task for task in self._tasks.values() if task.client is client)
        return sum(not task.withdrawn for task in mine)

    def connect(self, client: SimulatedBackend) -> None:
        if self.away:
            raise BackendAway("the simulated cluster does not answer")
        self._clients[id(client)] = client

    def disconnect(self, client: SimulatedBackend) -> None:
        """As when its process has ended: the scheduler forgets its tickets; what runs is told to
        stop, and may not hear it."""
        self._clients.pop(id(client), None)
        for task in [one for one in self._tasks.values() if one.client is client]:
            self._forget(task)
            if task.job is not None and not self._strikes("stop_unheard"):
                task.job.stop()

    def submit(self, client: SimulatedBackend, ticket: str, blob: bytes) -> None:
        task = self._tasks[id(client), ticket] = _Task(client, ticket, blob)
        self._queue[task] = None
        if self._idle:
            self._later(0.0, self.go_on)

    def cancel(self, client: SimulatedBackend, tickets: Collection[str], *, force: bool) -> None:
        for ticket in tickets:
            task = self._tasks.get((id(client), ticket))
            if task is None:
                continue
            if task.job is None:
                task.withdrawn = True
                if not self._strikes("stop_unheard"):
                    self._forget(task)
            elif task.worker is None or task.worker.task is not task:
                task.withdrawn = force  # it has ended, and its worker has other work
            elif force:
                self._forget(task)
                self._restart(task.worker)
                client.tell(Lost(ticket, "stopped by force", worker=False))
            else:
                task.withdrawn |= not client.knows_begun(ticket)
                if not self._strikes("stop_unheard"):
                    task.job.stop()

    # -- work --------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Begin what can be begun."""
        while self._queue and self._idle and not (self.stuck or self.away):
            worker = next(iter(self._idle))
            del self._idle[worker]
            self._begin(self._queue.popitem(last=False)[0], worker)

    def _begin(self, task: _Task, worker: _Worker) -> None:
        task.worker, worker.task = worker, task
        task.client.tell(Started(task.ticket, worker.name, worker.process))
        self._began(task.ticket)
        task.job = self._work.begin(
            worker.process,
            task.blob,
            lambda said: self._progressed(task, worker, said),
            lambda said: self._ended(task, worker, said),
        )
        if self._strikes("worker_dies"):
            seconds = self._dice.choice((0.1, 3.0, 20.0))
            self._later(seconds, lambda: self._dies(worker, task))
        elif self._strikes("forgotten"):
            seconds = self._dice.choice((0.1, 3.0, 20.0))
            self._later(seconds, lambda: self._says_lost(task))

    def _progressed(self, task: _Task, worker: _Worker, said: bytes) -> None:
        if task.known and task.worker is worker:
            task.client.tell(Progressed(task.ticket, said))

    def _ended(self, task: _Task, worker: _Worker, said: bytes) -> None:
        if worker.task is task:
            worker.task = None
            if worker in self._workers:
                self._idle[worker] = None
                self._later(0.0, self.go_on)
        if self._clients.get(id(task.client)) is not task.client:
            return  # nobody hears of it
        if task.known and task.worker is not worker:
            return  # it was begun again elsewhere
        slow = self._dice.uniform(1, 60) if self._strikes("result_slow") else 0.0
        twice = self._strikes("result_twice")
        self._later(slow, lambda: self._told(task, worker, said, twice=twice))

    def _told(self, task: _Task, worker: _Worker, said: bytes, *, twice: bool) -> None:
        self._forget(task)
        for _ in range(2 if twice else 1):
            task.client.tell(Finished(task.ticket, worker.name, said))

    def _forget(self, task: _Task) -> None:
        task.known = False
        self._tasks.pop((id(task.client), task.ticket), None)
        self._queue.pop(task, None)

    # -- trouble -----------------------------------------------------------------------------

    def _strikes(self, name: str) -> bool:
        chance = getattr(self._faults(), name)
        if not chance or self._dice.random() >= chance:
            return False
        self.tally[name] += 1
        return True

    def resize(self, slots: int) -> None:
        """Workers come, or are taken away in order: they end what they do."""
        while len(self._workers) < slots:
            self._names += 1
            worker = self._new_worker(f"w{self._names}")
            self._workers[worker] = None
        for worker in list(self._workers)[slots:]:
            if worker.task is not None and worker.task.known:
                task = worker.task
                self._forget(task)
                task.client.tell(Lost(task.ticket, f"{worker.name} was taken away", worker=False))
            self._end_process(worker)
        self._later(0.0, self.go_on)

    def _new_worker(self, name: str) -> _Worker:
        self._processes += 1
        worker = _Worker(name, f"{name}-{self._processes}")
        self._idle[worker] = None
        return worker

    def _end_process(self, worker: _Worker) -> None:
        if worker.task is not None and worker.task.job is not None:
            worker.task.job.kill()
        worker.task = None
        self._workers.pop(worker, None)
        self._idle.pop(worker, None)
        self._work.lose(worker.process)

    def _restart(self, worker: _Worker | None) -> None:
        """Its process ends, and another one takes its place."""
        if worker is None or worker not in self._workers:
            return
        self._end_process(worker)
        self._workers[self._new_worker(worker.name)] = None
        self._later(0.0, self.go_on)

    def _dies(self, worker: _Worker, task: _Task) -> None:
        if worker.task is not task or worker not in self._workers:
            return  # it was quicker
        self._restart(worker)
        if not task.known:
            return
        if self._strikes("begins_again"):
            task.worker = task.job = None
            self._queue[task] = None
            self._queue.move_to_end(task, last=False)
            self._later(0.0, self.go_on)
            return
        self._forget(task)
        task.client.tell(Lost(task.ticket, f"the worker {worker.name} died", worker=True))

    def _says_lost(self, task: _Task) -> None:
        if task.known and task.job is not None:
            self._forget(task)
            worker = self._dice.random() < 0.5
            task.client.tell(Lost(task.ticket, "nothing was heard of its worker", worker=worker))

    def lose_scheduler(self, reason: str) -> None:
        """Everything it knew is gone. What runs goes on in some workers, unheard."""
        self.away = True
        for task in list(self._tasks.values()):
            self._forget(task)
            task.client.tell(Lost(task.ticket, reason, worker=False))
        for worker in list(self._workers):
            if worker.task is not None and self._dice.random() < 0.5:
                self._restart(worker)
        for client in list(self._clients.values()):
            client.tell(WentAway(reason))

    def find_scheduler(self) -> None:
        self.away = False
        self.life += 1
        for client in list(self._clients.values()):
            client.tell(CameBack())
        self.go_on()


class SimulatedBackend:
    """The client of one engine; `delay` says how long the next word takes to arrive."""

    engine = "simulated"
    address = "simulated"

    def __init__(self, cluster: SimulatedCluster, delay: Callable[[], float] = lambda: 0.0) -> None:
        self._cluster = cluster
        self._delay = delay
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_their_way: deque[Event] = deque()
        self._words: list[Event] = []
        self._due = 0.0  # when the last word that is on its way arrives
        self._life = -1  # of the scheduler that it believes to be connected with
        self._told = asyncio.Event()
        self._closed = False
        self._slots: deque[tuple[float, int]] = deque()  # as the engine was told, and when
        self.submitted: Callable[[str, bytes], None] = lambda _ticket, _blob: None

    async def open(self) -> Capacity:
        self._loop = asyncio.get_running_loop()
        await self._pass()
        self._cluster.connect(self)
        self._life = self._cluster.life
        return await self.capacity()

    async def capacity(self) -> Capacity:
        if self._cluster.away:
            raise BackendAway("the simulated cluster does not answer")
        found = self._cluster.capacity()
        self._slots.append((asyncio.get_running_loop().time(), found.slots))
        return found

    def slots_lately(self, since: float) -> int:
        """The most slots that the engine has known of since then."""
        while len(self._slots) > 1 and self._slots[1][0] <= since:
            self._slots.popleft()
        return max((slots for _, slots in self._slots), default=0)

    async def submit(self, ticket: str, blob: bytes) -> None:
        life = self._life
        await self._pass()
        if self._cluster.away or not life == self._life == self._cluster.life:
            raise BackendAway("the simulated cluster does not answer")
        self._cluster.submit(self, ticket, blob)
        self.submitted(ticket, blob)

    async def cancel(self, tickets: Collection[str], *, force: bool = False) -> None:
        await self._pass()
        self._cluster.cancel(self, tickets, force=force)

    def knows_begun(self, ticket: str) -> bool:
        """Of one that has: no such word is on its way any more."""
        unheard = (*self._on_their_way, *self._words)
        return not any(isinstance(one, Started) and one.ticket == ticket for one in unheard)

    async def events(self) -> AsyncIterator[Sequence[Event]]:
        while not self._closed:
            self._told.clear()
            if self._words:
                words, self._words = self._words, []
                yield words
            else:
                await self._told.wait()

    async def close(self) -> None:
        self.cut_off()
        self._told.set()

    def cut_off(self) -> None:
        """Its process has ended."""
        self._closed = True
        self._cluster.disconnect(self)

    async def _pass(self) -> None:
        seconds = self._delay()
        if seconds:
            await asyncio.sleep(seconds)

    def tell(self, event: Event) -> None:
        """Words arrive in the order in which they were said."""
        if self._loop is None or self._closed:
            return
        now = self._loop.time()
        self._due = max(self._due, now + self._delay())
        self._on_their_way.append(event)
        if self._due <= now and len(self._on_their_way) == 1:
            self._hear()
        else:
            self._loop.call_at(self._due, self._hear)

    def _hear(self) -> None:
        event = self._on_their_way.popleft()
        if isinstance(event, WentAway):
            self._life = -1
        elif isinstance(event, CameBack):
            self._life = self._cluster.life
        self._words.append(event)
        self._told.set()

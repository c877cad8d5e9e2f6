"""Servers whose pool is on a compute cluster, in virtual time, and all that can go wrong with both.

Servers are killed, stopped, join and leave, and share an unreliable store. The cluster loses
workers, its scheduler, or everything for an hour; see `compute_cluster`. People cancel and pause
runs and tune loops. `ComputeLaws` says what must hold all the same.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, LawBroken
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.pools.address import PoolOptions
from anabranch.store.ports import Batch
from anabranch.testing.simulated.audit import Audit
from anabranch.testing.simulated.cluster_work import Entries
from anabranch.testing.simulated.compute_cluster import (
    ClusterFaults,
    SimulatedBackend,
    SimulatedCluster,
)
from anabranch.testing.simulated.compute_definitions import POOL, Labour, Story, random_story
from anabranch.testing.simulated.compute_laws import ComputeLaws
from anabranch.testing.simulated.compute_server import LEASE_SECONDS, ComputeServer
from anabranch.testing.simulated.shared_store import UnreliableStore
from anabranch.testing.virtual.world import EPOCH
from anabranch.work.kinds.callables import Toolbox

STORM_MS = 90_000
LIMIT_MS = 6 * 3_600_000
MOVES_MAX = 1_500_000
SERVERS_MAX = 3
RECENT = 15  # events that a failure shows
HOUR_MS = 3_600_000
#: Nothing was done, so it can be asked for again; or nobody knows.
AGAIN = frozenset({"partition_lost", "run_elsewhere", "store_away", "engine_closed", "no_answer"})


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities: of a second, of a commit, of a notification."""

    kill: float = 0.02
    stop: float = 0.02  # the process is stopped, for up to two leases
    stop_midway: float = 0.0005  # the same, before or after a thread has asked the store
    join: float = 0.03
    leave: float = 0.01
    connection_lost: float = 0.01  # during a commit
    answer_lost: float = 0.01  # to a question about servers and partitions
    post_lost: float = 0.05
    notification_lost: float = 0.3
    scheduler_restarts: float = 0.01
    gone_for_an_hour: float = 0.0001
    begins_nothing: float = 0.005
    resize: float = 0.02
    people: float = 0.05


OF_SERVERS = ("kill", "stop", "join", "leave")
OF_THE_CLUSTER = ("scheduler_restarts", "gone_for_an_hour", "begins_nothing", "resize", "people")

STORMY = ClusterFaults(
    worker_dies=0.1,
    begins_again=0.4,
    forgotten=0.06,
    result_slow=0.05,
    result_twice=0.05,
    stop_unheard=0.2,
)
CALM = ClusterFaults()


class ComputeSimulation:
    def __init__(
        self,
        seed: int,
        *,
        servers: int | None = None,
        runs: int | None = None,
        trouble: Trouble | None = None,
        faults: ClusterFaults = STORMY,
        story: Callable[[Random, Toolbox], Story] = random_story,
        inline: bool = False,
    ) -> None:
        """`inline`: there is no cluster, and each server does the work of the pool itself."""
        self.dice = Random(seed)
        self._now = EPOCH
        self.trouble = trouble or Trouble()
        self._cluster_faults = faults
        self.inline = inline
        self.tally: Counter[str] = Counter()
        self.broken: BaseException | None = None
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._names = count(1)
        self.labour = Labour()
        self.toolbox = self.labour.toolbox
        self.shared = UnreliableStore(2, self.now, self)
        self.shared.committed = self._committed
        self.audits: dict[str, Audit] = {}
        self.laws = ComputeLaws(self)
        self._build_cluster()
        self.stories = {
            f"run-{number}": story(self.dice, self.toolbox)
            for number in range(runs or self.dice.choice((1, 1, 2, 3)))
        }
        self._nets = {}
        for each in self.stories.values():
            self.shared.store.put_definition(each.made.definition)
            self._nets[each.made.net.fingerprint] = each.made.net
        self.touched: set[str] = set()  # runs that people changed the outcome of
        self.servers: list[ComputeServer] = []
        self.gone: list[ComputeServer] = []
        for _ in range(servers or self.dice.choice((1, 1, 2, 3))):
            self._join()
        for run in self.stories:
            self.later(self.dice.randint(0, 5_000), lambda run=run: self._start(run))  # type: ignore[misc]
        self._next_second = EPOCH

    def _build_cluster(self) -> None:
        dice = self.dice
        self.entries = Entries(self.seconds, self.toolbox, self.broke)
        self.cluster = SimulatedCluster(
            lambda seconds, act: self.later(round(seconds * 1000), act),
            self.entries,
            slots=dice.choice((1, 2, 5)),
            dice=dice,
            faults=lambda: CALM if self.calm else self._cluster_faults,
        )
        queue = dice.choice((None, 0, 1, 10))
        self.pool = PoolOptions(
            name=POOL,
            engine="dask",
            address="",
            shown="simulated",
            queue=queue,
            grace_seconds=3.0,
            begin_seconds=20.0,
        )

    # -- for servers -------------------------------------------------------------------------

    def now(self) -> int:
        return self._now

    def seconds(self) -> float:
        return self._now / 1000

    def later(self, ms: int, act: Callable[[], None]) -> None:
        heappush(self._agenda, (self._now + ms, next(self._order), act))

    def broke(self, error: BaseException) -> None:
        self.broken = self.broken or error

    def client(self, server: ComputeServer) -> SimulatedBackend | None:
        if self.inline:
            return None
        backend = SimulatedBackend(self.cluster, self._delay)
        backend.submitted = lambda ticket, blob: self._judged(
            lambda: self.laws.submitted(server, backend, ticket, blob)
        )
        return backend

    def _delay(self) -> float:
        return self.dice.choice((0.0, 0.0, 0.01, 0.5))

    def state_of(self, run: str) -> State | None:
        audit = self.audits.get(run)
        return audit.state if audit is not None else None

    def _judged(self, law: Callable[[], None]) -> None:
        """A program may catch what is raised inside it: a broken law is told to the world."""
        try:
            law()
        except LawBroken as error:
            self.broke(error)

    def _committed(self, batch: Batch) -> None:
        def law() -> None:
            for commit in batch.commits:
                head = commit.head
                if head.run not in self.audits:
                    net = self._nets[head.definition]
                    self.audits[head.run] = Audit(net, deque(maxlen=RECENT))
                self.audits[head.run].committed(commit)

        self._judged(law)

    # -- trouble -----------------------------------------------------------------------------

    @property
    def calm(self) -> bool:
        return self._now > EPOCH + STORM_MS

    @property
    def settled(self) -> bool:
        """What was said in the storm has been heard by now, or never will be."""
        return self._now > EPOCH + 3 * STORM_MS

    def strikes(self, name: str) -> bool:
        chance = getattr(self.trouble, name)
        if self.calm or not chance or self.dice.random() >= chance:
            return False
        self.tally[name] += 1
        return True

    def either(self) -> bool:
        return self.dice.random() < 0.5

    def tell(self, server: str) -> None:
        for one in self.servers:
            heard = self.shared.heard.get(one.name)
            if heard is None or one.name == server or self.strikes("notification_lost"):
                continue
            one.loop.call_later(self.dice.choice((0.0, 0.01, 0.3)), heard)

    def _second(self) -> None:
        """What may happen in a second."""
        for name in (*OF_SERVERS, *OF_THE_CLUSTER):
            if self.strikes(name):
                getattr(self, f"_{name}")()

    def _one_of_them(self) -> ComputeServer:
        return self.dice.choice(self.servers)

    def _kill(self) -> None:
        self._remove(self._one_of_them())
        self.shared.finish()  # the database notices that its client is gone
        if not self.servers:
            self._join()

    def _leave(self) -> None:
        staying = [one for one in self.servers if not one.leaving]
        if len(staying) > 1:
            self.dice.choice(staying).leave()

    def _join(self) -> None:
        if len(self.servers) < SERVERS_MAX:
            self.servers.append(ComputeServer(self, f"s{next(self._names)}", self.pool))

    def _stop(self) -> None:
        self.stop(self._one_of_them())

    def stop(self, server: ComputeServer) -> None:
        longest = int(2 * LEASE_SECONDS * 1000)
        server.asleep_until = self._now + self.dice.choice((50, self.dice.randint(50, longest)))

    def _remove(self, server: ComputeServer) -> None:
        server.end()
        self.shared.heard.pop(server.name, None)
        self.servers.remove(server)
        self.gone.append(server)

    def _scheduler_restarts(self) -> None:
        self._without_scheduler("the scheduler was restarted", self.dice.randint(0, 5_000))

    def _gone_for_an_hour(self) -> None:
        self._without_scheduler("the cluster is gone", HOUR_MS)

    def _without_scheduler(self, reason: str, ms: int) -> None:
        if not self.cluster.away:
            self.cluster.lose_scheduler(reason)
            self.later(ms, self.cluster.find_scheduler)

    def _begins_nothing(self) -> None:
        self.cluster.stuck = True

        def end() -> None:
            self.cluster.stuck = False
            self.cluster.go_on()

        self.later(self.dice.randint(5_000, 100_000), end)

    def _resize(self) -> None:
        self.cluster.resize(self.dice.choice((0, 1, 2, 6)))
        self.later(self.dice.randint(1_000, 30_000), lambda: self.cluster.resize(3))

    # -- people ------------------------------------------------------------------------------

    def _start(self, run: str) -> None:
        made = self.stories[run].made

        def begun(_run: Any, error: AnabranchError | None) -> None:
            if error is not None and error.code != "run_exists":
                self.later(self.dice.randint(10, 3_000), lambda: self._start(run))

        self._ask(lambda engine: engine.start(made.definition, made.net, run=run), begun)

    def _people(self) -> None:
        moving = [run for run, audit in self.audits.items() if not audit.state.finished]
        if not moving:
            return
        run = self.dice.choice(moving)
        match self.dice.choice((*["pause"] * 6, *["tune"] * 6, "cancel")):
            case "pause":
                self._say(run, s.Pause("ann"))
                self.later(self.dice.randint(100, 30_000), lambda: self._resume(run))
            case "tune":
                loops = list(self.audits[run].state.loops)
                if loops:
                    self._say(run, s.TuneLoop(loops[0], window=self.dice.randint(1, 9)))
            case _:
                self.touched.add(run)
                self._say(run, s.Cancel("ann"))

    def _resume(self, run: str) -> None:
        """For as long as a pause may still be on its way."""
        state = self.audits[run].state
        if state.paused and not state.finished:
            self._say(run, s.Resume("ann"))
        if not state.finished and (state.paused or not self.settled):
            self.later(2_000, lambda: self._resume(run))

    def _say(self, run: str, said: s.Stimulus) -> None:
        self._ask(lambda engine: engine.send(run, said), lambda _answer, _error: None)

    def _ask(
        self, question: Callable[[Any], Any], then: Callable[[Any, AnabranchError | None], None]
    ) -> None:
        """`then` is called once; with `no_answer` when the server has died."""
        server = self._one_of_them()
        answered = False

        def told(answer: Any, error: AnabranchError | None) -> None:
            nonlocal answered
            if not answered:
                answered = True
                self.later(0, lambda: then(answer, error))

        def give_up() -> None:
            if not answered and server.dead:
                told(None, AnabranchError("gave up", code="no_answer"))
            elif not answered:
                self.later(5_000, give_up)

        server.ask(question, told)
        self.later(5_000, give_up)

    # -- from the beginning to the end -----------------------------------------------------------

    def run(self) -> None:
        with _quiet():
            try:
                self._run()
            finally:
                for server in (*self.servers, *self.gone):
                    server.dead = True
                    server.loop.shut_down()
                self.entries.close()

    def _run(self) -> None:
        for move in count():
            if self.calm and move % 20 == 0 and not self.laws.why_not_over():
                break
            self._move()
            if self.broken is not None:
                raise self.broken
            if move > MOVES_MAX or self._now > EPOCH + LIMIT_MS:
                raise LawBroken(f"it did not end: {self.laws.why_not_over()}")
        self.laws.last_look()

    def _move(self) -> None:
        if self._now >= self._next_second:
            self._next_second = self._now + 1000
            if not self.calm:
                self._second()
        if self.shared.locked and self.dice.random() < 0.05:
            self.shared.finish()
        now = self._now
        times: list[float] = [one.next_at() for one in self.servers]
        ready = [one for at, one in zip(times, self.servers, strict=True) if at <= now]
        if self.entries.next_at() * 1000 <= now + 0.01:
            self.entries.run_some(self.dice.choice((1, 4, 30)))
        elif self._agenda and self._agenda[0][0] <= now and (not ready or self.either()):
            heappop(self._agenda)[2]()
        elif ready:
            self._let_run(self.dice.choice(ready))
        else:
            self._wait(times)

    def _wait(self, times: list[float]) -> None:
        times.append(self.entries.next_at() * 1000)
        if self._agenda:
            times.append(self._agenda[0][0])
        if not self.calm:
            times.append(self._next_second)
        self._now = max(self._now + 1, int(min(times)))

    def _let_run(self, server: ComputeServer) -> None:
        server.run_some(self.dice.choice((1, 4, 30)))
        if server.dead and server in self.servers:
            self._remove(server)
            if not self.servers:
                self._join()


@contextmanager
def _quiet() -> Iterator[None]:
    """What servers log of all this is not worth its time."""
    logger = logging.getLogger("anabranch")
    names = [name for name in logging.root.manager.loggerDict if name.startswith("anabranch.")]
    loggers = [logger, *(logging.getLogger(name) for name in names)]
    before = [one.disabled for one in loggers]
    for one in loggers:
        one.disabled = True
    try:
        yield
    finally:
        for one, was in zip(loggers, before, strict=True):
            one.disabled = was

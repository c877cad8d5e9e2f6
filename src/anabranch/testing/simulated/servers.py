"""Several servers on one shared store, in virtual time, and all that can go wrong between them.

Each server is the real engine with its membership, its writer, its mailbox and its dispatcher of
webhooks, in a process that can be stopped or killed between any two steps. Servers join and leave,
drain, die, or are stopped for longer than their lease and go on as if nothing had happened; a
connection is lost during a commit that has happened, never will, or happens later; notifications
are lost; a server lacks what some of its runs need. `server_laws` says what must hold all the same.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

import msgspec

from anabranch.errors import LawBroken
from anabranch.kernel.state import State
from anabranch.runtime.live_run import history
from anabranch.store.hook_ports import Hook
from anabranch.store.ports import Batch
from anabranch.testing.simulated.audit import Audit
from anabranch.testing.simulated.server_clients import Clients
from anabranch.testing.simulated.server_laws import Expected, ServerLaws
from anabranch.testing.simulated.server_process import LEASE_SECONDS, SimulatedServer
from anabranch.testing.simulated.shared_store import UnreliableStore
from anabranch.testing.simulated.workload import child, counted, parent, transitions
from anabranch.testing.virtual.world import EPOCH
from anabranch.work.port import Task

STORM_MS = 8_000
LIMIT_MS = 90_000
MOVES_MAX = 200_000
SERVERS_MAX = 4
HOOK = "hook"
LOOK_EVERY = 20  # moves
#: What can happen to a server: the names of `Disturbances`, and of the methods that do it.
OF_SERVERS = ("kill", "stop", "join", "leave", "drain")
RECENT = 15  # events that a failure shows


class Disturbances(msgspec.Struct, frozen=True, kw_only=True):
    """Probabilities: of a move (some steps of one server), of a commit, of a notification."""

    kill: float = 0.002
    stop: float = 0.008  # the process is stopped, for up to three leases
    stop_midway: float = 0.01  # the same, before or after a thread has asked the store
    join: float = 0.003
    leave: float = 0.002
    drain: float = 0.002
    connection_lost: float = 0.05  # during a commit
    answer_lost: float = 0.03  # to a question about servers and partitions
    post_lost: float = 0.1  # the connection, during the commit of a message
    notification_lost: float = 0.5
    #: A server that joins has not what a parent needs; it leaves in the end. Where that can be,
    #: children take longer than all else that their parents do.
    lacks: float = 0.0


class ServerSimulation:
    def __init__(
        self,
        seed: int,
        *,
        partitions: int = 4,
        servers: int | None = None,
        runs: int | None = None,
        disturbances: Disturbances | None = None,
        webhooks: bool | None = None,
        expected: Expected | None = None,
    ) -> None:
        self.dice = Random(seed)
        self._now = EPOCH
        self.disturbances = disturbances or Disturbances()
        self.tally: Counter[str] = Counter()
        self.broken: BaseException | None = None
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._names = count(1)
        self.webhooks = self.dice.random() < 0.125 if webhooks is None else webhooks
        self.shared = UnreliableStore(partitions, self.now, self)
        self.shared.committed = self._committed
        for made in (parent(), child()):
            self.shared.store.put_definition(made.definition)
        self._nets = {made.net.fingerprint: made.net for made in (parent(), child())}
        if self.webhooks:
            hook = Hook(
                id=HOOK,
                url="http://receiver",
                secret="text:secret",
                kinds=("run.*", "gate.*", "token.finished"),
            )
            self.shared.store.add_hook(hook)
        self.audits: dict[str, Audit] = {}
        self.laws = ServerLaws(self, expected or without_faults)
        self.servers: list[SimulatedServer] = []
        self.gone: list[SimulatedServer] = []
        for _ in range(servers or self.dice.randint(2, 3)):
            self._join()
        self.clients = Clients(self, runs or self.dice.randint(1, 3))

    # -- for servers and clients -------------------------------------------------------------

    def now(self) -> int:
        return self._now

    @property
    def child_seconds(self) -> float:
        return 4.0 if self.disturbances.lacks else 0.0

    def runs(self) -> list[str]:
        return [run for run, audit in self.audits.items() if audit.net is parent().net]

    def state_of(self, run: str) -> State | None:
        audit = self.audits.get(run)
        return audit.state if audit is not None else None

    def later(self, ms: int, act: Callable[[], None]) -> None:
        heappush(self._agenda, (self._now + ms, next(self._order), act))

    def broke(self, error: BaseException) -> None:
        self.broken = self.broken or error

    def effect_left(self, server: SimulatedServer, task: Task) -> None:
        self._judged(lambda: self.laws.effect_left(server, task))

    def notice_sent(self, server: SimulatedServer, delivery: str) -> None:
        self._judged(lambda: self.laws.notice_sent(server, delivery))

    def notice_taken(self, delivery: str) -> bool:
        taken = self.calm or self.dice.random() < 0.7
        if taken:
            self.laws.notice_taken(delivery)
        return taken

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
                    if net is parent().net:
                        self.clients.saw(head.run)
                self.audits[head.run].committed(commit)
            self.laws.limits_hold()

        self._judged(law)

    # -- trouble -----------------------------------------------------------------------------

    @property
    def calm(self) -> bool:
        return self._now > EPOCH + STORM_MS

    def strikes(self, name: str) -> bool:
        chance = getattr(self.disturbances, name)
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

    def _disturb(self) -> None:
        """At most one of what can happen to a server; drawn with one throw of the dice."""
        chance = self.dice.random()
        for name in OF_SERVERS:
            chance -= getattr(self.disturbances, name)
            if chance < 0:
                getattr(self, f"_{name}")()
                return

    def _one_of_several(self) -> SimulatedServer | None:
        """One that can go without being the last that lacks nothing."""
        staying = [one for one in self.servers if not one.leaving]
        if sum(not one.lacks for one in staying) == 1:
            staying = [one for one in staying if one.lacks]
        return self.dice.choice(staying) if staying else None

    def _kill(self) -> None:
        if (server := self._one_of_several()) is not None:
            self.tally["kill"] += 1
            self._remove(server)
            self.shared.finish()  # the database notices that its client is gone

    def _leave(self) -> None:
        if (server := self._one_of_several()) is not None:
            self.tally["leave"] += 1
            server.leave()

    def _join(self) -> None:
        if len(self.servers) >= SERVERS_MAX:
            return
        self.tally["join"] += 1
        name = f"s{next(self._names)}"
        lacks = bool(self.servers) and self.strikes("lacks")
        made = SimulatedServer(self, name, sends_webhooks=self.webhooks, lacks=lacks)
        self.servers.append(made)
        if lacks:
            self.later(self.dice.randint(3_000, 9_000), lambda: self._send_away(made))

    def _send_away(self, server: SimulatedServer) -> None:
        if not (server.dead or server.leaving):
            server.leave()

    def _stop(self) -> None:
        self.tally["stop"] += 1
        self.stop(self.dice.choice(self.servers))

    def stop(self, server: SimulatedServer) -> None:
        longest = int(3 * LEASE_SECONDS * 1000)
        server.asleep_until = self._now + self.dice.choice((50, self.dice.randint(50, longest)))

    def _drain(self) -> None:
        self.tally["drain"] += 1
        server = self.dice.choice(self.servers)
        server.drains += 1
        number = server.drains

        def end() -> None:
            """Until the server knows for good: one that was removed comes back as drained as it was
            when it looked last."""
            if server.dead or server.leaving or server.drains != number:
                return
            known = server.store.cluster.drain(server.name, draining=False)
            settled = self.calm and self._now >= server.asleep_until + LEASE_SECONDS * 1000
            if not (settled and known and not server.drained):
                self.later(500, end)

        server.store.cluster.drain(server.name, draining=True)
        self.later(self.dice.randint(500, 8_000), end)

    def _remove(self, server: SimulatedServer) -> None:
        server.dead = True
        self.shared.heard.pop(server.name, None)
        self.servers.remove(server)
        self.gone.append(server)

    # -- from the beginning to the end -----------------------------------------------------------

    def run(self) -> None:
        with _quiet():
            try:
                self._run()
            finally:
                for server in (*self.servers, *self.gone):
                    server.dead = True
                    server.loop.shut_down()

    def _run(self) -> None:
        for move in count():
            if self.calm and move % LOOK_EVERY == 0 and self.laws.over():
                break
            self._move()
            if move > MOVES_MAX:
                raise LawBroken("time stands still")
            if self.broken is not None:
                raise self.broken
            if self._now > EPOCH + LIMIT_MS:
                raise LawBroken(f"it did not end: {self.laws.why_not_over()}")
        self.laws.last_look()

    def _move(self) -> None:
        if not self.calm:
            self._disturb()
        if self.shared.locked and self.dice.random() < 0.05:
            self.shared.finish()
        now = self._now
        times = [one.next_at() for one in self.servers]
        ready = [one for at, one in zip(times, self.servers, strict=True) if at <= now]
        if self._agenda and self._agenda[0][0] <= self._now and (not ready or self.either()):
            heappop(self._agenda)[2]()
        elif ready:
            self._let_run(self.dice.choice(ready))
        else:
            if self._agenda:
                times.append(self._agenda[0][0])
            self._now = max(now, int(min(times)))

    def _let_run(self, server: SimulatedServer) -> None:
        server.run_some(self.dice.choice((1, 4, 30)))
        if server.dead and server in self.servers:
            self._remove(server)


@cache
def without_faults(name: str) -> tuple[Counter[tuple[Any, ...]], int]:
    """What a run comes to on one engine, and how many reports of work it has."""
    nothing = Disturbances(**dict.fromkeys(Disturbances.__struct_fields__, 0.0))
    world = ServerSimulation(
        0,
        partitions=1,
        servers=1,
        runs=1,
        disturbances=nothing,
        expected=lambda run: what_it_came_to(world, run),
    )
    world.run()
    return what_it_came_to(world, name)


def what_it_came_to(world: ServerSimulation, name: str) -> tuple[Counter[tuple[Any, ...]], int]:
    (run,) = [run for run, audit in world.audits.items() if audit.state.name == name]
    events = [event for _, event in history(world.shared.store.read(run))]
    return transitions(run, events), counted(world.audits[run].state.ctx)


@contextmanager
def _quiet() -> Iterator[None]:
    """What servers log of all this is not worth its time."""
    logger = logging.getLogger("anabranch")
    before, logger.disabled = logger.disabled, True
    names = [name for name in logging.root.manager.loggerDict if name.startswith("anabranch.")]
    kept = {name: logging.getLogger(name).disabled for name in names}
    for name in names:
        logging.getLogger(name).disabled = True
    try:
        yield
    finally:
        logger.disabled = before
        for name, was in kept.items():
            logging.getLogger(name).disabled = was

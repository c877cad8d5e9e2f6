"""Tickets: what a dispatcher has given to its cluster, by ticket, by job and by run.

A ticket stands for one attempt of a job. Its name groups by step on the cluster's own pages and
tells nothing else. When it is over it is remembered for a while: what the cluster says of it then
is late.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from anabranch.operations.workers.leases import LeaseClaim
from anabranch.pools.backend import Event
from anabranch.pools.pool_state import OutTicket
from anabranch.pools.values.packing import NamesPart
from anabranch.runtime.jobs.wire import ClaimedJob

RECENT_KEPT = 20_000  # tickets that are over
STEP_MAX = 60  # letters of the step in the name of a ticket

_UNUSUAL = re.compile(r"[^\w.]+")


def ticket_name(leased: ClaimedJob, nonce: str) -> str:
    told = "\0".join((leased.run, leased.job, str(leased.attempt), nonce))
    digest = hashlib.sha256(told.encode()).hexdigest()[:16]
    return f"{_UNUSUAL.sub('_', leased.step)[:STEP_MAX] or 'job'}-{digest}"


def new_nonce() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True)
class StopOrder:
    """Why the work of a ticket is to stop. `says` is how its end is told to the engine."""

    says: str  # "discharge": it was cancelled; "hand_back"; "": the engine has given it up already
    reason: str


@dataclass(slots=True, eq=False)
class Ticket:
    name: str
    leased: ClaimedJob
    out: LeaseClaim
    names: NamesPart
    since: int
    lease_until: int
    sent: bool = False  # the cluster has it, or had
    cut_off: bool = False  # contact was lost since
    worker: str = ""
    process: str = ""
    started: int = 0
    stop: StopOrder | None = None
    ending: bool = False  # its end is being told
    over: bool = False
    answered: bool = False  # its answer is recorded
    asked: set[str] = field(default_factory=set)  # parts that processes of the cluster asked for
    rounds: int = 0  # how often that was
    words: deque[Event] = field(default_factory=deque)  # of the cluster, not carried out yet
    speaker: asyncio.Task[None] | None = None  # who carries them out

    @property
    def key(self) -> tuple[str, str]:
        return self.leased.run, self.leased.job

    def shown(self) -> OutTicket:
        return OutTicket(
            run=self.leased.run,
            job=self.leased.job,
            attempt=self.leased.attempt,
            step=self.leased.step,
            ticket=self.name,
            since=self.since,
            worker=self.worker,
            started=self.started,
        )


class TicketBook:
    """What is out. Other threads may look at it."""

    def __init__(self, draw: Callable[[], str] = new_nonce) -> None:
        self._draw = draw
        self._tickets: dict[str, Ticket] = {}  # the oldest first
        self._jobs: dict[tuple[str, str], Ticket] = {}
        self._runs: dict[str, dict[Ticket, None]] = {}
        self._recent: OrderedDict[str, LeaseClaim | None] = OrderedDict()
        self.running = 0
        self.submitted = self.finished = self.withdrawn = self.late = 0
        self.losses: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tickets)

    def __iter__(self) -> Iterator[Ticket]:
        return iter(list(self._tickets.values()))

    @property
    def queued(self) -> int:
        return len(self._tickets) - self.running

    @property
    def runs(self) -> set[str]:
        return set(self._runs)

    def get(self, name: str) -> Ticket | None:
        return self._tickets.get(name)

    def find(self, run: str, job: str) -> Ticket | None:
        return self._jobs.get((run, job))

    def has_run(self, run: str) -> bool:
        return run in self._runs

    def of_run(self, run: str) -> list[Ticket]:
        return list(self._runs.get(run, ()))

    def was_here(self, name: str) -> bool:
        """Whether it was one of ours, and is over."""
        return name in self._recent

    def given_up(self, name: str) -> LeaseClaim | None:
        """The attempt of a ticket that is over without its answer; None for others."""
        return self._recent.get(name)

    # -- changes -----------------------------------------------------------------------------

    def add(self, leased: ClaimedJob, out: LeaseClaim, names: NamesPart, now: int) -> Ticket:
        name = ticket_name(leased, self._draw())
        ticket = Ticket(name, leased, out, names, since=now, lease_until=leased.lease_until)
        self._tickets[name] = ticket
        self._jobs[ticket.key] = ticket
        self._runs.setdefault(leased.run, {})[ticket] = None
        return ticket

    def began(self, ticket: Ticket, worker: str, process: str, now: int) -> None:
        self.running += not ticket.process
        ticket.worker, ticket.process, ticket.started = worker, process, now

    def rename(self, ticket: Ticket) -> None:
        """The same attempt goes out once more: nothing of it was begun."""
        self._leave(ticket)
        ticket.name = ticket_name(ticket.leased, self._draw())
        ticket.worker = ticket.process = ""
        ticket.started = 0
        ticket.sent = ticket.ending = ticket.cut_off = False
        self._tickets[ticket.name] = ticket

    def drop(self, ticket: Ticket) -> None:
        """It is over."""
        ticket.over = True
        self._leave(ticket)
        if self._jobs.get(ticket.key) is ticket:
            del self._jobs[ticket.key]
        there = self._runs[ticket.leased.run]
        there.pop(ticket, None)
        if not there:
            del self._runs[ticket.leased.run]

    def _leave(self, ticket: Ticket) -> None:
        del self._tickets[ticket.name]
        self.running -= bool(ticket.process)
        self._recent[ticket.name] = None if ticket.answered else ticket.out
        while len(self._recent) > RECENT_KEPT:
            self._recent.popitem(last=False)

"""How a dispatcher stops work: queued tickets are withdrawn, running ones told, then forced.

Many tickets may be stopped at once (a loop that fails fast, a run that is cancelled): they go to
the cluster in one call. A ticket that has not begun is over with that call. One that has begun gets
a grace to stop by itself; then it is stopped by force, and after as long again it is left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from anabranch.pools.backend import BackendAway, PoolBackend
from anabranch.pools.dispatch.tickets import StopOrder, Ticket

log = logging.getLogger("anabranch.pools")


class Stopper:
    """`ended` is told of tickets that are over with their withdrawal, or that do not stop."""

    def __init__(
        self,
        backend: PoolBackend,
        grace_seconds: float,
        ended: Callable[[Ticket, str], None],
    ) -> None:
        self._backend = backend
        self._grace = grace_seconds
        self._ended = ended
        self._soft: dict[Ticket, None] = {}
        self._hard: dict[Ticket, None] = {}
        self._strays: dict[str, None] = {}
        self._wanted = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._timers: dict[Ticket, asyncio.TimerHandle] = {}

    def order(self, ticket: Ticket, order: StopOrder) -> None:
        """Told twice, the last order says how the end is told, and the work is stopped once."""
        first = ticket.stop is None
        ticket.stop = order
        if first and ticket.sent:
            self.withdraw(ticket)

    def withdraw(self, ticket: Ticket) -> None:
        self._soft[ticket] = None
        self._wake()

    def stray(self, name: str) -> None:
        """A ticket that is over has begun all the same."""
        self._strays[name] = None
        self._wake()

    def over(self, ticket: Ticket) -> None:
        """It has ended by itself."""
        self._soft.pop(ticket, None)
        self._hard.pop(ticket, None)
        timer = self._timers.pop(ticket, None)
        if timer is not None:
            timer.cancel()

    async def settled(self) -> None:
        """Returns when everything that was ordered has been told to the cluster."""
        await self._idle.wait()

    def _wake(self) -> None:
        self._idle.clear()
        self._wanted.set()

    async def run(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._soft or self._hard or self._strays:
                soft, self._soft = list(self._soft), {}
                hard, self._hard = list(self._hard), {}
                strays, self._strays = list(self._strays), {}
                await self._cancel([*(one.name for one in soft), *strays], force=False)
                for ticket in soft:
                    self._told(ticket)
                await self._cancel([one.name for one in hard if not one.over], force=True)
                for ticket in hard:
                    self._set_timer(ticket, self._leave_behind)
            self._idle.set()

    async def _cancel(self, names: list[str], *, force: bool) -> None:
        if not names:
            return
        try:
            await self._backend.cancel(names, force=force)
        except BackendAway as away:
            log.debug("%d tickets cannot be stopped: %s", len(names), away.message)
        except Exception:  # of the library: what it has told is told, and grace and force follow
            log.exception("%d tickets cannot be stopped", len(names))

    def _told(self, ticket: Ticket) -> None:
        if ticket.over:
            return
        if ticket.process:
            self._set_timer(ticket, self._force)
        else:
            self._ended(ticket, "")

    def _set_timer(self, ticket: Ticket, then: Callable[[Ticket], None]) -> None:
        if not ticket.over:
            loop = asyncio.get_running_loop()
            self._timers[ticket] = loop.call_later(self._grace, then, ticket)

    def _force(self, ticket: Ticket) -> None:
        del self._timers[ticket]
        self._hard[ticket] = None
        self._wake()

    def _leave_behind(self, ticket: Ticket) -> None:
        del self._timers[ticket]
        self._ended(ticket, "it did not stop when it was told to, nor by force")

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

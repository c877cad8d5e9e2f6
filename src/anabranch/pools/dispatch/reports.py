"""What a dispatcher says of its jobs to the engine, until it is recorded or no longer wanted.

A store that is away for a moment costs nothing but time. Whatever is about an attempt that the
engine has given up meanwhile changes nothing: it is late, and recorded as that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from anabranch.errors import AnabranchError, InputError, NotFound, Refused, StoreError
from anabranch.kernel.values import Answer, failed
from anabranch.operations.workers.cancel_watch import CANCELLED, JobToStop
from anabranch.operations.workers.leases import LeaseClaim
from anabranch.operations.workers.worker_api import WorkerApi
from anabranch.pools.answers import JobAnswer
from anabranch.pools.dispatch.tickets import Ticket
from anabranch.runtime.messages.codec import RunElsewhere
from anabranch.runtime.outage import AGAIN_SECONDS
from anabranch.store.cluster_ports import PARTITION_LOST
from anabranch.store.outages import UNSURE, passes
from anabranch.work.port import Parked, parked_job

log = logging.getLogger("anabranch.pools")

#: Nothing was recorded, perhaps, and it can be said again.
AGAIN = frozenset({UNSURE, PARTITION_LOST})
#: There is nobody to say it to any more.
GONE = frozenset({"engine_closed", "engine_stopped"})


class Reports:
    def __init__(self, api: WorkerApi) -> None:
        self._api = api

    def order_of(self, out: LeaseClaim) -> JobToStop | LeaseClaim | None:
        """Whether the job is to stop: None while it goes on, itself where its run is elsewhere."""
        return self._api.watching.to_stop(out)

    async def began(self, ticket: Ticket) -> None:
        """The time of its attempt begins, where that is limited."""
        await self._say(ticket.out, lambda: self._api.began(ticket.out), last=False)

    async def answer(self, ticket: Ticket, said: JobAnswer) -> bool:
        """True where it is recorded as the answer of the attempt."""
        out, answer = ticket.out, said.answer
        try:
            if isinstance(answer, Parked):
                return await self._say(out, lambda: self._park(out, answer))
            return await self._say(out, lambda: self._api.report(out, answer, payload=said.payload))
        except InputError as error:
            message = f"the answer of the work was refused: {error.message}"
            return await self.failed(ticket, failed("result", message, retryable=False))

    async def failed(self, ticket: Ticket, answer: Answer) -> bool:
        return await self._say(ticket.out, lambda: self._api.report(ticket.out, answer))

    async def _park(self, out: LeaseClaim, parked: Parked) -> None:
        await self._api.park(out, parked_job(out.job, out.attempt, parked))

    async def lost(self, ticket: Ticket, reason: str, *, worker: bool) -> bool:
        """A loss counts where the worker died with the job: the work may be the cause."""
        out = ticket.out
        return await self._say(
            out, lambda: self._api.lose(out, reason, counted=worker, worker=worker)
        )

    async def released(self, ticket: Ticket, reason: str) -> bool:
        out, unbegun = ticket.out, not ticket.process
        return await self._say(out, lambda: self._api.release(out, reason, unbegun=unbegun))

    async def _say(
        self, out: LeaseClaim, say: Callable[[], Awaitable[None]], *, last: bool = True
    ) -> bool:
        """True where it is recorded. With `last` the work has ended, however it is told."""
        perhaps = False  # a try whose end was not seen may have been recorded
        while True:
            try:
                await say()
                return True
            except (Refused, NotFound):
                if last:
                    await self.let_go(out)
                return perhaps
            except RunElsewhere:
                return False  # its new owner has taken it back
            except AnabranchError as error:
                if error.code in GONE:
                    return False
                again = error.code in AGAIN or (isinstance(error, StoreError) and passes(error))
                if not again:
                    raise
                perhaps = perhaps or error.code in AGAIN
            await asyncio.sleep(AGAIN_SECONDS)

    async def let_go(self, out: LeaseClaim) -> None:
        """What a cancelled job came to may not be what it can be told as: it has stopped."""
        order = self.order_of(out)
        if isinstance(order, JobToStop) and order.code == CANCELLED:
            try:
                await self._api.release(out)
            except AnabranchError as error:
                log.debug("job %s of run %s: %s", out.job, out.run, error.message)

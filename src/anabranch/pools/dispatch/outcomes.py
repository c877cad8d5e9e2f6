"""What the cluster says of a ticket, carried out one word after the other.

    Progressed ─▶ progress          Finished ─▶ report │ fail │ park │ release, or once more
    Lost ─▶ lose, counted where the worker died                      Unusable ─▶ fail

Tickets do not wait for each other, so what many of them say is recorded together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from anabranch.errors import AnabranchError, InputError, NotFound, Refused
from anabranch.kernel.values import failed
from anabranch.operations.workers.worker_api import WorkerApi
from anabranch.pools.assignment import Missing, Outcome, Progress, decode_said
from anabranch.pools.backend import Event, Finished, Lost, Progressed, Unusable
from anabranch.pools.dispatch.brake import LOST_SECONDS_MAX, PAUSE_SECONDS_MAX
from anabranch.pools.dispatch.reports import Reports
from anabranch.pools.dispatch.tickets import Ticket, TicketBook
from anabranch.pools.values.folder import FolderError
from anabranch.pools.values.packing import JobPacker
from anabranch.runtime.messages.codec import RunElsewhere

log = logging.getLogger("anabranch.pools")

ROUNDS_MAX = 20  # of one attempt: so often processes may ask for parts


class Outcomes:
    """`over` ends a ticket, `again` sends its attempt out once more, `works` says that work came to
    an answer, `trouble` that something other than the work is in the way, and how long at most jobs
    may wait for that."""

    def __init__(
        self,
        api: WorkerApi,
        packer: JobPacker,
        book: TicketBook,
        reports: Reports,
        *,
        over: Callable[[Ticket], None],
        again: Callable[[Ticket], None],
        works: Callable[[], None],
        trouble: Callable[[str, float], None],
    ) -> None:
        self._api = api
        self._packer = packer
        self._book = book
        self._reports = reports
        self._over = over
        self._again = again
        self._works = works
        self._trouble = trouble
        self._speakers: set[asyncio.Task[None]] = set()
        self._died = ""  # the process whose death was logged last

    def heard(self, ticket: Ticket, event: Event) -> None:
        if isinstance(event, Progressed) and ticket.words:
            if not isinstance(ticket.words[-1], Progressed):
                return  # its end has been told
            ticket.words.pop()  # the last one says it all
        ticket.words.append(event)
        if ticket.speaker is None:
            ticket.speaker = asyncio.get_running_loop().create_task(self._speak(ticket))
            self._speakers.add(ticket.speaker)
            ticket.speaker.add_done_callback(self._speakers.discard)

    async def said(self) -> None:
        """Returns when everything that was heard is recorded, or cannot be."""
        while self._speakers:
            await asyncio.wait(list(self._speakers))

    async def _speak(self, ticket: Ticket) -> None:
        try:
            while ticket.words and not ticket.over:
                event = ticket.words.popleft()
                try:
                    await self._carry_out(ticket, event)
                except Exception as defect:  # of ours: the job must not wait for ever
                    log.exception("ticket %s: a bug in the dispatcher", ticket.name)
                    message = f"the dispatcher failed: {defect!r}"
                    with suppress(AnabranchError):
                        await self._reports.failed(
                            ticket, failed("defect", message, retryable=False)
                        )
                    self._over(ticket)
        finally:
            ticket.speaker = None

    async def _carry_out(self, ticket: Ticket, event: Event) -> None:
        ticket.ending = not isinstance(event, Progressed)
        match event:
            case Progressed():
                await self._progress(ticket, event)
            case Finished():
                await self._finished(ticket, event)
            case Lost():
                await self.lost(ticket, event.reason, worker=event.worker)
            case Unusable():
                kind = "result" if ticket.process else "config"
                self._book.finished += 1
                await self._reports.failed(ticket, failed(kind, event.reason, retryable=False))
                self._over(ticket)
            case _:
                raise TypeError(f"{event!r} is no word about a ticket")

    async def _progress(self, ticket: Ticket, event: Progressed) -> None:
        try:
            said = decode_said(event.said)
            if isinstance(said, Progress):
                progress = await self._packer.take_progress(ticket.out, said)
                await self._api.progress(ticket.out, progress)
        except AnabranchError as error:  # the outcome follows, and says what is wrong
            log.debug("ticket %s: no progress: %s", ticket.name, error.message)

    def _keep_logs(self, ticket: Ticket, said: Outcome) -> None:
        try:
            self._api.logs(ticket.out, said.logs)
        except AnabranchError as error:  # its run has gone on without it, or lives elsewhere
            log.debug("ticket %s: no logs: %s", ticket.name, error.message)

    # -- ends --------------------------------------------------------------------------------

    async def lost(self, ticket: Ticket, reason: str, *, worker: bool, sort: str = "") -> None:
        """Where its worker died with it, the loss counts; where somebody else forgot it, not, and
        so nothing but a pause keeps it from being lost again and again."""
        ticket.ending = True
        if ticket.stop is None:
            self._book.losses[sort or ("worker" if worker else "cluster")] += 1
            if worker:
                self._name_the_dead(ticket, reason)
            else:
                self._trouble(reason, PAUSE_SECONDS_MAX if sort else LOST_SECONDS_MAX)
        else:
            self._book.withdrawn += 1
        await self._reports.lost(ticket, reason, worker=worker)
        self._over(ticket)

    def _name_the_dead(self, ticket: Ticket, reason: str) -> None:
        """One line for each worker that dies, however many jobs it had: who looks on should not
        have to guess why a run takes so long."""
        if ticket.process and ticket.process == self._died:
            return
        self._died = ticket.process
        job = ticket.leased
        log.warning(
            "pool %s: step %s was lost (attempt %d, run %s): %s",
            job.pool, job.step, job.attempt, job.run, reason,
        )  # fmt: skip

    async def _finished(self, ticket: Ticket, event: Finished) -> None:
        try:
            said = decode_said(event.said)
        except InputError as error:
            self._book.finished += 1
            answer = failed("result", f"worker {event.worker}: {error.message}", retryable=False)
            await self._reports.failed(ticket, answer)
            self._over(ticket)
            return
        if isinstance(said, Outcome) and said.logs:
            self._keep_logs(ticket, said)
        if isinstance(said, Missing):
            await self._lacks(ticket, said)
        elif isinstance(said, Outcome) and said.verb == "release":
            await self._handed_back(ticket, str(said.body.get("reason", "")))
        elif isinstance(said, Outcome):
            await self._answered(ticket, said, event.worker)

    async def _lacks(self, ticket: Ticket, said: Missing) -> None:
        """Nothing was begun: the attempt goes out once more, with what was asked for."""
        ticket.asked.update(self._packer.lacks(said))
        ticket.rounds += 1
        if ticket.stop is not None:
            await self._handed_back(ticket, "")
        elif ticket.rounds > ROUNDS_MAX:
            message = f"processes of the cluster asked {ROUNDS_MAX} times for parts of the job"
            await self._reports.failed(ticket, failed("config", message, retryable=False))
            self._over(ticket)
        else:
            self._packer.over(ticket.name)
            self._book.rename(ticket)
            self._again(ticket)

    async def _handed_back(self, ticket: Ticket, reason: str) -> None:
        """The work has stopped without an answer: as it was told, or for a reason of its own."""
        if ticket.stop is None:
            self._book.losses["handed_back"] += 1
            why = reason or "the cluster handed it back"
            self._trouble(why, PAUSE_SECONDS_MAX)
            await self._reports.released(ticket, why)
        else:
            self._book.withdrawn += 1
            if ticket.stop.says:
                await self._reports.released(ticket, ticket.stop.reason)
        self._over(ticket)

    async def _answered(self, ticket: Ticket, said: Outcome, worker: str) -> None:
        recorded = False
        try:
            answer = await self._packer.take(ticket.out, said)
        except FolderError as error:
            await self.lost(ticket, error.message, worker=False, sort="values")
            return
        except InputError as error:
            answer_of_ours = failed("result", error.message, retryable=False)
            recorded = await self._reports.failed(ticket, answer_of_ours)
        except (Refused, NotFound, RunElsewhere):
            pass  # its attempt was given up
        else:
            recorded = await self._reports.answer(ticket, answer)
        self._book.finished += 1
        self._works()
        ticket.answered = recorded
        self._over(ticket)
        if not recorded:
            self.late(ticket.name, worker, said)

    def late(self, name: str, worker: str, said: bytes | Outcome) -> None:
        """An attempt that was given up has ended: written down, if it came to anything. What was
        recorded as an answer and is told again is not late."""
        out = self._book.given_up(name)
        with suppress(InputError):
            words = said if isinstance(said, Outcome) else decode_said(said)
            if out is not None and isinstance(words, Outcome) and words.verb != "release":
                self._book.late += 1
                self._api.late(out, worker, _outcome_of(words))


def _outcome_of(said: Outcome) -> str:
    """In a word: what routes could look at, or how it ended."""
    match said.verb:
        case "report":
            return str(said.body.get("outcome") or "ok")
        case "park":
            return "parked"
        case _:
            return str(said.body.get("status") or "error")

"""A pool on a Dask cluster, in the process of its connection (`driver`): tickets are keys of tasks,
and every one ends exactly once.

    given ──Started──▶ begun ──▶ Finished │ Lost │ Unusable
      └─ withdrawn: nothing is told

Dask runs a task again when its worker died, whatever is asked of it. So the death of a worker is
the end of the tickets that it had begun, and the repetition is withdrawn.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

from anabranch.cancel import cancel_and_wait
from anabranch.pools.address import PoolOptions
from anabranch.pools.backend import (
    BackendAway,
    BackendUnfit,
    CameBack,
    Capacity,
    Event,
    Finished,
    Lost,
    Progressed,
    Started,
    Unusable,
    WentAway,
)
from anabranch.pools.fitness import absent, engine_versions, misfit

if TYPE_CHECKING:
    from anabranch.pools.dask.connection import DaskConnection
    from anabranch.pools.dask.worker import Answer

log = logging.getLogger("anabranch.pools")

ENTRY = "anabranch.pools.worker_entry"
RETRY_SECONDS = (0.1, 5.0)  # the first pause and the longest one
PROGRESS_KEPT = 100  # of a ticket, until the engine hears it
NAMED_MAX = 1_000  # of what has been logged of workers, to log it once
DEAF = (
    "it was told to stop and has not; Dask cannot end a function that runs, which goes on in its "
    "worker until it returns"
)
RESTARTED = "it was told to stop and has not; its worker is restarted"


class _Out:
    """A ticket that the cluster has, or will have with the next message."""

    def __init__(self, ticket: str) -> None:
        self.ticket = ticket
        self.link: DaskConnection | None = None  # where it has been sent
        self.future: Any = None
        self.follower: asyncio.Task[None] | None = None
        self.allowed: frozenset[str] | None = None  # the workers that may begin it; None: all
        self.worker = self.address = ""  # of the worker that has begun it
        self.withdrawn = False
        self.answered = False  # its result is here

    @property
    def begun(self) -> bool:
        return bool(self.address)


class DaskBackend:
    """`PoolBackend` for Dask; also the listener of its connection."""

    engine = "dask"

    def __init__(self, options: PoolOptions, *, entry: str = ENTRY) -> None:
        self.address = options.shown
        self._options = options
        self._entry = entry
        self._link: DaskConnection | None = None
        self._why_away = "not connected yet"
        self._keeper: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()  # connections that are being closed
        self._out: dict[str, _Out] = {}
        self._unsent: list[Any] = []  # submissions of this turn of the loop
        self._unfit: dict[str, str] = {}  # address of a worker → why it gets nothing
        self._named: dict[str, None] = {}  # what has been logged of workers, the latest last
        self._addresses: set[str] = set()  # of the workers
        self._new: set[str] = set()  # those that have not been asked yet
        self._restarted: set[str] = set()  # those of them that are ended for one of their tickets
        self._announced: dict[str, set[str]] = {}  # address → tickets with progress to take
        self._takers: dict[str, asyncio.Task[None]] = {}
        self._events: list[Event] = []
        #: Ticket → how much of its progress is among the events, and where the last of it is.
        self._progress: dict[str, tuple[int, int]] = {}
        self._told = asyncio.Event()
        self._closed = False

    # -- contact -----------------------------------------------------------------------------

    async def open(self) -> Capacity:
        await self._disconnect()
        link = await self._connect()
        self._use(link)
        self._keeper = asyncio.create_task(self._keep(link))
        return await self.capacity()

    def _use(self, link: DaskConnection) -> None:
        self._link = link
        if self._new:  # they came while the others were asked
            self._begin(self._examine(link))

    async def _connect(self) -> DaskConnection:
        """A connection whose workers have been asked what they are. Some of them may be unfit:
        they get nothing."""
        client = await asyncio.to_thread(import_module, "anabranch.pools.dask.connection")
        self._addresses, self._new, self._unfit, self._restarted = set(), set(), {}, set()
        try:
            link: DaskConnection = await client.DaskConnection.open(
                self._options.address, self._entry, self
            )
        except OSError as error:
            self._away(_worded(error))
        except Exception as error:  # certificates, settings of Dask, packages it cannot do without
            said = f"{type(error).__name__}: {error}"
            message = f"the Dask scheduler at {self.address} cannot be used: {said}"
            raise BackendUnfit(message) from error
        try:
            await self._check(link)
        except OSError as error:
            await link.close()
            self._away(_worded(error))
        except BaseException:
            await link.close()
            raise
        return link

    def _away(self, why: str) -> NoReturn:
        message = f"the Dask scheduler at {self.address} does not answer: {why}"
        raise BackendAway(message) from None

    async def _check(self, link: DaskConnection) -> None:
        try:
            await link.prepare_scheduler()
        except ImportError as error:
            raise BackendUnfit(absent(f"the scheduler at {self.address}", str(error))) from None
        await self._meet(link, None)
        if wrong := self._wrong_with_all():
            raise BackendUnfit(f"{self.address}: {wrong}")

    async def _meet(self, link: DaskConnection, addresses: Collection[str] | None) -> None:
        """Ask workers what they are."""
        for address, said in (await link.introductions(addresses)).items():
            if isinstance(said, OSError):
                continue  # it has gone again
            self._addresses.add(address)
            wrong = _misfit(address, said)
            if wrong:
                self._unfit[address] = wrong
                self._name(wrong)

    def _name(self, wrong: str) -> None:
        """Log it once. Where workers come and go for weeks, each has an address of its own."""
        if wrong not in self._named:
            log.warning("%s gets no jobs: %s", self.address, wrong)
        self._named.pop(wrong, None)
        self._named[wrong] = None
        if len(self._named) > NAMED_MAX:
            del self._named[next(iter(self._named))]

    def _wrong_with_all(self) -> str:
        """What is wrong with the workers, where none is fit."""
        fit = self._addresses - self._unfit.keys()
        return "" if fit else "; ".join(sorted(self._unfit.values())[:3])

    async def _keep(self, link: DaskConnection) -> None:
        """Notice that the connection broke and open another one, until `close`."""
        while True:
            self._lose_contact(await link.until_broken())
            self._leave(link)
            link = await self._reconnect()
            self._use(link)
            self._tell(CameBack())

    def _leave(self, link: DaskConnection) -> None:
        """Close a connection that broke, which may take some seconds."""
        task = asyncio.create_task(link.close())
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _reconnect(self) -> DaskConnection:
        pause, most = RETRY_SECONDS
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, most)
            try:
                return await self._connect()
            except (BackendAway, BackendUnfit) as error:
                if error.message != self._why_away:
                    self._why_away = error.message
                    self._tell(WentAway(error.message))
            except Exception:
                log.exception("%s: connecting failed", self.address)

    def _lose_contact(self, reason: str) -> None:
        self._link, self._why_away = None, f"{self.address}: {reason}"
        for out in list(self._out.values()):
            self._end(out, Lost(out.ticket, reason, worker=False))
        for task in [*self._tasks, *self._takers.values()]:
            task.cancel()
        self._unsent.clear()
        self._announced.clear()
        self._takers.clear()
        self._tell(WentAway(self._why_away))

    async def close(self) -> None:
        self._closed = True
        await self._disconnect()
        self._told.set()

    async def _disconnect(self) -> None:
        """Withdraw everything; nothing of it is told any more."""
        link, self._link = self._link, None
        if self._keeper is not None:
            await cancel_and_wait(self._keeper, ignore=Exception)
        begun = [out for out in self._out.values() if out.begun]
        self._out.clear()
        if link is not None:
            await _told_to_stop(link, begun)
        await cancel_and_wait(*self._takers.values(), *self._tasks, ignore=Exception)
        if link is not None:
            self._leave(link)
        if self._leaving:
            await asyncio.wait(list(self._leaving))

    def _open_link(self) -> DaskConnection:
        if self._link is None:
            raise BackendAway(self._why_away)
        if self._link.broken:  # which `_keep` will say
            raise BackendAway(f"{self.address}: the connection to the scheduler broke")
        return self._link

    async def capacity(self) -> Capacity:
        link = self._open_link()
        try:
            slots = await link.slots(self._options.resources)
        except OSError as error:
            self._away(_worded(error))
        fit = {address: most for address, most in slots.items() if address not in self._unfit}
        return Capacity(
            slots=sum(fit.values()),
            workers=len(fit),
            queued=sum(not out.begun for out in self._out.values()),
            dashboard=link.dashboard,
            version=link.scheduler_version,
        )

    # -- tickets -----------------------------------------------------------------------------

    async def submit(self, ticket: str, blob: bytes) -> None:
        link = self._open_link()
        if ticket in self._out:
            raise ValueError(f"the ticket {ticket!r} is out already")
        self._out[ticket] = _Out(ticket)
        self._unsent.append(link.submission(ticket, blob))
        if len(self._unsent) == 1:
            asyncio.get_running_loop().call_soon(self._send, link)

    def _send(self, link: DaskConnection) -> None:
        """One message for all submissions of a turn of the loop: that halves what Dask does."""
        unsent, self._unsent = self._unsent, []
        if link is not self._link:
            return  # all of them have been told as lost
        fit = frozenset(self._addresses - self._unfit.keys()) if self._unfit else None
        for batch in _batches([one for one in unsent if one.ticket in self._out]):
            try:
                futures = link.submit(
                    batch,
                    priority=self._options.priority,
                    resources=self._options.resources,
                    workers=fit,
                )
            except Exception as error:
                log.debug("%s: nothing can be sent", self.address, exc_info=True)
                for one in batch:
                    reason = f"it could not be sent: {error!r}"
                    self._end(self._out[one.ticket], Lost(one.ticket, reason, worker=False))
                continue
            for one, future in zip(batch, futures, strict=True):
                out = self._out[one.ticket]
                out.link, out.future, out.allowed = link, future, fit
                out.follower = self._begin(self._follow(link, out))

    async def _follow(self, link: DaskConnection, out: _Out) -> None:
        from anabranch.pools.dask.connection import verdict_of

        try:
            said = await link.result(out.future)
        except Exception as error:
            if not out.withdrawn:
                self._end(out, self._failed(out, *verdict_of(error)))
            return
        if (answer := self._decoded(out, said)) is not None:
            await self._ended(out, answer)

    def _decoded(self, out: _Out, said: Any) -> Answer | None:
        """The answer; None where it is none, which is the end of its ticket."""
        from anabranch.pools.dask.worker import decode_answer

        try:
            return decode_answer(said)
        except ValueError as error:
            self._end(out, Unusable(out.ticket, f"its answer cannot be read: {error}"))
            return None

    async def _ended(self, out: _Out, answer: Answer) -> None:
        out.answered = True
        taker = self._takers.get(out.address)
        if taker is not None:  # it may have what was told before the end
            await asyncio.wait([taker])
        self._answered(out, answer)

    def _failed(self, out: _Out, verdict: str, reason: str) -> Event:
        if verdict == "unusable" and not self._unfit:
            return Unusable(out.ticket, reason)
        return Lost(out.ticket, reason, worker=verdict == "killed")

    def _answered(self, out: _Out, answer: Answer) -> None:
        if out.ticket not in self._out:
            return
        for words in answer.told[-PROGRESS_KEPT:]:
            self._tell(Progressed(out.ticket, words))
        if answer.unfit:
            self._end(out, Lost(out.ticket, answer.unfit, worker=False))
        elif answer.outcome is None and not answer.refused:
            reason = "its answer was lost on its way"
            self._end(out, Lost(out.ticket, reason, worker=False))
        elif answer.outcome is None:
            self._end(out, Unusable(out.ticket, answer.refused))
        else:
            self._end(out, Finished(out.ticket, answer.worker, answer.outcome))

    def _end(self, out: _Out, event: Event) -> None:
        """Tell the end of a ticket, once. Dask forgets it, and does not run it again."""
        if self._out.pop(out.ticket, None) is None:
            return
        self._tell(event)
        self._forget(out)

    def _forget(self, out: _Out) -> None:
        if out.link is not None:
            out.link.release(out.future)
            out.link = out.future = None
        if out.follower is not None and out.follower is not asyncio.current_task():
            out.follower.cancel()

    def is_out(self, ticket: str) -> bool:
        return ticket in self._out

    async def cancel(self, tickets: Collection[str], *, force: bool = False) -> None:
        link = self._link
        if link is None:
            return  # everything has been told as lost
        out = [self._out[ticket] for ticket in tickets if ticket in self._out]
        await self._withdraw(link, [one for one in out if not one.begun])
        running = [one for one in out if one.begun]
        await _told_to_stop(link, running)
        if force:
            await self._give_up(link, [one for one in running if one.ticket in self._out])

    async def _withdraw(self, link: DaskConnection, given: Sequence[_Out]) -> None:
        """What turns out to have begun meanwhile is lost: Dask has dropped it, and the worker will
        stop it."""
        for out in given:
            out.withdrawn = True
        futures = [out.future for out in given if out.future is not None]
        if futures:
            await link.cancel(futures)
        for out in given:
            if out.begun:
                reason = "it was withdrawn while a worker began it"
                self._end(out, Lost(out.ticket, reason, worker=False))
            elif self._out.pop(out.ticket, None) is not None:
                self._forget(out)

    async def _give_up(self, link: DaskConnection, deaf: Sequence[_Out]) -> None:
        if not deaf:
            return
        addresses = {out.address for out in deaf}
        await link.cancel([out.future for out in deaf if out.future is not None])
        for out in deaf:
            reason = RESTARTED if self._options.restart else DEAF
            self._end(out, Lost(out.ticket, reason, worker=False))
        if self._options.restart:
            self._restarted |= addresses & self._addresses
            self._begin(self._restart(link, addresses))

    async def _restart(self, link: DaskConnection, addresses: Collection[str]) -> None:
        """Those that nobody can restart go on; when one of them dies, it has died."""
        self._restarted -= await link.restart(addresses)

    # -- what the cluster says ---------------------------------------------------------------

    def started(self, ticket: str, worker: str, address: str, process: str) -> None:
        out = self._out.get(ticket)
        if out is None:  # withdrawn, or lost with another worker
            self._stop_soon(address, ticket)
        elif out.begun:
            reason = f"Dask ran it again on {worker}: its worker {out.worker} was lost"
            self._end(out, Lost(ticket, reason, worker=True))
            self._stop_soon(address, ticket)
        else:
            out.worker, out.address = worker, address
            self._tell(Started(ticket, worker, process))

    def answered(self, ticket: str, said: Any) -> None:
        out = self._out.get(ticket)
        if out is None or (answer := self._decoded(out, said)) is None:
            return
        if out.follower is not None:
            out.follower.cancel()  # it would fetch a result that says no more
        if out.address in self._takers:
            self._begin(self._ended(out, answer))
        else:
            self._answered(out, answer)

    def progressed(self, ticket: str, address: str) -> None:
        link = self._link
        if link is None or ticket not in self._out:
            return
        self._announced.setdefault(address, set()).add(ticket)
        if address not in self._takers:
            self._takers[address] = asyncio.create_task(self._take(link, address))

    async def _take(self, link: DaskConnection, address: str) -> None:
        try:
            while tickets := self._announced.pop(address, None):
                for ticket, told in (await link.take(address, tickets)).items():
                    if ticket in self._out:
                        for words in told[-PROGRESS_KEPT:]:
                            self._tell(Progressed(ticket, words))
        except OSError as error:
            log.debug("%s: progress of %s is not known: %s", self.address, address, error)
        finally:
            if self._takers.get(address) is asyncio.current_task():
                del self._takers[address]

    def worker_came(self, address: str) -> None:
        self._new.add(address)
        if self._link is not None and len(self._new) == 1:
            self._begin(self._examine(self._link))

    async def _examine(self, link: DaskConnection) -> None:
        """Meet the new workers: what they could not do would fail on them at once, and so they
        would take job after job."""
        try:
            while new := list(self._new):
                await self._meet(link, new)
                self._new.difference_update(new)
        except OSError as error:
            self._new.clear()
            log.debug("%s: new workers did not say what they are: %s", self.address, error)
        if wrong := self._wrong_with_all():
            link.give_up(wrong)

    def worker_gone(self, address: str, expected: bool, results: Collection[str]) -> None:
        self._addresses.discard(address)
        self._unfit.pop(address, None)
        planned = expected or address in self._restarted
        self._restarted.discard(address)
        how = "was taken from the cluster" if planned else "died"
        for out in list(self._out.values()):
            if out.answered:
                continue
            if out.address == address or out.ticket in results:
                reason = f"the worker {_called(out.worker, address)} {how}"
                self._end(out, Lost(out.ticket, reason, worker=not planned))
            elif not out.begun and out.allowed is not None and not out.allowed & self._addresses:
                reason = "the workers that could begin it have left the cluster"
                self._end(out, Lost(out.ticket, reason, worker=False))
        if self._link is not None and (wrong := self._wrong_with_all()):
            self._link.give_up(wrong)

    # -- small things ------------------------------------------------------------------------

    def _stop_soon(self, address: str, ticket: str) -> None:
        if self._link is not None:
            self._begin(_stop(self._link, [address], [ticket]))

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _tell(self, event: Event) -> None:
        """Of what a ticket tells before it is heard, so much is kept, the latest, and its end."""
        if self._closed:
            return
        self._told.set()
        if isinstance(event, Progressed):
            count, at = self._progress.get(event.ticket, (0, 0))
            if count == PROGRESS_KEPT:
                self._events[at] = event
                return
            self._progress[event.ticket] = count + 1, len(self._events)
        self._events.append(event)

    async def events(self) -> AsyncIterator[Sequence[Event]]:
        while not self._closed:
            self._told.clear()
            if batch := self.take_events():
                yield batch
            else:
                await self._told.wait()

    def take_events(self) -> list[Event]:
        """What `events` would give next."""
        batch, self._events = self._events, []
        self._progress.clear()
        return batch


async def _told_to_stop(link: DaskConnection, running: Sequence[_Out]) -> None:
    if running:
        addresses = {out.address for out in running}
        await _stop(link, addresses, [out.ticket for out in running])


async def _stop(link: DaskConnection, addresses: Collection[str], tickets: Collection[str]) -> None:
    try:
        await link.stop(addresses, tickets)
    except OSError as error:
        log.debug("no work was told to stop: %s", error)  # whoever is asked is gone


def _batches(unsent: Sequence[Any]) -> list[list[Any]]:
    """Small submissions together, large ones for themselves."""
    from anabranch.pools.dask.connection import GRAPH_BYTES

    batches: list[list[Any]] = []
    size = 0
    for one in unsent:
        more = len(one.blob.data)
        if not batches or size + more > GRAPH_BYTES:
            batches.append([])
            size = 0
        batches[-1].append(one)
        size += more
    return batches


def _called(name: str, address: str) -> str:
    """A worker that was given no name has its address for one."""
    return address if name in ("", address) else f"{name} ({address})"


def _misfit(address: str, said: Any) -> str:
    if isinstance(said, Mapping):
        name = said.get("name") or address
        return misfit(f"the worker {name}", said, engine_versions())
    return absent(f"the worker {address}", f"{type(said).__name__}: {said}")


def _worded(error: OSError) -> str:
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else repr(error))

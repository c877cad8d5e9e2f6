"""One connection to a Dask scheduler, in the loop of the engine, for as long as it holds.

Dask's client connects again by itself and then has neither its tasks nor its subscriptions. So a
connection that broke is over here: `until_broken` returns, and its owner opens another one. What
Dask would log about it is left out; the owner says it once.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

import dask
import distributed
from distributed import versions
from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError
from distributed.utils import format_dashboard_link

from anabranch.pools.dask.scheduler import ANSWER, NAME, TOPIC, NoRepeats, introduce_scheduler
from anabranch.pools.dask.worker import STOP, TAKE, Opaque, Submission, introduce, run
from anabranch.pools.fitness import engine_versions

CONNECT_SECONDS = 10.0
ASK_SECONDS = 30.0  # for an answer of the scheduler or of a worker
CLOSE_SECONDS = 5.0
WATCH_SECONDS = 0.25
GRAPH_BYTES = 4_000_000  # submissions that travel in one message

T = TypeVar("T")

Client: Any = distributed.Client  # most of it has no types
Future = Any  # of Dask
_link: Any = format_dashboard_link

#: What happened to a task that has no result: its worker died; Dask dropped it; it cannot be run.
Verdict = Literal["killed", "dropped", "unusable"]


class Listener(Protocol):
    """Who is told what the cluster says."""

    def started(self, ticket: str, worker: str, address: str, process: str) -> None:
        """The worker waits until the scheduler has passed this on, and then begins."""

    def progressed(self, ticket: str, address: str) -> None:
        """There is something to `take`."""

    def answered(self, ticket: str, said: Any) -> None:
        """A small answer in bytes, ahead of the news that there is one."""

    def worker_came(self, address: str) -> None: ...

    def worker_gone(self, address: str, expected: bool, results: Collection[str]) -> None:
        """`results`: finished tickets whose result it alone had."""


# -- quiet -----------------------------------------------------------------------------------

_ours: ContextVar[bool] = ContextVar("anabranch_dask", default=False)


class _Quiet(logging.Filter):
    """Drops what Dask logs on behalf of this module, and nothing of a program's own clients."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        return not _ours.get()


def _hush() -> None:
    quiet = _Quiet("anabranch")
    for name in [*logging.root.manager.loggerDict, "tornado.application"]:
        if name.partition(".")[0] in ("distributed", "tornado"):
            logger = logging.getLogger(name)
            if not any(isinstance(one, _Quiet) for one in logger.filters):
                logger.addFilter(quiet)


def _quietly() -> Context:
    context = copy_context()
    context.run(_ours.set, True)
    return context


def prepare() -> None:
    """The slow part, for a thread: Dask imports packages to tell their versions."""
    _hush()
    versions.get_versions()


# -- a connection ----------------------------------------------------------------------------


class DaskConnection:
    """Raises `OSError` (which `TimeoutError` and Dask's own errors of connections are) where the
    scheduler does not answer."""

    def __init__(self, client: Any, entry: str, listener: Listener) -> None:
        self._client = client
        self._comm = client.scheduler_comm
        self._comm.recent_message_log = deque(maxlen=0)  # Dask would keep a thousand submissions
        self._entry = entry
        self._versions = engine_versions()
        self._listener = listener
        self._topic = f"{TOPIC}{client.id}"
        self._topics: dict[str, Callable[[tuple[float, Any]], None]] = {
            self._topic: self._on_ticket,
            "all": self._on_cluster,
            client.id: self._on_client,
        }
        self._answers_to = ""  # the client, where the scheduler passes small answers on
        self._given_up = ""
        self._sent = self._taken = 0  # graphs: given to the scheduler, and known to it
        self._cancels = self._cancelled = 0
        self._heard = asyncio.Event()
        self.scheduler_version = ""
        self.dashboard = ""

    @classmethod
    async def open(cls, address: str, entry: str, listener: Listener) -> DaskConnection:
        await asyncio.to_thread(prepare)
        await _reach(address)
        return await _in_quiet(cls._open(address, entry, listener))

    @classmethod
    async def _open(cls, address: str, entry: str, listener: Listener) -> DaskConnection:
        client = Client(
            address,
            asynchronous=True,
            set_as_default=False,
            name="anabranch",
            timeout=CONNECT_SECONDS,
            direct_to_workers=False,
        )
        try:
            with warnings.catch_warnings():  # of versions: we ask for those that matter
                warnings.simplefilter("ignore", versions.VersionMismatchWarning)
                async with asyncio.timeout(3 * CONNECT_SECONDS):
                    await client
            made = cls(client, entry, listener)
            await made._look_around()
        except BaseException:
            await _discard(client)
            raise
        return made

    async def _look_around(self) -> None:
        client = self._client
        for topic, handler in self._topics.items():
            client.subscribe_topic(topic, handler)
        scheduler = client.scheduler
        said = await _bounded(scheduler.versions())
        self.scheduler_version = said["packages"].get("distributed") or "?"
        port = client.scheduler_info().get("services", {}).get("dashboard")
        if port is not None:
            host = urlsplit(scheduler.address).hostname
            self.dashboard = str(_link(host, port))

    async def until_broken(self) -> str:
        """Why it is of no use any more."""
        while not (self._given_up or self.broken):
            await asyncio.sleep(WATCH_SECONDS)
        return self._given_up or "the connection to the scheduler broke"

    @property
    def broken(self) -> bool:
        """Also where a message could not be read: Dask hears no further ones then."""
        client = self._client
        hears = not client._handle_report_task.done()
        return not hears or client.status != "running" or client.scheduler_comm is not self._comm

    def give_up(self, reason: str) -> None:
        """Let `until_broken` return."""
        self._given_up = reason

    async def close(self) -> None:
        """Never longer than a few seconds; Dask drops what is out."""
        await _in_quiet(self._close())

    async def _close(self) -> None:
        for topic in self._topics:  # else the scheduler would log that we are gone, as an accident
            self._client.unsubscribe_topic(topic)
        await _discard(self._client)

    # -- events ------------------------------------------------------------------------------

    def _on_ticket(self, event: tuple[float, Any]) -> None:
        said = event[1]
        if said["kind"] == "started":
            who = said["worker"], said["address"], said["process"]
            self._listener.started(said["ticket"], *who)
        else:
            self._listener.progressed(said["ticket"], said["address"])

    def _on_cluster(self, event: tuple[float, Any]) -> None:
        said = event[1]
        if said.get("action") == "add-worker":
            self._listener.worker_came(said["worker"])
        elif said.get("action") == "remove-worker":
            results = said.get("lost-computed-tasks", ())
            self._listener.worker_gone(said["worker"], bool(said.get("expected")), results)

    def _on_answer(self, ticket: str, answer: Any, **_more: Any) -> None:
        self._listener.answered(ticket, answer)

    def _on_client(self, event: tuple[float, Any]) -> None:
        action = event[1].get("action")
        self._taken += action == "update-graph"
        self._cancelled += action == "cancel"
        self._heard.set()

    # -- tasks -------------------------------------------------------------------------------

    def submission(self, ticket: str, blob: bytes) -> Submission:
        content = Opaque(blob)
        return Submission(
            ticket, self._entry, self._topic, self._versions, content, self._answers_to
        )

    def submit(
        self,
        batch: Sequence[Submission],
        *,
        priority: int,
        resources: Mapping[str, float],
        workers: Collection[str] | None,
    ) -> list[Future]:
        """Dask repeats nothing that failed; what a worker died with it repeats whatever is said."""
        options: dict[str, Any] = {
            "key": [one.ticket for one in batch],
            "pure": False,
            "retries": 0,
            "priority": priority,
            "resources": dict(resources) or None,
            "workers": list(workers) if workers is not None else None,
        }
        self._sent += 1
        with dask.config.set({"distributed.admin.large-graph-warning-threshold": sys.maxsize}):
            futures = _quietly().run(self._client.map, run, list(batch), **options)
        return list(futures)

    async def result(self, future: Future) -> Any:
        return await _in_quiet(_awaited(future))

    def release(self, future: Future) -> None:
        """Let Dask forget it."""
        _quietly().run(future.release)

    async def cancel(self, futures: Sequence[Future]) -> None:
        """Returns when the scheduler has dropped them: everything that was told of them before has
        been heard then."""
        sent = self._sent
        await self._until(lambda: self._taken >= sent)  # before that, it knows no such key
        if self.broken:
            return  # which is the end of them all
        self._cancels = cancels = self._cancels + 1
        await _in_quiet(_awaited(self._client.cancel(list(futures), force=True)))
        await self._until(lambda: self._cancelled >= cancels)

    async def _until(self, heard: Callable[[], bool]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(ASK_SECONDS):
                while not heard() and not self.broken:
                    self._heard.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._heard.wait(), WATCH_SECONDS)

    # -- workers -----------------------------------------------------------------------------

    async def slots(self, resources: Mapping[str, float]) -> dict[str, int]:
        """Address → jobs at once, of the workers that take any."""
        if not resources:
            return dict(await self._ask(self._scheduler.ncores_running()))
        known = await self._ask(self._scheduler.identity())
        return {
            address: _slots(worker, resources)
            for address, worker in known["workers"].items()
            if worker["status"] == "running"
        }

    async def introductions(self, addresses: Collection[str] | None = None) -> dict[str, Any]:
        """Address → what its process says of itself, or an exception."""
        workers = list(addresses) if addresses is not None else None
        asked = self._client.run(introduce, self._entry, workers=workers, on_error="return")
        return dict(await self._ask(asked))

    async def prepare_scheduler(self) -> None:
        """Raises `ImportError` where the scheduler cannot import us. One that runs nothing for its
        clients may repeat what a worker died with; the listener hears of it."""
        with suppress(ValueError):
            await self._ask(self._client.register_plugin(NoRepeats(), name=NAME))
            said = await self._ask(self._client.run_on_scheduler(introduce_scheduler))
            self.dashboard = re.sub("/status$", said["page"], self.dashboard)
            handlers = getattr(self._client, "_stream_handlers", None)
            if said["passes"] and isinstance(handlers, dict):
                handlers[ANSWER] = self._on_answer
                self._answers_to = self._client.id

    async def stop(self, addresses: Collection[str], tickets: Collection[str]) -> None:
        await self._relay(STOP, addresses, tickets)

    async def take(self, address: str, tickets: Collection[str]) -> dict[str, list[bytes]]:
        answers = await self._relay(TAKE, [address], tickets)
        return answers.get(address) or {}

    async def restart(self, addresses: Collection[str]) -> set[str]:
        """Those that no nanny watches over, with which nothing happens."""
        alone = set()
        for address in addresses:
            try:
                await self._ask(self._client.restart_workers([address], raise_for_error=False))
            except ValueError:
                alone.add(address)
            except (OSError, AssertionError):
                continue  # it may have gone, or go later
        return alone

    async def _relay(
        self, question: str, addresses: Collection[str], tickets: Collection[str]
    ) -> dict[str, Any]:
        message = {"op": question, "tickets": list(tickets)}
        workers = list(addresses)
        asked = self._scheduler.broadcast(msg=message, workers=workers, on_error="ignore")
        return dict(await self._ask(asked))

    @property
    def _scheduler(self) -> Any:
        if self._client.scheduler is None:
            raise ConnectionError("the connection is closed")
        return self._client.scheduler

    async def _ask(self, asked: Awaitable[T]) -> T:
        return await _in_quiet(_bounded(asked))


def verdict_of(error: BaseException) -> tuple[Verdict, str]:
    """What an exception of `result` means, and in which words."""
    if isinstance(error, KilledWorker):
        workers = error.allowed_failures + 1
        last = f"the last one was {error.last_worker.address}"
        return "killed", f"Dask gave it up: {workers} worker(s) died with it, {last}"
    if isinstance(error, CancelledError):
        return "dropped", "the cluster dropped it"
    if isinstance(error, OSError):
        return "dropped", f"its result could not be fetched: {error}"
    if isinstance(error, NoWorkerError | NoValidWorkerError):
        return "dropped", f"the cluster has no worker for it: {error}"
    return "unusable", f"Dask could not run it: {type(error).__name__}: {error}"


# -- small things ----------------------------------------------------------------------------


async def _reach(address: str) -> None:
    """Dask would try again until its own limit, and say why only then."""
    place = urlsplit(address)
    async with asyncio.timeout(CONNECT_SECONDS):
        _, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def _discard(client: Any) -> None:
    """Close it whatever state it is in. Dask's own close may wait for what never comes."""
    try:
        with suppress(Exception):
            async with asyncio.timeout(CLOSE_SECONDS):
                await client.close(timeout=CLOSE_SECONDS)
    finally:
        client.status = "closed"  # else its finalizer would try again, without a loop


async def _in_quiet(work: Coroutine[Any, Any, T]) -> T:
    return await asyncio.create_task(work, context=_quietly())


async def _awaited(given: Awaitable[T]) -> T:
    return await given


async def _bounded(asked: Awaitable[T]) -> T:
    async with asyncio.timeout(ASK_SECONDS):
        return await asked


def _slots(worker: Mapping[str, Any], resources: Mapping[str, float]) -> int:
    has = worker.get("resources", {})
    fits = [int(has.get(name, 0) // amount) for name, amount in resources.items() if amount > 0]
    return min([int(worker["nthreads"]), *fits])

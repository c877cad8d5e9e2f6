"""What Ray runs for a pool: one relay per connection, and one function that does one job.

The relay is an actor without a processor of its own. It gives jobs to Ray, hears them, and keeps
what they said until the driver takes it. It is on the node where the driver is connected, so its
node is lost only with the connection. It is there for three things that a driver cannot have in
all ways of connecting:

- Jobs say that they have begun and how far they are by yielding (`num_returns="streaming"`): in
  order with the result, without a further process. Ray's client (`ray://`) has no streams.
- A job hears that it has to stop by waiting for an answer of the relay. `ray.cancel` without force
  would do as well, but Ray drops everything that a stream yields after it, the result too.
- Both ways of connecting are the same: the driver only hands things on.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any

import ray
from ray import exceptions

from anabranch.pools.driver.wire import encode_said
from anabranch.pools.fitness import absent, misfit

POLL_SECONDS = 0.2  # an interrupt by Ray does not wake who waits for a queue
WITHDRAW_SECONDS = 10.0  # how long a withdrawal waits for Ray's word
BATCH_BYTES = 8 * 1024 * 1024  # taken at once, unless one thing said is larger
REASON_MAX = 500

#: ("started", ticket, worker, process), ("progressed", ticket, said), ("finished", ticket, worker,
#: said), ("lost", ticket, reason, by its worker), ("unusable", ticket, reason), ("unfit", ticket,
#: what is wrong with the node) and ("withdrawn", number of the request, tickets)
Said = tuple[Any, ...]
Sayings = list[tuple[str, bytes]]
ENDS = ("done", "unusable", "unfit")


# -- the function that does one job ----------------------------------------------------------


def do_job(
    relay: Any, entry: str, engine: Mapping[str, str], ticket: str, blob: bytes
) -> Iterator[tuple[str, str, Sayings]]:
    """Yields (worker, process, what the job said since); the last saying is its end.

    Ray runs it in the main thread, which has to be free for interrupts, so the job has another.
    """
    name, process = whoami()
    if wrong := misfit(f"the worker {name}", introduction(entry), engine):
        yield name, process, [("unfit", wrong.encode())]
        return
    module = import_module(entry)
    said: SimpleQueue[tuple[str, bytes]] = SimpleQueue()

    def stop(*_: object) -> None:
        module.stop([ticket])

    job = threading.Thread(target=_perform, args=(module, blob, said), name=ticket, daemon=True)
    with _interrupts_call(stop):
        job.start()
        try:
            for sayings in _batches(said, lambda: _hear_stop(relay, ticket, stop)):
                yield name, process, sayings
        except GeneratorExit:  # Ray does not want more of it
            stop()
            raise
        finally:
            job.join()


def _perform(module: Any, blob: bytes, said: SimpleQueue[tuple[str, bytes]]) -> None:
    def tell(what: str, words: bytes) -> None:
        said.put((what, bytes(words)))

    try:
        outcome = module.perform(blob, tell)
    except BaseException as error:
        said.put(("unusable", f"{type(error).__name__}: {error}".encode()[:REASON_MAX]))
    else:
        if isinstance(outcome, bytes):
            said.put(("done", bytes(outcome)))  # plain ones: they may be sealed
        else:
            kind = type(outcome).__name__
            said.put(("unusable", f"a result of type {kind} cannot be sent: no bytes".encode()))


def _batches(
    said: SimpleQueue[tuple[str, bytes]], takes_longer: Callable[[], None]
) -> Iterator[Sayings]:
    """What was said, as much as there is at once; `takes_longer` is called once if it does."""
    asked = False
    while True:
        try:
            sayings = [said.get(timeout=POLL_SECONDS)]
        except Empty:
            if not asked:
                asked = True
                takes_longer()
            continue
        while not said.empty():
            sayings.append(said.get())
        yield sayings
        if sayings[-1][0] in ENDS:
            return


def _hear_stop(relay: Any, ticket: str, stop: Callable[[], None]) -> None:
    """Call `stop` when the relay says so, or when it is gone, and with it who wants the result."""

    def answered(future: Any) -> None:
        if future.exception() is not None or future.result():
            stop()

    relay.stopped.remote(ticket).future().add_done_callback(answered)


@contextmanager
def _interrupts_call(stop: Callable[..., None]) -> Iterator[None]:
    """`ray.cancel` interrupts the main thread wherever it is: also inside of Ray. A job that was
    withdrawn in the moment in which it began is told to stop instead."""
    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@cache
def introduction(entry: str) -> Mapping[str, str]:
    """What this process is; it does not change."""
    found: dict[str, str] = import_module(entry).probe()
    return found


def whoami() -> tuple[str, str]:
    """The name of this process as Ray's pages show it, and what tells it from all others."""
    here = ray.get_runtime_context()
    return f"{ray.util.get_node_ip_address()}/{os.getpid()}", here.get_worker_id()


# -- the relay -------------------------------------------------------------------------------


class _Out:
    """A ticket that Ray has."""

    def __init__(self) -> None:
        self.stream: Any = None
        self.following: asyncio.Task[None] | None = None
        self.worker = ""  # of Ray; "" while none has begun it
        self.stop: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.withdrawn = False  # before a worker had begun it
        self.forced = False
        self.end: Said | None = None


class Relay:
    """An actor: all methods run in one event loop."""

    def __init__(self, entry: str, engine: Mapping[str, str], options: Mapping[str, Any]) -> None:
        """`engine` says the versions of who sends jobs, `options` what each of them takes."""
        self._entry = entry
        self._engine = engine
        self._options = options
        self._job = ray.remote(do_job)
        self._out: dict[str, _Out] = {}
        self._said: list[Said] = []
        self._news = asyncio.Event()

    async def ready(self) -> str:
        """Where it is."""
        return whoami()[0]

    async def submit(self, jobs: Sequence[tuple[str, bytes]]) -> None:
        """Tickets and blobs."""
        me = ray.get_runtime_context().current_actor
        for ticket, blob in jobs:
            self._submit(me, ticket, blob)

    def _submit(self, me: Any, ticket: str, blob: bytes) -> None:
        self._out[ticket] = out = _Out()
        job = self._job.options(
            name=ticket,
            num_returns="streaming",
            max_retries=0,
            retry_exceptions=False,
            **self._options,
        )
        try:
            out.stream = job.remote(me, self._entry, self._engine, ticket, blob)
        except Exception as error:
            del self._out[ticket]
            self._say("unusable", ticket, reason_of(error))
        else:
            out.following = asyncio.create_task(self._follow(ticket, out))

    async def cancel(self, number: int, tickets: Collection[str], force: bool) -> None:
        """Withdraw what has not begun and tell the others to stop, or end their workers."""
        waiting = {}
        for ticket in tickets:
            out = self._out.get(ticket)
            if out is None or out.following is None:
                continue
            if not out.worker:
                out.withdrawn = True
                waiting[out.following] = out
            if force:
                out.forced = True
            elif not out.stop.done():
                out.stop.set_result(True)
            if force or out.withdrawn:
                ray.cancel(out.stream, force=force)
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=WITHDRAW_SECONDS)
            for each in late:
                waiting[each].withdrawn = False  # its end is told
        self._say("withdrawn", number, [one for one in tickets if one not in self._out])

    async def close(self, seconds: float) -> None:
        """Withdraw everything and give what runs this time to stop."""
        following = [out.following for out in self._out.values() if out.following]
        await self.cancel(0, list(self._out), force=False)
        if following:
            await asyncio.wait(following, timeout=seconds)

    async def stopped(self, ticket: str) -> bool:
        """Answered when the job has to stop, or is over."""
        out = self._out.get(ticket)
        return out is not None and await asyncio.shield(out.stop)

    async def take(self, seconds: float) -> bytes:
        """What was said since; nothing if that takes longer than this. In bytes of ours: Ray passes
        those on as they are, and all else as pickles."""
        if not self._said:
            self._news.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), seconds)
        count = size = 0
        for each in self._said:
            size += sum(len(part) for part in each if isinstance(part, bytes))
            if count and size > BATCH_BYTES:
                break
            count += 1
        taken, self._said = self._said[:count], self._said[count:]
        return encode_said(taken)

    def _say(self, *said: Any) -> None:
        self._said.append(said)
        self._news.set()

    async def _follow(self, ticket: str, out: _Out) -> None:
        error: Exception | None = None
        try:
            await self._listen(ticket, out)
        except Exception as raised:
            error = raised
            if isinstance(raised, _ITS_WORKER_DIED):
                # Where the head does not answer, the cluster died and not the worker: this does not
                # return, and the driver says that everything is lost.
                await asyncio.to_thread(ray.nodes)
        del self._out[ticket]
        if not out.stop.done():
            out.stop.set_result(False)
        if out.end is not None:
            self._say(*out.end)
        elif out.worker or not out.withdrawn:
            self._say(*end_of(ticket, out.worker, error, forced=out.forced))

    async def _listen(self, ticket: str, out: _Out) -> None:
        async for ref in out.stream:
            out.worker, process, sayings = await ref
            for what, words in sayings:
                if what == "started":
                    self._say("started", ticket, out.worker, process)
                elif what == "progress":
                    self._say("progressed", ticket, words)
                elif what == "done":
                    out.end = ("finished", ticket, out.worker, words)
                else:
                    out.end = (what, ticket, words.decode(errors="replace"))


# -- what Ray's errors mean ------------------------------------------------------------------

_ITS_WORKER_DIED = (
    exceptions.WorkerCrashedError,
    exceptions.NodeDiedError,
    exceptions.OutOfMemoryError,
    exceptions.LocalRayletDiedError,
    exceptions.ObjectLostError,
)
_NOT_POSSIBLE = (
    exceptions.RayTaskError,
    exceptions.RuntimeEnvSetupError,
    exceptions.TaskUnschedulableError,
    exceptions.ObjectStoreFullError,
    exceptions.OutOfDiskError,
)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def end_of(ticket: str, worker: str, error: Exception | None, *, forced: bool = False) -> Said:
    """The end of a job that did not say its end by itself."""
    at = f"the worker {worker}" if worker else "its worker"
    if forced:
        return "lost", ticket, f"{at} was ended by force", True
    if error is None or isinstance(error, exceptions.TaskCancelledError):
        return "lost", ticket, "it was cancelled on the cluster", False
    if isinstance(error, _ITS_WORKER_DIED):
        return "lost", ticket, f"{at} died: {reason_of(error)}", True
    if isinstance(getattr(error, "cause", None), ImportError):
        return "unfit", ticket, absent(at, reason_of(error))
    if isinstance(error, _NOT_POSSIBLE):
        return "unusable", ticket, reason_of(error)
    return "lost", ticket, reason_of(error), True  # counted, so that it ends some time


def reason_of(error: BaseException) -> str:
    """What Ray says, in one line, without the traces of other processes."""
    cause = getattr(error, "cause", None) or error
    text = " ".join(_COLOURS.sub("", str(cause)).split())
    return f"{type(cause).__name__}: {text}"[:REASON_MAX] if text else type(cause).__name__

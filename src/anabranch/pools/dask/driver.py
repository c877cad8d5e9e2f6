"""The process that is connected to a Dask scheduler: a child of the engine, one per pool.

Dask's client takes what a scheduler sends for pickles: answers, errors, even warnings. Who may run
code in the cluster, or answers in its place, would run it in the engine. So the client is here, in
a process that unpickles plain values only and has none of the secrets of the engine, which hears
frames of ours from it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from distributed.core import Status
from distributed.scheduler import (
    KilledWorker,
    NoValidWorkerError,
    NoWorkerError,
    WorkerState,
)

from anabranch.pools.backend import BackendAway, BackendUnfit, Capacity, Lost
from anabranch.pools.dask import connection  # before pickles are restricted: Dask makes its own
from anabranch.pools.dask.backend import DaskBackend
from anabranch.pools.driver.child import Engine, end_later
from anabranch.pools.driver.unpickling import restrict_pickles
from anabranch.pools.driver.wire import (
    Away,
    Beat,
    Cancel,
    Close,
    Connect,
    Connected,
    Logged,
    Look,
    Refused,
    Request,
    Seen,
    Submit,
    Withdrawn,
    Word,
    told_of,
)

BEAT_SECONDS = 5.0


class DaskDriver:
    """Hands on what both sides say, until the engine is gone."""

    def __init__(
        self, backend: DaskBackend, engine: Engine, capacity: Capacity, outcome_bytes: int
    ) -> None:
        self._backend = backend
        self._engine = engine
        self._outcome_bytes = outcome_bytes
        self._capacity = capacity  # as it was last seen
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, requests: asyncio.Queue[Request]) -> None:
        """Returns when the engine wants no more."""
        for part in (self._hear(), self._beat()):
            self._begin(part)
        while not isinstance(request := await requests.get(), Close):
            if isinstance(request, Submit):
                for ticket, blob in request.jobs:
                    await self._submit(ticket, blob)
            elif isinstance(request, Cancel):
                self._begin(self._cancel(request))
            elif isinstance(request, Look):
                self._begin(self._look(request.number))

    async def _submit(self, ticket: str, blob: bytes) -> None:
        try:
            await self._backend.submit(ticket, blob)
        except BackendAway as error:
            self._tell(Lost(ticket, error.message, worker=False))

    async def _cancel(self, request: Cancel) -> None:
        """What has ended meanwhile is told before it."""
        try:
            await self._backend.cancel(request.tickets, force=request.force)
        finally:
            over = [one for one in request.tickets if not self._backend.is_out(one)]
            self._tell(*self._backend.take_events(), Withdrawn(request.number, over))

    async def _look(self, number: int) -> None:
        try:
            self._capacity = await self._backend.capacity()
            self._engine.reply(Seen(number, self._capacity))
        except BackendAway as error:
            self._engine.reply(Seen(number, None, error.message))

    async def _hear(self) -> None:
        async for events in self._backend.events():
            self._tell(*events)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self._engine.reply(Beat(self._capacity))

    def _tell(self, *words: Word) -> None:
        for told in told_of(words, self._outcome_bytes):
            self._engine.reply(told)

    def _begin(self, part: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(part)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._engine.say_last(Away(f"the connection failed: {error!r}"))


class _ToEngine(logging.Handler):
    """What the connection logs is for the log of the engine."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine

    def emit(self, record: logging.LogRecord) -> None:
        self._engine.reply(Logged(record.levelno, self.format(record)))


# -- what is unpickled -----------------------------------------------------------------------


class _NoTraceback:
    """In the place of frames and code that an error was raised in: nobody looks at them here."""

    def __init__(self, *_parts: Any) -> None: ...

    def __setstate__(self, _state: Any) -> None: ...


def _exception_of(kind: type[BaseException], args: tuple[Any, ...], *_more: Any) -> BaseException:
    """An error, without its tracebacks and causes."""
    return kind(*args)


def _exception_with(kind: type[BaseException], parts: Any, *_more: Any) -> BaseException:
    """The same of an error that is made in a way of its own."""
    return kind(*parts.get("args", ()))


def _no_traceback(*_parts: Any) -> None:
    return None


def restrict() -> None:
    """Errors of a cluster come in words of `tblib`, which would compile their frames."""
    tblib, pickling_support = map(import_module, ("tblib", "tblib.pickling_support"))
    stand_ins = (
        (tblib, "Frame", _NoTraceback),
        (tblib, "Traceback", _NoTraceback),
        (tblib, "Code", _NoTraceback),
        (pickling_support, "unpickle_exception", _exception_of),
        (pickling_support, "unpickle_exception_with_attrs", _exception_with),
        (pickling_support, "unpickle_traceback", _no_traceback),
    )
    for module, name, stand_in in stand_ins:
        setattr(module, name, stand_in)
    replaced = [(module.__name__, name) for module, name, _ in stand_ins]
    errors = [KilledWorker, NoValidWorkerError, NoWorkerError]
    of_errors = [WorkerState, Status, deque, defaultdict]
    restrict_pickles([*errors, *of_errors], replaced)

    _read_on()


class Unreadable(Exception):
    """In the place of a part of a message that names what no pickle may."""


def _read_on() -> None:
    """A part that cannot be read costs its own ticket. As Dask has it, that would be the last
    message that a client hears."""
    client: Any = import_module("distributed.client")
    core: Any = import_module("distributed.protocol.core")
    client.loads = _refusing(client.loads)
    core.merge_and_deserialize = _refusing(core.merge_and_deserialize)
    core.pickle = SimpleNamespace(loads=_refusing(core.pickle.loads), dumps=core.pickle.dumps)


def _refusing(read: Callable[..., Any]) -> Callable[..., Any]:
    def read_or_refuse(*given: Any, **more: Any) -> Any:
        try:
            return read(*given, **more)
        except Exception as error:
            return Unreadable(str(error))

    return read_or_refuse


# -- the process -----------------------------------------------------------------------------


def main() -> None:
    engine = Engine()
    first = engine.first()
    handler = _ToEngine(engine)
    logging.getLogger("anabranch").addHandler(handler)
    logging.getLogger("anabranch").setLevel(logging.INFO)
    connection.prepare()
    restrict()
    asyncio.run(_run(first, engine))


async def _run(first: Connect, engine: Engine) -> None:
    backend = DaskBackend(first.pool, entry=first.entry)
    try:
        capacity = await backend.open()
    except (BackendAway, BackendUnfit) as error:
        engine.say_last(Refused(error.message, isinstance(error, BackendUnfit)))
    engine.reply(Connected(capacity))
    await DaskDriver(backend, engine, capacity, first.outcome_bytes).run(engine.requests())
    end_later()
    await backend.close()
    os._exit(0)


if __name__ == "__main__":
    main()

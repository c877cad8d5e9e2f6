"""The processes that run inline Python code: started when first needed, used again, replaced.

A process runs one job at a time. It is stopped with everything it started when its job is
cancelled or breaks it, and retired when a job left threads or processes behind or it has served
`recycle_after` jobs. The next job then gets a new one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec

from anabranch.work.kinds.commands.capture import Capture
from anabranch.work.kinds.commands.child_process import ChildProcess, ending, undisturbed
from anabranch.work.kinds.commands.isolation import Isolation
from anabranch.work.kinds.python.worker import CHANNEL_LOST, RETIRE
from anabranch.work.time_limit import time_limit

_PROGRAM = str(Path(__file__).with_name("worker.py"))
_BUFFER = 1 << 20
_FAREWELL_SECONDS = 0.5
_SMALLEST_LIMIT = 64 * 1024  # the worker's own failures are below that


class ProcessFailure(msgspec.Struct, frozen=True):
    kind: str
    message: str
    retryable: bool = True
    details: Any = None


class ProcessOutcome(msgspec.Struct, frozen=True):
    """What came of one job, and the last of what it printed."""

    result: Any = None
    error: ProcessFailure | None = None
    output: str = ""
    output_bytes: int = 0


class ProcessOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the pool and of each of its processes."""

    limit: int = max(2, os.cpu_count() or 1)
    recycle_after: int = 1000  # jobs
    grace_seconds: float = 1.0  # between SIGTERM and SIGKILL
    output_bytes: int = 64 * 1024
    result_bytes: int = 32 * 1024 * 1024
    memory_bytes: int = 0  # address space of one process; 0 sets no limit
    isolation: Isolation = Isolation()


class Processes:
    """A pool of Python processes for one event loop."""

    def __init__(self, options: ProcessOptions | None = None) -> None:
        self._options = options or ProcessOptions()
        self._slots = asyncio.Semaphore(self._options.limit)
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._retiring: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run(self, request: bytes, seconds: float | None = None) -> ProcessOutcome:
        """Runs one job, with `seconds` from its start; a cancel or TimeoutError has stopped it."""
        async with self._slots:
            worker = await self._ready_worker()
            try:
                async with time_limit(seconds):
                    outcome = await worker.ask(request)
            except BaseException:
                await undisturbed(self._remove(worker, with_descendants=True))
                raise
            self._give_back(worker)
            return outcome

    async def close(self) -> None:
        """Stops every process, busy or not; jobs still running get a failure for an answer."""
        self._closed = True
        await asyncio.gather(*(self._remove(worker) for worker in tuple(self._workers)))
        await asyncio.gather(*self._retiring)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(worker.pid for worker in self._workers)

    async def _ready_worker(self) -> _Worker:
        if self._closed:
            raise RuntimeError("these processes are closed")
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            await undisturbed(self._remove(worker))
        worker = _Worker(self._options)
        self._workers.add(worker)
        try:
            await worker.connect()
        except BaseException:
            await undisturbed(self._remove(worker))
            raise
        return worker

    def _give_back(self, worker: _Worker) -> None:
        if worker.fit and not self._closed:
            self._idle.append(worker)
            return
        retiring = asyncio.create_task(self._remove(worker))  # nobody has to wait for that
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)

    async def _remove(self, worker: _Worker, *, with_descendants: bool = False) -> None:
        await worker.stop(with_descendants=with_descendants)
        self._workers.discard(worker)


class _Worker:
    """One process and the channel to it."""

    def __init__(self, options: ProcessOptions) -> None:
        self._options = options
        self._jobs = 0
        self._fit = True
        self._closed = False
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._output = Capture(options.output_bytes, roomy=True)
        try:
            self._socket, theirs = socket.socketpair()
        except BaseException:
            self._output.close()
            raise
        try:
            self._child = self._start(theirs.fileno())
        except BaseException:
            self._output.close()
            self._socket.close()
            raise
        finally:
            theirs.close()
        self.pid = self._child.pid

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=_BUFFER)

    @property
    def alive(self) -> bool:
        return not self._child.ended

    @property
    def fit(self) -> bool:
        return self._fit and self.alive and self._jobs < self._options.recycle_after

    async def ask(self, request: bytes) -> ProcessOutcome:
        self._jobs += 1
        self._child.next_job()
        self._output.restart()
        assert self._writer is not None
        try:
            self._writer.write(len(request).to_bytes(4, "big") + request)
            await self._writer.drain()
            reply = await self._reply()
            outcome = msgspec.json.decode(reply[1:], type=ProcessOutcome)
        except (asyncio.IncompleteReadError, OSError, ValueError):
            outcome = ProcessOutcome(error=await self._lost())
        else:
            self._fit = reply[:1] != RETIRE
        self._output.catch_up()
        return msgspec.structs.replace(
            outcome, output=self._output.text, output_bytes=self._output.total
        )

    async def stop(self, *, with_descendants: bool = False) -> None:
        """May be called by several at once; each returns when the process is gone."""
        self._fit = False
        grace = self._options.grace_seconds
        await self._child.stop(grace, with_descendants=with_descendants)
        if not self._closed:
            self._closed = True
            self._output.close()
            if self._writer is not None:
                self._writer.close()
            self._socket.close()

    async def _reply(self) -> memoryview:
        assert self._reader is not None
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        if size > max(self._options.result_bytes, _SMALLEST_LIMIT) + 1:
            raise ValueError("not written by the worker")  # the code found the channel
        return memoryview(await self._reader.readexactly(size))

    async def _lost(self) -> ProcessFailure:
        """Why there is no proper reply; afterwards the process is gone."""
        self._fit = False
        try:
            code = await asyncio.wait_for(self._child.exited(), _FAREWELL_SECONDS)
        except TimeoutError:
            code = CHANNEL_LOST
            await self._child.stop(self._options.grace_seconds)
        if code == CHANNEL_LOST:
            message = "the code closed the channel between its process and the engine"
        elif code < 0:
            message = f"the process that ran the code was ended by {ending(code)}"
        else:
            message = f"the code ended its process with {ending(code)}; return or raise instead"
        return ProcessFailure("python", message, details={"exit_code": code})

    def _start(self, channel: int) -> ChildProcess:
        try:
            return ChildProcess.start(
                [
                    *(sys.executable, "-P", "-X", "utf8", _PROGRAM),
                    *(str(channel), str(self._options.memory_bytes)),
                    str(self._options.result_bytes),
                ],
                output=self._output.writer,
                errors=self._output.writer,
                env=self._options.isolation.variables(),
                keep=(channel,),
                user=self._options.isolation.user,
            )
        finally:
            self._output.started()

"""The processes that run inline Python code: started when first needed, used again, replaced.

A process runs one job at a time; it may be given many in one request (`together.py`). It is stopped
with everything it started when its job is cancelled or breaks it, and retired when a job left
threads or processes behind or it has served `recycle_after` jobs. The next job then gets a new one.
How many there may be, and which job is next, is said in `places.py`; those that nobody needs any
more end after a while, but for as many as there are cores.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from anabranch.work.kind_options import ProcessOptions
from anabranch.work.kinds.commands.capture import Capture
from anabranch.work.kinds.commands.child_process import ChildProcess, ending, undisturbed
from anabranch.work.kinds.python.channel import Channel
from anabranch.work.kinds.python.inline_server import CHANNEL_LOST, RECORD, RETIRE
from anabranch.work.kinds.python.places import Place, Places
from anabranch.work.kinds.python.together import (
    ProcessFailure,
    ProcessOutcome,
    Together,
    decoded,
    heard_record,
)
from anabranch.work.logs.attempt_log import AttemptLog, PrintTarget, print_target
from anabranch.work.time_limit import time_limit

_PROGRAM = str(Path(__file__).with_name("worker.py"))
#: From the last word of a process to its end: of one that closed the channel, which it does when it
#: ends, however busy the machine is; and of one that says what makes no sense.
_ENDING_SECONDS = 10.0
_FAREWELL_SECONDS = 0.5
#: So long a process that nobody needs is kept: the next job may come, and a start takes a while.
IDLE_SECONDS = 10.0
_SMALLEST_LIMIT = 64 * 1024  # the worker's own failures are below that


class JobsTogether(msgspec.Struct, frozen=True):
    """Many jobs of the same code, in one request."""

    head: bytes  # what they have in common
    shared: bytes  # the part of that which each is to have for itself, or nothing
    jobs: Sequence[bytes]
    numbers: Sequence[int]  # of the items of the loop, for what they print
    seconds: float | None = None  # that each may take

    def request(self, most: int) -> bytes:
        return b"\n".join([self.head, self.shared, *self.jobs[:most]])


#: Is given outcomes in the order of the jobs.
TakeOutcomes = Callable[[Sequence[ProcessOutcome]], None]


class Processes:
    """A pool of Python processes for one event loop."""

    def __init__(self, options: ProcessOptions | None = None, places: Places | None = None) -> None:
        self._options = options or ProcessOptions()
        self._places = places or Places(self._options.limit)
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []  # the longest first
        self._retiring: set[asyncio.Task[None]] = set()
        self._end_idle: asyncio.TimerHandle | None = None
        self._closed = False

    async def run(
        self, request: bytes, seconds: float | None = None, step: str = ""
    ) -> ProcessOutcome:
        """Runs one job, with `seconds` from its start; a cancel or TimeoutError has stopped it.
        What it prints goes to the log of the job in whose context this is called."""
        async with self._worker(step) as worker, time_limit(seconds):
            return await worker.ask(request)

    async def run_each(self, given: JobsTogether, take: TakeOutcomes, step: str = "") -> None:
        """Runs some of the jobs, one after the other in one process, at least the first. What came
        of each is taken as soon as it is known; a `TimeoutError` is about the first job that it is
        not known of. The jobs after the last that was taken have not begun."""
        async with self._worker(step) as worker:
            await worker.ask_each(given, take)

    @asynccontextmanager
    async def _worker(self, step: str) -> AsyncIterator[_Worker]:
        """A process that does what one job or the jobs of one request want; it is gone afterwards,
        with all it started, where that was cut short."""
        place = await self._places.take(step)
        try:
            worker = await self._ready_worker(place)
            try:
                yield worker
            except BaseException:
                await undisturbed(self._remove(worker, with_descendants=True))
                raise
            self._give_back(worker)
        finally:
            self._places.free(place)

    async def close(self) -> None:
        """Stops every process, busy or not; jobs still running get a failure for an answer."""
        self._closed = True
        self._places.close()
        if self._end_idle is not None:
            self._end_idle.cancel()
        await asyncio.gather(*(self._remove(worker) for worker in tuple(self._workers)))
        await asyncio.gather(*self._retiring)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(worker.pid for worker in self._workers)

    async def _ready_worker(self, place: Place) -> _Worker:
        if self._closed:
            raise RuntimeError("these processes are closed")
        worker = await self._idle_worker()
        if worker is None:
            worker = _Worker(self._options)
            self._workers.add(worker)
        self._places.begin(place, worker.pid)
        return worker

    async def _idle_worker(self) -> _Worker | None:
        while self._idle:
            worker = self._idle.pop()
            if worker.alive:
                return worker
            await undisturbed(self._remove(worker))
        return None

    def _give_back(self, worker: _Worker) -> None:
        if not worker.fit or self._closed:
            self._retire(worker)
            return
        loop = asyncio.get_running_loop()
        worker.idle_since = loop.time()
        self._idle.append(worker)
        if len(self._workers) > self._places.cores and self._end_idle is None:
            self._end_idle = loop.call_later(IDLE_SECONDS, self._retire_idle)

    def _retire(self, worker: _Worker) -> None:
        """Nobody has to wait for that."""
        retiring = asyncio.create_task(self._remove(worker))
        self._retiring.add(retiring)
        retiring.add_done_callback(self._retiring.discard)

    def _retire_idle(self) -> None:
        self._end_idle, loop = None, asyncio.get_running_loop()
        spare = min(len(self._workers) - self._places.cores, len(self._idle))
        old = [one for one in self._idle[:spare] if loop.time() - one.idle_since >= IDLE_SECONDS]
        del self._idle[: len(old)]
        for worker in old:
            self._retire(worker)
        if spare > len(old):
            self._end_idle = loop.call_later(IDLE_SECONDS, self._retire_idle)

    async def _remove(self, worker: _Worker, *, with_descendants: bool = False) -> None:
        await worker.stop(with_descendants=with_descendants)
        self._workers.discard(worker)


class _Worker:
    """One process and the channel to it."""

    def __init__(self, options: ProcessOptions) -> None:
        self._options = options
        self.idle_since = 0.0  # as the event loop counts
        self._jobs = 0
        self._fit = True
        self._closed = False
        self._together: Together | None = None
        self._output = Capture(options.output_bytes, roomy=True)
        try:
            self._errors = Capture(0, stream="stderr", joins=self._output)
        except BaseException:
            self._output.close()
            raise
        try:
            self._socket, theirs = socket.socketpair()
        except BaseException:
            self._close_output()
            raise
        try:
            self._child = self._start(theirs.fileno())
        except BaseException:
            self._close_output()
            self._socket.close()
            raise
        finally:
            theirs.close()
        self.pid = self._child.pid
        self._channel = Channel(self._socket)

    def _close_output(self) -> None:
        self._output.close()
        self._errors.close()

    @property
    def alive(self) -> bool:
        return not self._child.ended

    @property
    def fit(self) -> bool:
        return self._fit and self.alive and self._jobs < self._options.recycle_after

    async def ask(self, request: bytes) -> ProcessOutcome:
        self._jobs += 1
        self._child.next_job()
        self._errors.restart()
        self._output.restart()
        self._output.target = self._errors.target = target = print_target.get()
        try:
            await self._channel.send(request)
            reply = await self._reply(target)
            outcome = decoded(reply[1:])
        except (EOFError, OSError, ValueError):
            outcome = ProcessOutcome(error=await self._lost())
        else:
            self._fit = reply[:1] != RETIRE
        self._output.catch_up()
        self._errors.catch_up()
        return msgspec.structs.replace(
            outcome, output=self._output.text, output_bytes=self._output.total
        )

    async def ask_each(self, given: JobsTogether, take: TakeOutcomes) -> None:
        """See `Processes.run_each`."""
        self._child.next_job()
        self._errors.restart()
        self._output.restart()
        most = max(1, min(len(given.jobs), self._options.recycle_after - self._jobs))
        target = print_target.get()
        log = target.log if target is not None else None
        pipes, numbers = (self._output, self._errors), given.numbers[:most]
        together = Together(self._channel, pipes, numbers, log, self._frame_bytes)
        self._together = together
        together.listen()
        try:
            try:
                await self._channel.send(given.request(most))
            except OSError:
                together.hear()  # it has ended; perhaps it said something before
            while not together.over:
                take(await together.outcomes(given.seconds))
            take(await together.outcomes(None))
        except BaseException:
            together.cut()
            raise
        finally:
            self._jobs += together.replies
            self._child.began(together.ticks)
            together.stop_listening()
            self._together = None
        await self._after(together, take)

    async def _after(self, together: Together, take: TakeOutcomes) -> None:
        if together.timed_out:
            raise TimeoutError
        if together.lost:
            failure = ProcessOutcome(error=await self._lost())
            self._output.catch_up()
            self._errors.catch_up()
            take([together.with_output(failure)])
        elif together.cut_off:  # in the moment in which a job ended in time after all
            await self.stop(with_descendants=True)
        else:
            self._fit = together.fit

    async def stop(self, *, with_descendants: bool = False) -> None:
        """May be called by several at once; each returns when the process is gone."""
        self._fit = False
        grace = self._options.grace_seconds
        await self._child.stop(grace, with_descendants=with_descendants)
        if not self._closed:
            self._closed = True
            if self._together is not None:  # its reader must be gone before the channel is
                self._together.hear()
                self._together.stop_listening()
            self._close_output()
            self._channel.close()

    async def _reply(self, target: AttemptLog | PrintTarget | None) -> bytes:
        """The answer; log records come before it."""
        while True:
            frame = await self._channel.frame(self._frame_bytes)
            if frame[:1] != RECORD:
                return frame
            heard_record(frame, self._output, target)

    @property
    def _frame_bytes(self) -> int:
        return max(self._options.result_bytes, _SMALLEST_LIMIT) + 9

    async def _lost(self) -> ProcessFailure:
        """Why there is no proper reply; afterwards the process is gone."""
        self._fit = False
        try:
            patience = _ENDING_SECONDS if self._channel.ended else _FAREWELL_SECONDS
            code = await asyncio.wait_for(self._child.exited(), patience)
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
                errors=self._errors.writer,
                env=self._options.isolation.variables(),
                keep=(channel,),
                user=self._options.isolation.user,
            )
        finally:
            self._output.started()
            self._errors.started()

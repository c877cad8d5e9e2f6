"""A pool whose connection is in a process of its own: the engine's side of that process.

The connection lives in a child, the driver. Libraries of clusters take the answers of a cluster for
pickles, which are programs, and some end the program that is connected; neither is for an engine.
Between the two there are frames (`wire`), and what a driver says is checked before it is used. When
it ends, for whatever reason, everything that was out is lost and another one is started, with
growing pauses, until the cluster is there again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import sys
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard

import msgspec

import anabranch
from anabranch.cancel import cancel_and_wait
from anabranch.pools.address import PoolOptions
from anabranch.pools.backend import (
    BackendAway,
    BackendUnfit,
    CameBack,
    Capacity,
    Event,
    Lost,
    Progressed,
    Started,
    WentAway,
)
from anabranch.pools.driver.wire import (
    LENGTH_BYTES,
    OUTCOME_BYTES,
    Away,
    Beat,
    Cancel,
    Close,
    Connect,
    Connected,
    Logged,
    Look,
    Refused,
    Reply,
    Request,
    Seen,
    Submit,
    Told,
    Withdrawn,
    Word,
    framed,
    length_of,
    reply_of,
    require_length,
    word_of,
)
from anabranch.pools.fitness import engine_versions
from anabranch.work.kinds.commands.isolation import SETTINGS, KeptNames

log = logging.getLogger("anabranch.pools")

ENTRY = "anabranch.pools.worker_entry"
CONNECT_SECONDS = 120.0
INSTALL_SECONDS = 600.0  # with an environment of the work, which may have to be installed
SILENCE_SECONDS = 180.0  # of a driver, which says something every few seconds
CLOSE_SECONDS = 20.0
END_SECONDS = 1.0  # for a driver that has said its last word
PAUSES = (0.5, 30.0)  # the first one and the longest one
READ_BYTES = 64 * 1024
NEWS_MAX = 1000  # messages that nobody has taken yet; then the driver waits
LINE_MAX = 4000  # letters of a line for the log
ERRORS_MAX = 16 * 1024  # of what the driver prints, the last bytes

#: What the threads of Ray print before they end a process.
_FATAL = re.compile(
    r"^\[[^\]\n](?:(?! [EFC] )[^\]\n])* [EFC] [^\]\n]++\] [\w.]++:\d++: +(.+)$", re.MULTILINE
)


class DriverBackend:
    engine: str
    #: What runs as the driver, and variables of its environment.
    module: str
    frame_bytes: int  # of small jobs that travel in one frame
    environment: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        options: PoolOptions,
        *,
        entry: str = ENTRY,
        outcome_bytes: int = OUTCOME_BYTES,
        connect_seconds: float = CONNECT_SECONDS,
        silence_seconds: float = SILENCE_SECONDS,
        pauses: tuple[float, float] = PAUSES,
        own: KeptNames = SETTINGS,
    ) -> None:
        """`own` are the variables of the engine, which the driver does not get."""
        self.address = options.shown
        self._own = own
        self._connect = Connect(options, entry, engine_versions(), outcome_bytes)
        self._connect_seconds = INSTALL_SECONDS if options.runtime_env else connect_seconds
        self._silence_seconds = silence_seconds
        self._pauses = pauses
        self._driver: _DriverProcess | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._capacity = Capacity(slots=0, workers=0)
        self._reason = "it is not connected yet"
        self._out: dict[str, bool] = {}  # ticket → whether a worker has begun it
        self._unsent: list[tuple[str, bytes]] | None = None  # jobs of this turn of the loop
        self._sending: asyncio.Future[None] | None = None
        self._questions: dict[int, asyncio.Future[Seen | None]] = {}
        self._asked = 0  # questions, which are their numbers
        self._away = ""  # why the driver has no contact at the moment
        self._news: asyncio.Queue[Sequence[Event] | None] = asyncio.Queue(NEWS_MAX)

    # -- the port ----------------------------------------------------------------------------

    async def open(self) -> Capacity:
        driver, self._capacity = await self._connected()
        self._driver = driver
        self._keeper = asyncio.ensure_future(self._keep(driver))
        return self._capacity

    async def submit(self, ticket: str, blob: bytes) -> None:
        self._add(ticket, blob)
        try:
            await self._sent()
        except OSError as error:
            if self._out.pop(ticket, None) is not None:  # else it was told as lost
                raise BackendAway(self._worded(str(error))) from None

    def _add(self, ticket: str, blob: bytes) -> None:
        """To the jobs of this turn of the loop, which leave together."""
        driver = self._require_driver()
        if ticket in self._out:
            raise ValueError(f"the ticket {ticket!r} is out already")
        self._out[ticket] = False
        if self._unsent is None:
            self._unsent = []
            self._sending = asyncio.ensure_future(self._send(driver, self._unsent))
        self._unsent.append((ticket, blob))

    async def _send(self, driver: _DriverProcess, jobs: list[tuple[str, bytes]]) -> None:
        """One frame for all small jobs of a turn of the loop."""
        if self._unsent is jobs:
            self._unsent = None
        await driver.send(*map(Submit, _frames(jobs, self.frame_bytes)))

    async def _sent(self) -> None:
        """Returns when the jobs of this turn are on their way. Raises `OSError`."""
        if self._sending is not None:
            await asyncio.shield(self._sending)

    async def cancel(self, tickets: Collection[str], *, force: bool = False) -> None:
        driver, wanted = self._driver, [ticket for ticket in tickets if ticket in self._out]
        if driver is None or not wanted:
            return
        number, answer = self._begin_question()
        with suppress(OSError):  # then everything is told as lost
            await self._sent()
            await driver.send(Cancel(number, wanted, force))
        await answer

    async def events(self) -> AsyncIterator[Sequence[Event]]:
        while (batch := await self._news.get()) is not None:
            yield batch

    async def capacity(self) -> Capacity:
        self._require_driver()
        queued = sum(not begun for begun in self._out.values())
        return msgspec.structs.replace(self._capacity, queued=queued)

    async def look(self) -> Capacity:
        """What the cluster has now. Raises `BackendAway`."""
        driver = self._require_driver()
        number, answer = self._begin_question()
        try:
            await driver.send(Look(number))
        except OSError as error:
            raise BackendAway(self._worded(str(error))) from None
        seen = await answer
        if seen is None or seen.capacity is None:
            raise BackendAway(self._worded(self._reason) if seen is None else seen.reason)
        return seen.capacity

    async def close(self) -> None:
        if self._keeper is not None:
            await cancel_and_wait(self._keeper)
            self._keeper = None
        if self._driver is not None:
            await self._driver.close()
            self._driver = None
        self._reason = "it was closed"
        self._forget()
        if self._news.full():  # nobody takes them
            self._news.get_nowait()
        self._news.put_nowait(None)

    @property
    def driver_pid(self) -> int:
        """Of the process that holds the connection; 0 while there is none."""
        return self._driver.pid if self._driver is not None else 0

    def _require_driver(self) -> _DriverProcess:
        if self._driver is None:
            raise BackendAway(self._worded(self._reason))
        if self._away:
            raise BackendAway(self._away)
        return self._driver

    def _worded(self, reason: str) -> str:
        """A reason as the message of an error."""
        return f"{self.engine.capitalize()} at {self.address}: {reason}"

    # -- one driver after the other ----------------------------------------------------------

    async def _connected(self) -> tuple[_DriverProcess, Capacity]:
        most = self._connect.outcome_bytes
        environment = _environment(self._own, self.environment)
        driver = await _DriverProcess.start(self.module, environment, most)
        try:
            async with asyncio.timeout(self._connect_seconds):
                await driver.send(self._connect)
                while isinstance(reply := await driver.receive(), Logged):
                    _log(reply)
        except TimeoutError:
            await driver.end()
            said = f"it has not answered for {self._connect_seconds:.0f} seconds"
            raise BackendAway(self._worded(said)) from None
        except (OSError, EOFError):
            raise BackendAway(self._worded(await driver.end())) from None
        except ValueError as error:
            await driver.end()
            raise BackendAway(self._worded(f"the driver cannot be understood: {error}")) from None
        except BaseException:
            await driver.end()
            raise
        if isinstance(reply, Connected):
            return driver, reply.capacity
        await driver.end()
        assert isinstance(reply, Refused)
        kind = BackendUnfit if reply.unfit else BackendAway
        raise kind(self._worded(reply.reason))

    async def _keep(self, driver: _DriverProcess) -> None:
        """Hear a driver until it ends, then find the next one. Who cancels this closes the driver,
        which still has to tell the work to stop."""
        while True:
            self._reason = await self._hear(driver)
            self._driver = None
            await driver.end()
            lost = [Lost(ticket, self._reason, False) for ticket in self._out]
            self._forget()
            await self._news.put([*lost, WentAway(self._reason)])
            driver, self._capacity = await self._found_again()
            self._driver = driver
            await self._news.put([CameBack()])

    async def _found_again(self) -> tuple[_DriverProcess, Capacity]:
        pause, longest = self._pauses
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
            try:
                return await self._connected()
            except (BackendAway, BackendUnfit) as error:
                if isinstance(error, BackendUnfit) and error.message != self._reason:
                    await self._news.put([WentAway(error.message)])
                self._reason = error.message

    async def _hear(self, driver: _DriverProcess) -> str:
        """Why it ended."""
        try:
            while True:
                async with asyncio.timeout(self._silence_seconds):
                    reply = await driver.receive()
                if isinstance(reply, Away):
                    return reply.reason
                if isinstance(reply, Told):
                    await self._tell(reply.said)
                elif isinstance(reply, Beat):
                    self._capacity = reply.capacity
                elif isinstance(reply, Logged):
                    _log(reply)
                elif isinstance(reply, Seen):
                    self._answer(reply.number, reply)
        except TimeoutError:
            return f"the driver has said nothing for {self._silence_seconds:.0f} seconds"
        except (OSError, EOFError):
            return await driver.end()
        except Exception as defect:  # of ours: another driver may be understood
            log.exception("%s: the driver cannot be understood", self.address)
            return f"the driver cannot be understood: {defect!r}"

    async def _tell(self, said: Sequence[Sequence[Any]]) -> None:
        events = [word for word in map(word_of, said) if self._heed(word)]
        if events:
            await self._news.put(events)

    def _heed(self, word: Word) -> TypeGuard[Event]:
        """Whether the pool is to hear of it."""
        match word:
            case Withdrawn():
                for ticket in word.tickets:
                    self._out.pop(ticket, None)
                self._answer(word.number)
                return False
            case WentAway() | CameBack():
                self._away = word.reason if isinstance(word, WentAway) else ""
                return True
        if word.ticket not in self._out:
            return False
        if isinstance(word, Started):
            self._out[word.ticket] = True
        elif not isinstance(word, Progressed):
            del self._out[word.ticket]
        return True

    def _forget(self) -> None:
        self._out.clear()
        self._unsent = self._sending = None
        self._away = ""
        for number in list(self._questions):
            self._answer(number)

    # -- questions, which the driver answers by their number ---------------------------------

    def _begin_question(self) -> tuple[int, asyncio.Future[Seen | None]]:
        self._asked += 1
        self._questions[self._asked] = answer = asyncio.get_running_loop().create_future()
        return self._asked, answer

    def _answer(self, number: int, seen: Seen | None = None) -> None:
        """Nobody may wait for it any more: who asked may have been cancelled."""
        answer = self._questions.pop(number, None)
        if answer is not None and not answer.done():
            answer.set_result(seen)


def _log(line: Logged) -> None:
    log.log(line.level, "%s", line.text[:LINE_MAX])


def _frames(unsent: Sequence[tuple[str, bytes]], most: int) -> Iterator[list[tuple[str, bytes]]]:
    """Small jobs together, large ones for themselves."""
    jobs, size = list[tuple[str, bytes]](), 0
    for ticket, blob in unsent:
        if jobs and size + len(blob) > most:
            yield jobs
            jobs, size = [], 0
        jobs.append((ticket, blob))
        size += len(blob)
    if jobs:
        yield jobs


class _DriverProcess:
    """A child process with `driver`."""

    def __init__(self, process: asyncio.subprocess.Process, outcome_bytes: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._outcome_bytes = outcome_bytes
        self._input = process.stdin
        self._output = process.stdout
        self._errors = b""
        self._reading = asyncio.ensure_future(self._read_errors())
        self._ended = ""

    @classmethod
    async def start(
        cls, module: str, environment: Mapping[str, str], outcome_bytes: int
    ) -> _DriverProcess:
        """In a session of its own: what is typed at a terminal is for the engine."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-X", "utf8", "-m", module),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        return cls(process, outcome_bytes)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def send(self, *requests: Request) -> None:
        """In this order, and nothing between them. Raises `OSError` when the driver is gone."""
        for request in requests:
            self._input.write(framed(request))
        await self._input.drain()

    async def receive(self) -> Reply:
        """Raises `EOFError` when the driver is gone, `ValueError` for what none of ours says."""
        length = length_of(await self._output.readexactly(LENGTH_BYTES))
        require_length(length, self._outcome_bytes)
        return reply_of(await self._output.readexactly(length))

    async def close(self) -> None:
        """Let it disconnect, and end it if that takes too long."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.send(Close())
                await self._gone()
        await self.end()

    async def end(self) -> str:
        """Nothing of it is left. Returns why it ended, if it ended by itself."""
        if not self._ended:
            code = await self._wait_or_kill()
            self._input.close()
            await self._reading
            fatal = _FATAL.findall(self._errors.decode(errors="replace"))
            said = f": {fatal[-1][:300]}" if fatal else ""
            self._ended = f"the process that held the connection ended (exit code {code}){said}"
        return self._ended

    async def _wait_or_kill(self) -> int:
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                return await self._gone()
        with suppress(ProcessLookupError):
            self._process.kill()
        return await self._gone()

    async def _gone(self) -> int:
        """What it still says is read: it waits for that, and asyncio for the end of its output."""
        while await self._output.read(READ_BYTES):
            pass
        return await self._process.wait()

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while some := await self._process.stderr.read(4096):
            self._errors = (self._errors + some)[-ERRORS_MAX:]


def _environment(own: KeptNames, more: Mapping[str, str]) -> dict[str, str]:
    """The driver finds this package where the engine has it, and none of our secrets."""
    home = str(Path(anabranch.__file__).parent.parent)
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**own.without(), **more, "PYTHONPATH": path}

"""An engine whose pool is done by `worker_entry`: in this process, or in a real process of its own.

The dispatcher here is the smallest that can be: it claims, packs, lets the entry perform, and
reports. Everything that travels is kept, so that a test can look into it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from anabranch import app
from anabranch.errors import NotFound, Refused
from anabranch.kernel import stimuli as s
from anabranch.operations.workers.leases import LeaseClaim
from anabranch.parts import Parts
from anabranch.pools import worker_entry
from anabranch.pools.assignment import (
    Missing,
    Outcome,
    Progress,
    SealedBlob,
    Tools,
    ValuesPlace,
    decode_said,
)
from anabranch.pools.entry.settings import settings_to_send
from anabranch.pools.values.packing import JobPacker, NamesPart
from anabranch.runtime.jobs.wire import ClaimedJob
from anabranch.settings import Settings
from anabranch.store.factory import open_store
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.port import Parked
from hangs import HANG_SECONDS
from pools.entry_child import read_frame, write_frame

WORKER = "gpu@test:1"
FOLDER = Path(__file__).parent
Tell = Callable[[str, bytes], None]


class Entry(Protocol):
    """A process that does jobs."""

    async def perform(self, blob: bytes, tell: Tell) -> bytes: ...

    def stop(self, tickets: list[str]) -> None: ...


class HereEntry:
    """`worker_entry` in this process; each call has a thread, as on a cluster."""

    async def perform(self, blob: bytes, tell: Tell) -> bytes:
        return await asyncio.to_thread(worker_entry.perform, blob, tell)

    def stop(self, tickets: list[str]) -> None:
        worker_entry.stop(tickets)


class ChildEntry:
    """`worker_entry` in a process of its own, which knows nothing of this one."""

    def __init__(self, environment: Mapping[str, str], python_path: list[Path]) -> None:
        paths = [str(Path(app.__file__).parent.parent), *map(str, python_path)]
        plain = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(paths)}
        self._process = subprocess.Popen(
            [sys.executable, str(FOLDER / "entry_child.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**plain, **environment},
        )
        self.modules: list[str] = []
        self.errors = b""
        self._numbers = itertools.count()
        self._calls: dict[int, tuple[Future[bytes], Tell]] = {}
        self._readers = [
            threading.Thread(target=self._listen, daemon=True),
            threading.Thread(target=self._log, daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while (frame := read_frame(self._process.stdout)) is not None:
            match frame:
                case "modules", found:
                    self.modules = found
                case "tell", number, verb, words:
                    self._calls[number][1](verb, words)
                case "done", number, outcome:
                    self._calls.pop(number)[0].set_result(outcome)
        for waiting, _ in self._calls.values():
            waiting.set_exception(RuntimeError("the process has ended"))

    def _log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.errors += line

    async def perform(self, blob: bytes, tell: Tell) -> bytes:
        number, done = next(self._numbers), Future[bytes]()
        self._calls[number] = done, tell
        assert self._process.stdin is not None
        write_frame(self._process.stdin, ("perform", number, blob))
        return await asyncio.wrap_future(done)

    def stop(self, tickets: list[str]) -> None:
        assert self._process.stdin is not None
        write_frame(self._process.stdin, ("stop", tickets))

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(HANG_SECONDS)
        finally:
            self._process.kill()
            for reader in self._readers:
                reader.join(HANG_SECONDS)
            for pipe in (self._process.stdout, self._process.stderr):
                assert pipe is not None
                pipe.close()


@contextmanager
def child_entry(
    environment: Mapping[str, str] | None = None, *python_path: Path
) -> Iterator[ChildEntry]:
    entry = ChildEntry(environment or {}, list(python_path))
    try:
        yield entry
    finally:
        entry.close()


class Dispatch:
    """The jobs of pool `gpu` of one engine, given to one entry."""

    def __init__(self, parts: Parts, entry: Entry, place: ValuesPlace, tools: list[Tools]) -> None:
        self.api = parts.pools
        self.parts = parts
        self._entry = entry
        settings = settings_to_send(parts.engine._settings)
        self.packer = JobPacker(self.api.supply, place, tools=tools, settings=settings)
        self.lease_seconds: float | None = None
        self.blobs: list[SealedBlob] = []
        self.told: list[tuple[str, bytes]] = []
        self.outcomes: list[bytes] = []
        self.progress: list[Progress] = []
        self.answers: list[Outcome | Missing] = []
        self.tickets: list[str] = []
        self.running: dict[str, LeaseClaim] = {}

    async def serve(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as jobs:
            while True:
                claimed = await self.api.claim(
                    "gpu",
                    WORKER,
                    most=4,
                    wait_seconds=5.0,
                    lease_seconds=self.lease_seconds,
                    items="lists" if self.packer.lists_travel else False,
                )
                names = {run: self.packer.names(shared) for run, shared in claimed.runs.items()}
                for leased in claimed.tasks:
                    jobs.create_task(self.do(leased, names[leased.run]))

    async def do(self, leased: ClaimedJob, names: NamesPart) -> None:
        out = LeaseClaim(*leased.id, WORKER)
        ticket = f"{leased.step}-{len(self.tickets):016x}"
        self.tickets.append(ticket)
        self.running[ticket] = out
        asked: list[str] = []
        told: list[Progress] = []
        while True:
            blob = await self.packer.pack(ticket, out, leased, names, asked)
            self.blobs.append(blob)
            said = await self._entry.perform(blob, partial(self._hear, told))
            self.outcomes.append(said)
            found = decode_said(said)
            assert not isinstance(found, Progress)
            self.answers.append(found)
            if not isinstance(found, Missing):
                break
            asked = self.packer.lacks(found)
        for one in told:
            await self.api.progress(out, await self.packer.take_progress(out, one))
        await self._report(out, found)
        self.packer.over(ticket)
        del self.running[ticket]

    def _hear(self, told: list[Progress], verb: str, words: bytes) -> None:
        self.told.append((verb, words))
        if verb == "progress":
            found = decode_said(words)
            assert isinstance(found, Progress)
            told.append(found)
            self.progress.append(found)

    async def _report(self, out: LeaseClaim, found: Outcome) -> None:
        if found.verb == "release":
            with suppress(Refused, NotFound):  # its run is over
                await self.api.release(out, found.body["reason"])
            return
        said = await self.packer.take(out, found)
        if isinstance(said.answer, Parked):
            waits = said.answer
            park = s.JobPark(
                out.job, out.attempt, waits.ticket, waits.until, waits.memory, waits.limit_ms
            )
            await self.api.park(out, park)
        else:
            await self.api.report(out, said.answer, payload=said.payload)


CLUSTER = ValuesPlace()


@asynccontextmanager
async def dispatching(
    parts: Parts, entry: Entry, place: ValuesPlace = CLUSTER, *tools: Tools
) -> AsyncIterator[Dispatch]:
    dispatch = Dispatch(parts, entry, place, list(tools))
    serving = asyncio.ensure_future(dispatch.serve())
    try:
        yield dispatch
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        if not serving.cancelled() and (error := serving.exception()) is not None:
            raise error


@asynccontextmanager
async def engine(toolbox: Toolbox | None = None, **given: Any) -> AsyncIterator[Parts]:
    """An engine that nothing but the pool dispatcher of a test does jobs for."""
    settings = replace(Settings(store=":memory:", grace_seconds=1.0), **given)
    store = open_store(settings)
    parts = Parts(store, settings, toolbox or Toolbox())
    await parts.engine.open()
    try:
        yield parts
    finally:
        await parts.close()
        store.close()


async def ended(parts: Parts, text: str, **given: Any) -> dict[str, Any]:
    """The run of this definition when it is over."""
    run = await parts.verbs.start(text, given)
    async with asyncio.timeout(HANG_SECONDS):
        await parts.verbs.wait(run)
    return dict(parts.verbs.read.show(run))


async def done(
    entry: Entry, text: str, place: ValuesPlace = CLUSTER, *tools: Tools, **given: Any
) -> tuple[dict[str, Any], Dispatch]:
    """The run of this definition by itself, and everything that travelled for it."""
    async with engine() as parts, dispatching(parts, entry, place, *tools) as dispatch:
        return await ended(parts, text, **given), dispatch


def run(work: Awaitable[Any]) -> Any:
    async def limited() -> Any:
        async with asyncio.timeout(2 * HANG_SECONDS):
            return await work

    return asyncio.run(limited())

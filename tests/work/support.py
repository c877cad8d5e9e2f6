"""What the tests of the kinds of work share: a task, an event loop, a look at the process table."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from anabranch.kernel.values import Answer, Fault
from anabranch.work.port import Performer, Task
from hangs import HANG_SECONDS

T = TypeVar("T")
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def task(kind: str = "test", *, names: dict[str, Any] | None = None, **inputs: Any) -> Task:
    return Task(
        run="run-1",
        step="ship",
        job="job-1",
        attempt=1,
        key="run-1/job-1",
        kind=kind,
        inputs=inputs,
        names=names or {},
    )


def run(work: Coroutine[Any, Any, T], seconds: float = HANG_SECONDS) -> T:
    """Runs to the end in a loop of its own, with a limit so that a hang becomes a failure."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(limited())


async def perform(performer: Performer, job: Task) -> Answer:
    """The answer of a performer that does not park."""
    answer = await performer.perform(job)
    assert isinstance(answer, Answer)
    return answer


def fault_of(answer: Answer) -> Fault:
    assert answer.status == "error", answer
    assert answer.fault is not None
    return answer.fault


def alive(pid: int) -> bool:
    """Whether the process runs; one that waits to be reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def gone(*pids: int, seconds: float = HANG_SECONDS) -> bool:
    """Waits until none of the processes runs any more."""
    until = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


async def written(path: Path, words: int = 1) -> list[int]:
    """The numbers in a file, once somebody wrote that many."""
    while not path.exists() or len(path.read_text().split()) < words:
        await asyncio.sleep(0.01)
    return [int(word) for word in path.read_text().split()]


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[str]:
    """A real server on a free port that answers everything with `handler`; gives its address."""
    runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()

"""Work on a simulated cluster as real clusters do it: each process runs the entry of `pools`, in an
event loop of its own in virtual time, which can end between any two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty
from typing import cast

from anabranch.pools.assignment import Assignment, decode_assignment
from anabranch.pools.entry.environments import Environment, Environments
from anabranch.pools.entry.job import EntryJob
from anabranch.pools.entry.job_services import CarriedServices, CarriedValues
from anabranch.pools.parts import PartsCache
from anabranch.pools.task_environment import TaskEnvironment
from anabranch.settings import Settings
from anabranch.testing.simulated.compute_cluster import Running
from anabranch.testing.virtual.event_loop import VirtualLoop
from anabranch.work.kinds.callables import Toolbox

CACHE_BYTES = 1000  # of parts that a process keeps: now and then one has to be sent again


class _Process:
    def __init__(self, name: str, loop: VirtualLoop, toolbox: Toolbox) -> None:
        self.name = name
        self.loop = loop
        self.parts = PartsCache(CACHE_BYTES)
        self.environments = cast(Environments, _OneEnvironment(toolbox))
        self.jobs: list[_EntryRunning] = []


class _OneEnvironment:
    """In the place of `Environments`: all jobs of a simulation want the same."""

    def __init__(self, toolbox: Toolbox) -> None:
        services = CarriedServices(CarriedValues())
        tasks = TaskEnvironment(services, Settings(), toolbox)
        self._one = Environment(tasks, services)

    @contextmanager
    def used(self, _given: Assignment) -> Iterator[Environment]:
        yield self._one

    async def close_unused(self) -> None:
        pass


class _EntryRunning:
    def __init__(
        self,
        process: _Process,
        job: EntryJob,
        tell: Callable[[bytes], None],
        end: Callable[[bytes], None],
    ) -> None:
        self._process = process
        self._job = job
        self._tell = tell
        self._end = end

    def stop(self) -> None:
        if self in self._process.jobs:  # else its process is gone, or it has ended
            self._job.stopping = True
            self._process.loop.create_task(self._job.stop())

    def kill(self) -> None:
        self._process.jobs.clear()

    def speak(self) -> None:
        """Pass on what the job has said."""
        while True:
            try:
                verb, said = self._job.words.get_nowait()
            except Empty:
                return
            if verb == "progress":
                self._tell(said)
            elif verb == "outcome":
                self._process.jobs.remove(self)
                self._end(said)
                return


class Entries:
    """The processes of a cluster. The world moves their loops."""

    def __init__(
        self,
        seconds: Callable[[], float],
        toolbox: Toolbox,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._seconds = seconds
        self._toolbox = toolbox
        self._failed = failed
        self._processes: dict[str, _Process] = {}

    def begin(
        self,
        process: str,
        blob: bytes,
        tell: Callable[[bytes], None],
        end: Callable[[bytes], None],
    ) -> Running:
        here = self._processes.get(process)
        if here is None:
            loop = VirtualLoop(self._seconds, lambda: 0.0, self._failed)
            here = self._processes[process] = _Process(process, loop, self._toolbox)
        given = decode_assignment(blob)
        here.parts.keep(given.parts)
        job = EntryJob(given, process, here.parts, here.environments)
        running = _EntryRunning(here, job, tell, end)
        here.jobs.append(running)
        job.look_for_parts()
        here.loop.as_loop.call_soon(job.begin)
        return running

    def lose(self, process: str) -> None:
        gone = self._processes.pop(process, None)
        if gone is not None:
            gone.jobs.clear()
            gone.loop.shut_down()

    # -- moved by the world ------------------------------------------------------------------

    def next_at(self) -> float:
        """When one of them has something to do, in seconds; 0 for now."""
        return min((one.loop.next_at() for one in self._processes.values()), default=float("inf"))

    def run_some(self, most: int) -> None:
        """Of each that has something to do now."""
        now = self._seconds()
        for one in list(self._processes.values()):
            if one.loop.next_at() <= now + 1e-5 and one.name in self._processes:
                one.loop.run_some(most)
                for job in list(one.jobs):
                    job.speak()

    def close(self) -> None:
        for name in list(self._processes):
            self.lose(name)

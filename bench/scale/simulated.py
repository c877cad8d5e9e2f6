"""A loop of 10⁹ items on a simulated cluster, in virtual time: `python -m bench.scale.simulated`.

The engine, its SQLite store, the worker API and the dispatcher are the real ones. The cluster is
simulated: a worker answers a shard after its time without doing its items, and dies now and then.
So the figures of engine, store and messages are those of a real run; only the items cost nothing.
Shards have the size that the engine gives them by itself, unless one is asked for.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from anabranch import Settings, Toolbox
from anabranch.kernel.state import State
from anabranch.kernel.tracker import ShardReport
from anabranch.kernel.values import Answer
from anabranch.operations.definitions.prepare import Prepared, prepare
from anabranch.pools.address import PoolOptions
from anabranch.pools.answers import JobAnswer
from anabranch.pools.assignment import Assignment
from anabranch.pools.backend import Event
from anabranch.pools.dispatcher import PoolDispatcher
from anabranch.store.sqlite.store import SqliteStore
from anabranch.testing.simulated.compute_cluster import (
    Answering,
    ClusterFaults,
    SimulatedBackend,
    SimulatedCluster,
)
from anabranch.testing.simulated.compute_server import ComputeServer
from anabranch.testing.virtual.event_loop import NEVER, VirtualLoop
from anabranch.testing.virtual.world import EPOCH
from bench.scale.loads import counted, forget_peak, memory_kib, peak_kib, playbook

POOL, RUN = "heavy", "scale"
STEPS = 1000  # of the server's event loop at once
ITEMS_A_SECOND = 20_000.0  # of one worker, in virtual time: shards grow to the largest size


@dataclass(frozen=True, slots=True)
class Simulated:
    """What such a run takes."""

    items: int
    shards: int
    workers: int
    submissions: int  # messages to the cluster
    words: int  # messages from it
    sent_bytes: int  # of the submissions
    part_bytes: int  # of definition and names, which go with the first of them
    out_most: int  # tickets that the cluster had at once
    deaths: int
    losses: int  # as the dispatcher counts them
    events: int
    rows: int  # of the log: commits of this run
    log_bytes: int
    snapshot_bytes: int
    file_bytes: int
    virtual_seconds: float
    cpu_seconds: float
    memory_kib: int  # that it grew by
    total: int  # what the items add up to


class _World:
    """The clock, and what is to be done when."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.toolbox = Toolbox()
        self.broken: BaseException | None = None
        self._now = float(EPOCH)
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def now(self) -> int:
        return int(self._now)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        heappush(self._agenda, (self._now + seconds * 1000, next(self._order), act))

    def broke(self, error: BaseException) -> None:
        self.broken = self.broken or error

    def strikes(self, _name: str) -> bool:
        return False

    def run(self, server: _Server, over: Callable[[], bool]) -> None:
        while not over():
            if self.broken is not None:
                raise self.broken
            at = server.next_at()
            due = self._agenda[0][0] if self._agenda else NEVER
            if min(at, due) == NEVER:
                raise RuntimeError("nothing will ever happen again")
            self._now = max(self._now, min(at, due))
            while self._agenda and self._agenda[0][0] <= self._now:
                heappop(self._agenda)[2]()
            server.run_some(STEPS)


class _Server(ComputeServer):
    """On a real file, and never killed."""

    def __init__(self, world: _World, path: Path, pool: PoolOptions, cluster: SimulatedCluster):
        self._world: Any = world
        self.name, self.asleep_until, self.dead, self.leaving = "scale", 0, False, False
        self.loop = VirtualLoop(self.seconds, lambda: 0.0, self._failed)
        self.file = SqliteStore(path, synchronous="NORMAL")
        self.backend: SimulatedBackend = SimulatedBackend(cluster)
        self._settings = Settings(poll_seconds=60.0)
        self._build(self.file, "")
        made = self._dispatcher(pool)
        assert made is not None, "it has a cluster"
        self.dispatcher: PoolDispatcher = made
        self.loop.create_task(self._open())

    async def _open(self) -> None:
        await self.engine.open()
        await self.dispatcher.open()

    async def begin(self, made: Prepared, done: list[State]) -> None:
        run = await self.engine.start(made.definition, made.net, run=RUN)
        done.append(await self.engine.wait(run))

    async def close(self, closed: list[None]) -> None:
        await self.dispatcher.close(1.0)
        await self.engine.close()
        closed.append(None)


def definition(items: int, shard_size: int | None, window: int) -> Prepared:
    """A loop whose items are numbers that are summed up; what they do is for the cluster to say."""
    fanout: dict[str, Any] = {
        "max_concurrent": window,
        "keep_results": False,
        "reducers": {"total": "sum"},
    }
    if shard_size is not None:
        fanout["shard_size"] = shard_size
    rule = {"else": {"then": {"do": "continue", "set_shared": {"total": "{{ iter.n }}"}}}}
    step = {
        "step": "each",
        "spec": {"loop_mode": "fanout", "pool": POOL, "fanout": fanout},
        "loop": {"in": {"range": items}, "iterator": "n"},
        "tool": {"kind": "noop", "spec": {"policy": {"rules": [rule]}}},
    }
    return prepare(playbook("scale", [step]))


def answered(given: Assignment) -> JobAnswer:
    """What a worker says that has done all items of its shard."""
    shard = given.job.shard
    assert shard is not None, "the cut of a range is done by the engine"
    total = shard.count * (2 * shard.first + shard.count - 1) // 2
    report = ShardReport(
        shard.count, milliseconds=_ms(given), shared={"total": total}, tasks=("each_task",)
    )
    return JobAnswer(Answer(status="ok", outcome="ok", shard=report))


def _ms(given: Assignment) -> int:
    shard = given.job.shard
    return int(1000 * shard.count / ITEMS_A_SECOND) if shard is not None else 0


class _Messages:
    """What goes to the cluster and comes from it, counted."""

    def __init__(self) -> None:
        self.submissions = self.words = self.sent_bytes = self.part_bytes = 0
        self.out_most = self.shards = 0

    def watch(self, backend: SimulatedBackend, cluster: SimulatedCluster) -> None:
        def submitted(_ticket: str, blob: bytes) -> None:
            self.submissions += 1
            self.sent_bytes += len(blob)
            self.out_most = max(self.out_most, cluster.out)

        def told(event: Event) -> None:
            self.words += 1
            tell(event)

        tell = backend.tell
        backend.submitted = submitted
        backend.tell = told  # type: ignore[method-assign]

    def answer(self, given: Assignment) -> JobAnswer:
        if given.job.shard is not None:
            self.shards = max(self.shards, given.job.shard.number + 1)
        self.part_bytes = self.part_bytes or sum(map(len, given.parts.values()))
        return answered(given)


def simulate(
    folder: Path,
    items: int,
    shard_size: int | None = None,
    *,
    workers: int = 100,
    queue: int | None = None,
    window: int | None = None,
    deaths: float = 0.0,
    seed: int = 1,
) -> Simulated:
    """`deaths`: the part of shards with which a worker dies. The engine chooses the size of shards,
    and the window is twice the workers, unless something else is said."""
    world, messages = _World(Random(seed)), _Messages()
    pace = world.dice.uniform  # no two workers are equally quick
    work = Answering(world.later, messages.answer, lambda one: _ms(one) / 1000 * pace(0.8, 1.2))
    faults = ClusterFaults(worker_dies=deaths)
    cluster = SimulatedCluster(
        world.later, work, slots=workers, dice=world.dice, faults=lambda: faults
    )
    pool = PoolOptions(
        name=POOL, engine="dask", address="", shown="simulated", queue=queue, begin_seconds=1e9
    )
    path = folder / "simulated.db"
    before, cpu = memory_kib(), time.process_time()
    forget_peak()
    server = _Server(world, path, pool, cluster)
    messages.watch(server.backend, cluster)
    state, virtual = _to_its_end(
        world, server, definition(items, shard_size, window or 2 * workers)
    )
    cpu, most = time.process_time() - cpu, peak_kib() - before
    found = counted(path)
    return Simulated(
        items=items,
        shards=messages.shards,
        workers=workers,
        submissions=messages.submissions,
        words=messages.words,
        sent_bytes=messages.sent_bytes,
        part_bytes=messages.part_bytes,
        out_most=messages.out_most,
        deaths=cluster.tally["worker_dies"],
        losses=sum(server.dispatcher.state(0).losses.values()),
        events=found.events,
        rows=found.rows,
        log_bytes=found.log_bytes,
        snapshot_bytes=found.snapshot_bytes,
        file_bytes=found.file_bytes,
        virtual_seconds=virtual,
        cpu_seconds=cpu,
        memory_kib=most,
        total=state.ctx["total"],
    )


def _to_its_end(world: _World, server: _Server, made: Prepared) -> tuple[State, float]:
    """One run from its start to its end, and how long that takes in virtual time."""
    done: list[State] = []
    server.file.put_definition(made.definition)
    server.loop.create_task(server.begin(made, done))
    world.run(server, lambda: bool(done))
    seconds, state = (world.now() - EPOCH) / 1000, done[0]
    closed: list[None] = []
    server.loop.create_task(server.close(closed))
    world.run(server, lambda: bool(closed))
    server.loop.shut_down()
    server.file.close()
    if state.status != "completed":
        raise RuntimeError(f"the run is {state.status}: {state.problem}")
    return state, seconds


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale.simulated", description=__doc__)
    parser.add_argument("--items", type=int, default=10**9)
    parser.add_argument("--shard-size", type=int, default=None)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--queue", type=int, default=None)
    parser.add_argument("--deaths", type=float, default=0.001, help="of a worker, for each shard")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-", dir=Path.cwd()) as folder:
        found = simulate(
            Path(folder),
            options.items,
            options.shard_size,
            workers=options.workers,
            queue=options.queue,
            deaths=options.deaths,
        )
    for name in found.__slots__:
        print(f"{name:<16} {getattr(found, name):>22,}")


if __name__ == "__main__":
    main()

"""A simulated server with a pool on a compute cluster: the real engine, worker API and dispatcher,
in a process of its own that can be stopped and killed between any two steps of its event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from math import ceil
from random import Random
from typing import Any, Protocol, cast

from anabranch.errors import AnabranchError, NotFound
from anabranch.net.net import Net
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.workers.job_data import JobData
from anabranch.operations.workers.worker_api import WorkerApi
from anabranch.pools.address import PoolOptions
from anabranch.pools.assignment import ValuesPlace
from anabranch.pools.dispatcher import PoolDispatcher
from anabranch.pools.values.packing import JobPacker
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.jobs.pool_queues import PoolQueues
from anabranch.runtime.nets import Nets
from anabranch.runtime.values.read_rights import ReadRights, RunLoops, RunPayloads
from anabranch.runtime.values.step_results import StepResults
from anabranch.settings import Settings
from anabranch.store.ports import Store
from anabranch.testing.simulated.compute_cluster import SimulatedBackend
from anabranch.testing.simulated.shared_store import UnreliableServer, UnreliableStore
from anabranch.testing.virtual.event_loop import NEVER, RESOLUTION, TICK, VirtualLoop
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.kinds.noop import Noop
from anabranch.work.kinds.threads import Threads
from anabranch.work.loops.collection_reader import CollectionReader
from anabranch.work.loops.collections.all import Collections
from anabranch.work.loops.results import LoopResults
from anabranch.work.loops.shards import ReadAhead, Shards
from anabranch.work.pipeline.pipeline import Pipeline, Services
from anabranch.work.port import Performer
from anabranch.work.secrets.credential_sources import Credential

LEASE_SECONDS = 10.0
Told = Callable[[Any, AnabranchError | None], None]


class ServerWorld(Protocol):
    """The world as a server sees it."""

    dice: Random
    shared: UnreliableStore
    toolbox: Toolbox

    def now(self) -> int: ...

    def strikes(self, name: str) -> bool: ...

    def stop(self, server: ComputeServer) -> None:
        """As SIGSTOP does, for a while."""

    def broke(self, error: BaseException) -> None: ...

    def client(self, server: ComputeServer) -> SimulatedBackend | None:
        """Its client of the cluster; None: it does the work of the pool itself."""


class ComputeServer:
    def __init__(self, world: ServerWorld, name: str, pool: PoolOptions) -> None:
        self._world = world
        self.name = name
        self.asleep_until = 0
        self.dead = False
        self.leaving = False
        dice = world.dice
        self.loop = VirtualLoop(self.seconds, self._thread_seconds, self._failed)
        self.store = UnreliableServer(world.shared, name)
        self.backend = world.client(self)
        here = "" if self.backend is not None else "*"
        self._settings = Settings(
            pools_here=here,
            poll_seconds=2.0,
            server_lease_seconds=LEASE_SECONDS,
            grace_seconds=dice.choice((0.0, 3.0)),
            evict_after_seconds=dice.choice((0.0, 2.0)),
            snapshot_every=dice.choice((1, 5, 200)),
            inline_bytes_max=200,
        )
        self._build(cast(Store, self.store), here)
        self.dispatcher = self._dispatcher(pool)
        self.loop.create_task(self._open())

    def _build(self, store: Store, here: str) -> None:
        """As the composition root does, with as much as simulated work needs."""
        nets = Nets(store, compiler(self._world.toolbox.signatures()))
        rights = ReadRights(store, nets, PoolQueues(here).outside)
        payloads = RunPayloads(store, rights)
        loop_results = LoopResults(store, payloads, StepResults(store, rights.fetch))
        performers: dict[str, Performer] = {"noop": Noop()}
        performers |= self._world.toolbox.performers(Threads(1))
        services = Services(performers=performers, payloads=payloads)
        loops = RunLoops(loop_results, rights)
        collections = Collections(payloads=payloads, performers=performers, loops=loops)
        reader = CollectionReader(collections)
        performers["pipeline"] = Pipeline(services)
        performers["loop.shard"] = Shards(services, reader)
        performers["loop.cut"] = ReadAhead(reader)
        self.engine = EngineLoop(
            store,
            nets,
            performers,
            clock=self,
            settings=self._settings,
            owner=self.name,
            rights=rights,
            seconds=self.seconds,
        )
        self.engine.be_patient()
        supplies = JobData(
            self.engine,
            self._settings,
            loops=loop_results,
            start_child=_no_children,
        )
        self.api = WorkerApi(
            self.engine,
            supplies,
            read_items=lambda source, shard, keys: reader.items(source, shard, keyring=keys),
            keyring=_no_secrets,
            find_credential=_no_credentials,
        )

    def _dispatcher(self, pool: PoolOptions) -> PoolDispatcher | None:
        if self.backend is None:
            return None
        return PoolDispatcher(
            pool,
            self.api,
            self.backend,
            engine=self.engine,
            packer=JobPacker(self.api.supply, ValuesPlace()),
            draw=partial(_drawn, self._world.dice),
        )

    async def _open(self) -> None:
        try:
            await self.engine.open()
        except AnabranchError:
            if not self.leaving:
                raise
            return
        self.store.cluster.opened = True
        if self.dispatcher is not None:
            await self.dispatcher.open()

    def leave(self) -> None:
        """As a server does that is told to stop."""
        self.leaving = True
        self.loop.create_task(self._close())

    async def _close(self) -> None:
        await self.engine.hand_over()
        if self.dispatcher is not None:
            await self.dispatcher.close(self._settings.grace_seconds)
        await self.engine.close()
        self.dead = True

    # -- time --------------------------------------------------------------------------------

    def now(self) -> int:
        return self._world.now()

    def seconds(self) -> float:
        return self._world.now() / 1000

    def _thread_seconds(self) -> float:
        if self._world.strikes("stop_midway"):
            self._world.stop(self)
            return TICK
        return self._world.dice.choice((0.0, 0.0, 0.001, 0.02))

    def next_at(self) -> float:
        """When it has something to do, on the clock of the world."""
        at = self.loop.next_at()
        if at == 0.0:  # now
            return self.asleep_until
        if at == NEVER:
            return NEVER
        return max(self.asleep_until, ceil((at - RESOLUTION) * 1000))

    def run_some(self, most: int) -> None:
        self.loop.run_some(most)
        if self.engine.failure is not None and not self.leaving:
            self._failed(self.engine.failure)
        if self.engine.set_aside:
            self._failed(next(iter(self.engine.set_aside.values())))

    def _failed(self, error: BaseException) -> None:
        if not self.dead:
            self._world.broke(error)

    def end(self) -> None:
        """kill -9."""
        self.dead = True
        if self.backend is not None:
            self.backend.cut_off()

    # -- what it does for others -----------------------------------------------------------------

    def ask(self, question: Callable[[EngineLoop], Awaitable[Any]], told: Told) -> None:
        """As a request to its API: it is told to the one who asked how that went."""

        async def handle() -> None:
            try:
                answer = await question(self.engine)
            except AnabranchError as error:
                told(None, error)
            else:
                told(answer, None)

        self.loop.create_task(handle())

    def owns(self, run: str) -> bool:
        """Whether the store says so."""
        shared = self._world.shared
        return shared.partitions[shared.place(run)].owner == self.name


def _drawn(dice: Random) -> str:
    return f"{dice.getrandbits(64):016x}"


async def _no_children(*_asked: Any) -> str:
    raise NotFound("simulated work has no children")


async def _no_credentials(_name: str) -> Credential:
    raise NotFound("simulated work has no credentials")


async def _no_secrets(_net: Net, _workload: Mapping[str, Any], _run: str) -> Mapping[str, Any]:
    return {}

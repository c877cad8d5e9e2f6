"""The pools of an engine that clusters do: the dispatcher of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from anabranch.errors import InputError
from anabranch.operations.workers.leases import LeaseHolder
from anabranch.operations.workers.worker_api import WorkerApi
from anabranch.pools.address import PoolOptions
from anabranch.pools.assignment import Tools, ValuesPlace
from anabranch.pools.backend import PoolBackend
from anabranch.pools.backends import make_backend
from anabranch.pools.dispatch.work_tokens import WorkTokens
from anabranch.pools.dispatcher import PoolDispatcher
from anabranch.pools.driver.wire import OUTCOME_BYTES
from anabranch.pools.entry.settings import settings_to_send
from anabranch.pools.entry.tools import tools_to_send
from anabranch.pools.values.folder import ValuesFolder
from anabranch.pools.values.packing import JobPacker
from anabranch.runtime.engine import EngineLoop
from anabranch.settings import Settings
from anabranch.work.from_settings import own_variables
from anabranch.work.kinds.callables import Toolbox

BackendOf = Callable[[PoolOptions], PoolBackend]


class _Prepared(NamedTuple):
    options: PoolOptions
    backend: PoolBackend
    place: ValuesPlace
    tools: Sequence[Tools]


class ClusterPools:
    """One per engine. Dask and Ray are imported by `make`."""

    def __init__(
        self,
        options: Mapping[str, PoolOptions],
        engine: EngineLoop,
        api: WorkerApi,
        settings: Settings,
        toolbox: Toolbox,
        *,
        serves: bool = False,
        backend_of: BackendOf | None = None,
    ) -> None:
        """`serves`: there is a server that the work can ask, at the URL that it advertises."""
        self.options = options
        self._engine = engine
        self._api = api
        self._settings = settings
        self._toolbox = toolbox
        self._serves = serves
        most = max(OUTCOME_BYTES, 2 * settings.result_bytes_max)
        own = own_variables(settings)
        self._backend_of = backend_of or partial(make_backend, outcome_bytes=most, own=own)
        self._prepared: list[_Prepared] = []
        self._tokens = WorkTokens(engine)
        self.dispatchers: list[PoolDispatcher] = []
        api.on_clusters.update({name: one.shown for name, one in options.items()})

    def make(self) -> None:
        """Raises `InputError` for what cannot work: Dask or Ray is not installed, a module with
        tools is not there, no server can be asked. Nothing is begun then."""
        for one in self.options.values():
            place = self._place(one)
            modules = one.tools if one.tools is not None else self._toolbox.modules
            tools = tools_to_send(modules)
            self._prepared.append(_Prepared(one, self._backend_of(one), place, tools))

    def _place(self, one: PoolOptions) -> ValuesPlace:
        values = one.values or ("server" if self._serves else "cluster")
        if values == "cluster":
            return ValuesPlace(mode=values)
        if values == "server":
            if not self._serves:
                raise InputError(
                    f"pool {one.name!r:.100}: values=server needs a server that the cluster can "
                    "ask (`anabranch serve`); leave it out, or name a folder",
                    code="pool_address",
                )
            return ValuesPlace(mode=values, url=self._settings.serve_advertise)
        ValuesFolder(values)  # raises where it cannot be used
        return ValuesPlace(mode="folder", url=values)

    async def open(self) -> None:
        """Begin; a cluster that is away is waited for later."""
        for one in self._prepared:
            self.dispatchers.append(await self._dispatcher(one))
        for each in self.dispatchers:
            await each.open()

    async def _dispatcher(self, one: _Prepared) -> PoolDispatcher:
        place, by = one.place, LeaseHolder()
        if place.mode == "server":
            token, text = await self._tokens.make(one.options.name, one.backend.engine)
            place = msgspec.structs.replace(place, token=text)
            by = LeaseHolder(token, frozenset({one.options.name}))
        packer = JobPacker(
            self._api.supply, place, tools=one.tools, settings=settings_to_send(self._settings)
        )
        return PoolDispatcher(
            one.options, self._api, one.backend, engine=self._engine, packer=packer, by=by
        )

    async def close(self, grace_seconds: float) -> None:
        await asyncio.gather(*(each.close(grace_seconds) for each in self.dispatchers))
        await self._tokens.revoke()

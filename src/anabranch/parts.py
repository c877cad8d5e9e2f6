"""What an engine is built from, in the order in which the parts need one another.

Servers, commands and `anabranch.Engine` all begin with `Parts`; nobody else chooses parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch import collector, files
from anabranch.clock import SystemClock
from anabranch.kernel.limits import held_by
from anabranch.net.net import Net
from anabranch.operations.access.credentials import Credentials, StoreSource
from anabranch.operations.access.secret_key import key_of
from anabranch.operations.definitions.available import available_in
from anabranch.operations.definitions.preflight import Preflight, child_depth
from anabranch.operations.definitions.prepare import (
    Prepared,
    compiler,
)
from anabranch.operations.participant_work import ParticipantWork
from anabranch.operations.runs.retention import RunRetention
from anabranch.operations.runs.verbs import Verbs
from anabranch.pools.given import Pools, cluster_pools, options_of, without_server
from anabranch.runtime import engine as runtime
from anabranch.runtime.jobs.executor import SecretScope
from anabranch.runtime.jobs.pool_queues import PoolQueues as JobPools
from anabranch.runtime.nets import Nets
from anabranch.runtime.recovery import unfinished
from anabranch.runtime.values.read_rights import ReadRights, RunLoops, RunPayloads
from anabranch.runtime.values.sealing import seal
from anabranch.runtime.values.step_results import StepResults
from anabranch.settings import Settings
from anabranch.store.ports import Store
from anabranch.work import tracing
from anabranch.work.composed import PipelinePerformers
from anabranch.work.file_policy import policy_of
from anabranch.work.from_settings import http_options, own_variables, work_settings
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.kinds.child import Child
from anabranch.work.kinds.lazy import LazyPerformer
from anabranch.work.kinds.python.places import places_of
from anabranch.work.loops.results import LoopResults
from anabranch.work.network.addresses import read_policy
from anabranch.work.pipeline.services import Services
from anabranch.work.rate_limits import RateLimits
from anabranch.work.registry import close_all, standard_performers
from anabranch.work.run_at_work import run_at_work
from anabranch.work.secrets.credential_sources import CredentialSource, find_in, outside_sources
from anabranch.work.secrets.keychain import Keychain
from anabranch.work.secrets.keyring import keyring_of
from anabranch.work.secrets.redaction import Redactor, given_to_work, guard_logs

if TYPE_CHECKING:
    from anabranch.operations.definitions.catalog import Catalog
    from anabranch.operations.participants import Participants
    from anabranch.operations.schedules.scheduling import Scheduling
    from anabranch.operations.sessions.sessions import Sessions
    from anabranch.operations.triggers.triggering import Triggering
    from anabranch.operations.workers.worker_api import WorkerApi
    from anabranch.pools.address import PoolOptions
    from anabranch.pools.dispatcher import PoolDispatcher
    from anabranch.pools.seen.pool_cards import PoolCards
    from anabranch.pools.wiring import ClusterPools
    from anabranch.work.chain.wiring import ChainPorts
    from anabranch.work.port import Performer
    from anabranch.work.rule.xgr1 import RuleKeys


class Parts:
    """An engine and everything it was built from."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        toolbox: Toolbox,
        participants: Participants | None = None,
        *,
        workers: bool = True,  # can ask it for jobs; without a server nobody can
        pools: Pools | None = None,  # those that clusters do; None: as the settings say
    ) -> None:
        self.store = store
        self.toolbox = toolbox
        self._settings = settings
        clusters = options_of(pools, settings)
        self.participants = ParticipantWork(participants, settings)
        self.redactor = Redactor()
        self._unguard_logs = guard_logs(self.redactor)
        self._unspare: Callable[[], None] | None = None  # the collector, while it is open
        self._keychain = self._add_credentials(settings)
        read_policy(settings.rule_addresses, "rule_addresses")  # a bad one is said now
        self._of_chain = Redactor.of_job()  # keys and credentials, for as long as the engine lives
        self._rule_keys = _rule_keys(settings)
        self._chain = _chain(settings, self._of_chain)
        for secret in self._of_chain.secrets:
            self.redactor.learn(secret, "the chain")
        self.nets = Nets(store, compiler(toolbox.signatures()))
        self._rights = ReadRights(store, self.nets, JobPools(settings.pools_here).outside)
        self._payloads = RunPayloads(store, self._rights)
        steps = StepResults(store, self._rights.fetch)
        self._loop_results = LoopResults(store, self._payloads, steps)
        self._loops = RunLoops(self._loop_results, self._rights)
        chosen = work_settings(settings)
        self.performers = standard_performers(
            chosen,
            toolbox=toolbox,
            payloads=self._payloads,
            loops=self._loops,
            redactor=self.redactor,
        )
        self.rates = RateLimits(settings.rate_limits, store, SystemClock().now)
        self._add_composed(settings)
        have = partial(available_in, settings, self.performers, workers=workers, clusters=clusters)
        have = partial(have, unasking=without_server(clusters, served=workers))
        asked = self.participants
        self.preflight = Preflight(have(participants=asked.are_given, book=asked.book_name))
        self.engine = runtime.EngineLoop(
            store,
            self.nets,
            self.performers,
            clock=SystemClock(),
            settings=settings,
            safe=SecretScope(self._keyring, self.redactor.release),
            rights=self._rights,
            require=self.preflight.require_for,
        )
        self.engine.logs.redactor = self.redactor
        known = frozenset(toolbox.signatures())  # one registered later has no performer here
        self.verbs = Verbs(self.engine, lambda: known, self.preflight)
        self._known_tools = known
        self._clusters = self._cluster_pools(clusters, workers) if clusters else None
        self.verbs.read.asked = self.engine.pools.asked
        self.verbs.read.processes = places_of(self.performers.get("python"))
        registry = self.engine.engine_metrics.registry
        self._retention = RunRetention(store, self.engine.clock.now, settings.keep_runs, registry)

    def _cluster_pools(self, clusters: Mapping[str, PoolOptions], workers: bool) -> ClusterPools:
        given = (self.engine, self.pools, self._settings, self.toolbox, self.verbs.read)
        return cluster_pools(clusters, *given, serves=workers)

    @cached_property
    def pools(self) -> WorkerApi:
        """Workers elsewhere, and what they ask this engine for."""
        from anabranch.operations.workers.job_data import JobData  # without a server nobody asks
        from anabranch.operations.workers.worker_api import WorkerApi

        supplies = JobData(
            self.engine,
            self._settings,
            loops=self._loop_results,
            start_child=self._start_child,
        )
        return WorkerApi(
            self.engine,
            supplies,
            keyring=self._keyring,
            rates=self.rates,
            read_items=self._composed.read_items,
            find_credential=partial(find_in, self.credential_sources),
        )

    def _add_credentials(self, settings: Settings) -> Keychain:
        """What work finds by name: in the store, and in those outside that the settings say."""
        key = key_of(self.store, settings)
        self.credentials = Credentials(self.store, SystemClock().now, key)
        sources = [StoreSource(self.credentials), *outside_sources(settings)]
        self.credential_sources: Sequence[CredentialSource] = sources
        allowed = self._allowed = policy_of(settings)
        options = http_options(settings)
        return Keychain(
            self.redactor,
            options=options,
            sources=sources,
            allowed=allowed,
            own=own_variables(settings),
        )

    def _add_composed(self, settings: Settings) -> None:
        """Kinds that are made of other kinds, or that need the engine itself."""
        self.performers |= self.rates.limited(self.performers)
        services = Services(
            performers=self.performers,
            payloads=self._payloads,
            held_bytes_max=settings.expression_bytes_max,
        )
        self._composed = PipelinePerformers(services, self._loops, settings)
        self.performers |= self._composed.performers
        self.performers["playbook"] = Child(self._start_child)
        self.performers |= self.participants.performers
        self.performers["rule"] = LazyPerformer(self._rules, self._of_chain.secrets)

    def _rules(self) -> Performer:
        from anabranch.work.rule.wiring import performer_of

        return performer_of(self._settings, self._chain, self._rule_keys)

    async def open(self, only: Collection[str] | None = None) -> None:
        """Begin to work; who can be asked is known before the first run is."""
        if self._clusters is not None:
            self._clusters.make()
        await self.participants.open(self.store)
        await self.verbs.read.look_at_files(unfinished(self.store, only))
        await self.engine.open(only=only)
        self._unspare = collector.spare()
        if self._clusters is not None:
            await self._clusters.open()
        self._retention.begin()

    @cached_property
    def catalog(self) -> Catalog:
        """Definitions that are kept, and found by path."""
        from anabranch.operations.definitions.catalog import Catalog  # most files name none

        return Catalog(self.store, self._settings.catalog, lambda: self._known_tools)

    @cached_property
    def scheduling(self) -> Scheduling:
        """Runs that begin by the clock, once that has begun."""
        from anabranch.operations.schedules.scheduling import Scheduling  # a run of `run` has none

        return Scheduling(self.verbs, self.catalog)

    @cached_property
    def triggering(self) -> Triggering:
        """Runs that begin because something happened: hooks, and those that follow others."""
        from anabranch.operations.triggers.triggering import Triggering

        return Triggering(self.verbs, self.catalog, self._settings, self.credential_sources)

    @cached_property
    def sessions(self) -> Sessions:
        """The runs of orchestrations, as their interface knows them."""
        from anabranch.operations.sessions.sessions import Sessions

        return Sessions(self.store, self.verbs.read, self.engine.send)

    @property
    def clusters(self) -> list[PoolDispatcher]:
        """Of each pool that a cluster does, who gives it the jobs; none before it is open."""
        return [] if self._clusters is None else self._clusters.dispatchers

    @property
    def pool_cards(self) -> PoolCards:
        """Every pool, as it is now."""
        from anabranch.pools.seen.pool_cards import PoolCards

        return PoolCards(self.pools, self.clusters)

    async def _keyring(self, net: Net, workload: Mapping[str, Any], run: str) -> Mapping[str, Any]:
        return await keyring_of(self._keychain, net, workload, run)

    async def find_definition(self, path: str) -> Prepared | Path:
        """What the catalog has under this path, or else the file."""
        found = await files.in_thread(partial(self.catalog.prepared, path), path)
        return found if found is not None else Path(path)

    async def _start_child(
        self,
        path: str,
        given: Mapping[str, Any],
        run: str,
        parent: str | None,
        returns: str,
        marks: Mapping[str, Any] | None = None,
    ) -> str:
        """Begin the child of a parked job, once: after a crash the one that is there is found.

        Secrets that the job was given are sealed in what it hands on."""
        by = run_at_work.get()
        if self.engine.known(run):
            self.engine.rights.require_begun_by(by, run)
            return run
        if marks is None:
            given, marks = seal(given, given_to_work())
        depth = child_depth(
            self.engine.state(by).depth if by else 0, self._settings.child_depth_max
        )
        return await self.verbs.start(
            await self.find_definition(path),
            given,
            run=run,
            parent=parent,
            returns=returns,
            trace=tracing.current(),
            marks=marks,
            begun_by=by,
            depth=depth,
            allow_extra_input=True,  # a parent may hand the same on to several children
            handed_on=True,
            held=held_by(self.engine.state(by)) if by and parent is not None else (),
            opening=self._allowed.open_regular,
        )

    async def close(self, grace_seconds: float | None = None) -> None:
        for name in ("scheduling", "triggering"):
            if name in self.__dict__:  # somebody asked for it
                await getattr(self, name).close()
        await self._retention.close()
        await self.participants.stop()
        grace = self._settings.grace_seconds if grace_seconds is None else grace_seconds
        clock = asyncio.get_running_loop().time
        until = clock() + grace
        await self.engine.hand_over()
        if self._clusters is not None:
            await self._clusters.close(grace)
        await self.engine.close(max(0.0, until - clock()))
        await close_all(self.performers)
        await self.participants.close()
        await self._composed.close()
        await self._keychain.close()
        if self._chain is not None:
            await self._chain.close()
        self._forget_process()

    def abandon(self) -> None:
        """Let go of threads and store where no event loop is left to close them in."""
        if self.engine.member is not None:
            self.engine.member.abandon()
        self.engine.logs.close()
        self.store.close()
        self._forget_process()

    def _forget_process(self) -> None:
        """What was changed for the whole process is as it was."""
        self._unguard_logs()
        if self._unspare is not None:
            self._unspare()
            self._unspare = None


def _chain(settings: Settings, redactor: Redactor) -> ChainPorts | None:
    if not settings.chain_url and settings.chain_execution == "record":
        return None
    from anabranch.work.chain.wiring import chain_from  # few have a chain

    return chain_from(settings, redactor=redactor)


def _rule_keys(settings: Settings) -> RuleKeys | None:
    if not settings.rule_keys_file:
        return None
    from anabranch.work.rule.xgr1 import keys_in  # few have sealed rules

    return keys_in(settings.rule_keys_file)

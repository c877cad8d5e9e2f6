"""The composition root: settings → store → runtime → operations. Only here are parts chosen.

`Engine` is what programs embed; `run` is the one-liner for scripts and notebooks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from warnings import warn
from weakref import finalize

import msgspec

from anabranch import collector, files
from anabranch import settings as config
from anabranch.anywhere import run_anywhere
from anabranch.clock import SystemClock
from anabranch.kernel import stimuli as s
from anabranch.kernel.limits import held_by
from anabranch.kernel.state import State
from anabranch.literals import Reducer
from anabranch.net.net import Net
from anabranch.operations.access.credentials import Credentials, StoreSource
from anabranch.operations.access.secret_key import key_of
from anabranch.operations.definitions.available import available_in
from anabranch.operations.definitions.preflight import Preflight, child_depth
from anabranch.operations.definitions.prepare import (
    Prepared,
    Rules,
    Source,
    compiler,
    path_in,
    prepare,
)
from anabranch.operations.participant_work import ParticipantWork
from anabranch.operations.read.event_view import EventRecord
from anabranch.operations.read.reader import Reader
from anabranch.operations.runs.retention import RunRetention
from anabranch.operations.runs.signals import SignalSent, send_signal, signal
from anabranch.operations.runs.verbs import Verbs, decision, patches, skipping
from anabranch.pools.given import Pools, cluster_pools, options_of, without_server
from anabranch.run_result import RunResult as RunResult
from anabranch.runtime import engine as runtime
from anabranch.runtime.jobs.executor import SecretScope
from anabranch.runtime.jobs.pool_queues import PoolQueues as JobPools
from anabranch.runtime.nets import Nets
from anabranch.runtime.recovery import unfinished
from anabranch.runtime.values.read_rights import ReadRights, RunLoops, RunPayloads
from anabranch.runtime.values.sealing import seal
from anabranch.runtime.values.step_results import StepResults
from anabranch.settings import Settings
from anabranch.store.factory import open_store as open_store
from anabranch.store.ports import Store
from anabranch.work import tracing
from anabranch.work.composed import PipelinePerformers
from anabranch.work.from_settings import http_options, work_settings
from anabranch.work.kinds.callables import Toolbox, default_toolbox
from anabranch.work.kinds.child import Child
from anabranch.work.kinds.lazy import LazyPerformer
from anabranch.work.loops.results import LoopResults
from anabranch.work.network.addresses import read_policy
from anabranch.work.pipeline.services import Services
from anabranch.work.rate_limits import RateLimits
from anabranch.work.registry import close_all, standard_performers
from anabranch.work.run_at_work import run_at_work
from anabranch.work.secrets.credential_sources import CredentialSource, find_in, outside_sources
from anabranch.work.secrets.keychain import Keychain
from anabranch.work.secrets.keyring import keyring_of as keyring_of
from anabranch.work.secrets.redaction import Redactor, given_to_work, guard_logs

if TYPE_CHECKING:
    from anabranch.operations.definitions.aliases import Aliases
    from anabranch.operations.definitions.catalog import Catalog
    from anabranch.operations.participants import Participants
    from anabranch.operations.runs.redrive_plan import RedrivePlan
    from anabranch.operations.schedules.schedules import Schedules
    from anabranch.operations.schedules.scheduling import Scheduling
    from anabranch.operations.sessions.sessions import Sessions
    from anabranch.operations.triggers.triggering import Triggering
    from anabranch.operations.triggers.triggers import Triggers
    from anabranch.operations.workers.worker_api import WorkerApi
    from anabranch.pools.address import PoolOptions
    from anabranch.pools.dispatcher import PoolDispatcher
    from anabranch.pools.seen.pool_cards import PoolCards
    from anabranch.pools.wiring import ClusterPools
    from anabranch.work.chain.wiring import ChainPorts
    from anabranch.work.port import Performer
    from anabranch.work.rule.xgr1 import RuleKeys

#: The tools registered with `@anabranch.tool`.
tool = default_toolbox.tool


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
            find_credential=partial(find_in, self.credential_sources),
        )
        read = self._composed.read_items
        return WorkerApi(
            self.engine, supplies, keyring=self._keyring, rates=self.rates, read_items=read
        )

    def _add_credentials(self, settings: Settings) -> Keychain:
        """What work finds by name: in the store, and in those outside that the settings say."""
        key = key_of(self.store, settings)
        self.credentials = Credentials(self.store, SystemClock().now, key)
        sources = [StoreSource(self.credentials), *outside_sources(settings)]
        self.credential_sources: Sequence[CredentialSource] = sources
        return Keychain(self.redactor, options=http_options(settings), sources=sources)

    def _add_composed(self, settings: Settings) -> None:
        """Kinds that are made of other kinds, or that need the engine itself."""
        self.performers |= self.rates.limited(self.performers)
        services = Services(performers=self.performers, payloads=self._payloads)
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
        if self.engine.known(run):
            return run
        if marks is None:
            given, marks = seal(given, given_to_work())
        by = run_at_work.get()
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
            held=held_by(self.engine.state(by)) if by and parent is not None else (),
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
        self.engine.abandon()
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


class Engine:
    """A durable engine inside your program.

    Open it with `async with`. It owns its store: one engine per file. Unfinished runs that it finds
    there go on by themselves. Several thousand runs at once are fine. On PostgreSQL it is one
    server among others: it owns a share of the runs, and answers for all of them.
    """

    def __init__(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        settings: Settings | None = None,
        toolbox: Toolbox | None = None,
        participants: Participants | None = None,
        pools: Pools | None = None,
        schedules: bool = True,
    ) -> None:
        """`pools` names those that a compute cluster does: `{"heavy": "dask://host:8786"}`. Without
        `schedules` those of the store, and its triggers, begin no runs here."""
        chosen = settings or config.from_environment()
        self._settings = replace(chosen, store=os.fspath(store)) if store is not None else chosen
        self._toolbox = toolbox if toolbox is not None else default_toolbox
        self._participants = participants
        self._pools = options_of(pools, self._settings)
        self._with_schedules = schedules
        self._parts: Parts | None = None
        self._drop: finalize[[Parts, asyncio.AbstractEventLoop], Engine] | None = None

    async def __aenter__(self) -> Engine:
        store = open_store(self._settings)
        try:
            parts = self._parts = Parts(
                store,
                self._settings,
                self._toolbox,
                self._participants,
                workers=False,
                pools=self._pools,
            )
            await parts.open()
            if self._with_schedules:
                parts.scheduling.begin()
                parts.triggering.begin()
        except BaseException:
            store.close()
            raise
        self._drop = finalize(self, _abandon, parts, asyncio.get_running_loop())
        self._drop.atexit = False
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._drop is not None:
            self._drop.detach()
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.close()
            parts.store.close()

    @property
    def _open(self) -> Parts:
        if self._parts is None:
            raise RuntimeError("the engine is not open: use it as `async with Engine(...)`")
        return self._parts

    @property
    def read(self) -> Reader:
        """Listing, showing and explaining runs."""
        return self._open.verbs.read

    @property
    def catalog(self) -> Catalog:
        """Definitions by path, in versions."""
        return self._open.catalog

    @property
    def schedules(self) -> Schedules:
        """Runs that begin by the clock."""
        return self._open.scheduling.schedules

    @property
    def triggers(self) -> Triggers:
        """Runs that begin because something happened elsewhere."""
        return self._open.triggering.triggers

    @property
    def aliases(self) -> Aliases:
        """Names that lead to a version of the catalog."""
        return self._open.triggering.aliases

    @property
    def credentials(self) -> Credentials:
        """What definitions ask for by name: kept encrypted, and never shown."""
        return self._open.credentials

    @property
    def sessions(self) -> Sessions:
        """The runs of orchestrations as sessions: processes, receipts, wake-ups, kill."""
        return self._open.sessions

    async def start(
        self,
        definition: Source | Prepared,
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the word users know
        *,
        run: str | None = None,
        step: str | None = None,
        labels: Mapping[str, str] | None = None,
        rules: Rules | None = None,
        allow_extra_input: bool = False,
        priority: int | None = None,
    ) -> str:
        """Begin a run; returns its id once it is durable.

        `rules` are those of an orchestration: a folder, a bundle, or a mapping by alias or address.
        Its labels `owner` and `max_gas` say whose session it is and what it may use up.
        Input that the definition has no use for is refused unless `allow_extra_input` is set.
        A text that is no definition names a file, or a path of the catalog.
        """
        if isinstance(definition, str) and path_in(definition) is not None and rules is None:
            definition = await self._open.find_definition(definition)
        return await self._open.verbs.start(
            definition, input, run=run, step=step, labels=labels, rules=rules,
            allow_extra_input=allow_extra_input, priority=priority,
        )  # fmt: skip

    async def wait(self, run: str, *, standing: bool = False) -> RunResult:
        """The run when it has finished; with `standing` also when only somebody can move it."""
        state = await self._open.verbs.wait(run, standing=standing)
        return self._result(run, state)

    def _result(self, run: str, state: State) -> RunResult:
        return RunResult(**self.read.summary(run, state))

    async def decide(
        self,
        run: str,
        gate: str,
        verdict: Literal["fulfil", "reject", "ask_again"],
        *,
        actor: str = "",
        reason: str = "",
        evidence: Any = None,
        override: bool = False,
    ) -> None:
        """Answer an open gate, by its id or its step.

        Where a declared source decides, `ask_again` asks it once more and `override` answers in its
        place.
        """
        said = decision(gate, verdict, actor, reason, evidence, override=override)
        await self._open.verbs.send(run, said)

    async def patch(
        self, run: str, values: Mapping[str, Any], *, reducer: Reducer = "set", actor: str = ""
    ) -> None:
        """Write to the context of the run; tokens held by admission are looked at again."""
        await self._open.verbs.send(run, s.PatchContext(patches(values, reducer), actor))

    async def signal(
        self,
        run: str,
        name: str,
        payload: Any = None,
        *,
        actor: str = "",
        ttl: float | str | None = None,
        id: str = "",  # noqa: A002 - the word users know
    ) -> SignalSent:
        """Send a signal to the run: a wait for this name takes it, or the run keeps it for one.

        `ttl` is how long it is kept: seconds, or text such as "1h"; without it, until the run ends.
        Sent again with the same `id` it is the same signal.
        """
        said = signal(name, payload, actor=actor, ttl=ttl, id=id)
        return await send_signal(self._open.verbs, run, said)

    async def pause(self, run: str, *, actor: str = "", reason: str = "") -> None:
        """Begin no further work of the run; what is out may finish."""
        await self._open.verbs.send(run, s.Pause(actor, reason))

    async def resume(self, run: str, *, actor: str = "") -> None:
        """Go on with a paused run."""
        await self._open.verbs.send(run, s.Resume(actor))

    async def cancel(self, run: str, *, actor: str = "", reason: str = "") -> None:
        """End the run: work that is out is told to stop, and nothing else begins."""
        await self._open.verbs.send(run, s.Cancel(actor, reason))

    async def retry(
        self, run: str, step: str, *, token: int = 0, actor: str = "", reason: str = ""
    ) -> None:
        """Try a step now that waits for its next try; `token` picks one of several runs of it."""
        await self._open.verbs.send(run, s.RetryNow(step, token, actor, reason))

    async def skip(
        self,
        run: str,
        step: str,
        *,
        token: int = 0,
        result: Any = msgspec.UNSET,
        actor: str = "",
        reason: str = "",
    ) -> None:
        """End a run of a step without its work: as skipped, or with a result as done."""
        await self._open.verbs.send(run, skipping(step, token, actor, reason, result))

    async def redrive(self, run: str, *, from_step: str = "") -> str:
        """A linked run that redoes what failed and what depends on it, and keeps the rest.

        With `from_step` that step and what depends on it as well, however they ended.
        """
        return await self._open.verbs.redrive(run, from_step=from_step)

    async def plan_redrive(self, run: str, *, from_step: str = "") -> RedrivePlan:
        """What `redrive` would run again, why, and what it would reuse; nothing is begun."""
        return await self._open.verbs.plan_redrive(run, from_step)

    def events(
        self, run: str, after: int = 0, *, tasks: bool = False
    ) -> AsyncIterator[EventRecord]:
        """Every event of the run, from the log and then live, until it has finished. With `tasks`
        also `task.started` and `task.processed`, before the report of their job."""
        return self._open.verbs.events(run, after, tasks=tasks)


def _abandon(parts: Parts, loop: asyncio.AbstractEventLoop) -> None:
    """An engine was dropped while it was open: it does not keep its threads and its store."""
    warn("an Engine was dropped without being closed: use `async with`", ResourceWarning, 2)
    if not loop.is_running():
        parts.abandon()
        return

    async def close() -> None:
        await parts.close(grace_seconds=0)
        parts.store.close()

    def end(closing: asyncio.Task[None]) -> None:
        if closing.cancelled() or closing.exception() is not None:  # the loop ends as well
            parts.abandon()

    def begin() -> None:
        loop.create_task(close()).add_done_callback(end)

    if asyncio._get_running_loop() is loop:
        begin()  # now: it is cancelled with the others if the loop is about to end
    else:
        loop.call_soon_threadsafe(begin)


def run(
    definition: Source,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the word users know
    *,
    store: str | os.PathLike[str] = ":memory:",
    settings: Settings | None = None,
    toolbox: Toolbox | None = None,
    rules: Rules | None = None,
    step: str | None = None,
    participants: Participants | None = None,
    pools: Pools | None = None,
    allow_extra_input: bool = False,
) -> RunResult:
    """Run a definition to its end (or until only somebody can move it) and return the result.

    Without `store` nothing is kept. `rules` are those of an orchestration, `step` is where to start
    instead of the entry, `pools` are those of a cluster. Input without a use is refused by default.
    """
    tools = toolbox if toolbox is not None else default_toolbox
    made = prepare(definition, tools.signatures(), rules)

    async def whole() -> RunResult:
        engine = Engine(
            store, settings=settings, toolbox=toolbox, participants=participants, pools=pools,
            schedules=False,
        )  # fmt: skip
        async with engine:
            begun = await engine.start(made, input, step=step, allow_extra_input=allow_extra_input)
            return await engine.wait(begun, standing=True)

    return run_anywhere(whole())

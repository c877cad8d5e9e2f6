"""The composition root: settings → store → runtime → operations. Only here are parts chosen.

`Engine` is what programs embed; `run` is the one-liner for scripts and notebooks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from anabranch import files
from anabranch import settings as config
from anabranch.clock import SystemClock
from anabranch.errors import InputError
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.literals import Reducer
from anabranch.market.directory import PassportDirectory
from anabranch.net.net import Net
from anabranch.net.problems import Problem
from anabranch.operations.access.credentials import Credentials, StoreSource
from anabranch.operations.access.secret_key import key_of
from anabranch.operations.definitions.available import available_in
from anabranch.operations.definitions.catalog import Catalog
from anabranch.operations.definitions.preflight import Available, Preflight, child_depth
from anabranch.operations.definitions.prepare import (
    Prepared,
    Rules,
    Source,
    compiler,
    path_in,
    prepare,
)
from anabranch.operations.participants import (
    Participants,
    asked_before,
    book_from,
    book_name,
    needs_of,
)
from anabranch.operations.read.event_view import EventRecord
from anabranch.operations.read.reader import Reader
from anabranch.operations.runs.redrive_plan import RedrivePlan
from anabranch.operations.runs.verbs import Verbs, decision, patches
from anabranch.operations.sessions.sessions import Sessions
from anabranch.operations.workers.job_data import JobData
from anabranch.operations.workers.worker_api import WorkerApi
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
from anabranch.work.chain.wiring import chain_from
from anabranch.work.kinds.artifact import ArtifactOptions
from anabranch.work.kinds.buckets.buckets import BucketOptions
from anabranch.work.kinds.callables import Toolbox, default_toolbox
from anabranch.work.kinds.child import Child
from anabranch.work.kinds.commands.container import ContainerOptions
from anabranch.work.kinds.commands.isolation import isolation_of
from anabranch.work.kinds.commands.shell import ShellOptions
from anabranch.work.kinds.http.performer import HttpOptions
from anabranch.work.kinds.lazy import LazyPerformer
from anabranch.work.kinds.nats.performer import NatsOptions
from anabranch.work.kinds.python.processes import ProcessOptions
from anabranch.work.kinds.switched_off import SWITCHABLE_KINDS, switched_off
from anabranch.work.loops.collection_reader import CollectionReader
from anabranch.work.loops.collections.all import Collections
from anabranch.work.loops.collections.port import CollectionLimits
from anabranch.work.loops.results import LoopResults
from anabranch.work.loops.shards import ReadAhead, Shards
from anabranch.work.network.addresses import read_policy
from anabranch.work.participants.book import Book
from anabranch.work.participants.performers import (
    CapabilityPerformer,
    DispatchPerformer,
    RequestPerformer,
    TargetsPerformer,
)
from anabranch.work.pipeline.pipeline import Pipeline, Services
from anabranch.work.port import Performer
from anabranch.work.registry import WorkSettings, close_all, standard_performers
from anabranch.work.rule.xgr1 import keys_in
from anabranch.work.run_at_work import run_at_work
from anabranch.work.secrets.credential_sources import CredentialSource, find_in, outside_sources
from anabranch.work.secrets.keychain import Keychain
from anabranch.work.secrets.keyring import keyring_of as keyring_of
from anabranch.work.secrets.redaction import Redactor, given_to_work, guard_logs
from anabranch.work.sql.task import SqlOptions

ROOM = 1024 * 1024  # a result a little over the limit still gets to the engine, which says so

#: The tools registered with `@anabranch.tool`.
tool = default_toolbox.tool


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run as it stands: what `anabranch run --json` prints, with attributes."""

    run: str
    name: str
    dialect: str
    status: str
    result: Any
    steps: Mapping[str, Mapping[str, Any]]
    joins: list[Mapping[str, Any]]
    problem: Mapping[str, Any] | None
    session: Mapping[str, Any] | None = None  # of an orchestration: its processes by state
    problems: int = 0  # step runs that ended badly, and nothing took care of it
    failures: list[Mapping[str, Any]] = field(default_factory=list)  # why, where there are any
    joins_dropped: int = 0  # of `joins`, those that were settled long ago


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
    ) -> None:
        self.store = store
        self.toolbox = toolbox
        self._participants = participants
        self._settings = settings
        self._reloading = asyncio.Lock()
        self.book = book_from(participants, settings)
        self._directory = PassportDirectory(self.book, SystemClock())
        self.redactor = Redactor()
        self._unguard_logs = guard_logs(self.redactor)
        self._keychain = self._add_credentials(settings)
        read_policy(settings.rule_addresses, "rule_addresses")  # a bad one is said now
        self._rule_addresses = settings.rule_addresses
        self._of_chain = Redactor.of_job()  # keys and credentials, for as long as the engine lives
        self._chain_patience = settings.chain_patience_seconds
        self._rule_keys = keys_in(settings.rule_keys_file) if settings.rule_keys_file else None
        self._chain = chain_from(settings, redactor=self._of_chain)
        for secret in self._of_chain.secrets:
            self.redactor.learn(secret, "the chain")
        self.nets = Nets(store, compiler(toolbox.signatures()))
        self._rights = ReadRights(store, self.nets, JobPools(settings.pools_here).outside)
        self._payloads = RunPayloads(store, self._rights)
        steps = StepResults(store, self._rights.fetch)
        self._loop_results = LoopResults(store, self._payloads, steps)
        self._loops = RunLoops(self._loop_results, self._rights)
        self._child_depth_max = settings.child_depth_max
        chosen = work_settings(settings)
        self.performers = standard_performers(
            chosen,
            toolbox=toolbox,
            payloads=self._payloads,
            loops=self._loops,
            redactor=self.redactor,
        )
        self._add_composed(settings)
        self.preflight = Preflight(self._available(settings, participants, workers=workers))
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
        known = toolbox.signatures()  # a tool registered later has no performer here
        self.verbs = Verbs(self.engine, lambda: known, self.preflight)
        self.catalog = Catalog(store, settings.catalog, lambda: known)
        self.sessions = Sessions(store, self.verbs.read, self.engine.send)
        self.pools = self._pools(settings)
        self.verbs.read.asked = self.engine.pools.asked

    def _available(
        self, settings: Settings, participants: Participants | None, *, workers: bool
    ) -> Available:
        """What runs may count on here."""
        return msgspec.structs.replace(
            available_in(settings, self.performers, workers=workers),
            participants=participants is not None or bool(settings.participants),
            book=book_name(participants, settings),
        )

    def _pools(self, settings: Settings) -> WorkerApi:
        """Workers elsewhere, and what they ask this engine for."""
        supplies = JobData(
            self.engine,
            settings,
            loops=self._loop_results,
            start_child=self._start_child,
            find_credential=partial(find_in, self.credential_sources),
        )
        return WorkerApi(
            self.engine,
            supplies,
            read_items=lambda source, shard, keys: self._reader.items(source, shard, keyring=keys),
            keyring=self._keyring,
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
        payloads = self._payloads
        services = Services(performers=self.performers, payloads=payloads)
        limits = CollectionLimits(
            line_bytes=settings.collection_line_bytes, shard_bytes=settings.collection_shard_bytes
        )
        self._collections = Collections(
            payloads=payloads,
            performers=self.performers,
            loops=self._loops,
            limits=limits,
        )
        self._reader = CollectionReader(self._collections)
        self.performers["pipeline"] = Pipeline(services)
        self.performers["loop.shard"] = Shards(services, self._reader)
        self.performers["loop.cut"] = ReadAhead(self._reader)
        self.performers["playbook"] = Child(self._start_child)
        self.performers["targets"] = TargetsPerformer(self._directory)
        elsewhere = self._directory.elsewhere
        self.performers["dispatch"] = DispatchPerformer(self.book, elsewhere=elsewhere)
        self.performers["request"] = RequestPerformer(self.book, elsewhere=elsewhere)
        self.performers["capability"] = CapabilityPerformer(self.book)
        self.performers["rule"] = LazyPerformer(self._rule_performer, self._of_chain.secrets)

    def _rule_performer(self) -> Performer:
        """Rules that are not bundled, reads and calls come from the chain, if there is one."""
        from anabranch.work.rule.api import ApiOptions
        from anabranch.work.rule.patience import Patience
        from anabranch.work.rule.performer import rule_performer

        http = ApiOptions(addresses=read_policy(self._rule_addresses, "rule_addresses"))
        keys = self._rule_keys
        sealing = keys if keys is not None and keys.seals else None
        if self._chain is None:
            return rule_performer(http=http, decryptor=keys, encryptor=sealing)
        chain = self._chain
        return rule_performer(
            rules=chain.rules,
            reader=chain.reader,
            executor=chain.executor,
            http=http,
            identity=chain.identity,
            patience=Patience(self._chain_patience),
            decryptor=keys,
            encryptor=sealing,
        )

    async def open(self, only: Collection[str] | None = None) -> None:
        """Begin to work; who can be asked is known before the first run is."""
        await self._directory.open()
        await self.verbs.read.look_at_files(unfinished(self.store, only))
        if self.book.is_there:
            self._directory.rotation.recall(await asyncio.to_thread(asked_before, self.store))
        await self.engine.open(only=only)

    def needs_of_book(self, net: Net) -> list[Problem]:
        """What a definition needs of the participants here; nothing where there is no book."""
        if not self.preflight.available.participants:
            return []
        return needs_of(net, self.book, self._directory if self.book.directory else None)

    async def reload_participants(self) -> None:
        """Read the book and its directory anew. A book with a mistake changes nothing."""
        if isinstance(self._participants, Book | Mapping):
            raise InputError("the participants were given by the program, not by a file")
        async with self._reloading:
            new = await asyncio.to_thread(book_from, self._participants, self._settings, self.book)
            await self._directory.reconfigure(new)
            self.book.become(new)

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
        depth = child_depth(self.engine.state(by).depth if by else 0, self._child_depth_max)
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
        )

    async def close(self, grace_seconds: float | None = None) -> None:
        await self._directory.close()
        await self.engine.close(grace_seconds)
        await close_all(self.performers)
        await self.book.close()
        await self._collections.close()
        await self._keychain.close()
        if self._chain is not None:
            await self._chain.close()
        self._unguard_logs()


def work_settings(settings: Settings) -> WorkSettings:
    without = switched_off(settings.no_inline, SWITCHABLE_KINDS)
    isolation = isolation_of(
        settings.inline_environment,
        settings.inline_user,
        withheld=settings.chain_signer_key_env,
        python="python" not in without,
    )
    return WorkSettings(
        python=ProcessOptions(
            limit=settings.processes_max,
            result_bytes=settings.result_bytes_max + ROOM,
            isolation=isolation,
        ),
        shell=ShellOptions(isolation=isolation),
        container=ContainerOptions(isolation=isolation, command=settings.container_command),
        http=http_options(settings),
        sql=SqlOptions(rows_max=settings.sql_rows_max, result_bytes=settings.sql_result_bytes),
        nats=NatsOptions(
            bytes_max=settings.http_body_bytes, addresses=read_policy(settings.http_addresses)
        ),
        buckets=BucketOptions(addresses=read_policy(settings.http_addresses)),
        artifact=ArtifactOptions(bytes_max=settings.artifact_bytes),
        without=without,
        threads=settings.threads_max,
    )


def http_options(settings: Settings) -> HttpOptions:
    return HttpOptions(
        body_bytes=settings.http_body_bytes, addresses=read_policy(settings.http_addresses)
    )


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
    ) -> None:
        chosen = settings or config.from_environment()
        self._settings = replace(chosen, store=os.fspath(store)) if store is not None else chosen
        self._toolbox = toolbox if toolbox is not None else default_toolbox
        self._participants = participants
        self._parts: Parts | None = None

    async def __aenter__(self) -> Engine:
        store = open_store(self._settings)
        try:
            self._parts = Parts(
                store, self._settings, self._toolbox, self._participants, workers=False
            )
            await self._parts.open()
        except BaseException:
            store.close()
            raise
        return self

    async def __aexit__(self, *_exc: object) -> None:
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
            definition,
            input,
            run=run,
            step=step,
            labels=labels,
            rules=rules,
            allow_extra_input=allow_extra_input,
        )

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

    async def pause(self, run: str, *, actor: str = "", reason: str = "") -> None:
        await self._open.verbs.send(run, s.Pause(actor, reason))

    async def resume(self, run: str, *, actor: str = "") -> None:
        await self._open.verbs.send(run, s.Resume(actor))

    async def cancel(self, run: str, *, actor: str = "", reason: str = "") -> None:
        await self._open.verbs.send(run, s.Cancel(actor, reason))

    async def redrive(self, run: str) -> str:
        """A linked run that redoes what failed and what depends on it, and keeps the rest."""
        return await self._open.verbs.redrive(run)

    async def plan_redrive(self, run: str) -> RedrivePlan:
        """What `redrive` would run again, why, and what it would reuse; nothing is begun."""
        return await self._open.verbs.plan_redrive(run)

    def events(
        self, run: str, after: int = 0, *, tasks: bool = False
    ) -> AsyncIterator[EventRecord]:
        """Every event of the run, from the log and then live, until it has finished. With `tasks`
        also `task.started` and `task.processed`, before the report of their job."""
        return self._open.verbs.events(run, after, tasks=tasks)


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
    allow_extra_input: bool = False,
) -> RunResult:
    """Run a definition to its end (or until only somebody can move it) and return the result.

    Works in scripts and in notebooks. Without `store` nothing is kept. `rules` are those of an
    orchestration, `step` is where to start instead of the entry. Input that the definition has no
    use for is refused unless `allow_extra_input` is set.
    """

    tools = toolbox if toolbox is not None else default_toolbox
    prepared = prepare(definition, tools.signatures(), rules)

    async def whole() -> RunResult:
        async with Engine(
            store, settings=settings, toolbox=toolbox, participants=participants
        ) as engine:
            begun = await engine.start(
                prepared, input, step=step, allow_extra_input=allow_extra_input
            )
            return await engine.wait(begun, standing=True)

    return _run_anywhere(whole())


def _run_anywhere(work: Coroutine[Any, Any, RunResult]) -> RunResult:
    """In a notebook a loop runs already; then the work gets a loop and a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()

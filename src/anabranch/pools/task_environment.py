"""Where a claimed job becomes work on a worker, with the same performers as in the engine.

Definitions are compiled here from their source. What else the work needs of the engine (large
values, results of loops, credentials, child runs) comes through `JobServices`. Secrets of a
keychain are resolved here, from this machine's environment and files, and leave it in no answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, DefinitionError
from anabranch.kernel.values import Answer, failed
from anabranch.net.net import Net
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.workers.worker_cards import kinds_of
from anabranch.pools.answers import JobAnswer
from anabranch.pools.job_logs import JobLogs
from anabranch.pools.services import JobRefused, JobServices, Key, job_at_work
from anabranch.runtime.jobs.executor import carry_out
from anabranch.runtime.jobs.wire import ClaimedJob, SentOrReadItems, from_wire, refs_of
from anabranch.runtime.values.payloads import TooLarge, lighten
from anabranch.runtime.values.sealing import Unsealed, seal
from anabranch.settings import Settings
from anabranch.version import __version__
from anabranch.work.faults import not_prepared, unexpected
from anabranch.work.file_policy import policy_of
from anabranch.work.from_settings import http_options, log_limits, own_variables, work_settings
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.kinds.child import Child
from anabranch.work.loops.collection_reader import CollectionReader
from anabranch.work.loops.collections.all import Collections
from anabranch.work.loops.collections.port import CollectionLimits
from anabranch.work.loops.shards import Shards, Underway
from anabranch.work.pipeline.pipeline import Pipeline
from anabranch.work.pipeline.services import Services
from anabranch.work.port import Parked, Task
from anabranch.work.registry import close_all, standard_performers
from anabranch.work.secrets.credential_sources import outside_sources
from anabranch.work.secrets.keychain import Keychain
from anabranch.work.secrets.keyring import keyring_of
from anabranch.work.secrets.redaction import (
    Redactor,
    given_to_work,
    giving,
    guard_logs,
    with_credentials,
)
from anabranch.work.values.payloads import encoded

NETS_KEPT = 100
REPORT_BYTES = 8 * 1024 * 1024  # a larger result goes ahead, also where it is to stay whole
CHECKPOINT_BYTES = 4 * 1024 * 1024  # of a shard that has more to remember, only counts are told
PROGRESS_BYTES = 3500  # in the words of a progress; more of it goes ahead as a payload


def _holder(leased: ClaimedJob) -> str:
    """Who holds the secrets that were resolved for it."""
    return "/".join(map(str, leased.id))


class TaskEnvironment:
    """Everything that a worker works with."""

    def __init__(
        self,
        services: JobServices,
        settings: Settings,
        toolbox: Toolbox,
        *,
        no_kind: str = "start it with --tools MODULE",
    ) -> None:
        """`no_kind` says what to do about a kind of work that is not here."""
        self._services = services
        self._no_kind = no_kind
        self._settings = settings
        self._compile = compiler(toolbox.signatures())
        self._nets: OrderedDict[str, Net] = OrderedDict()
        self._redactor = Redactor()
        self._unguard_logs = guard_logs(self._redactor)
        self._keychain = Keychain(
            self._redactor,
            options=http_options(settings),
            sources=[*outside_sources(settings), services.credentials],
            allowed=policy_of(settings),
            own=own_variables(settings),
        )
        self._payloads = services.payloads
        self.logs = JobLogs(log_limits(settings), self._redactor)
        self._shards: dict[Key, Underway] = {}
        self._scopes: dict[Key, Redactor] = {}  # what each job was given of secrets
        self._compose(toolbox)

    def _compose(self, toolbox: Toolbox) -> None:
        settings, payloads = self._settings, self._payloads
        self._performers = standard_performers(
            work_settings(settings),
            toolbox=toolbox,
            payloads=payloads,
            loops=self._services.loops,
            redactor=self._redactor,
        )
        limits = CollectionLimits(
            line_bytes=settings.collection_line_bytes,
            shard_bytes=settings.collection_shard_bytes,
            files=policy_of(settings),
        )
        self._collections = Collections(
            payloads=payloads, performers=self._performers, limits=limits
        )
        services = Services(
            performers=self._performers,
            payloads=payloads,
            held_bytes_max=settings.expression_bytes_max,
        )
        reader = SentOrReadItems(CollectionReader(self._collections))
        self._performers["pipeline"] = Pipeline(services)
        self._performers["loop.shard"] = Shards(services, reader, self._note, alone=False)
        self._performers["playbook"] = Child(self._start_child)

    @property
    def kinds(self) -> list[str]:
        """Of work that can be done here."""
        return kinds_of(self._performers)

    async def close(self) -> None:
        await close_all(self._performers)
        await self._collections.close()
        await self._keychain.close()
        self.logs.shut()
        self._unguard_logs()

    # -- one job -----------------------------------------------------------------------------

    async def perform(self, leased: ClaimedJob, shared: Mapping[str, Any]) -> JobAnswer:
        """Do the work; whatever goes wrong with it is its answer. Raises `JobRefused`
        where the job is no longer out."""
        job_at_work.set(leased.id)
        scope = self._scopes[leased.id] = Redactor.of_job()
        try:
            with giving(scope):
                answer = await self._performed(leased, shared)
            if isinstance(answer, Parked):
                return JobAnswer(answer)
            return await self._light(leased, scope.answer(answer))
        finally:
            self._shards.pop(leased.id, None)
            self._scopes.pop(leased.id, None)
            self._redactor.release(_holder(leased))

    async def _performed(self, leased: ClaimedJob, shared: Mapping[str, Any]) -> Answer | Parked:
        try:
            net = await self._net(leased)
            task = await self._task(leased, shared, net)
        except JobRefused:
            raise
        except DefinitionError as error:
            message = f"this worker (anabranch {__version__}) cannot compile it: {error}"
            return failed("config", message, retryable=False)
        except AnabranchError as error:
            return not_prepared(error)
        except Exception as error:
            return unexpected(error, "the worker cannot prepare the task")
        performer = self._performers.get(task.kind)
        if performer is None:
            message = f"this worker has no work of kind {task.kind!r}: {self._no_kind}"
            return failed("config", message, retryable=False)
        return await carry_out(performer, task, self.logs)

    async def _task(self, leased: ClaimedJob, shared: Mapping[str, Any], net: Net) -> Task:
        held: dict[str, bytes] = {}  # what this job needs must not leave with the cache
        for sha256 in refs_of(leased, shared):
            content = await self._payloads.get(sha256)
            if content is not None:
                held[sha256] = content
        keyring = None
        if net.has_secrets:
            workload = shared.get("workload", {})
            if leased.sealed:
                workload = Unsealed(workload, leased.sealed)
            keyring = await keyring_of(self._keychain, net, workload, _holder(leased))
        return await with_credentials(lambda: from_wire(leased, shared, net, held.get, keyring))

    async def _net(self, leased: ClaimedJob) -> Net:
        net = self._nets.get(leased.definition)
        if net is None:
            net = self._compile(await self._services.definition(leased.definition))
            self._nets[leased.definition] = net
            while len(self._nets) > NETS_KEPT:
                self._nets.popitem(last=False)
        return net

    async def _light(self, leased: ClaimedJob, answer: Answer) -> JobAnswer:
        """A large result goes ahead, and the answer only refers to it."""
        most = self._settings
        whole = bool(getattr(answer, "inline", False))
        inline_max = REPORT_BYTES if whole else most.inline_bytes_max
        try:
            light = lighten(answer.result, inline_max, most.result_bytes_max)
            if not light.sha256:
                return JobAnswer(answer)
            await self._payloads.put(light.content, leased.run)
        except TooLarge as error:
            return JobAnswer(failed("result", str(error), retryable=False))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return JobAnswer(failed("result", f"the result is not JSON: {error}", retryable=False))
        except JobRefused as refusal:
            if refusal.too_large:
                return JobAnswer(failed("result", refusal.message, retryable=False))
            raise
        if whole:  # the server puts it together again
            return JobAnswer(msgspec.structs.replace(answer, result=None), light.sha256)
        return JobAnswer(msgspec.structs.replace(answer, result=light.result))

    # -- how far it is -----------------------------------------------------------------------

    def _note(self, task: Task, shard: Underway) -> None:
        self._shards[task.run, task.job, task.attempt] = shard

    def done(self, key: Key) -> int:
        """How many items of this shard are over; 0 also where it is none."""
        shard = self._shards.get(key)
        return shard.done if shard is not None else 0

    async def progress(self, key: Key) -> dict[str, Any] | None:
        """What can be said of a shard: how far it is, and from where another one can go on."""
        shard = self._shards.get(key)
        if shard is None:
            return None
        said: dict[str, Any] = {"done": shard.done, "of": shard.size}
        try:
            content = encoded(shard.checkpoint())
            scope = self._scopes.get(key)
            if scope is not None and scope.knows_any and len(content) <= CHECKPOINT_BYTES:
                content = encoded(scope.clean(msgspec.json.decode(content)))
        except (TypeError, ValueError, OverflowError, RecursionError):
            return said  # its answer will say what is wrong with it
        if len(content) <= PROGRESS_BYTES:
            return {**said, "checkpoint": msgspec.Raw(content)}
        if len(content) > CHECKPOINT_BYTES:
            return said
        job_at_work.set(key)
        return {**said, "payload": await self._payloads.put(content)}

    # -- children ----------------------------------------------------------------------------

    async def _start_child(
        self, path: str, given: Mapping[str, Any], run: str, parent: str | None, returns: str
    ) -> str:
        """The engine begins it; secrets that the job was given are sealed in what it hands on."""
        shown, marks = seal(given, given_to_work())
        return await self._services.start_child(path, shown, run, parent, returns, marks)

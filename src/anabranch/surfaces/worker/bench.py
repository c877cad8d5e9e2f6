"""The bench of a worker: where a parcel becomes work, with the same performers as in the engine.

Definitions are compiled here from the source that the server has. Large values come from the server
and go back there, by their hash. Secrets of a keychain are resolved here, from this machine's
environment and files, and leave it in no answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import msgspec

from anabranch import __version__, app
from anabranch.errors import AnabranchError, DefinitionError
from anabranch.kernel.values import Answer, failed
from anabranch.net.net import Net
from anabranch.operations.definitions import compiler
from anabranch.runtime.crew import carry_out
from anabranch.runtime.parcels import Parcel, SentOrRead, refs_of, unpack
from anabranch.runtime.payloads import TooLarge, lighten
from anabranch.settings import Settings
from anabranch.store.ports import Definition
from anabranch.surfaces.worker.link import Final, Key, Link, job_path, until_heard
from anabranch.work.callables import Toolbox
from anabranch.work.child import Child
from anabranch.work.collections import Collections, Limits
from anabranch.work.keychain import Keychain
from anabranch.work.means import Means
from anabranch.work.payloads import hash_of
from anabranch.work.pipeline import Pipeline
from anabranch.work.port import Parked, Task
from anabranch.work.reading import CollectionReader
from anabranch.work.redaction import Redactor, guard_logs
from anabranch.work.registry import close_all, standard_performers
from anabranch.work.shards import Shards

CACHE_BYTES = 256 * 1024 * 1024  # of payloads, so that a value is fetched once and not per job
NETS_KEPT = 100

#: The job that the current task works for: payloads are asked for in its name.
_job: ContextVar[Key] = ContextVar("anabranch_job")


class RemotePayloads:
    """Payloads of the server, and those fetched last."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    async def get(self, sha256: str) -> bytes | None:
        known = self.fetched(sha256)
        if known is not None:
            return known
        path = job_path(_job.get(), f"payloads/{sha256}")
        try:
            content = await until_heard(
                lambda: self._link.once("GET", path, seconds=300), "fetching a payload"
            )
        except Final as refusal:
            if refusal.status == 410:
                return None
            raise
        self._keep(sha256, content)
        return content

    async def put(self, content: bytes, run: str = "", scope: str = "job") -> str:  # noqa: ARG002
        path = job_path(_job.get(), "payloads")
        await until_heard(
            lambda: self._link.once("POST", path, content=content, seconds=300),
            "keeping a payload",
        )
        return hash_of(content)

    def fetched(self, sha256: str) -> bytes | None:
        """What was fetched before, without asking."""
        content = self._cache.get(sha256)
        if content is not None:
            self._cache.move_to_end(sha256)
        return content

    def _keep(self, sha256: str, content: bytes) -> None:
        self._cache[sha256] = content
        self._size += len(content)
        while self._size > CACHE_BYTES and len(self._cache) > 1:
            self._size -= len(self._cache.popitem(last=False)[1])


class Bench:
    """Everything that a worker works with."""

    def __init__(self, link: Link, settings: Settings, toolbox: Toolbox) -> None:
        self._link = link
        self._settings = settings
        self._compile = compiler(tool.name for tool in toolbox)
        self._nets: OrderedDict[str, Net] = OrderedDict()
        self._redactor = Redactor()
        self._unguard_logs = guard_logs(self._redactor)
        self._keychain = Keychain(self._redactor)
        self._payloads = RemotePayloads(link)
        self.progress: dict[Key, Any] = {}  # how far the shards at work are
        self._compose(toolbox)

    def _compose(self, toolbox: Toolbox) -> None:
        settings, payloads = self._settings, self._payloads
        self._performers = standard_performers(
            app.work_settings(settings),
            toolbox=toolbox,
            payloads=payloads,
            redactor=self._redactor,
        )
        limits = Limits(
            line_bytes=settings.collection_line_bytes, shard_bytes=settings.collection_shard_bytes
        )
        self._collections = Collections(
            payloads=payloads, performers=self._performers, limits=limits
        )
        means = Means(performers=self._performers, payloads=payloads, redactor=self._redactor)
        reader = SentOrRead(CollectionReader(self._collections))
        self._performers["pipeline"] = Pipeline(means)
        self._performers["loop.shard"] = Shards(means, reader, self._note)
        self._performers["playbook"] = Child(self._start_child)

    async def close(self) -> None:
        await close_all(self._performers)
        await self._collections.close()
        await self._keychain.close()
        self._unguard_logs()

    # -- one job -----------------------------------------------------------------------------

    async def perform(self, parcel: Parcel, shared: Mapping[str, Any]) -> Answer | Parked:
        """Do the work; whatever goes wrong with it is its answer. Raises `Final` where the server
        no longer knows the job."""
        _job.set(parcel.id)
        try:
            answer = await self._performed(parcel, shared)
            if isinstance(answer, Parked):
                return answer
            return await self._light(parcel, self._clean(answer))
        finally:
            self.progress.pop(parcel.id, None)

    async def _performed(self, parcel: Parcel, shared: Mapping[str, Any]) -> Answer | Parked:
        try:
            net = await self._net(parcel)
            task = await self._task(parcel, shared, net)
        except Final:
            raise
        except DefinitionError as error:
            message = f"this worker (anabranch {__version__}) cannot compile it: {error}"
            return failed("config", message, retryable=False)
        except AnabranchError as error:
            kind = getattr(error, "kind", error.code)
            return failed(kind, str(error), retryable=bool(getattr(error, "retryable", False)))
        performer = self._performers.get(task.kind)
        if performer is None:
            message = f"this worker has no work of kind {task.kind!r}: start it with --tools MODULE"
            return failed("config", message, retryable=False)
        return await carry_out(performer, task)

    async def _task(self, parcel: Parcel, shared: Mapping[str, Any], net: Net) -> Task:
        held: dict[str, bytes] = {}  # what this job needs must not leave with the cache
        for sha256 in refs_of(parcel, shared):
            content = await self._payloads.get(sha256)
            if content is not None:
                held[sha256] = content
        keyring = None
        if net.keychain:
            workload = shared.get("workload", {})
            keyring = await app.keyring_of(self._keychain, net, workload)
        return unpack(parcel, shared, net, held.get, keyring)

    async def _net(self, parcel: Parcel) -> Net:
        net = self._nets.get(parcel.definition)
        if net is None:
            path = job_path(parcel.id, "definition")
            source = await until_heard(
                lambda: self._link.json(_Source, "GET", path), "fetching a definition"
            )
            net = self._compile(Definition(**msgspec.structs.asdict(source)))
            self._nets[parcel.definition] = net
            while len(self._nets) > NETS_KEPT:
                self._nets.popitem(last=False)
        return net

    def _clean(self, answer: Answer) -> Answer:
        return self._redactor.answer(answer) if self._redactor.knows_any else answer

    async def _light(self, parcel: Parcel, answer: Answer) -> Answer:
        """A large result goes ahead, and the answer only refers to it."""
        if getattr(answer, "inline", False):
            return answer
        most = self._settings
        try:
            light = lighten(answer.result, most.inline_bytes_max, most.result_bytes_max)
            if not light.sha256:
                return answer
            await self._payloads.put(light.content, parcel.run)
        except TooLarge as error:
            return failed("result", str(error), retryable=False)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return failed("result", f"the result is not JSON: {error}", retryable=False)
        except Final as refusal:
            if refusal.status == 413:
                return failed("result", refusal.message, retryable=False)
            raise
        return msgspec.structs.replace(answer, result=light.result)

    def _note(self, task: Task, done: int, of: int) -> None:
        self.progress[task.run, task.job, task.attempt] = {"done": done, "of": of}

    async def _start_child(
        self, path: str, given: Mapping[str, Any], run: str, parent: str | None, returns: str
    ) -> str:
        """The server begins it: a child belongs to the engine, whoever asks for it."""
        body = {
            "path": path,
            "run": run,
            "input": given,
            "waits": parent is not None,
            "returns": returns,
        }
        where = job_path(_job.get(), "children")
        begun = await until_heard(
            lambda: self._link.json(_Begun, "POST", where, body), "beginning a child run"
        )
        return begun.run


class _Source(msgspec.Struct, frozen=True):
    fingerprint: str
    dialect: str
    name: str
    source: str
    origin: str


class _Begun(msgspec.Struct, frozen=True):
    run: str

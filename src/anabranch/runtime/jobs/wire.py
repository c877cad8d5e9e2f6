"""The wire: a job on its way to a worker elsewhere.

A program is not serialised. The worker gets the fingerprint of the definition, asks for its source
once and compiles it: same source, same net, whatever a program holds. What travels is what the
source cannot tell: the values that templates see, the shard, where parked work stood. Values that
several jobs of one claim share (the input, the context, the results of the run) travel once.

Large values travel as the refs they are in the log; the worker fetches them by their hash. Items
of a collection that only this machine may be able to read (files, queries) travel with their shard.
Sealed input of a session stays with the engine, secrets of a keychain are resolved by the worker,
and those that a parent put into the arguments of its child travel with the job that may read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from anabranch.errors import InputError
from anabranch.expressions.budget import TakesLong
from anabranch.kernel.jobs import DEFAULT_WORK, pool_of_job
from anabranch.kernel.routing import names_of_run
from anabranch.kernel.state import State
from anabranch.kernel.tracker import Shard
from anabranch.net.net import Net, Work
from anabranch.net.reads import reads_keychain
from anabranch.runtime.jobs.tasks import (
    JobDescription,
    build_task,
    checkpoint_hash,
    describe_job,
    names_of_job,
    rendered_inputs,
    whole_names,
)
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.values.loading import Fetch
from anabranch.runtime.values.sealing import Sealed
from anabranch.work.loops.collections.port import KIND
from anabranch.work.port import Task
from anabranch.work.values.payloads import PLACE, REF, is_ref

#: Collections that a worker reads by itself wherever it is; the items of others travel.
ANYWHERE = ("list", "range")
INPUT_BYTES_MAX = 256 * 1024  # larger ones are rendered by the worker

_NO_KEYS: Mapping[str, Any] = {}
_NO_VALUES = names_of_run(State())

Item = tuple[int, str, Any]  # index, key, value
#: Does it at once, or raises `TakesLong`.
Evaluate = Callable[[Callable[[], Any]], Any]


class ClaimedJob(JobDescription, frozen=True, kw_only=True, omit_defaults=True):
    """One job under a lease, as it travels."""

    pool: str
    definition: str  # the fingerprint
    lease_until: int
    lease_seconds: float
    items: list[Item] | None = None  # of the shard, where the worker could not read them
    #: The secrets for which marks stand in the input of the run.
    sealed: dict[str, Any] = msgspec.field(default_factory=dict)

    def __repr__(self) -> str:
        return f"ClaimedJob({self.run!r}, {self.job!r}, {self.attempt})"  # its values may be secret

    @property
    def id(self) -> tuple[str, str, int]:
        return self.run, self.job, self.attempt


def shared_names(live: LiveRun) -> dict[str, Any]:
    """What all jobs of the run can see at this instant; it travels once for all of them."""
    names = names_of_run(live.state)
    del names["run"]  # every job says that
    return names


def to_wire(
    live: LiveRun,
    job_id: str,
    fetch: Fetch,
    *,
    traces: bool = False,
    evaluate: Evaluate = lambda work: work(),
) -> ClaimedJob:
    """The job for its worker; raises `ExpressionError` where its inputs cannot be rendered. Where
    `evaluate` says that they take long, the worker renders them."""
    state = live.state
    job = state.jobs[job_id]
    step = live.net.steps[job.step]
    work = step.work or DEFAULT_WORK
    described = describe_job(live, job, work, traces=traces)
    told = msgspec.structs.asdict(described)
    if described.inputs is None:
        told["inputs"] = _rendered(live, described, work, fetch, evaluate)
    if not travels(described.source):
        told["source"] = None
    return ClaimedJob(
        **told,
        pool=pool_of_job(step, job),
        definition=state.definition,
        lease_until=job.lease,
        lease_seconds=max(0.0, (job.lease - job.since) / 1000),
        sealed=dict(live.sealed.marks) if described.sealed_keys else {},
    )


def travels(source: Any) -> bool:
    """Whether a worker can read this collection wherever it is."""
    kind = source.get(KIND) if isinstance(source, Mapping) else "list"
    return kind in ANYWHERE


def is_range(source: Any) -> bool:
    """Whether its items follow from a few numbers."""
    return isinstance(source, Mapping) and source.get(KIND) == "range"


def _rendered(
    live: LiveRun, job: JobDescription, work: Work, fetch: Fetch, evaluate: Evaluate
) -> dict[str, Any] | None:
    """The inputs as JSON, for workers that do not compile definitions; secrets are not here."""
    if live.net.keychain or job.sealed_keys:
        return None
    if live.net.asks_credentials and reads_keychain(work.inputs):
        return None

    def render() -> Mapping[str, Any]:
        names = names_of_job(job, shared_names(live))
        return rendered_inputs(work, whole_names(names, fetch) if live.holds_refs else names)

    try:
        inputs = evaluate(render)
    except TakesLong:  # the worker has the time
        return None
    try:
        encoded = msgspec.json.encode(inputs)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return None if len(encoded) > INPUT_BYTES_MAX else dict(inputs)


# -- on the worker ---------------------------------------------------------------------------


def refs_in(value: Any) -> Iterator[str]:
    """The hashes of the payloads that stand-ins in it stand for."""
    if isinstance(value, Mapping):
        if REF in value and is_ref(value):
            yield str(value[REF]["ref"]).removeprefix(PLACE)
            return
        for each in value.values():
            yield from refs_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from refs_in(each)


def refs_of(leased: ClaimedJob, shared: Mapping[str, Any]) -> set[str]:
    """What has to be fetched before the work can begin."""
    heard = leased.heard.result if leased.heard is not None else None
    values = [leased.args, leased.payload, leased.slot, leased.memory, heard, shared]
    checkpoint = checkpoint_hash(leased.progress)
    return {*refs_in(values), *([checkpoint] if checkpoint else [])}


def from_wire(
    leased: ClaimedJob,
    shared: Mapping[str, Any],
    net: Net,
    fetch: Fetch,
    keyring: Mapping[str, Any] | None = None,
) -> Task:
    """The job as its performer sees it, with inputs rendered here unless they came along."""
    step = net.steps.get(leased.step)
    if step is None:
        raise InputError(f"the definition {leased.definition} has no step {leased.step!r}")
    if leased.items is not None:
        leased = msgspec.structs.replace(leased, source=SentItems(leased.items))
    work = step.work or DEFAULT_WORK
    names = {**_NO_VALUES, **shared}  # an older server does not send all of them
    return build_task(leased, work, names, fetch, keyring, sealed=Sealed(leased.sealed))


class SentItems(msgspec.Struct, frozen=True):
    """The items of a shard that came along, in the place of their collection."""

    items: Sequence[Item]


class ItemReader(Protocol):
    async def items(
        self, source: Any, shard: Shard, /, *, keyring: Mapping[str, Any] = ...
    ) -> Sequence[Item]: ...


class SentOrReadItems:
    """Finds the items of a shard: those that came along, or else in the collection."""

    def __init__(self, reader: ItemReader) -> None:
        self._reader = reader

    async def items(
        self, source: Any, shard: Shard, /, *, keyring: Mapping[str, Any] = _NO_KEYS
    ) -> Sequence[Item]:
        if isinstance(source, SentItems):
            return source.items
        return await self._reader.items(source, shard, keyring=keyring)

"""Claims: workers elsewhere ask for jobs, and get them under a lease.

The start and the lease of a job are in the log before the job leaves. An answer that is lost on its
way can be asked for again by the name of its claim. Jobs that nobody came to know of are lost with
their lease, and go out again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, Literal, NamedTuple

import msgspec

from anabranch.errors import AnabranchError, InputError, NotFound, Refused
from anabranch.kernel import stimuli as s
from anabranch.kernel.jobs import DEFAULT_WORK, pool_of_job
from anabranch.kernel.state import Job
from anabranch.kernel.tracker import Shard, loop_name
from anabranch.kernel.values import failed
from anabranch.net.net import Net
from anabranch.net.problems import did_you_mean
from anabranch.operations.workers.credential_requests import Lookups, StepLookups
from anabranch.operations.workers.leases import NOBODY, LeaseHolder
from anabranch.operations.workers.recorded_names import recorded_names
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.jobs.concurrency import ReadyJob
from anabranch.runtime.jobs.pool_queues import KINDS_MAX, WorkerReport
from anabranch.runtime.jobs.wire import (
    ClaimedJob,
    Evaluate,
    Item,
    is_range,
    shared_names,
    to_wire,
    travels,
)
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.messages.codec import RunElsewhere
from anabranch.runtime.values.payloads import resolve
from anabranch.runtime.values.sealing import Unsealed
from anabranch.work.evaluations import evaluate, share_of_loop
from anabranch.work.faults import unexpected
from anabranch.work.port import Task
from anabranch.work.rate_limits import RateLimits
from anabranch.work.run_at_work import working_for
from anabranch.work.secrets.redaction import Redactor, giving

CLAIM_MAX = 1000  # jobs in one claim
WAIT_SECONDS_MAX = 60.0
LEASE_SECONDS = (1.0, 24 * 3600.0)
NAME_MAX = 200
ABOUT_LETTERS = 16_384  # of all that a worker says of itself
NAMES_COMPARED = 50  # pools that a name may have been meant for
CLAIMS_KEPT = 1000  # answers that can be asked for again
PACKED_AT_ONCE = 50
FEW_PACKED_AT_ONCE = 8
LOOKUPS_KEPT = 10_000  # jobs whose credentials are known from when they were handed out

#: The items of a shard, read in the engine's own process.
ReadItems = Callable[[Any, Shard, Mapping[str, Any]], Awaitable[Sequence[Item]]]
Keyring = Callable[[Net, Mapping[str, Any], str], Awaitable[Mapping[str, Any]]]
Key = tuple[str, str, int]
ItemsWanted = bool | Literal["lists"]


_encode = msgspec.json.Encoder().encode


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a claim: jobs, and per run the values that its jobs share."""

    tasks: list[ClaimedJob]
    runs: dict[str, dict[str, Any]]
    note: str = ""  # for people: what may be wrong where nothing ever comes


class ClaimingWorker(NamedTuple):
    """Who claims: the worker, the id of its token, and how long it wants its leases to be."""

    worker: str
    token: str
    lease_seconds: float | None
    queued: bool
    about: WorkerReport | None = None


class PendingClaim(msgspec.Struct):
    """A claim by its name, and everybody who waits for its answer: each says whether it is gone."""

    task: asyncio.Task[list[Key]]
    askers: list[Callable[[], bool]]

    async def heard_by(self, gone: Callable[[], bool]) -> list[Key]:
        """Its answer; who has it, or has left, is known no more."""
        self.askers.append(gone)
        try:
            return await _unless_withdrawn(self.task)
        finally:
            self.askers.remove(gone)

    @property
    def came_to_nothing(self) -> bool:
        if not self.task.done():
            return False
        broken = self.task.cancelled() or self.task.exception() is not None
        return broken or not self.task.result()


class Claims:
    """One per engine."""

    def __init__(
        self,
        engine: EngineLoop,
        read_items: ReadItems,
        keyring: Keyring,
        rates: RateLimits | None = None,
    ) -> None:
        self.rates = rates
        self._engine = engine
        self._read_items = read_items
        self._keyring = keyring
        self._asked: OrderedDict[tuple[str, str, str, str], PendingClaim] = OrderedDict()
        self._settling: set[asyncio.Task[None]] = set()
        self._lookups: OrderedDict[Key, Lookups] = OrderedDict()

    async def claim(
        self,
        pool: str,
        worker: str,
        *,
        most: int = 1,
        wait_seconds: float = 0.0,
        lease_seconds: float | None = None,
        claim: str = "",
        items: ItemsWanted = False,
        gone: Callable[[], bool] = lambda: False,
        by: LeaseHolder = NOBODY,
        queued: bool = False,
        about: WorkerReport | None = None,
        bytes_max: int = 0,
    ) -> Claimed:
        """Up to `most` jobs of the pool, each started under a lease; waits for the first one. With
        `bytes_max` the answer ends with the job that is as large with all before it.

        `claim` names the question: the same worker with the same token that asks it again (the
        answer was lost on its way) gets the same jobs. With `items` the items of every shard
        travel, also where the worker could work them out itself; with `"lists"` those of lists,
        which then do not travel as a whole. `gone` says that nobody waits for the answer any more.
        Jobs that are to be `queued` elsewhere have not begun, as far as their time is limited.
        `about` is what the worker says of itself.
        """
        _check_claim(pool, worker, most, wait_seconds, lease_seconds)
        check_about(about)

        def begin(nobody: Callable[[], bool]) -> Coroutine[Any, Any, list[Key]]:
            asker = ClaimingWorker(worker, by.token, lease_seconds, queued, about)
            return self._take(pool, asker, most, wait_seconds, nobody)

        if claim:
            name = (pool, by.token, worker, claim)
            keys = await self._once(name, begin).heard_by(gone)
        else:
            keys = await begin(gone)
        claimed = await self._packed(keys, worker, items, bytes_max)
        return claimed if claimed.tasks else msgspec.structs.replace(claimed, note=self._note(pool))

    def _note(self, pool: str) -> str:
        """A pool that no run has used yet may be a slip of the pen, or only early."""
        pools = self._engine.pools
        if pools.used(pool):
            return ""
        used = (name for name in pools.names() if pools.used(name))
        hint = did_you_mean(pool, list(islice(used, NAMES_COMPARED)))
        near = f"; {hint}" if hint.startswith("did") else ""
        return f"no job of pool {pool!r} was seen since the server started{near}"

    async def wait(
        self,
        pool: str,
        worker: str,
        *,
        wait_seconds: float = 0.0,
        gone: Callable[[], bool] = lambda: False,
        about: WorkerReport | None = None,
    ) -> int:
        """How many jobs of the pool wait, as soon as there is one; claims nothing. A worker of
        several servers waits at all of them and claims where there is something: waiting claims
        would each have to keep its places free, or be given more than it has room for."""
        _check_claim(pool, worker, 1, wait_seconds, None)
        check_about(about)
        pools, clock = self._engine.pools, asyncio.get_running_loop().time
        until = clock() + wait_seconds
        while True:
            pools.saw(pool, worker, self._engine.clock.now(), about)
            waiting, left = pools.waiting(pool), until - clock()
            if waiting or left <= 0 or gone() or pools.closed:
                return waiting
            await pools.wait(pool, left, takes=False)

    async def withdraw(self, pool: str, worker: str, claim: str, by: LeaseHolder = NOBODY) -> int:
        """Whoever asked under this name stops asking: what it was given goes back, and costs
        nobody an attempt. Returns how many jobs that are."""
        asked = self._asked.pop((pool, by.token, worker, claim), None)
        if asked is None:
            return 0
        if not asked.task.done():
            asked.task.cancel()  # what it is just starting is handed back when it is started
            return 0
        if asked.came_to_nothing:
            return 0
        return await self._give_back(asked.task.result(), worker, "its claimer was gone")

    def _once(
        self,
        name: tuple[str, str, str, str],
        begin: Callable[[Callable[[], bool]], Coroutine[Any, Any, list[Key]]],
    ) -> PendingClaim:
        """The one answer to a question that may be asked several times."""
        known = self._asked.pop(name, None)
        if known is None or known.came_to_nothing:
            askers: list[Callable[[], bool]] = []
            task = asyncio.get_running_loop().create_task(
                begin(lambda: all(each() for each in askers))
            )
            known = PendingClaim(task, askers)
        self._asked[name] = known  # the last one now
        for old in list(self._asked):
            if len(self._asked) <= CLAIMS_KEPT:
                break
            if self._asked[old].task.done():
                del self._asked[old]
        return known

    async def _take(
        self,
        pool: str,
        asker: ClaimingWorker,
        most: int,
        wait_seconds: float,
        gone: Callable[[], bool] = lambda: False,
    ) -> list[Key]:
        """Wait for jobs and start them; gives those that were really started."""
        pools, clock = self._engine.pools, asyncio.get_running_loop().time
        until = clock() + wait_seconds
        while True:
            pools.saw(pool, asker.worker, self._engine.clock.now(), asker.about)
            if gone() or pools.closed:
                return []
            limit = self.rates.pool(pool) if self.rates is not None else None
            if limit is not None and not (allowed := await limit.ready()):
                left = until - clock()
                if left <= 0:
                    return []
                await asyncio.sleep(min(left, limit.next_seconds()))
                continue
            ready = list(pools.take(pool, most if limit is None else min(most, allowed)))
            if limit is not None:
                limit.consume(len(ready))
            if ready and (keys := await self._start_all(ready, asker)):
                return keys
            left = until - clock()
            if left <= 0 and not ready:
                return []
            await pools.wait(pool, max(left, 0))

    async def _start_all(self, ready: Sequence[ReadyJob], asker: ClaimingWorker) -> list[Key]:
        """All in one turn. Whoever stops waiting hands back what was started for it."""
        loop = asyncio.get_running_loop()
        starting = [loop.create_task(self._start(one, asker)) for one in ready]
        together = asyncio.gather(*starting)
        try:
            started = await asyncio.shield(together)
        except asyncio.CancelledError:
            together.add_done_callback(lambda _done: self._hand_back(ready, starting))
            raise
        return [
            (one.run, one.job, one.attempt)
            for one, good in zip(ready, started, strict=True)
            if good
        ]

    async def _start(self, ready: ReadyJob, asker: ClaimingWorker) -> bool:
        live = self._engine.live_run(ready.run)
        job = live.state.jobs.get(ready.job) if live is not None else None
        if live is None or job is None:
            return False
        length = int(lease_seconds_of(live, job, asker.lease_seconds) * 1000)
        until = self._engine.clock.now() + length
        begun = s.JobStart(
            ready.job, ready.attempt, asker.worker, until, asker.token, queued=asker.queued
        )
        try:
            await self._engine.send(ready.run, begun)
        except (Refused, NotFound, RunElsewhere):
            # It has gone on, or its run is paused and lists it again when resumed, or another
            # server has taken the run over and offers it.
            return False
        except AnabranchError:  # the store is away, say: the job waits for the next worker
            self._put_back(ready, live)
            raise
        return True

    def _put_back(self, ready: ReadyJob, live: LiveRun) -> None:
        job = live.state.jobs.get(ready.job)
        if job is not None and (job.phase, job.attempt) == ("scheduled", ready.attempt):
            pool = pool_of_job(live.net.steps[job.step], job)
            self._engine.pools.add(
                ready.run, job.id, job.attempt, pool, job.since, live.state.priority
            )

    def _hand_back(self, ready: Sequence[ReadyJob], starting: Sequence[asyncio.Task[bool]]) -> None:
        for one, task in zip(ready, starting, strict=True):
            if not task.cancelled() and task.exception() is None and task.result():
                lost = s.JobLose(one.job, one.attempt, "its claimer was gone", counted=False)
                settling = asyncio.get_running_loop().create_task(self._settle(one.run, lost))
                self._settling.add(settling)
                settling.add_done_callback(self._settling.discard)

    # -- packing -----------------------------------------------------------------------------

    async def _packed(
        self, keys: Sequence[Key], worker: str, items: ItemsWanted, bytes_max: int
    ) -> Claimed:
        """Few are packed at once where bytes are counted: what is packed beyond them is small."""
        tasks: list[ClaimedJob] = []
        runs: dict[str, dict[str, Any]] = {}
        size = at = 0
        full = False
        while at < len(keys) and not full:
            some = keys[at : at + (FEW_PACKED_AT_ONCE if bytes_max else PACKED_AT_ONCE)]
            packed = await asyncio.gather(*(self._pack(key, worker, items) for key in some))
            for leased in packed:
                at += 1
                live = self._engine.live_run(leased.run) if leased is not None else None
                if leased is None or live is None:
                    continue
                if leased.run not in runs:
                    runs[leased.run] = shared_names(live)
                    size += _size_of(runs[leased.run]) if bytes_max else 0
                tasks.append(leased)
                size += _size_of(leased) if bytes_max else 0
                if full := 0 < bytes_max <= size:
                    break
        await self._give_back(keys[at:], worker, "the answer to its claim was full")
        return Claimed(tasks=tasks, runs=runs)

    async def _give_back(self, keys: Iterable[Key], worker: str, why: str) -> int:
        """Those of the jobs that are still out; that costs none of their attempts."""
        given = [
            (run, s.JobLose(name, attempt, why, counted=False))
            for run, name, attempt in keys
            if self._out((run, name, attempt), worker) is not None
        ]
        await asyncio.gather(*(self._settle(run, lost) for run, lost in given))
        return len(given)

    async def _pack(self, key: Key, worker: str, items: ItemsWanted) -> ClaimedJob | None:
        """None where the job is not out any more, or cannot be handed out and has failed."""
        run, name, attempt = key
        out = self._out(key, worker)
        if out is None:
            return None
        live, job = out
        if job.token not in live.state.tokens:  # its gather closed meanwhile
            await self._settle(run, s.JobLose(name, attempt, "nobody waits for it"))
            return None
        scope = Redactor.of_job()  # what is read for it may need secrets, and fail with them
        try:
            with giving(scope):
                return await self._handed_out(live, job, worker, items)
        except AnabranchError as error:
            kind = "collection" if job.slot >= 0 and live.state.loops else "expression"
            retryable = bool(getattr(error, "retryable", False))
            answer = failed(kind, str(error), retryable=retryable)
        except Exception as error:  # of this job alone: the others of the claim are handed out
            answer = unexpected(error, "the server cannot send the job to a worker")
        await self._settle(run, s.JobReport(name, attempt, scope.answer(answer)))
        return None

    def _out(self, key: Key, worker: str) -> tuple[LiveRun, Job] | None:
        """The job, where this worker still has it."""
        run, name, attempt = key
        live = self._engine.live_run(run)
        job = live.state.jobs.get(name) if live is not None else None
        if live is None or job is None or (job.attempt, job.worker) != (attempt, worker):
            return None
        return (live, job) if job.phase == "running" else None

    async def _handed_out(
        self, live: LiveRun, job: Job, worker: str, items: ItemsWanted
    ) -> ClaimedJob | None:
        share = share_of_loop()
        key = (live.state.run, job.id, job.attempt)
        wire = partial(self._to_wire, key, worker, share.evaluate)
        leased = await share.do_in_turn(wire, key[0])
        if leased is None:
            return None
        leased = await self._with_items(live, job, leased, items)
        if live.net.has_secrets:
            step = StepLookups(live.net, job.step)
            if step.computed:
                self._remember(leased.id, await self._look(step, live, job, leased.items))
        return leased

    def _to_wire(self, key: Key, worker: str, evaluate: Evaluate) -> ClaimedJob | None:
        """None where the job went away while this waited."""
        out = self._out(key, worker)
        if out is None or out[1].token not in out[0].state.tokens:
            return None
        fetch = self._engine.rights.fetch(key[0])
        return to_wire(out[0], key[1], fetch, traces=self._engine.traces, evaluate=evaluate)

    # -- credentials -------------------------------------------------------------------------

    async def lookups_of(self, live: LiveRun, job: Job) -> Lookups:
        """The credentials that a job which is out looks up: as it was when it was handed out, and
        where another server has done that, or this one before it was started anew, as it is now."""
        key = (live.state.run, job.id, job.attempt)
        lookups = self._lookups.get(key)
        if lookups is None:
            lookups = await self._look(StepLookups(live.net, job.step), live, job, None)
            self._remember(key, lookups)
        return lookups

    def _remember(self, key: Key, lookups: Lookups) -> None:
        self._lookups[key] = lookups
        while len(self._lookups) > LOOKUPS_KEPT:
            self._lookups.popitem(last=False)

    async def _look(
        self, step: StepLookups, live: LiveRun, job: Job, items: Sequence[Item] | None
    ) -> Lookups:
        run, rights = live.state.run, self._engine.rights
        if job.token not in live.state.tokens:  # nobody waits for its answer any more
            raise Refused(f"job {job.id} is already over", code="unknown_job")
        names = recorded_names(live, job, rights.fetch(run))
        by_people = not rights.starter(run)
        task = Task(
            run=run, step=job.step, job=job.id, attempt=job.attempt, key="", kind="", inputs={}
        )
        tracker = live.state.loops.get(live.state.tokens[job.token].loop)
        shard = tracker.in_flight.get(job.id) if tracker is not None else None
        if not step.by_item or tracker is None or shard is None:
            return await step.of_job(names, task, by_people=by_people)
        task = msgspec.structs.replace(task, loop=loop_name(run, tracker.id), shard=shard)
        if items is None:
            items = await self._items_of(live, tracker.source, shard)
        listed = travels(tracker.source)
        return await step.of_job(names, task, items, listed=listed, by_people=by_people)

    # -- items of shards ---------------------------------------------------------------------

    async def _with_items(
        self, live: LiveRun, job: Job, leased: ClaimedJob, wanted: ItemsWanted
    ) -> ClaimedJob:
        """The claimed job, with the items of a shard that only this machine can be sure to read."""
        if leased.shard is None:
            return leased
        source = live.state.loops[live.state.tokens[job.token].loop].source
        if travels(source) and (is_range(source) if wanted == "lists" else not wanted):
            return leased
        whole = leased.source if wanted != "lists" else None
        items = await self._items_of(live, source, leased.shard)
        return msgspec.structs.replace(leased, items=items, source=whole)

    async def _items_of(self, live: LiveRun, source: Any, shard: Shard) -> list[Item]:
        keys: Mapping[str, Any] = {}
        run = live.state.run
        if live.net.has_secrets:
            fetch = self._engine.rights.fetch(run)
            whole = await evaluate(partial(resolve, live.state.workload, fetch))
            workload = Unsealed(whole, live.sealed.marks)
            keys = await self._keyring(live.net, workload, run)
        with working_for(run):
            return [(n, key, item) for n, key, item in await self._read_items(source, shard, keys)]

    async def _settle(self, run: str, stimulus: s.JobReport | s.JobLose) -> None:
        with suppress(Refused, NotFound, RunElsewhere):  # another was first
            await self._engine.send(run, stimulus)


async def _unless_withdrawn(asked: asyncio.Task[list[Key]]) -> list[Key]:
    """What the claim came to; nothing where it was withdrawn."""
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        asker = asyncio.current_task()
        if not asked.cancelled() or (asker is not None and asker.cancelling()):
            raise
        return []


def lease_seconds_of(live: LiveRun, job: Job, asked: float | None) -> float:
    """How long a lease of this job is: as asked, or as its definition says."""
    work = live.net.steps[job.step].work or DEFAULT_WORK
    return asked if asked is not None else max(work.lease_ms / 1000, LEASE_SECONDS[0])


def _check_claim(
    pool: str, worker: str, most: int, wait_seconds: float, lease_seconds: float | None
) -> None:
    for name, value in (("pool", pool), ("worker", worker)):
        if not 0 < len(value) <= NAME_MAX or not value.isprintable():
            raise InputError(f"the {name} needs a printable name of 1 to {NAME_MAX} characters")
    if worker == "engine":
        raise InputError("no worker may be called `engine`: that is the engine itself")
    if not 1 <= most <= CLAIM_MAX:
        raise InputError(f"max must be 1 to {CLAIM_MAX}, not {most}")
    if not 0 <= wait_seconds <= WAIT_SECONDS_MAX:
        raise InputError(f"wait_seconds must be 0 to {WAIT_SECONDS_MAX:g}, not {wait_seconds:g}")
    check_lease(lease_seconds)


def check_about(about: WorkerReport | None) -> None:
    """What a worker says of itself is shown to people: words, and not many."""
    if about is None:
        return
    words = (about.host, about.version, *about.kinds)
    too_many = len(about.kinds) > KINDS_MAX or sum(map(len, words)) > ABOUT_LETTERS
    if too_many or any(len(word) > NAME_MAX or not word.isprintable() for word in words):
        raise InputError(
            f"`about` needs printable words of at most {NAME_MAX} characters and {ABOUT_LETTERS:,} "
            f"together, and at most {KINDS_MAX} kinds"
        )


def check_lease(lease_seconds: float | None) -> None:
    least, most = LEASE_SECONDS
    if lease_seconds is not None and not least <= lease_seconds <= most:
        raise InputError(f"lease_seconds must be {least:g} to {most:g}, not {lease_seconds:g}")


def _size_of(value: Any) -> int:
    """In bytes, as it travels."""
    return len(_encode(value))

"""Recovery: what an engine does with the unfinished runs it finds in its store.

Runs that only stand at gates stay in the store and cost nothing but their alarm. The others come
into memory; jobs that were out with the last engine are lost and go out again, and so are those
that it had given to a compute cluster. Jobs of workers elsewhere stay with them, under their
leases.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from anabranch.errors import MissingRequirements, StoreError
from anabranch.expressions.budget import pause
from anabranch.kernel import stimuli as s
from anabranch.kernel.jobs import DEFAULT_WORK
from anabranch.kernel.state import Job
from anabranch.runtime.core import Core
from anabranch.runtime.jobs.dispatchers import is_dispatcher
from anabranch.runtime.live_run import LiveRun
from anabranch.store.damage import damage_of
from anabranch.store.ports import Head, Record, StateSnapshot, Store

log = logging.getLogger("anabranch.engine")

PAGE = 1000
READ_AT_ONCE = 100  # runs, between which a server has its turn
IDLE_DEFINITIONS_MAX = 256  # are read, since whoever opens the engine waits for it
NAMED_MAX = 10  # runs that a line of the log names
#: A lease that ran out while no engine was there could not be extended: it gets so long again.
GRACE_MS = 15_000
SUBMITTER_ENDED = "the server that had submitted it has ended"


def recover(
    core: Core,
    now: int,
    only: Collection[str] | None = None,
    *,
    partitions: Collection[int] | None = None,
) -> int:
    """Bring back every unfinished run, or `only` these, or those of `partitions` of a shared store;
    returns how many came into memory."""
    moved = 0
    moving: list[Head] = []
    needs = IdleNeeds(core)
    for head in unfinished(core.store, only, partitions):  # of a million that wait none is kept
        if head.status not in ("queued", "waiting") or damage_of(head):
            moving.append(head)
        else:
            _leave(core, now, head)
            if only is None:  # who names some runs looks at them
                needs.look(head)
        if len(moving) == PAGE:
            moved += _bring_all_back(core, now, moving)
            moving = []
    moved += _bring_all_back(core, now, moving)
    needs.report()
    return moved


async def bring_back(
    core: Core, now: int, only: Collection[str] | None, *, beside_loop: bool
) -> None:
    """The same before the engine turns; `beside_loop` where somebody is answered meanwhile."""
    if beside_loop:
        await asyncio.to_thread(recover, core, now, only)
    else:
        recover(core, now, only)


def _leave(core: Core, now: int, head: Head) -> None:
    """In the store, until a place is free or a timer is due."""
    if head.status == "queued":
        core.found_queued.append(head.run)
    elif head.next_wake is not None:
        core.set_wake(head.run, max(head.next_wake, now))


def _bring_all_back(core: Core, now: int, heads: Sequence[Head]) -> int:
    for at in range(0, len(heads), READ_AT_ONCE):
        some = heads[at : at + READ_AT_ONCE]
        found = core.store.read_many([head.run for head in some])
        for head in some:
            others = core.inbox
            _bring_back(core, now, head, *found[head.run])
            core.bring_forward(core.inbox - others)
            pause()
    return len(heads)


def _bring_back(
    core: Core, now: int, head: Head, snapshot: StateSnapshot | None, tail: Sequence[Record]
) -> None:
    """One run that cannot be read must not keep the others from going on."""
    try:
        go_on(core, core.adopt(head, snapshot, tail), now)
    except Exception as error:
        core.live.pop(head.run, None)
        core.broken[head.run] = error
        core.on_defect(head.run, error)


def go_on(core: Core, live: LiveRun, now: int) -> None:
    """What the last engine itself had at work is lost, and goes out again. Leases are kept."""
    run = live.state.run
    for job in list(live.state.jobs.values()):
        if job.lease and is_dispatcher(job.worker):
            _take_back(core, run, job)
        elif job.lease:
            _go_on_lease(core, live, job, now)
        elif job.phase == "running":
            core.offer(run, s.JobLose(job.id, job.attempt, "the engine restarted"))
        elif job.phase == "cancelling":
            core.offer(run, s.JobDischarge(job.id))
        elif job.phase == "parked":
            core.family.ask_child(run, job.id, job.attempt, job.ticket)
    core.reactions.queue_scheduled(live)
    core.set_alarm(live)


def _take_back(core: Core, run: str, job: Job) -> None:
    """A cluster does it, perhaps, and nobody hears how it ends. That is no fault of the job."""
    if job.phase == "cancelling":
        core.offer(run, s.JobDischarge(job.id))
    else:
        core.offer(run, s.JobLose(job.id, job.attempt, SUBMITTER_ENDED, counted=False))


def _go_on_lease(core: Core, live: LiveRun, job: Job, now: int) -> None:
    core.reactions.lend(live, job)
    step = live.net.steps[job.step]
    at_least = now + min((step.work or DEFAULT_WORK).lease_ms, GRACE_MS)
    if job.phase == "running" and job.lease < at_least:
        core.offer(live.state.run, s.JobExtend(job.id, job.attempt, at_least))


def unfinished(
    store: Store,
    only: Collection[str] | None = None,
    partitions: Collection[int] | None = None,
) -> Iterator[Head]:
    """Every unfinished run of the store, or those of `only` or in `partitions`."""
    if only is not None:
        found = (store.head(name) for name in only)
        yield from (head for head in found if head is not None and not head.finished)
        return
    page = store.unfinished("", PAGE, partitions)
    while page:
        yield from page
        page = store.unfinished(page[-1].run, PAGE, partitions) if len(page) == PAGE else []


class IdleNeeds:
    """Which of the idle runs that a recovery meets need what this engine has not: nobody loads one
    that only waits, so nobody would notice before it is woken.

    A definition is read once for all of its runs. What depends on how a run began, its secrets and
    its chain, is compared when the run is loaded.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._found: dict[str, MissingRequirements | None] = {}  # by definition
        self._counts: Counter[str] = Counter()
        self._names: dict[str, list[str]] = {}

    def look(self, head: Head) -> None:
        key = head.definition
        if key not in self._found:
            if len(self._found) >= IDLE_DEFINITIONS_MAX:
                return
            self._found[key] = self._lacks(key)
        missing = self._found[key]
        if missing is None:
            return
        self._core.lacking[head.run] = missing
        self._counts[key] += 1
        if self._counts[key] <= NAMED_MAX:
            self._names.setdefault(key, []).append(head.run)

    def report(self) -> None:
        """A line of the log for each definition."""
        for key, names in self._names.items():
            more = self._counts[key] - len(names)
            named = ", ".join(names) + (f" and {more:,} more" if more else "")
            log.warning("%s: %s", self._found[key], named)

    def _lacks(self, definition: str) -> MissingRequirements | None:
        try:
            self._core.require(self._core.nets.get(definition), None)
        except MissingRequirements as missing:
            return missing
        except StoreError:
            raise
        except Exception:  # whoever wakes the run says what is wrong with its definition
            log.debug("definition %s cannot be read", definition, exc_info=True)
        return None

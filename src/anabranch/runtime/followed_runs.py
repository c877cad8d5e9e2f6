"""Following runs: their state now, at their end, and their events as they are recorded.

A run of another server is followed by what the store has of it. If a run moves to another server
meanwhile, it is followed there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial

from anabranch.clock import Clock
from anabranch.errors import AnabranchError, NotFound
from anabranch.kernel import events as e
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import Job, State
from anabranch.runtime.child_runs import is_child_of, may_be_child
from anabranch.runtime.cluster.member import ClusterMember
from anabranch.runtime.core import Core, run_exists
from anabranch.runtime.live_run import history, load_state
from anabranch.runtime.messages.codec import ELSEWHERE
from anabranch.runtime.messages.subscribers import Subscribers

STAND_BY_SECONDS = 60


class FollowedRuns:
    """`check_going` raises when the engine turns no more."""

    def __init__(
        self,
        core: Core,
        subscribers: Subscribers,
        clock: Clock,
        member: ClusterMember | None,
        check_going: Callable[[], None],
    ) -> None:
        self._core = core
        self._store = core.store
        self._subscribers = subscribers
        self._clock = clock
        self._member = member
        self._check_going = check_going
        self._new: set[str] = set()  # neither in memory nor in the store, a moment ago
        self._starting: dict[str, asyncio.Event] = {}  # under an id that somebody chose

    def known(self, run: str) -> bool:
        if run in self._core.live:
            return True
        if run in self._new:
            self._new.discard(run)  # who asks may begin it; the next one asks the store
            return False
        return self._store.head(run) is not None

    def expect_new(self, runs: Sequence[str]) -> Mapping[str, bool]:
        """One statement for many runs that are about to begin."""
        found = self._store.runs_known(runs)
        self._new.update(run for run in runs if run not in found and run not in self._core.live)
        asyncio.get_running_loop().call_soon(self._new.clear)
        return found

    @asynccontextmanager
    async def start_alone(self, run: str, *, drawn: bool) -> AsyncIterator[None]:
        """Raises where the run is there. One start of an id at a time: if it is refused, the next
        one is the first. An id just drawn is nobody else's, and no store knows it."""
        if drawn:
            if run in self._core.live:
                raise run_exists(run)
            yield
            return
        while (other := self._starting.get(run)) is not None:
            await other.wait()
        if self.known(run):
            raise run_exists(run)
        over = self._starting[run] = asyncio.Event()
        try:
            yield
        finally:
            del self._starting[run]
            over.set()

    async def wait(self, run: str, *, standing: bool) -> State:
        """The state of the run when it has finished. With `standing` also when it is paused, or
        waits and no timer is due within a minute."""
        while True:
            self._check_going()
            if self._member is not None and not self._member.here(run):
                load = partial(self._stored_state, run)
                rests = self._stands if standing else None
                return await self._member.remote.wait(run, load, rests)
            state = self._settled_here(run, standing)
            if state is not None:
                return state
            try:
                if not standing:
                    return await self._subscribers.wait(run)
                await self._wait_for_move([run, *self._moving_child(self.state(run))])
            except AnabranchError as error:
                if error.code != ELSEWHERE:  # another server has it now: wait there
                    raise

    async def _wait_for_move(self, runs: Sequence[str]) -> None:
        """When one of them has changed: what a run waits for may be what its child waits for."""
        watching = [self._subscribers.watch(run) for run in runs]
        try:
            done, _ = await asyncio.wait(watching, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            for one in watching:
                one.cancel()

    async def is_settled(self, run: str, *, standing: bool) -> bool:
        """Whether `wait` would return at once."""
        self._check_going()
        if self._member is None or self._member.here(run):
            return self._settled_here(run, standing) is not None
        load = partial(self._stored_state, run)
        rests = self._stands if standing else None
        return (await self._member.remote.look(run, load, rests))[1] is not None

    def _settled_here(self, run: str, standing: bool) -> State | None:
        state = self.state(run)
        over = state.finished or (standing and self._stands(state))
        return state if over and self._durable(run, state) else None

    def _stands(self, state: State) -> bool:
        """Nothing will happen by itself for a while: not a timer, not a job, not in a child."""
        status = status_of(state)
        if status == "paused":
            return not any(job.phase == "running" for job in state.jobs.values())
        alarm = state.timers.earliest()
        soon = alarm is not None and alarm - self._clock.now() <= STAND_BY_SECONDS * 1000
        if status != "waiting" or soon:
            return False
        return all(
            job.wait is not None or self._child_stands(state, job) for job in state.jobs.values()
        )

    def _child_stands(self, state: State, job: Job) -> bool:
        child = self._child(state, job)
        return child is not None and not child.finished and self._stands(child)

    def _moving_child(self, state: State) -> list[str]:
        """One that the run waits for and that moves, or one of that child's. As long as it moves,
        no other child is worth a look."""
        if status_of(state) != "waiting":
            return []
        for job in state.jobs.values():
            child = self._child(state, job)
            if child is not None and not child.finished and not self._stands(child):
                return self._moving_child(child) or [child.run]
        return []

    def _child(self, state: State, job: Job) -> State | None:
        run = job.ticket
        if not may_be_child(run, state.run):
            return None
        if run not in self._core.live and self._store.head(run) is None:
            return None
        child = self.state(run)
        return child if is_child_of(child, state.run, job.id) else None

    def _durable(self, run: str, state: State) -> bool:
        """Has everybody who reads the store this state? What is not written yet is told later."""
        if self._subscribers.finished.get(run) is state:
            return True  # it was published, and nothing is before it is durable
        head = self._store.head(run)
        return head is not None and head.seq >= state.seq

    def state(self, run: str) -> State:
        live = self._core.live.get(run)
        if live is not None:
            return live.state
        if run in self._subscribers.finished:
            return self._subscribers.finished[run]
        if run in self._core.broken:
            return self._core.run(run).state  # raises with the reason
        return self._stored_state(run)

    def _stored_state(self, run: str) -> State:
        """As the store has it: what is in memory may be behind another server's."""
        found = self._store.read_many([run]).get(run)
        if found is None or (found[0] is None and not found[1]):
            raise NotFound(f"there is no run {run}")
        return load_state(*found, run)

    async def events(self, run: str, after: int) -> AsyncIterator[tuple[int, int, e.Event]]:
        while True:
            self._check_going()
            with self._watching(run) as changed:
                records = self._store.read(run, after)
                for at, event in history(records, after, run):
                    after += 1
                    yield after, at, event
                    if isinstance(event, e.RunFinished):
                        return
                if run in self._core.broken:
                    raise self._core.aside(run)
                await changed()

    @contextmanager
    def _watching(self, run: str) -> Iterator[Callable[[], Awaitable[None]]]:
        """Call it to wait until more may have been recorded of the run since now. A reader that
        leaves is forgotten: a run that has ended changes no more."""
        if self._member is not None and not self._member.here(run):
            remote = self._member.remote
            yield partial(remote.changed, remote.news)
            return
        watching = self._subscribers.watch(run)

        async def changed() -> None:
            try:
                await watching
            except AnabranchError as error:
                if error.code != ELSEWHERE:  # another server has it now: watch there
                    raise

        try:
            yield changed
        finally:
            watching.cancel()

"""Following runs: their state now, at their end, and their events as they are recorded.

A run of another server is followed by what the store has of it. If a run moves to another server
meanwhile, it is followed there.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from anabranch.clock import Clock
from anabranch.errors import AnabranchError, NotFound
from anabranch.kernel import events as e
from anabranch.kernel.state import State
from anabranch.runtime.core import Core, run_exists
from anabranch.runtime.live_run import LiveRun, history, load_state
from anabranch.runtime.messages.codec import ELSEWHERE
from anabranch.runtime.messages.standstill import Look, look_at
from anabranch.runtime.messages.subscribers import Subscribers, Watching

if TYPE_CHECKING:
    from anabranch.runtime.cluster.member import ClusterMember


class NotInMemory(Exception):
    """It is in the store, if anywhere."""


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
        self._subscribers, self._finished = subscribers, subscribers.finished
        self._clock = clock
        self._member = member
        self._check_going = check_going
        self._new: set[str] = set()  # neither in memory nor in the store, a moment ago
        self._starting: dict[str, asyncio.Event] = {}  # under an id that somebody chose

    def known(self, run: str) -> bool:
        if self._core.has(run):
            return True
        if run in self._new:
            self._new.discard(run)  # who asks may begin it; the next one asks the store
            return False
        return self._store.head(run) is not None

    def expect_new(self, runs: Sequence[str]) -> Mapping[str, bool]:
        """Which of these are there, and whether they have finished: one statement for many that are
        about to begin. `known` need not ask for the others until the event loop has gone round."""
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
                look = partial(self._look_in_store, run, standing)
                return await self._member.remote.wait(run, look, standing=standing)
            try:
                state = await self._wait_here(run, standing)
            except AnabranchError as error:
                if error.code != ELSEWHERE:  # another server has it now: wait there
                    raise
            else:
                if state is not None:
                    return state

    async def is_settled(self, run: str, *, standing: bool) -> bool:
        """Whether `wait` would return at once."""
        self._check_going()
        if self._member is None or self._member.here(run):
            return (await self._look(run, standing)).settled is not None
        look = partial(self._look_in_store, run, standing)
        return (await self._member.remote.look(run, look, standing=standing))[1] is not None

    async def _wait_here(self, run: str, standing: bool) -> State | None:
        """None when it, or a child that it waits for, has changed."""
        if (finished := self._finished.get(run)) is not None:
            return finished
        if not standing and run in self._core.live:
            return await self._subscribers.wait(run)
        with closing(Watching(self._subscribers)) as watching:
            moves = run
            while watching.add(moves):  # before each look: it may change meanwhile
                look = await self._look(run, standing)
                if look.settled is not None:
                    return look.settled
                moves = look.moves
            await watching.wait()
        return None

    async def _look(self, run: str, standing: bool) -> Look:
        """A log may be long and a state large: what is not in memory is read beside the loop."""
        try:
            state = self._state_in_memory(run)
            found = look_at(state, self._state_in_memory, self._clock.now(), standing)
        except NotInMemory:
            return await asyncio.to_thread(self._look_in_store, run, standing)
        return found if found.settled is None or self._durable(run, state) else Look()

    def _look_in_store(self, run: str, standing: bool) -> Look:
        head = self._store.head(run)
        if head is not None and not head.finished and not standing:
            return Look()
        state = self._stored_state(run)
        return look_at(state, self._stored_child, self._clock.now(), standing)

    def _state_in_memory(self, run: str) -> State:
        core = self._core
        if run in core.live or run in self._finished or run in core.broken:
            return self.state(run)
        raise NotInMemory

    def _stored_child(self, run: str) -> State | None:
        return self._stored_state(run) if self._store.head(run) is not None else None

    def _durable(self, run: str, state: State) -> bool:
        """Has everybody who reads the store this state? What is not written yet is told later."""
        if self._finished.get(run) is state:
            return True  # it was published, and nothing is before it is durable
        head = self._store.head(run)
        return head is not None and head.seq >= state.seq

    def state(self, run: str) -> State:
        live = self._core.live.get(run)
        if live is not None:
            return live.state
        if run in self._finished:
            return self._finished[run]
        if run in self._core.broken:
            return self._core.run(run).state  # raises with the reason
        return self._stored_state(run)

    async def view(self, run: str) -> LiveRun:
        """Not to be changed; of a run of another server what is durable."""
        if self._core.here(run):
            return self._core.run(run)
        return await asyncio.to_thread(self._core.view, run)

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

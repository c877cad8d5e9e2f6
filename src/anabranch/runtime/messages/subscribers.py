"""Whoever waits to hear of something durable: of a stimulus, of a run's next events, of its end.

Everything is told after its batch is durable. Nobody is left waiting: when the engine stops or a
run is set aside, those who wait hear why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from anabranch.errors import AnabranchError
from anabranch.kernel.state import State
from anabranch.runtime.effects import DurableEvents, Replied

T = TypeVar("T")
Listener = Callable[[DurableEvents], None]
EndListener = Callable[[State], None]
FINISHED_KEPT = 256


class Subscribers:
    def __init__(self) -> None:
        self.finished: dict[str, State] = {}  # the last few, for whoever waits for them
        self._listeners: list[Listener] = []
        self._end_listeners: list[EndListener] = []
        self._record_listeners: list[Callable[[], None]] = []
        self._tickets: dict[int, asyncio.Future[None]] = {}
        self._next_ticket = 1
        self._watchers: dict[str, list[asyncio.Future[None]]] = {}
        self._waiters: dict[str, list[asyncio.Future[State]]] = {}

    # -- to wait -----------------------------------------------------------------------------

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Hear of every durable change; returns how to stop that. It costs every turn of every run:
        whoever waits for ends only, or now and then for one run, hears of no more than that."""
        return _added(self._listeners, listener)

    def listen_to_ends(self, listener: EndListener) -> Callable[[], None]:
        """Hear of every run that has ended; returns how to stop that."""
        return _added(self._end_listeners, listener)

    def listen_to_records(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Hear that another process may have changed the records of the store; returns how to stop
        that."""
        return _added(self._record_listeners, listener)

    def ticket(self) -> tuple[int, asyncio.Future[None]]:
        """For one stimulus: done when it has taken effect, or with why it was refused."""
        number, self._next_ticket = self._next_ticket, self._next_ticket + 1
        waiting = self._tickets[number] = asyncio.get_running_loop().create_future()
        return number, waiting

    def watch(self, run: str) -> asyncio.Future[None]:
        """Done at the next change of the run."""
        changed = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(run, []).append(changed)
        changed.add_done_callback(partial(self._unwatch, run))
        return changed

    def _unwatch(self, run: str, changed: asyncio.Future[None]) -> None:
        """A reader that gave up is forgotten at once: its run may never change again."""
        watchers = self._watchers.get(run)
        if watchers is not None and changed in watchers:
            watchers.remove(changed)
            if not watchers:
                del self._watchers[run]

    async def wait(self, run: str) -> State:
        """The state of the run when it has finished."""
        ending: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(run, []).append(ending)
        try:
            return await ending
        finally:
            if ending.cancelled():  # whoever gave up is forgotten at once
                left = [one for one in self._waiters.pop(run, ()) if one is not ending]
                if left:
                    self._waiters[run] = left

    # -- to be told --------------------------------------------------------------------------

    def reply(self, effect: Replied) -> None:
        waiting = self._tickets.pop(effect.ticket, None)
        if waiting is None or waiting.done():
            return
        if effect.error is not None:
            waiting.set_exception(effect.error)
        else:
            waiting.set_result(None)

    def publish(self, news: DurableEvents) -> None:
        if news.final is not None:
            self.finished[news.run] = news.final
            if len(self.finished) > FINISHED_KEPT:
                del self.finished[next(iter(self.finished))]
            for end_listener in self._end_listeners:
                end_listener(news.final)
        for listener in self._listeners:
            listener(news)
        for watcher in self._watchers.pop(news.run, ()):
            if not watcher.done():
                watcher.set_result(None)
        if news.final is not None:
            for ending in self._waiters.pop(news.run, ()):
                if not ending.done():
                    ending.set_result(news.final)

    def records_changed(self) -> None:
        for listener in self._record_listeners:
            listener()

    def look_again(self, why: Callable[[str], AnabranchError]) -> None:
        """Some of the runs may belong to another server from now on: those who wait for news of a
        run ask again where it is."""
        for run in [*self._watchers, *self._waiters]:
            self.tell_of(run, partial(why, run))

    def refuse_tickets(self, error: AnabranchError) -> None:
        """What waits to take effect never will."""
        _tell(self._tickets.values(), error)
        self._tickets.clear()

    def tell_all(self, error: AnabranchError) -> None:
        """There will be no more news."""
        _tell(self._tickets.values(), error)
        for futures in self._watchers.values():
            _tell(futures, error)
        for endings in self._waiters.values():
            _tell(endings, error)

    def tell_of(self, run: str, why: Callable[[], AnabranchError]) -> None:
        """There will be no more news of this run."""
        waiting: list[asyncio.Future[Any]] = [*self._watchers.pop(run, ())]
        waiting += self._waiters.pop(run, ())
        if waiting:
            _tell(waiting, why())


class Watching:
    """Several runs, of which the first change is waited for. Close it at the end."""

    def __init__(self, subscribers: Subscribers) -> None:
        self._subscribers = subscribers
        self._changes: dict[str, asyncio.Future[None]] = {}

    def add(self, run: str) -> bool:
        """False where there is nothing new to watch."""
        if not run or run in self._changes:
            return False
        self._changes[run] = self._subscribers.watch(run)
        return True

    async def wait(self) -> None:
        """Raises where there will be no more news of one of them."""
        done, _ = await asyncio.wait(self._changes.values(), return_when=asyncio.FIRST_COMPLETED)
        for one in done:
            one.result()

    def close(self) -> None:
        for change in self._changes.values():
            change.cancel()


def _added(listeners: list[T], one: T) -> Callable[[], None]:
    listeners.append(one)
    return partial(listeners.remove, one)


def _tell(waiting: Iterable[asyncio.Future[Any]], error: AnabranchError) -> None:
    for future in waiting:
        if not future.done():
            future.set_exception(error)
            future.exception()  # whoever has stopped listening is not to be complained of

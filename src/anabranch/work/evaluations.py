"""What is evaluated outside the turns of runs: inputs, rules of pipelines, keys of items, secrets.

Any number of jobs and callers may evaluate at the same moment, each for itself, on one event loop.
So they share what one round of that loop can give them (`LoopShare`). Who comes when it is used up
waits for a later round; runs take turns. What takes longer than a few hundredths of
a second goes to a thread (`evaluation_thread.py`). It counts work and asks no clock.
"""

from __future__ import annotations

import asyncio
import time
from collections import ChainMap
from collections.abc import Callable, Mapping
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from anabranch.expressions.budget import (
    BREATHE_WORK,
    HELD_BYTES_MAX,
    HELD_WORK_MAX,
    PAUSE,
    TakesLong,
    TurnBudget,
    share_budget,
    shared_budget,
    unshare_budget,
    within_one_budget,
)
from anabranch.work.run_at_work import run_at_work
from anabranch.work.run_queues import RunQueues

T = TypeVar("T")

GIVE_WAY_SECONDS = 0.0005


class LoopShare:
    """What evaluations may take of one round of an event loop, all together: `BREATHE_WORK`, and
    what the last of them takes beyond that."""

    def __init__(self) -> None:
        self.is_used_up = False  # who comes now has to wait, perhaps behind others
        self.used = 0
        self._evaluating = False
        self._waiting: RunQueues[Callable[[], None]] = RunQueues()

    def call_in_turn(self, call: Callable[[], None], run: str | None = None) -> None:
        """In a later round, when it is the turn of this run, or of that at work, in the context of
        the caller. Only where the share is used up."""
        who = run_at_work.get() if run is None else run
        self._waiting.add(who, partial(copy_context().run, call))

    async def do_in_turn(self, work: Callable[[], T], run: str | None = None) -> T:
        """What the work comes to: now, or in the first round that has something left for it."""
        if not self.is_used_up:
            return work()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.call_in_turn(partial(_do, work, done), run)
        return await done

    def evaluate(self, work: Callable[..., T], *names: Any) -> T:
        """What it comes to. Raises `TakesLong` where the loop would be held for too long. What the
        caller's budget has left is enough, or it takes long, too: then that says so itself."""
        shared = shared_budget()
        most = HELD_WORK_MAX
        if shared is not None:
            most = max(0, min(most, shared.limit - shared.used))
        budget = TurnBudget(most, bytes_max=HELD_BYTES_MAX)
        before = share_budget(budget)
        self._evaluating = True
        try:
            return work(*names)
        finally:
            self._evaluating = False
            unshare_budget(before)
            used = budget.used
            if used:
                self.used += used + budget.bytes_read
                if self.used > BREATHE_WORK and not self.is_used_up:
                    self.end_round()
                if used > most or budget.bytes_read > HELD_BYTES_MAX:
                    raise TakesLong from None
                if shared is not None:
                    shared.used += used

    def give_way(self) -> None:
        """For evaluations of another thread: the loop gets the interpreter to itself."""
        while self._evaluating:
            time.sleep(GIVE_WAY_SECONDS)

    def end_round(self) -> None:
        """It is used up."""
        self.is_used_up = True
        asyncio.get_running_loop().call_soon(self._begin_round, context=Context())

    def _begin_round(self) -> None:
        self.used = 0
        while self._waiting and self.used <= BREATHE_WORK:
            self._waiting.take()()
        self.is_used_up = False
        if self._waiting or self.used > BREATHE_WORK:
            self.end_round()


def _do(work: Callable[[], T], done: asyncio.Future[T]) -> None:
    if done.done():  # nobody waits for it any more
        return
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)


_SHARES: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopShare] = WeakKeyDictionary()
_last: tuple[Callable[[], asyncio.AbstractEventLoop | None], LoopShare] = lambda: None, LoopShare()


def share_of_loop() -> LoopShare:
    """That of the running loop."""
    global _last
    loop = asyncio.get_running_loop()
    known, share = _last  # most processes have one loop
    if known() is not loop:
        share = _SHARES.setdefault(loop, LoopShare())
        _last = ref(loop), share
    return share


async def evaluate(work: Callable[[], T], apart: Callable[[], Callable[[], T]] | None = None) -> T:
    """What the evaluation comes to, which has no effects: in place where it is brief, else begun
    again in a thread. `apart` makes what that thread does, from copies of what others write to."""
    share = share_of_loop()
    try:
        if not share.is_used_up:
            return share.evaluate(work)
        return await share.do_in_turn(partial(share.evaluate, work))
    except TakesLong:
        return await evaluate_in_thread(work if apart is None else apart())


async def evaluate_with(names: Mapping[str, Any], work: Callable[[Mapping[str, Any]], T]) -> T:
    """The same for what is evaluated with these names."""
    share = share_of_loop()
    try:
        if not share.is_used_up:
            return share.evaluate(work, names)
        return await share.do_in_turn(partial(share.evaluate, work, names))
    except TakesLong:
        return await evaluate_in_thread(partial(work, copied_names(names)))


def copied_names(names: Mapping[str, Any]) -> dict[str, Any]:
    """For a thread: what the run writes to meanwhile is not in them."""
    return {name: _copied(of) for name, of in names.items()}


def _copied(of: Any) -> Any:
    if type(of) is ChainMap:
        return ChainMap(*map(_copied, of.maps))
    return dict(of) if type(of) is dict else of


async def evaluate_in_thread(work: Callable[[], T]) -> T:
    """What is known to take long. All that it evaluates has one budget."""
    from anabranch.work.evaluation_thread import THREAD  # few need it

    with within_one_budget() as budget:
        try:
            return await THREAD.do(partial(_give_way, share_of_loop(), work))
        finally:
            budget.forget()


def _give_way(share: LoopShare, work: Callable[[], T]) -> T:
    PAUSE.set(share.give_way)  # in the context of this work alone
    return work()

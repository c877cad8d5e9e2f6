"""Between two turns of an engine: what is done when everything that was turned is durable, and what
ends its rest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError, StoreError
from anabranch.runtime.core import TURN_MAX

if TYPE_CHECKING:
    from anabranch.runtime.slices import Slices

ACTS_AT_ONCE = 4  # before there is a turn again


class BetweenTurns:
    """`wake` lets the engine take a turn, after which it carries out what waits here."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        #: What is to be done, and who waits for it. Looked at after every turn.
        self.waiting: list[tuple[Callable[[], None], asyncio.Future[None]]] = []
        self._after_a_turn = False  # something of it is to be done after the next turn
        self._acts = 0  # in a row, without a turn

    def come_first(self, inbox: int) -> bool:
        """Whether what waits here is done before the next turn, for which so many stimuli wait.

        Partitions that were taken come back a few at a time. With a turn after each few, the last
        runs would wait for the next steps of the first; so there is none before enough for a whole
        turn has come together. But not for long: other runs wait, too."""
        early = self.waiting and not self._after_a_turn
        if early and self._acts < ACTS_AT_ONCE and inbox < TURN_MAX:
            self._acts += 1
            return True
        self._acts = 0
        return False

    async def do(self, act: Callable[[], None], *, early: bool = False) -> None:
        """Returns when it is done: after another turn, or with `early` before it."""
        done = asyncio.get_running_loop().create_future()
        self.waiting.append((act, done))
        self._after_a_turn = self._after_a_turn or not early
        self._wake()
        await done

    async def carry_out(self, slices: Slices | None) -> None:
        """In slices, where somebody is answered in the same event loop."""
        if slices is None:
            self._carry_out()
        else:
            await slices.do(self._carry_out)

    def _carry_out(self) -> None:
        waiting, self.waiting, self._after_a_turn = self.waiting, [], False
        for act, done in waiting:
            if done.done():
                continue  # its caller was cancelled: the engine is about to close
            try:
                act()
            except StoreError as error:
                done.set_exception(error)
            else:
                done.set_result(None)

    def refuse(self, error: AnabranchError) -> None:
        """None of it will be done."""
        waiting, self.waiting, self._after_a_turn = self.waiting, [], False
        for _, done in waiting:
            if not done.done():
                done.set_exception(error)


class AlarmClock:
    """Wakes an engine that rests. One timer serves many rests: to make one for each costs more than
    to be woken in vain."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None

    def set(self, seconds: float) -> None:
        """Be woken after that time, or sooner."""
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._ring)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self._wake()

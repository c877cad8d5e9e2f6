"""Reading on the event loop: what is small is read at once, what is not is left to a thread.

A server must not be held up by one request. `InlineReader` reads runs whose log is short and small,
and raises `TooLargeInline` for all others, before it has read them. It remembers the states it has
worked out: asking for a run again and again costs only what is new.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NoReturn

from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.operations.definitions.preflight import Preflight
from anabranch.operations.read.reader import Reader
from anabranch.runtime.live_run import replayed
from anabranch.runtime.nets import Nets
from anabranch.store.damage import require_reached, require_sound
from anabranch.store.ports import Head, Journal, Store

NEAR_ROWS = 100  # of the log: a few milliseconds at most
NEAR_BYTES = 64 * 1024
KEPT_BYTES = 4 * 1024 * 1024  # of the events that the states which are kept came from


class TooLargeInline(Exception):
    """It takes too long to be read in passing."""


def require_small(store: Journal, run: str, after: int = 0) -> int:
    """How many bytes the rows after this event have, if they are few and small."""
    rows, size = store.weight(run, after, NEAR_ROWS + 1)
    if rows > NEAR_ROWS or size > NEAR_BYTES:
        raise TooLargeInline
    return size


class InlineReader(Reader):
    """Only for one thread. The states it gives are its own: who gets one changes nothing in it."""

    def __init__(self, store: Store, nets: Nets, preflight: Preflight | None = None) -> None:
        super().__init__(store, nets, preflight)
        self._states: OrderedDict[str, tuple[State, int]] = OrderedDict()  # with their weight
        self._bytes = 0

    def net(self, head: Head) -> Net:
        net = self._nets.known(head.definition)
        if net is None:
            raise TooLargeInline
        return net

    def state(self, run: str) -> State:
        return self.state_of(self.find(run))

    def state_of(self, head: Head) -> State:
        require_sound(head)
        state, size = self._states.pop(head.run, (State(), 0))
        self._bytes -= size
        if state.started_at != head.created_at:  # a purged run may have given its id to another
            state, size = State(), 0
        if state.seq < head.seq:
            size += require_small(self._store, head.run, state.seq)
            replayed(self._store.read(head.run, state.seq), state, head.run)
        require_reached(head, state)
        if size <= NEAR_BYTES:
            self._keep(head.run, state, size)
        return state

    def timeline(self, _head: Head) -> NoReturn:
        raise TooLargeInline

    def _keep(self, run: str, state: State, size: int) -> None:
        self._states[run] = state, size
        self._bytes += size
        while self._bytes > KEPT_BYTES:
            self._bytes -= self._states.popitem(last=False)[1][1]

    def _payload(self, _sha256: str) -> NoReturn:
        raise TooLargeInline

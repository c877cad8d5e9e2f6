"""An engine whose shared store was away, or that lost its partitions: it waits, or starts over."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from anabranch.errors import Conflict, StoreError
from anabranch.runtime.between_turns import BetweenTurns
from anabranch.runtime.cluster.member import ClusterMember
from anabranch.runtime.cluster.recorded import is_recorded
from anabranch.runtime.effects import Replied, Turned
from anabranch.runtime.messages.mailbox import Mailbox
from anabranch.runtime.messages.subscribers import Subscribers
from anabranch.runtime.outage import AGAIN_SECONDS
from anabranch.runtime.writer import Writer
from anabranch.store.cluster_ports import PARTITION_LOST
from anabranch.store.outages import passes
from anabranch.store.ports import Store

log = logging.getLogger("anabranch.engine")

_PART = "engine"  # which notices that the store is away


class Failover:
    """`stopping` tells whether the engine is about to close: then nothing is waited for."""

    def __init__(
        self,
        member: ClusterMember,
        store: Store,
        writer: Writer,
        mailbox: Mailbox,
        subscribers: Subscribers,
        between_turns: BetweenTurns,
        stopping: Callable[[], bool],
    ) -> None:
        self._member = member
        self._store = store
        self._writer = writer
        self._mailbox = mailbox
        self._subscribers = subscribers
        self._between_turns = between_turns
        self._stopping = stopping
        #: The last two that had something to write: the first of them may not be durable yet while
        #: the second waits for it. Of others there can be any number meanwhile.
        self._turned: deque[Turned] = deque(maxlen=2)

    def turn(self, now: int, *, ring: bool) -> Turned:
        turned = self._member.turn(now, ring=ring)
        if not turned.empty:
            self._turned.append(turned)
        return turned

    async def get_over(self, error: StoreError) -> None:
        """Wait until the store is back, or begin anew where this engine owns nothing any more."""
        if not isinstance(error, Conflict):
            await self._hold_still(error)
        elif error.code == PARTITION_LOST:
            await self._start_over(error)
        else:
            raise error

    async def confirm_lease(self) -> None:
        """Between a commit and its effects."""
        while True:
            try:
                await self._member.confirm_lease()
                return
            except StoreError as error:
                if isinstance(error, Conflict):
                    raise
                await self._hold_still(error)

    async def _hold_still(self, error: StoreError) -> None:
        """Returns when the store answers."""
        outage = self._writer.outage
        while True:
            if self._stopping() or not passes(error):
                outage.ends(_PART)
                raise error
            outage.begins(_PART, error)
            await asyncio.sleep(AGAIN_SECONDS)
            try:
                await self._member.reach_store()
            except StoreError as still:
                error = still
            else:
                outage.ends(_PART)
                return

    async def _start_over(self, conflict: Conflict) -> None:
        """Another server owns what this one believed to own, or what is in memory cannot be
        believed: drop all of it, and join again. Callers that wait for what was recorded all the
        same are told so; everything else was never said."""
        log.warning("%s", conflict.message)
        unsure = await self._writer.abandon()
        turned = next((one for one in self._turned if one.batch is unsure), None)
        self._between_turns.refuse(conflict)
        self._member.drop_all()
        recorded = await self._joined_again(turned)
        self._mailbox.forget()
        if recorded and turned is not None:
            for effect in turned.effects:
                if isinstance(effect, Replied):
                    self._subscribers.reply(effect)
        self._member.refuse_tickets()

    async def _joined_again(self, turned: Turned | None) -> bool:
        """Whether the turn is in the store, whose end was not seen."""
        while True:
            try:
                await self._member.rejoin()
                if turned is None:
                    return False
                return await asyncio.to_thread(is_recorded, self._store, turned.batch)
            except StoreError as error:
                await self._hold_still(error)

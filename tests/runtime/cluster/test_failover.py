"""An engine that lost its partitions: who waits for a reply is told what the log says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from anabranch.errors import AnabranchError, Conflict
from anabranch.runtime.between_turns import BetweenTurns
from anabranch.runtime.cluster.failover import Failover
from anabranch.runtime.cluster.member import ClusterMember
from anabranch.runtime.effects import Replied, Turned
from anabranch.runtime.messages.mailbox import Mailbox
from anabranch.runtime.messages.subscribers import Subscribers
from anabranch.runtime.writer import Writer
from anabranch.store.cluster_ports import PARTITION_LOST
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Store
from anabranch.testing.store_suite.samples import a_batch, a_commit

from ..support import run

LOST = Conflict("the partitions are lost", code=PARTITION_LOST)


class Member:
    """Takes the turns it is given; refuses every ticket when it has joined again."""

    def __init__(self, subscribers: Subscribers, turns: Iterable[Turned]) -> None:
        self._subscribers = subscribers
        self._turns = iter(turns)

    def turn(self, _now: int, *, ring: bool) -> Turned:
        assert ring
        return next(self._turns)

    def drop_all(self) -> None: ...

    async def rejoin(self) -> None: ...

    def refuse_tickets(self) -> None:
        self._subscribers.refuse_tickets(AnabranchError("ask again", code=PARTITION_LOST))


class Unsure:
    """A writer that did not see the end of one batch."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    async def abandon(self) -> Batch:
        return self._batch


class NoMail:
    def forget(self) -> None: ...


async def lose_after(store: MemoryStore, batch: Batch, *, empty_turns: int) -> None:
    """What the caller hears who waits for the first of these turns."""
    subscribers = Subscribers()
    ticket, waiting = subscribers.ticket()
    said = Turned(batch, [Replied(ticket, None, "r1", 0)])
    turns = [said, *(Turned(Batch(), []) for _ in range(empty_turns))]
    failover = Failover(
        cast(ClusterMember, Member(subscribers, turns)),
        cast(Store, store),
        cast(Writer, Unsure(batch)),
        cast(Mailbox, NoMail()),
        subscribers,
        BetweenTurns(lambda: None),
        lambda: False,
    )
    for _ in turns:
        failover.turn(0, ring=True)
    await failover.get_over(LOST)
    await waiting


@pytest.mark.parametrize("empty_turns", [0, 1, 2, 5])
def test_what_was_recorded_is_acknowledged_however_many_turns_had_nothing_to_write_since(
    empty_turns: int,
) -> None:
    store, batch = MemoryStore(), a_batch(a_commit("r1", 1))
    store.commit(batch)
    run(lose_after(store, batch, empty_turns=empty_turns))


def test_what_was_not_recorded_is_asked_for_again() -> None:
    batch: Any = a_batch(a_commit("r1", 1))
    with pytest.raises(AnabranchError) as told:
        run(lose_after(MemoryStore(), batch, empty_turns=2))
    assert told.value.code == PARTITION_LOST

"""Bringing many runs into memory may take longer than a lease; the lease is extended meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Any, cast

from anabranch.runtime.cluster.membership import HELD_UP_LEASES, Membership
from anabranch.store.cluster_ports import Cluster
from anabranch.store.memory.cluster import MemoryCluster, SharedMemory
from hangs import HANG_SECONDS

from ..support import run


class Beating(MemoryCluster):
    """Tells how often the lease was extended."""

    def __init__(self, shared: SharedMemory) -> None:
        super().__init__(shared, "s1")
        self.beats = 0

    def extend_lease(self, lease_seconds: float) -> bool:
        self.beats += 1
        return super().extend_lease(lease_seconds)


def test_the_lease_is_extended_while_partitions_are_brought_back() -> None:
    async def scenario() -> None:
        cluster = Beating(SharedMemory(4, lambda: 0))

        async def gained(_partitions: Collection[int]) -> None:
            while cluster.beats < 2:  # a hang where nothing else extends it
                await asyncio.sleep(0.01)

        membership = membership_of(cluster, gained, lease_seconds=0.2, beat_thread=False)
        await membership.open()
        assert sorted(cluster.owned) == [0, 1, 2, 3]
        await membership.close()

    run(scenario())


def test_the_lease_is_extended_while_the_event_loop_stands_still() -> None:
    """Runs are read and replayed in it; a commit in it may wait for a lock."""

    async def scenario() -> None:
        cluster = Beating(SharedMemory(4, lambda: 0))

        async def gained(_partitions: Collection[int]) -> None:
            deadline = time.monotonic() + HANG_SECONDS
            while cluster.beats < 2 and time.monotonic() < deadline:
                time.sleep(0.01)

        membership = membership_of(cluster, gained, lease_seconds=2.0)
        await membership.open()
        assert cluster.beats >= 2
        await membership.close()

    run(scenario())


def test_an_event_loop_that_stands_still_for_good_loses_its_lease() -> None:
    async def scenario() -> None:
        cluster, now = Beating(SharedMemory(4, lambda: 0)), 0.0
        membership = membership_of(
            cluster, at_once, lease_seconds=2.0, seconds=lambda: now, beat_thread=False
        )
        await membership.open()
        membership.halt()  # the event loop does nothing of it here
        now += HELD_UP_LEASES * 2.0
        membership.beat_beside()
        assert cluster.beats == 1
        now += 1.0
        membership.beat_beside()
        assert cluster.beats == 1
        await membership.close()

    run(scenario())


def test_a_server_that_was_removed_hears_so_from_the_thread_once_and_not_after_it_came_back() -> (
    None
):
    async def scenario() -> None:
        cluster, now, lost = Beating(SharedMemory(4, lambda: 0)), 0.0, 0

        def told() -> None:
            nonlocal lost
            lost += 1

        membership = membership_of(
            cluster, at_once, lost=told, lease_seconds=600.0, seconds=lambda: now, beat_thread=False
        )
        await membership.open()
        membership.halt()  # the event loop does nothing of it here
        cluster._shared.servers.clear()
        now += 599.0
        await asyncio.to_thread(membership.beat_beside)
        await asyncio.to_thread(membership.beat_beside)
        await asyncio.sleep(0)
        assert lost == 1
        before = membership._joins
        await membership.rejoin()
        membership._removed(before)  # the event loop hears of it late
        assert lost == 1
        assert membership.good
        await membership.close()

    run(scenario())


async def at_once(_partitions: Collection[int]) -> None: ...


def membership_of(
    cluster: MemoryCluster,
    gained: Callable[[Collection[int]], Awaitable[None]],
    *,
    lost: Callable[[], None] = lambda: None,
    **more: Any,
) -> Membership:
    async def give_up(partitions: Collection[int]) -> Collection[int]:
        return partitions

    return Membership(
        cast(Cluster, cluster), name="one", gained=gained, give_up=give_up, lost=lost, **more
    )

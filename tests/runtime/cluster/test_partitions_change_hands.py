"""What goes wrong while partitions change hands is made good at the next look."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import cast

from anabranch.clock import SystemClock
from anabranch.errors import Conflict, StoreError
from anabranch.runtime.cluster.membership import Membership
from anabranch.store.cluster_ports import PARTITION_LOST, Cluster
from anabranch.store.memory.cluster import MemoryCluster, MemoryServer, SharedMemory
from anabranch.store.outages import AWAY
from anabranch.store.ports import Store

from ..support import asking, engine, run, start, until


def test_partitions_that_were_put_down_and_could_not_be_handed_over_are_opened_again() -> None:
    async def scenario() -> None:
        shared = SharedMemory(4, SystemClock().now)
        other = MemoryCluster(shared, "other")
        async with engine(cast(Store, MemoryServer(shared, "this"))) as made:
            member = made.member
            assert member is not None
            begun = await start(made, asking())
            let_go = 0

            async def fails_once() -> None:
                nonlocal let_go
                let_go += 1
                if let_go == 1:
                    other.leave()  # so that nothing is to be handed over any more
                    raise StoreError("the connection is lost", code=AWAY)

            member.before_hand_over.append(fails_once)
            other.join("other", "", 3600.0)
            member.membership.look()
            await until(lambda: let_go)
            await until(lambda: member.owned == 4)
            assert member.here(begun)

    run(scenario())


async def nothing(_partitions: Collection[int]) -> None: ...


def membership_of(
    cluster: MemoryCluster, gained: Callable[[Collection[int]], Awaitable[None]] = nothing
) -> Membership:
    async def all_of_them(partitions: Collection[int]) -> Collection[int]:
        return partitions

    return Membership(
        cast(Cluster, cluster),
        name="one",
        lease_seconds=3600.0,
        gained=gained,
        give_up=all_of_them,
        lost=lambda: None,
    )


def test_a_drained_server_that_was_removed_comes_back_drained() -> None:
    async def scenario() -> None:
        shared = SharedMemory(4, lambda: 0)
        cluster = MemoryCluster(shared, "s1")
        made = membership_of(cluster)
        await made.open()
        cluster.drain("s1", draining=True)
        await made.settle()
        del shared.servers["s1"]
        await made.rejoin()
        assert [one.draining for one in cluster.servers()] == [True]
        await made.close()

    run(scenario())


def test_a_server_that_retires_and_was_removed_takes_nothing_when_it_comes_back() -> None:
    async def scenario() -> None:
        shared = SharedMemory(4, lambda: 0)
        cluster = MemoryCluster(shared, "s1")
        made = membership_of(cluster)
        await made.open()
        await made.retire()
        del shared.servers["s1"]
        await made.rejoin()
        assert [one.draining for one in cluster.servers()] == [True]
        await made.close()

    run(scenario())


def test_a_server_whose_row_is_still_there_stays_as_drained_as_its_row_says() -> None:
    """An operator may have ended the draining after the server looked last."""

    async def scenario() -> None:
        shared = SharedMemory(4, lambda: 0)
        cluster = MemoryCluster(shared, "s1")
        made = membership_of(cluster)
        await made.open()
        cluster.drain("s1", draining=True)
        await made.settle()
        cluster.drain("s1", draining=False)
        await made.rejoin()
        assert [one.draining for one in cluster.servers()] == [False]
        await made.close()

    run(scenario())


def test_a_server_that_loses_its_lease_while_it_opens_goes_on_to_open() -> None:
    """The engine refuses what waits for its turn, starts over and joins again."""

    async def scenario() -> None:
        cluster = MemoryCluster(SharedMemory(4, lambda: 0), "s1")
        opened: list[int] = []

        async def gained(partitions: Collection[int]) -> None:
            if not opened:
                opened.append(-1)
                raise Conflict("the lease has ended", code=PARTITION_LOST)
            opened.extend(partitions)

        made = membership_of(cluster, gained)
        await made.open()
        await until(lambda: len(opened) == 5)
        await made.close()

    run(scenario())

"""How many partitions a server owns, by who else is there."""

from __future__ import annotations

from anabranch.runtime.cluster.membership import fair_share
from anabranch.store.cluster_ports import ServerRecord


def server(
    name: str,
    *,
    draining: bool = False,
    partitions: int = 0,
    lease_ms: int = 1000,
    takes_share: bool = True,
) -> ServerRecord:
    return ServerRecord(
        id=name,
        name=name,
        url="",
        version="",
        joined_at=0,
        lease_ms=lease_ms,
        draining=draining,
        partitions=partitions,
        takes_share=takes_share,
    )


def test_servers_own_as_many_as_each_other_and_together_all() -> None:
    servers = [server("a"), server("b"), server("c")]
    assert [fair_share(servers, one.id, 8) for one in servers] == [3, 3, 2]


def test_one_that_drains_owns_nothing_beside_one_that_does_not() -> None:
    servers = [server("a", draining=True, partitions=8), server("b")]
    assert [fair_share(servers, one.id, 8) for one in servers] == [0, 8]


def test_where_all_drain_nothing_moves_from_one_to_another() -> None:
    servers = [server("a", draining=True, partitions=5), server("b", draining=True, partitions=1)]
    assert [fair_share(servers, one.id, 8) for one in servers] == [7, 3]


def test_a_command_takes_all_from_one_whose_lease_has_ended() -> None:
    servers = [server("a", partitions=8, lease_ms=-1), server("b", draining=True)]
    assert fair_share(servers, "b", 8) == 8


def test_a_command_owns_nothing_beside_a_server_whatever_its_entry_says_of_draining() -> None:
    servers = [server("a", takes_share=False), server("b")]
    assert [fair_share(servers, one.id, 8) for one in servers] == [0, 8]

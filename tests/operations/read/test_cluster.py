"""What is shown of the servers of a store is what the store says, whoever asks."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import NotFound
from anabranch.operations.read.cluster import ONLY, ClusterReader, ServerCard, find_server
from anabranch.store.memory.cluster import MemoryServer, SharedMemory
from anabranch.store.memory.store import MemoryStore


def cluster(*names: str, partitions: int = 4) -> tuple[SharedMemory, list[Any]]:
    """A store as each of these servers sees it; they have joined and own nothing."""
    shared = SharedMemory(partitions, lambda: 1_000)
    servers = [MemoryServer(shared, name) for name in names]
    for server in servers:
        server.cluster.join(f"{server.cluster.server} here", "http://a.example/", 15)
    return shared, servers


def test_servers_are_shown_with_their_lease_and_how_many_partitions_they_own() -> None:
    _, (a, b) = cluster("aa", "bb")
    a.cluster.claim(3)
    b.cluster.claim(3)
    found = ClusterReader(b, answering=True).servers()
    assert [(one.id, one.partitions, one.lease_left_ms, one.here) for one in found] == [
        ("aa", 3, 15_000, False),
        ("bb", 1, 15_000, True),
    ]
    assert not any(one.here for one in ClusterReader(b).servers())  # a command is no server


def test_the_state_of_a_server_tells_whether_it_drains_and_whether_its_lease_is_good() -> None:
    shared, (a, b, _) = cluster("aa", "bb", "cc")
    for server in (a, b):
        server.cluster.claim(2)
    a.cluster.drain("aa", draining=True)
    a.cluster.drain("cc", draining=True)
    shared.servers["bb"].lease_until = 999
    states = {one.id: one.state for one in ClusterReader(a).servers()}
    assert states == {"aa": "draining", "bb": "expired", "cc": "drained"}


def test_a_partition_whose_owner_has_no_good_lease_counts_as_without_an_owner() -> None:
    shared, (a, b) = cluster("aa", "bb")
    a.cluster.claim(2)
    b.cluster.claim(1)
    assert ClusterReader(a).summary().unowned == 1
    shared.servers["aa"].lease_until = 999
    assert ClusterReader(b).summary().unowned == 3
    lost = ClusterReader(b).partitions()[0]
    assert (lost.owner, lost.server, lost.alive) == ("aa", "aa here", False)


def test_messages_that_wait_are_counted_by_partition_with_the_age_of_the_oldest() -> None:
    shared, (a, _) = cluster("aa", "bb")
    a.post("some-run", b"{}", 700)
    a.post("some-run", b"{}", 900)
    card = ClusterReader(a).summary()
    assert (card.waiting, card.waiting_since) == (2, 700)
    waiting = {one.partition: one.waiting for one in ClusterReader(a).partitions() if one.waiting}
    assert waiting == {shared.place("some-run"): 2}


def test_the_owner_of_a_run_is_that_of_its_partition() -> None:
    shared, (a, b) = cluster("aa", "bb", partitions=1)
    found = ClusterReader(a).owner("some-run")
    assert (found.shared, found.partition, found.server) == (True, 0, None)
    b.cluster.claim(1)
    found = ClusterReader(a).owner("some-run")
    assert found.server is not None
    assert (found.server.id, found.epoch) == ("bb", shared.partitions[0].epoch)


def test_a_store_that_is_not_shared_has_one_partition_and_the_server_that_holds_it() -> None:
    store = MemoryStore()
    card = ClusterReader(store).summary()
    assert (card.shared, card.partitions, card.unowned, card.servers) == (False, 1, 1, [])
    store.acquire("anabranch")
    card = ClusterReader(store, answering=True).summary()
    assert (card.shared, card.partitions, card.unowned) == (False, 1, 0)
    assert [(one.id, one.lease_left_ms, one.here) for one in card.servers] == [(ONLY, None, True)]
    assert ClusterReader(store).owner("some-run").server is not None


def card(name: str) -> ServerCard:
    _, servers = cluster(name)
    return ClusterReader(servers[0]).servers()[0]


def test_a_server_is_found_by_its_id_its_beginning_its_name_or_its_address() -> None:
    servers = [card("3f1c"), card("3fff")]
    assert find_server(servers, "3f1c").id == "3f1c"
    assert find_server(servers, "3f1").id == "3f1c"
    assert find_server(servers, "3fff here").id == "3fff"
    for url in ("http://a.example", "http://a.example/"):
        assert find_server([card("3f1c")], url).id == "3f1c"
    for vague in ("3f", "http://a.example"):
        with pytest.raises(NotFound, match=r"several servers.*3f1c, 3fff"):
            find_server(servers, vague)
    for wrong in ("", "4"):
        with pytest.raises(NotFound, match="the servers are: 3f1c, 3fff") as raised:
            find_server(servers, wrong)
        assert raised.value.code == "no_such_server"

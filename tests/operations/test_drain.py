"""A server is drained only where another takes what it owns; the mark stands in the store."""

from __future__ import annotations

import pytest

from anabranch.errors import NotFound, Refused
from anabranch.operations.drain import drain, undrain
from anabranch.runtime.cluster.membership import fair_share
from anabranch.store.memory.cluster import MemoryServer
from anabranch.store.memory.store import MemoryStore

from .read.test_cluster import cluster


def test_a_drained_server_has_no_share_and_a_server_taken_back_has_one_again() -> None:
    _, (a, b) = cluster("aa", "bb")
    a.cluster.claim(4)
    card = drain(b, "aa")
    assert (card.id, card.draining, card.partitions, card.state) == ("aa", True, 4, "draining")
    assert fair_share(a.cluster.servers(), "aa", 4) == 0
    assert undrain(b, "aa").draining is False
    assert fair_share(a.cluster.servers(), "aa", 4) == 2


def test_draining_twice_changes_nothing() -> None:
    _, (a, _) = cluster("aa", "bb")
    assert drain(a, "aa") == drain(a, "aa")


def test_the_last_server_that_takes_partitions_is_not_drained() -> None:
    shared, (a, _) = cluster("aa", "bb")
    drain(a, "bb")
    with pytest.raises(Refused, match="start another server") as raised:
        drain(a, "aa")
    assert raised.value.code == "last_server"
    undrain(a, "bb")
    shared.servers["bb"].lease_until = 0  # it has died
    with pytest.raises(Refused):
        drain(a, "aa")
    assert not any(one.draining for one in a.cluster.servers())


def test_a_command_is_not_given_a_share() -> None:
    """It brings back its own runs alone: the runs of its partitions would stand still."""
    shared, (a,) = cluster("aa")
    command = MemoryServer(shared, "cc")
    command.cluster.join("anabranch run", "", 15, draining=True, takes_share=False)
    with pytest.raises(Refused, match="is a command") as raised:
        undrain(a, "cc")
    assert raised.value.code == "command"
    assert fair_share(a.cluster.servers(), "cc", 4) == 0


def test_a_server_that_is_not_there_is_named() -> None:
    _, (a, _) = cluster("aa", "bb")
    for change in (drain, undrain):
        with pytest.raises(NotFound, match="there is no server 'cc'"):
            change(a, "cc")


def test_a_store_with_one_server_has_nothing_to_drain() -> None:
    for change in (drain, undrain):
        with pytest.raises(Refused, match="one server") as raised:
            change(MemoryStore(), "only")
        assert raised.value.code == "not_shared"

"""What servers that share a store tell one another of their pools."""

from __future__ import annotations

from typing import Any

from anabranch.clock import ManualClock
from anabranch.operations.overview.overview import PoolLoad
from anabranch.operations.overview.pool_loads import FAMILY, PoolRecords
from anabranch.store.memory.cluster import MemoryServer, SharedMemory

LEASE = 15.0


class Servers:
    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.shared = SharedMemory(4, self.clock.now)

    def join(self, name: str) -> PoolRecords:
        store: Any = MemoryServer(self.shared, name)
        store.cluster.join(name, "", LEASE)
        return PoolRecords(store, store.cluster)

    def versions(self) -> dict[str, int]:
        return {one.name: one.version for one in self.shared.store.records(FAMILY)}


def load(server: str, waiting: int = 1) -> PoolLoad:
    return PoolLoad(pool="gpu", waiting=waiting, waiting_since=5, out=0, workers=0, server=server)


def test_a_server_reads_what_the_others_told_and_writes_only_what_has_changed() -> None:
    servers = Servers()
    a, b = servers.join("a"), servers.join("b")
    a.write([], 1)
    assert servers.versions() == {}, "a server without pools writes nothing"
    for waiting in (1, 1, 2, 2):
        a.write([load("a", waiting)], 2)
    b.write([load("b")], 3)
    assert servers.versions() == {"a": 2, "b": 1}
    assert a.of_others({"a", "b"}) == [load("b")]
    assert b.of_others({"a", "b"}) == [load("a", 2)]
    a.write([], 4)
    assert b.of_others({"a", "b"}) == [], "its pools are empty"


def test_a_server_that_is_gone_is_not_shown_and_what_it_left_is_removed() -> None:
    servers = Servers()
    a, b = servers.join("a"), servers.join("b")
    a.write([load("a")], 1)
    b.write([load("b")], 1)
    assert a.of_others({"a"}) == [], "its lease has run out"
    a.leave()
    assert set(servers.versions()) == {"b"}
    servers.clock.advance_to(servers.clock.now() + int(LEASE * 2000))
    c = servers.join("c")
    c.write([load("c")], 2)
    assert set(servers.versions()) == {"c"}

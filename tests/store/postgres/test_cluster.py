"""Leases and partitions on a real server: who owns what when an answer, or the lease, was lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest

from anabranch.errors import Conflict, StoreError
from anabranch.store.cluster_ports import SharedSession
from anabranch.store.ports import Batch
from anabranch.store.postgres.cluster import PostgresCluster
from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.store_suite.samples import NOW, a_commit, refused

Opened = Callable[[], PostgresStore]
_names = count(1)
SHORT = 0.05


@pytest.fixture
def opened(postgres: str) -> Iterator[Opened]:
    """Opens one server after the other on a store of four partitions."""
    address = f"{postgres}{'&' if '?' in postgres else '?'}schema=cluster_{next(_names)}"
    stores: list[PostgresStore] = []

    def one() -> PostgresStore:
        stores.append(PostgresStore(address, partitions=4))
        return stores[-1]

    yield one
    for store in stores:
        with closing(store):
            store.cluster.owned.clear()


def until_ended(store: PostgresStore) -> None:
    """Until the lease of every server but this one has ended, by the clock of the store."""
    while any(one.alive for one in store.cluster.servers() if one.id != store.cluster.server):
        time.sleep(0.01)


def test_a_lease_that_ended_can_be_extended_while_no_other_server_took_anything(
    opened: Opened,
) -> None:
    one, two = opened().cluster, opened()
    one.join("one", "", SHORT)
    assert len(one.claim(4)) == 4
    until_ended(two)
    assert one.extend_lease(600.0)
    two.cluster.join("two", "", 600.0)
    assert two.cluster.claim(4) == []
    assert [each.owner for each in one.partition_records()] == [one.server] * 4


def test_a_server_whose_partitions_were_taken_has_lost_all_of_them(opened: Opened) -> None:
    """Also those that the other had no room for: either all of them are its own, or none."""
    one, two = opened().cluster, opened()
    one.join("one", "", SHORT)
    one.claim(4)
    until_ended(two)
    two.cluster.join("two", "", 600.0)
    assert len(two.cluster.claim(2)) == 2
    assert not one.extend_lease(600.0)
    assert len(two.cluster.claim(4)) == 2


def test_a_server_that_was_removed_gets_no_partition_before_it_joins_again(opened: Opened) -> None:
    """It was stopped between a look at its lease and its claim, and has in memory what its runs
    were before."""
    one, two = opened(), opened()
    one.cluster.join("one", "", SHORT)
    one.cluster.claim(4)
    believed = dict(one.cluster.owned)
    until_ended(two)
    two.cluster.join("two", "", 600.0)
    two.cluster.claim(4)
    two.commit(Batch(commits=[a_commit("run", 1)]))
    two.cluster.leave()
    assert one.cluster.claim(4) == []
    assert one.cluster.owned == believed
    with refused(Conflict, "does not own partition"):
        one.commit(Batch(commits=[a_commit("run", 1)]))
    one.cluster.join("one", "", 600.0)
    assert one.cluster.claim(4) == [0, 1, 2, 3]


def test_servers_whose_leases_have_all_ended_can_claim_at_once(opened: Opened) -> None:
    """Each would remove the others, and none waits for another: what is left is owned by one."""
    servers = [opened().cluster for _ in range(4)]
    for at, one in enumerate(servers):
        one.join(str(at), "", SHORT)
    errors: list[Exception] = []

    def claims(one: PostgresCluster) -> None:
        try:
            for _ in range(50):
                one.join("", "", 0.0)
                one.claim(4)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=claims, args=[one]) for one in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    claimed = [partition for one in servers for partition in one.owned]
    records = {each.partition: each.owner for each in servers[0].partition_records()}
    owners = {one.server: set(one.owned) for one in servers}
    assert claimed
    assert all(at in owners[owner] for at, owner in records.items() if owner is not None)


def test_a_claim_whose_answer_was_lost_is_found_again(opened: Opened) -> None:
    one = opened().cluster
    one.join("one", "", 600.0)
    lost = one._ask("claim", id=one.server, most=3, known="[]")
    assert len(lost) == 3
    assert one.owned == {}
    assert sorted(one.claim(4)) == [0, 1, 2, 3]
    records = {each.partition: each.epoch for each in one.partition_records()}
    assert {partition: at.epoch for partition, at in one.owned.items()} == records
    assert one.claim(4) == []


def test_who_joins_again_while_it_claims_knows_what_it_owns(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the claim is here, and not noted yet, when the server joins again."""
    one = opened().cluster
    one.join("one", "", 600.0)
    ask, answered, joined = one._ask, threading.Event(), threading.Event()

    def slow(statement: str, /, **given: Any) -> list[Any]:
        rows: list[Any] = ask(statement, **given)
        if statement == "claim":
            answered.set()
            joined.wait(0.3)  # it waits for the claim, and so for this
        return rows

    monkeypatch.setattr(one, "_ask", slow)
    claiming = threading.Thread(target=one.claim, args=[4])
    claiming.start()
    answered.wait()
    one.join("one", "", 600.0)
    joined.set()
    claiming.join()
    said = {each.partition for each in one.partition_records() if each.owner == one.server}
    assert one.owned.keys() == said


def test_partitions_that_could_not_be_handed_over_stay_known(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = opened().cluster
    one.join("one", "", 600.0)
    one.claim(4)

    def away(*_given: object, **_named: object) -> None:
        raise StoreError("the connection is lost", code="store_away")

    with monkeypatch.context() as patched:
        patched.setattr(one, "_ask", away)
        with pytest.raises(StoreError):
            one.hand_over([0, 1])
    assert sorted(one.owned) == [0, 1, 2, 3]
    one.hand_over([0, 1])
    assert sorted(one.owned) == [2, 3]
    assert [each.owner for each in one.partition_records()] == [None, None, one.server, one.server]


def test_a_message_that_is_posted_again_because_its_end_was_not_seen_is_there_once(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened()
    post, seen = store._post, list[int]()

    def lost_once(given: dict[str, object]) -> int:
        seen.append(post(given))
        if len(seen) == 1:
            raise StoreError("the connection is lost", code="store_away")
        return seen[-1]

    monkeypatch.setattr(store, "_post", lost_once)
    assert store.post("r1", b"{}", 1) == seen[0] == seen[1]
    assert [message.id for message in store.unanswered()] == [seen[0]]
    assert store.post("r1", b"{}", 1) != seen[0]


def test_a_browser_session_that_is_kept_again_because_its_end_was_not_seen_stays(
    opened: Opened,
) -> None:
    store = opened()
    older, newer = (SharedSession("token", "csrf", 10, letter * 64) for letter in "ab")
    for _ in range(2):
        store.cluster.keep_session(older, 0, 1)
    assert store.cluster.session(older.key) == older
    store.cluster.keep_session(newer, 0, 1)
    assert [store.cluster.session(one.key) for one in (older, newer)] == [None, newer]


def test_a_message_that_its_owner_has_read_outlives_the_purge_by_another_server(
    opened: Opened,
) -> None:
    owner, other = opened(), opened()
    owner.cluster.join("owner", "", 600.0)
    owner.cluster.claim(4)
    owner.commit(Batch(commits=[a_commit("run", 1, finished=True)]))
    message = other.post("run", b"{}", NOW)
    assert [one.id for one in owner.unanswered()] == [message]
    assert other.forget(["run"]).runs == 1
    owner.commit(Batch(answers={message: b'"gone"'}))
    found = other.message(message)
    assert found is not None
    assert found.answer == b'"gone"'

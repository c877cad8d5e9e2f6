"""What the store says of its partitions: owners, epochs, messages that wait, webhooks behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anabranch.store.cluster_ports import PartitionLag
from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.store_suite.hooks import a_hook
from anabranch.testing.store_suite.samples import NOW, a_batch, a_commit
from shared_store import fresh_schema


@pytest.fixture
def store(postgres: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(fresh_schema(postgres), partitions=2)
    yield opened
    opened.close()


def test_an_owner_is_shown_with_its_epoch_which_grows_with_every_change(
    store: PostgresStore,
) -> None:
    cluster = store.cluster
    assert [(one.owner, one.epoch) for one in cluster.partition_records()] == [(None, 0)] * 2
    cluster.join("a", "http://a.example", 60)
    cluster.claim(1)
    cluster.hand_over([0])
    cluster.claim(2)
    first, second = cluster.partition_records()
    assert (first.owner, second.owner) == (cluster.server, cluster.server)
    assert first.epoch > second.epoch > 0


def test_messages_wait_in_the_partition_of_their_run_until_they_are_answered(
    store: PostgresStore,
) -> None:
    place = store.cluster.place("r1")
    number = store.post("r1", b"{}", NOW + 5)
    store.post("r1", b"{}", NOW + 9)
    lag = PartitionLag(waiting=2, waiting_since=NOW + 5)
    assert store.cluster.partition_lags() == {place: lag}
    store.acquire("a")
    store.commit(a_batch(a_commit("r1", 1), answers={number: b"{}"}))
    lag = PartitionLag(waiting=1, waiting_since=NOW + 9)
    assert store.cluster.partition_lags() == {place: lag}


def test_the_lag_is_that_of_the_enabled_webhook_furthest_behind(store: PostgresStore) -> None:
    store.acquire("a")
    store.add_hook(a_hook("old"))
    store.add_hook(a_hook("off", enabled=False))
    store.commit(a_batch(a_commit("r1", 1)))
    store.commit(a_batch(a_commit("r1", 2)))
    place = store.cluster.place("r1")
    assert store.cluster.partition_lags() == {place: PartitionLag(webhook_lag=2)}
    assert store.advance_hook("old", 0, 2, [], place)
    assert store.cluster.partition_lags() == {}

"""Deliveries that two servers change at the same moment: one of each run stays due, and of a run
that was purged exactly one server sends what is left."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import count

import msgspec
import pytest

from anabranch.store.hook_ports import DeliveryFilter, Hook, WebhookDelivery
from anabranch.store.ports import Batch
from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.store_suite.samples import NOW, a_commit

from .open_transactions import at_the_same_time

Two = tuple[PostgresStore, PostgresStore]
PARTITIONS = 4
_numbers = count(1)


@pytest.fixture
def two(postgres: str) -> Iterator[Two]:
    joint = "&" if "?" in postgres else "?"
    address = f"{postgres}{joint}schema=deliveries_{next(_numbers)}"
    one, other = PostgresStore(address, partitions=PARTITIONS), PostgresStore(address)
    one.add_hook(Hook(id="h", url="https://example.org/", secret="env:X", kinds=("run.*",)))
    yield one, other
    one.close()
    other.close()


def found(run: str, *seqs: int) -> list[WebhookDelivery]:
    return [
        WebhookDelivery(hook="h", run=run, seq=seq, kind="run.x", body=b"{}", found_at=NOW)
        for seq in seqs
    ]


def settled(one: WebhookDelivery, state: str) -> WebhookDelivery:
    return msgspec.structs.replace(
        one, state=state, due=None, attempts=one.attempts + 1, last_at=NOW, last_status=200
    )


def one_that_is_out(store: PostgresStore) -> WebhookDelivery:
    """Of a run whose second notification was given up, and whose seventh is being sent."""
    store.advance_hook("h", 0, 1, found("r", 2, 7))
    (second,) = store.due_deliveries("h", NOW, 10)
    assert store.settle_delivery(settled(second, "dead"), NOW)
    (seventh,) = store.due_deliveries("h", NOW, 10)
    return seventh


def due_of(store: PostgresStore) -> list[int]:
    return [one.seq for one in store.due_deliveries("h", NOW, 10)]


def test_one_is_due_after_the_dead_are_sent_again_while_another_is_settled(
    postgres: str, two: Two
) -> None:
    one, other = two
    out = one_that_is_out(one)
    assert at_the_same_time(
        postgres,
        other,
        lambda: other.redeliver_dead("h", NOW, 10),
        lambda: one.settle_delivery(settled(out, "done"), NOW),
    )
    assert due_of(one) == [2]


def test_one_is_due_after_one_is_settled_while_the_dead_are_sent_again(
    postgres: str, two: Two
) -> None:
    one, other = two
    out = one_that_is_out(one)
    count = at_the_same_time(
        postgres,
        one,
        lambda: one.settle_delivery(settled(out, "done"), NOW),
        lambda: other.redeliver_dead("h", NOW, 10),
    )
    assert (count, due_of(one)) == (1, [2])


def test_one_is_due_after_more_are_found_while_a_server_that_was_late_settles(
    postgres: str, two: Two
) -> None:
    one, other = two
    out = one_that_is_out(one)
    assert at_the_same_time(
        postgres,
        other,
        lambda: other.advance_hook("h", 1, 2, found("r", 9)),
        lambda: one.settle_delivery(settled(out, "done"), NOW),
    )
    assert due_of(one) == [9]


def test_a_webhook_that_is_removed_while_more_is_found_leaves_no_deliveries(
    postgres: str, two: Two
) -> None:
    one, other = two
    assert at_the_same_time(
        postgres,
        other,
        lambda: other.advance_hook("h", 0, 1, found("r", 9)),
        lambda: one.drop_hook("h"),
    )
    assert one.deliveries(DeliveryFilter(hook="h")) == []


# -- runs that were purged ---------------------------------------------------------------------


def share(two: Two) -> None:
    """Both are servers, with a half of the partitions each."""
    for store in two:
        store.cluster.join("server", "", 600)
        store.cluster.claim(PARTITIONS // 2)


def a_family(two: Two) -> tuple[str, str]:
    """A parent that the first server owns, and a child whose id alone would be the other's."""
    one, other = two
    names = [f"run-{number}" for number in range(100)]
    parent = next(name for name in names if one.cluster.partition_of(name) in one.cluster.owned)
    child = next(name for name in names if one.cluster.partition_of(name) in other.cluster.owned)
    one.commit(
        Batch(
            commits=[
                a_commit(parent, 1),
                a_commit(child, 1, parent=f"{parent}/1/1", finished=True),
            ]
        )
    )
    return parent, child


def test_what_is_left_of_a_purged_run_is_sent_by_exactly_one_server(two: Two) -> None:
    share(two)
    one, other = two
    parent, child = a_family(two)
    at = one.cluster.partition_of(parent)
    one.advance_hook("h", 0, 1, found(child, 1, 2), at)
    assert other.cluster.place(child) == at
    assert [len(store.due_deliveries("h", NOW, 10)) for store in two] == [1, 0]

    one.forget([child])
    assert one.due_deliveries("h", NOW, 10) == []
    (left,) = other.due_deliveries("h", NOW, 10)
    root = one.cluster.partition_of(child)
    assert [store.cluster.place(child) for store in two] == [root, root]
    assert other.settle_delivery(settled(left, "done"), NOW)
    assert [one.seq for one in other.due_deliveries("h", NOW, 10)] == [2]


def test_a_delivery_of_a_purged_run_can_be_sent_again(two: Two) -> None:
    share(two)
    one, other = two
    parent, child = a_family(two)
    one.advance_hook("h", 0, 1, found(child, 1), one.cluster.partition_of(parent))
    (only,) = one.due_deliveries("h", NOW, 10)
    one.settle_delivery(settled(only, "done"), NOW)
    one.forget([child])
    assert one.redeliver("h", child, 1, NOW)
    assert [one.seq for one in other.due_deliveries("h", NOW, 10)] == [1]


@pytest.mark.parametrize("run", ["a", "run-17", "käse ≠ 🧀", "x" * 300])
def test_the_database_finds_the_partition_of_an_id_as_servers_do(two: Two, run: str) -> None:
    for partitions in (1, 7, 128, 4096):
        given = {"run": run, "partitions": partitions}
        ((place,),) = two[0]._rows("SELECT partition_of(%(run)s, %(partitions)s)", given)
        assert place == zlib.crc32(run.encode()) % partitions

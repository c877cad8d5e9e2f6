"""What two servers that write at the same moment may not both get."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from itertools import count
from threading import Barrier
from typing import Any, TypeVar

import msgspec
import pytest

from anabranch.store.access_ports import AccessToken, KeptAnswer
from anabranch.store.hook_ports import Hook, WebhookDelivery
from anabranch.store.ports import Batch, Hold

pytest.importorskip("psycopg")

from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.store_suite.samples import a_commit

from .open_transactions import at_the_same_time

T = TypeVar("T")
ROUNDS = 25
NOW = 1_000_000
Two = tuple[PostgresStore, PostgresStore]
_numbers = count(1)


@pytest.fixture(scope="module")
def two(postgres: str) -> Iterator[Two]:
    joint = "&" if "?" in postgres else "?"
    address = f"{postgres}{joint}schema=two_{next(_numbers)}"
    one, other = PostgresStore(address, partitions=4), PostgresStore(address)
    for store in (one, other):  # whose writers plan as those of a server at work do
        store.commit(Batch(commits=[a_commit(store.cluster.server, 1)]))
    yield one, other
    one.close()
    other.close()


def at_once(two: Two, work: Callable[[PostgresStore], T]) -> list[T]:
    """What both come to, begun at the same moment."""
    ready = Barrier(2)

    def begin(store: PostgresStore) -> T:
        ready.wait()
        return work(store)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(begin, two))


def claim(key: str, holder: str, expires_at: int = NOW + 100) -> KeptAnswer:
    return KeptAnswer(actor="ann", key=key, body="b", holder=holder, expires_at=expires_at)


def test_one_of_two_servers_gets_an_idempotency_key(two: Two) -> None:
    for n in range(ROUNDS):
        found = at_once(two, lambda s, n=n: s.claim_key(claim(f"k{n}", s.cluster.server), NOW))  # type: ignore[misc]
        assert [one is None for one in found].count(True) == 1
        known = next(one for one in found if one is not None)
        winner = two[0 if found[0] is None else 1].cluster.server
        assert known.holder == winner


def test_one_of_two_servers_gets_a_key_whose_time_is_up(two: Two) -> None:
    for n in range(ROUNDS):
        assert two[0].claim_key(claim(f"old{n}", "gone", NOW), NOW - 1) is None
        found = at_once(two, lambda s, n=n: s.claim_key(claim(f"old{n}", s.cluster.server), NOW))  # type: ignore[misc]
        assert [one is None for one in found].count(True) == 1


def test_two_servers_never_give_out_the_same_session_number(two: Two) -> None:
    def take(store: PostgresStore) -> list[Any]:
        return [store.take_session_number("0xann", f"{store.cluster.server}{n}") for n in range(ROUNDS)]  # fmt: skip  # noqa: E501

    numbers = [number for taken in at_once(two, take) for number in taken]
    assert sorted(numbers) == list(range(1, 2 * ROUNDS + 1))


def test_of_two_that_want_a_certain_session_number_one_is_told_no(two: Two) -> None:
    for n in range(1, ROUNDS):
        found = at_once(two, lambda s, n=n: s.take_session_number("0xbo", s.cluster.server, n))  # type: ignore[misc]
        assert sorted(found, key=str) == [n, None]


def test_a_payload_is_not_deleted_while_another_server_begins_to_hold_it(two: Two) -> None:
    """One deletes what nobody holds any more at the moment at which the other stores the same."""
    one, other = two
    for n in range(ROUNDS):
        content = b"content %d" % n
        name = sha256(content).hexdigest()
        one.put_payload(name, content, Hold(name, "first", until=NOW))

        def work(store: PostgresStore, name: str = name, content: bytes = content) -> None:
            if store is one:
                store.expire(NOW)
            else:
                store.put_payload(name, content, Hold(name, "second"))

        at_once(two, work)
        assert other.payload(name) == content


# -- one inside the transaction of the other ---------------------------------------------------


def test_two_servers_that_note_the_use_of_the_same_tokens_do_not_wait_for_each_other(
    postgres: str, two: Two
) -> None:
    one, other = two
    for name in ("a", "b"):
        token = AccessToken(id=name, digest="0" * 64, name=name, scopes=("read",), created_at=NOW)
        one.add_token(token)
    at_the_same_time(
        postgres,
        other,
        lambda: other.use_tokens([("a", NOW)]),
        lambda: one.use_tokens([("b", NOW + 1), ("a", NOW + 1)]),
        lambda: other.use_tokens([("b", NOW)]),
    )
    assert [token.last_used_at for token in one.tokens()] == [NOW + 1, NOW + 1]


def test_a_key_that_a_server_claims_is_not_forgotten_by_another(postgres: str, two: Two) -> None:
    one, other = two
    assert one.claim_key(claim("over", "first", NOW), NOW - 1) is None
    at_the_same_time(
        postgres,
        other,
        lambda: other.claim_key(claim("over", "second"), NOW),
        lambda: one.forget_access(NOW, 0),
    )
    known = one.claim_key(claim("over", "third"), NOW)
    assert known is not None
    assert known.holder == "second"


def test_a_delivery_that_is_sent_again_is_not_forgotten_by_another_server(
    postgres: str, two: Two
) -> None:
    one, other = two
    one.add_hook(Hook(id="h", url="https://example.org/", secret="env:X", kinds=("run.*",)))
    only = WebhookDelivery(hook="h", run="r", seq=1, kind="run.x", body=b"{}", found_at=NOW)
    one.advance_hook("h", 0, 1, [only])
    over = msgspec.structs.replace(only, state="done", attempts=1, last_at=NOW)
    assert one.settle_delivery(over, NOW)
    at_the_same_time(
        postgres,
        other,
        lambda: other.redeliver("h", "r", 1, NOW),
        lambda: one.forget_deliveries(NOW + 1),
    )
    assert [each.seq for each in one.due_deliveries("h", NOW, 10)] == [1]

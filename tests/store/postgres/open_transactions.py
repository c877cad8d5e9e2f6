"""Two servers that write at the same time, one inside the transaction of the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import psycopg

from anabranch.store.postgres.store import PostgresStore
from hangs import HANG_SECONDS

T = TypeVar("T")


def at_the_same_time(
    postgres: str,
    first: PostgresStore,
    begin: Callable[[], object],
    then: Callable[[], T],
    last: Callable[[], object] = lambda: None,
) -> T:
    """`then` is called while what `begin` does with the first store is not committed; it may wait
    for that. Then `last` is done in the same transaction as `begin`."""
    deadline = time.monotonic() + HANG_SECONDS
    with ThreadPoolExecutor(1) as pool:
        with first.together():
            begin()
            other = pool.submit(then)
            while not other.done() and not waits_for_a_lock(postgres):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            last()
        return other.result()


def waits_for_a_lock(postgres: str) -> bool:
    with psycopg.connect(postgres) as db:
        return bool(
            db.execute(
                "SELECT 1 FROM pg_stat_activity "
                "WHERE datname = current_database() AND wait_event_type = 'Lock'"
            ).fetchall()
        )

"""What a check finds in a PostgreSQL store, and what it takes for damage."""

from __future__ import annotations

from contextlib import closing

from anabranch.store.postgres.inspect import PostgresInspection
from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.store_suite.samples import NOW


def test_what_is_sealed_for_a_start_that_waits_is_no_damage(postgres: str) -> None:
    address = f"{postgres}{'&' if '?' in postgres else '?'}schema=inspected"
    name = "run~0123456789abcdef"
    with closing(PostgresStore(address, partitions=2)) as store:
        store.cluster.keep_sealed(name, {"password": b"sealed"})
        with PostgresInspection(address) as inspection:
            assert inspection.headless(10) == [("sealed", name)]
        store.post("run", b"{}", NOW)
        with PostgresInspection(address) as inspection:
            assert inspection.headless(10) == []

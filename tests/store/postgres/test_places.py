"""Where runs live is known without a look at the store, wherever it can be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.errors import Conflict
from anabranch.store.ports import Batch
from anabranch.store.postgres import cluster
from anabranch.store.postgres.store import PostgresStore
from anabranch.testing.store_suite.samples import a_commit

RUNS = [f"run-{number}" for number in range(20)]


def opened(postgres: str, schema: str) -> PostgresStore:
    joint = "&" if "?" in postgres else "?"
    store = PostgresStore(f"{postgres}{joint}schema={schema}", partitions=8)
    store.acquire("test")
    return store


def begin(store: PostgresStore, run: str, parent: str | None = None) -> None:
    commit = a_commit(run, 1)
    head = msgspec.structs.replace(commit.head, parent=parent)
    store.commit(Batch(commits=[msgspec.structs.replace(commit, head=head)]))


def no_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(_store: PostgresStore, statement: str, _parameters: Any) -> list[Any]:
        raise AssertionError(f"this was read: {statement}")

    monkeypatch.setattr(PostgresStore, "_rows", read)


def test_a_root_is_placed_by_its_id_alone(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(postgres, "places_of_roots")
    with monkeypatch.context() as patch:
        no_reads(patch)
        for run in RUNS:
            begin(store, run)
            assert store.cluster.place(run) == store.cluster.partition_of(run)
    store.close()


def test_runs_that_recovery_has_found_are_placed_without_another_look(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(postgres, "places_of_heads")
    for run in RUNS:
        begin(store, run)
        begin(store, f"child-of-{run}", f"{run}/1/1")
    store.close()
    store = opened(postgres, "places_of_heads")
    found = [head.run for head in store.unfinished("", 1000, range(8))]
    with monkeypatch.context() as patch:
        no_reads(patch)
        assert len(found) == 2 * len(RUNS)
        for run in RUNS:
            at = store.cluster.partition_of(run)
            assert (store.cluster.place(run), store.cluster.place(f"child-of-{run}")) == (at, at)
    store.close()


def test_a_place_that_is_forgotten_while_others_are_looked_up_is_told_all_the_same(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened(postgres, "places_forgotten")
    begin(store, RUNS[0])
    for number in range(20):
        begin(store, f"child-{number}", f"{RUNS[0]}/1/1")
    children = [f"child-{number}" for number in range(20)]
    store.cluster.forget_places(children[1:])
    monkeypatch.setattr(cluster, "_PLACES_KEPT", 4)
    at = store.cluster.partition_of(RUNS[0])
    assert store.cluster.find(children) == dict.fromkeys(children, at)
    assert [store.cluster.place(child) for child in children] == [at] * len(children)
    store.close()


@pytest.mark.parametrize("finished", [False, True])
def test_a_run_is_not_moved_with_the_number_of_another_partition(
    postgres: str, finished: bool
) -> None:
    """Whatever a server believes about its place: that partition may be another server's."""
    store = opened(postgres, f"places_believed_{finished}".lower())
    begin(store, "run")
    store.cluster.remember({"run": (store.cluster.partition_of("run") + 1) % 8})
    with pytest.raises(Conflict):
        store.commit(Batch(commits=[a_commit("run", 2, finished=finished)]))
    assert [record.first_seq for record in store.read("run")] == [1]
    store.close()

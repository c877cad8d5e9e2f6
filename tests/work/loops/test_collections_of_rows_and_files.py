"""Parquet files and folders as collections."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from anabranch.errors import InputError
from anabranch.work.kinds.threads import Threads
from anabranch.work.loops.collections.all import Collections
from anabranch.work.loops.collections.listing import Listings
from anabranch.work.loops.collections.port import CollectionError, CollectionLimits, ShardRange

from ..support import run
from .support import all_items, all_shards, items_of, using

T = TypeVar("T")

# -- Parquet ---------------------------------------------------------------------------------


def parquet(path: Path, rows: int = 25, group: int = 10) -> str:
    arrow: Any = pytest.importorskip("pyarrow")
    file: Any = pytest.importorskip("pyarrow.parquet")
    table = arrow.table(
        {
            "id": list(range(rows)),
            "name": [f"row {n}" for n in range(rows)],
            "price": [Decimal(n) / 4 for n in range(rows)],
            "at": [datetime(2026, 1, 1, tzinfo=UTC)] * rows,
        }
    )
    file.write_table(table, path, row_group_size=group)
    return str(path)


def test_rows_of_parquet(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet")
    for count, shards in ((1, 3), (7, 2), (10, 1), (100, 1)):
        rows = items_of({"parquet": path}, count, shards)
        assert [row["id"] for row in rows] == list(range(25))
    assert rows[5] == {"id": 5, "name": "row 5", "price": 1.25, "at": "2026-01-01T00:00:00+00:00"}
    assert items_of({"parquet": path, "columns": ["name"]})[0] == {"name": "row 0"}
    assert items_of({"parquet": parquet(tmp_path / "b.parquet", rows=0)}) == []


def test_parquet_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_text("no parquet")
    with pytest.raises(InputError, match=r"a\.parquet is not a Parquet file"):
        items_of({"parquet": str(path)})
    with pytest.raises(InputError, match="has no column 'nope'; it has id, name"):
        items_of({"parquet": parquet(path), "columns": ["nope"]})


def test_parquet_that_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"

    async def scenario(collections: Collections) -> None:
        descriptor = await collections.describe({"parquet": parquet(path)})
        await collections.items(descriptor, 0, 5)
        parquet(path, rows=30)
        with pytest.raises(CollectionError, match="changed while the loop was running"):
            await collections.items(descriptor, 0, 5)

    using(scenario)


MIB = 1024 * 1024
LARGE = "x" * 100_000
#: Rows that take hundreds of mebibytes, and few in a file; and how they are written.
FEW_BYTES: dict[str, tuple[Callable[[Any], Any], dict[str, Any]]] = {
    "a text again and again": (lambda arrow: arrow.repeat(LARGE, 1_000), {}),
    "in lists": (lambda arrow: arrow.array([[LARGE] * 500] * 2), {}),
    "in mappings": (lambda arrow: arrow.array([{"k": [{"l": LARGE}] * 500}] * 2), {}),
    "each longer than the one before": (
        lambda arrow: arrow.array([f"{LARGE}{number}" for number in range(1_000)]),
        {"use_dictionary": False, "column_encoding": "DELTA_BYTE_ARRAY"},
    ),
    "a number again and again": (lambda arrow: arrow.repeat(7, 10_000_000), {}),
}


_POOLS: list[Any] = []  # what was made in one may be freed later than the test ends


@contextmanager
def watched(arrow: Any) -> Iterator[Any]:
    """What is made of a file meanwhile."""
    before = arrow.default_memory_pool()
    pool = arrow.proxy_memory_pool(before)
    _POOLS.append(pool)
    arrow.set_memory_pool(pool)
    try:
        yield pool
    finally:
        arrow.set_memory_pool(before)


@pytest.mark.parametrize("what", FEW_BYTES)
def test_few_bytes_of_parquet_that_stand_for_many_are_not_all_made(
    what: str, tmp_path: Path
) -> None:
    arrow: Any = pytest.importorskip("pyarrow")
    file: Any = pytest.importorskip("pyarrow.parquet")
    make, how = FEW_BYTES[what]
    path = tmp_path / "a.parquet"
    file.write_table(arrow.table({"a": make(arrow)}), path, row_group_size=100_000_000, **how)
    assert path.stat().st_size < MIB

    async def scenario(collections: Collections) -> None:
        found = await collections.describe({"parquet": str(path)})
        tracemalloc.start()
        try:
            with pytest.raises(CollectionError, match="collection_shard_bytes"):
                await collections.items(found, 0, int(found["size"]))
            assert tracemalloc.get_traced_memory()[1] < 16 * MIB
        finally:
            tracemalloc.stop()

    with watched(arrow) as pool:
        using(scenario, limits=CollectionLimits(shard_bytes=4 * MIB))
        assert pool.max_memory() < 64 * MIB


def test_a_shard_of_large_rows_is_read_where_it_has_room(tmp_path: Path) -> None:
    arrow: Any = pytest.importorskip("pyarrow")
    file: Any = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    file.write_table(arrow.table({"a": arrow.repeat(LARGE, 1_000)}), path)

    async def scenario(collections: Collections) -> None:
        found = await collections.describe({"parquet": str(path)})
        items = await collections.items(found, 900, 30)
        assert [item for _, _, item in items] == [{"a": LARGE}] * 30

    using(scenario, limits=CollectionLimits(shard_bytes=4 * MIB))


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    path = parquet(tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InputError, match=r"pip install anabranch\[parquet\]"):
        items_of({"parquet": path})


# -- folders ---------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.csv", "a.csv", "c.txt", ".hidden.csv", "sub/d.csv", "sub/deep/e.csv", "z.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "loop").symlink_to(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ({}, ["a.csv", "b.csv", "c.txt", "loop", "z.csv"]),
        ({"pattern": "*.csv"}, ["a.csv", "b.csv", "z.csv"]),
        ({"pattern": ".*"}, [".hidden.csv"]),
        (
            {"pattern": "*.csv", "recursive": True},
            ["a.csv", "b.csv", "sub/d.csv", "sub/deep/e.csv", "z.csv"],
        ),
        ({"pattern": "**/*.csv"}, ["a.csv", "b.csv", "sub/d.csv", "sub/deep/e.csv", "z.csv"]),
        ({"pattern": "sub/*.csv"}, ["sub/d.csv", "sub/deep/e.csv"]),
        ({"pattern": "*.none"}, []),
    ],
)
def test_files_of_a_folder(more: Any, names: list[str], folder: Path) -> None:
    for count, shards in ((1, 1), (2, 2), (100, 1)):
        value = {"listing": str(folder), **more}
        found = using(partial(all_items, value=value, count=count, shards=shards))
        assert [item.key for item in found] == names


def test_an_item_says_where_the_file_is(folder: Path) -> None:
    (item, *_) = items_of({"listing": str(folder), "pattern": "sub/*.csv"})
    assert item == {"path": f"{folder}/sub/d.csv", "name": "d.csv", "size": 9}


def test_other_files_may_come_and_go_but_not_those_of_the_shard(folder: Path) -> None:
    """Also within one step of the clock that the file system has."""
    tick = folder.stat().st_mtime_ns

    def within_the_tick(change: Callable[[], object]) -> None:
        change()
        os.utime(folder, ns=(tick, tick))

    async def scenario(collections: Collections) -> None:
        descriptor = await collections.describe({"listing": str(folder), "pattern": "*.csv"})
        first, second = await all_shards(collections, descriptor, 2, 9)

        async def names(shard: ShardRange) -> list[str]:
            found = await collections.items(descriptor, shard.first, shard.count, shard.cursor)
            return [item.key for item in found]

        within_the_tick(partial((folder / "y.csv").write_text, ""))
        assert await names(first) == ["a.csv", "b.csv"]
        with pytest.raises(CollectionError, match="changed while the loop was running"):
            await names(second)
        within_the_tick((folder / "y.csv").unlink)
        assert await names(second) == ["z.csv"]
        within_the_tick((folder / "a.csv").unlink)
        with pytest.raises(CollectionError, match="changed"):
            await names(first)

    using(scenario)


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    (Path(os.fsdecode(bytes(tmp_path) + b"/\xff.csv"))).write_text("")
    with pytest.raises(CollectionError, match="is not valid text"):
        items_of({"listing": str(tmp_path)})


def test_a_large_folder_is_walked_in_linear_time(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / f"{number:06}").touch()
    looked_at = 0

    class Watched(Listings):
        def _walk(self, *given: Any) -> Any:
            nonlocal looked_at
            for parts in super()._walk(*given):
                looked_at += 1
                yield parts

    async def scenario() -> None:
        threads = Threads(1)
        listings = Watched(threads, CollectionLimits())
        descriptor = await listings.describe({"listing": str(tmp_path)})
        cursor, total, end = None, 0, False
        while not end:
            cuts = await listings.cut(descriptor, cursor, 10, 5, {})
            cursor, end = cuts.next_cursor, cuts.end
            for shard in cuts.shards:
                total += len(await listings.items(descriptor, shard, {}))
        await threads.close()
        assert total == 3000

    run(scenario())
    assert looked_at < 3000 * 2 + 200


def test_many_shards_are_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{n}\n" for n in range(5000)))

    async def scenario(collections: Collections) -> None:
        descriptor = await collections.describe({"jsonl": str(path)})
        shards = await all_shards(collections, descriptor, 50, 10)
        parts = await asyncio.gather(
            *(collections.items(descriptor, s.first, s.count, s.cursor) for s in shards)
        )
        assert [item.item for part in parts for item in part] == list(range(5000))

    using(scenario)

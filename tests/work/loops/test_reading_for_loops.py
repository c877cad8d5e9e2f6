"""The jobs of a loop read its collection, whatever form it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel.tracker import Shard
from anabranch.work.loops.collection_reader import CollectionReader
from anabranch.work.loops.collections.all import Collections, is_described
from anabranch.work.loops.collections.port import CollectionError

from .support import using


def test_a_list_needs_no_description() -> None:
    async def scenario(collections: Collections) -> None:
        reader = CollectionReader(collections)
        found = await reader.items(["a", "b", "c", "d"], Shard(0, 1, 2))
        assert found == [(1, "1", "b"), (2, "2", "c")]
        only = await reader.items(["a", "b", "c", "d"], Shard(0, 0, 4, None, (1, 3), 1))
        assert [item.item for item in only] == ["b", "d"]

    using(scenario)


@pytest.mark.parametrize("kind", ["jsonl", "range", "dict"])
def test_a_source_is_described_once_and_read_by_what_was_recorded(
    kind: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("0\n1\n2\n3\n4\n")
    source: Any = {
        "jsonl": {"jsonl": str(path)},
        "range": {"range": 5},
        "dict": {str(n): n for n in range(5)},
    }[kind]

    async def scenario(collections: Collections) -> None:
        reader = CollectionReader(collections)
        first = await reader.ahead(source, None, 2, 2)
        described = first["source"]
        assert is_described(described)
        assert first.get("size") == (None if kind == "jsonl" else 5)
        assert not first["end"]
        second = await reader.ahead(described, first["cursor"], 2, 2)
        assert "source" not in second
        assert second["end"]
        values: list[Any] = []
        for begin, count, cursor in first["shards"] + second["shards"]:
            items = await reader.items(described, Shard(0, begin, count, cursor))
            values += [item.item for item in items]
        plain = [value["value"] if kind == "dict" else value for value in values]
        assert plain == [0, 1, 2, 3, 4]
        some = Shard(0, 2, 2, first["shards"][1][2], (3,), 1)
        assert [item.number for item in await reader.items(described, some)] == [3]

    using(scenario)


def test_a_source_that_changed_is_refused_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("0\n1\n")

    async def scenario(collections: Collections) -> None:
        reader = CollectionReader(collections)
        found = await reader.ahead({"jsonl": str(path)}, None, 1, 1)
        path.write_text("0\n1\n2\n")
        for _ in range(2):
            with pytest.raises(CollectionError, match="changed while the loop was running"):
                await reader.ahead(found["source"], found["cursor"], 1, 1)

    using(scenario)

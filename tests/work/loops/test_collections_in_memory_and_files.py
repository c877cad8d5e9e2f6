"""Lists, mappings, ranges and files become shards that can be read, and read again."""

from __future__ import annotations

import os
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.errors import ExpressionError, InputError
from anabranch.work.loops.collections.all import Collections
from anabranch.work.loops.collections.port import CollectionError, CollectionLimits, Descriptor
from anabranch.work.values.payloads import MemoryPayloads
from anabranch.work.values.results import keep, read_policy

from ..support import run
from .support import all_items, all_shards, items_of, using

# -- what is a collection --------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 100])
@pytest.mark.parametrize("shards", [1, 2, 100])
def test_lists_mappings_and_ranges(count: int, shards: int) -> None:
    assert items_of([3, 1, "x", None, {"a": 1}], count, shards) == [3, 1, "x", None, {"a": 1}]
    assert items_of({"a": 1, "b": 2}, count, shards) == [
        {"key": "a", "value": 1},
        {"key": "b", "value": 2},
    ]
    assert items_of({"range": [2, 9, 3]}, count, shards) == [2, 5, 8]
    assert items_of({"range": {"start": 3, "stop": 0, "step": -1}}, count, shards) == [3, 2, 1]
    assert items_of({"range": 4}, count, shards) == items_of(range(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("value", [[], {}, {"range": 0}, {"range": [5, 5]}, {"range": [1, 9, -1]}])
def test_nothing_is_a_collection_too(value: Any) -> None:
    assert items_of(value) == []


def test_keys_are_numbers_or_the_keys_of_a_mapping() -> None:
    listed = using(lambda collections: all_items(collections, ["x", "y"]))
    assert [item.key for item in listed] == ["0", "1"]
    mapped = using(lambda collections: all_items(collections, {"b": 1, "a": 2}))
    assert [(item.number, item.key) for item in mapped] == [(0, "b"), (1, "a")]


def test_a_mapping_is_data_unless_it_is_nothing_but_a_source() -> None:
    assert len(items_of({"range": 5, "color": "red"})) == 2
    assert len(items_of({"sql": "x", "jsonl": "y"})) == 2


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "the collection is null: is its name spelled right"),
        ("a,b,c", "the collection is the text 'a,b,c': a loop goes over a list"),
        (5, "the collection is 5"),
        (True, "the collection is True"),
        ([object()], "the items of the collection are not JSON"),
        ({"range": "ten"}, "range takes whole numbers, not 'ten'"),
        ({"range": [1, 2, 0]}, "the step of a range must not be zero"),
        ({"range": []}, "range takes [start, stop, step]"),
        ({"range": [1, 2, 3, 4]}, "range takes [start, stop, step]"),
        ({"range": {"from": 1}}, "'from' is not one of start, stop, step"),
        ({"range": {"start": 1}}, "range takes whole numbers, not None"),
        ({"range": 2**70}, "whole numbers of 64 bits"),
        ({"range": True}, "range takes whole numbers, not True"),
        ({"jsonl": 5}, "jsonl must be text"),
        ({"jsonl": "/nowhere.jsonl"}, "/nowhere.jsonl cannot be read: No such file"),
        ({"jsonl": "/tmp"}, "/tmp is not a file"),
        ({"csv": "s3://bucket/key"}, "'s3' addresses cannot be read here"),
        ({"listing": "/nowhere"}, "/nowhere is not a folder"),
    ],
)
def test_what_is_none_is_said_clearly(value: Any, words: str) -> None:
    with pytest.raises(InputError) as raised:
        using(lambda collections: collections.describe(value))
    assert words in raised.value.message


def test_a_billion_items_take_no_time_and_no_room() -> None:
    async def scenario(collections: Collections) -> None:
        descriptor = await collections.describe({"range": [0, 10**12, 7]})
        assert len(msgspec.json.encode(descriptor)) < 100
        size = collections.size(descriptor)
        assert size == (10**12 + 6) // 7
        last = await collections.items(descriptor, size - 2, 2)
        assert [item.item for item in last] == [(size - 2) * 7, (size - 1) * 7]
        cuts = await collections.cut(descriptor, {"at": size - 5}, 2, 10)
        assert [(shard.first, shard.count) for shard in cuts.shards][-1] == (size - 1, 1)

    begin = time.process_time()
    using(scenario)
    assert time.process_time() - begin < 0.5


def test_a_long_list_is_kept_in_parts() -> None:
    payloads = MemoryPayloads()
    values = [{"id": number, "pad": "x" * 50} for number in range(20_000)]

    async def scenario(collections: Collections) -> None:
        descriptor = await collections.describe(values)
        assert len(msgspec.json.encode(descriptor)) < 10_000
        assert len(payloads.contents) > 40
        assert max(map(len, payloads.contents.values())) < 64 * 1024
        for first, count in ((0, 1), (999, 3), (19_990, 10), (0, 20_000), (500, 0)):
            found = await collections.items(descriptor, first, count)
            assert [item.item for item in found] == values[first : first + count]
        with pytest.raises(CollectionError, match="has 20,000 items, and none up to number 20,001"):
            await collections.items(descriptor, 19_999, 2)

    using(scenario, payloads=payloads, limits=CollectionLimits(chunk_bytes=32 * 1024))


def test_a_stand_in_is_the_list_behind_it() -> None:
    payloads = MemoryPayloads()
    values = list(range(1000))
    travels = run(keep(read_policy({"inline_max_bytes": 100}), values, payloads))
    assert items_of(travels, 400, 9, payloads=payloads) == values


# -- keys ------------------------------------------------------------------------------------


def keyed(value: Any, keys: Any) -> list[str]:
    async def scenario(collections: Collections) -> list[str]:
        descriptor = await collections.describe(value)
        found = await collections.items(descriptor, 0, len(value), keys=keys)
        return [item.key for item in found]

    return using(scenario)


def test_keys_can_be_made() -> None:
    rows = [{"id": "a"}, {"id": 7}]
    assert keyed(rows, lambda _, item: item["id"]) == ["a", "7"]
    assert keyed(rows, lambda index, _: f"row-{index}") == ["row-0", "row-1"]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (lambda _, item: item["id"] % 2, "item 0 and item 2 have the same iter_key '0'"),
        (lambda _, item: item.get("nope"), "item 0: iter_key must be text or a number, not null"),
        (lambda *_: [1], "item 0: iter_key must be text or a number, not a list"),
    ],
)
def test_keys_that_cannot_be(keys: Any, words: str) -> None:
    with pytest.raises(CollectionError) as raised:
        keyed([{"id": 0}, {"id": 1}, {"id": 2}], keys)
    assert words in raised.value.message


def test_a_key_that_cannot_be_evaluated_says_so_itself() -> None:
    def broken(_index: int, _item: Any) -> Any:
        raise ExpressionError("'{{ 1/0 }}': division by zero")

    with pytest.raises(ExpressionError, match="division by zero"):
        keyed([1], broken)


# -- JSONL -----------------------------------------------------------------------------------


def written(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\n\n  \n"])
def test_lines_of_json(ending: str, last: str, tmp_path: Path) -> None:
    lines = ['{"a": 1}', "", "[2]", "   ", '"three"', "4", "null"]
    path = written(tmp_path / "a.jsonl", ending.join(lines) + last)
    for count, shards in ((1, 1), (2, 2), (3, 1), (5, 5), (100, 1)):
        assert items_of({"jsonl": path}, count, shards) == [{"a": 1}, [2], "three", 4, None]


def test_an_empty_file_and_one_with_a_mark(tmp_path: Path) -> None:
    assert items_of({"jsonl": written(tmp_path / "a", "")}) == []
    assert items_of({"jsonl": written(tmp_path / "b", b"\xef\xbb\xbf1\n2\n")}) == [1, 2]
    uri = (tmp_path / "b").as_uri()
    assert items_of({"jsonl": uri}) == [1, 2]


def test_keys_of_lines_are_their_places(tmp_path: Path) -> None:
    path = written(tmp_path / "a", "1\n22\n\n333\n")
    found = using(lambda collections: all_items(collections, {"jsonl": path}))
    assert [item.key for item in found] == ["0", "2", "6"]


def test_a_broken_line_is_found_where_it_is(tmp_path: Path) -> None:
    path = written(tmp_path / "a", '{"n": 1}\n{"n": 2\n{"n": 3}\n')
    with pytest.raises(CollectionError, match=r"a: item 1 at byte 9 is not JSON: "):
        items_of({"jsonl": path}, 10)
    assert items_of({"jsonl": written(tmp_path / "b", "1\n2\n")}, 1) == [1, 2]
    deep = written(tmp_path / "c", "[" * 300 + "]" * 300)
    with pytest.raises(CollectionError, match="nests more than 200 levels"):
        items_of({"jsonl": deep})


def test_lines_and_shards_have_a_size(tmp_path: Path) -> None:
    path = written(tmp_path / "a", '"' + "x" * 2000 + '"\n' + "1\n" * 50)
    with pytest.raises(
        CollectionError, match=r"line at byte 0 .* \(setting collection_line_bytes\)"
    ):
        items_of({"jsonl": path}, limits=CollectionLimits(line_bytes=1000))
    with pytest.raises(CollectionError, match=r"more than 1,000 bytes \(setting collection_shard"):
        items_of({"jsonl": path}, limits=CollectionLimits(shard_bytes=1000))


@pytest.mark.parametrize("how", ["longer", "touched", "replaced", "gone"])
def test_a_file_that_changed_is_refused(how: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    written(path, "1\n2\n3\n4\n")

    async def scenario(collections: Collections) -> None:
        descriptor = await collections.describe({"jsonl": str(path)})
        (shard, *_) = await all_shards(collections, descriptor, 2, 9)
        about = path.stat()
        match how:
            case "longer":
                path.write_text("1\n2\n3\n4\n5\n")
            case "touched":
                os.utime(path, ns=(0, 0))
            case "replaced":
                path.write_text("9\n9\n9\n9\n")
                os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
            case "gone":
                path.unlink()
        words = "cannot be read" if how == "gone" else "changed while the loop was running: its"
        with pytest.raises(CollectionError, match=words):
            await collections.items(descriptor, shard.first, shard.count, shard.cursor)
        with pytest.raises(CollectionError, match=words):
            await collections.cut(descriptor, None, 1, 1)

    using(scenario)


def lines(path: Path, count: int) -> str:
    with path.open("w") as file:
        for number in range(count):
            file.write(f'{{"id":{number},"name":"number {number}"}}\n')
    return str(path)


async def walked(collections: Collections, path: str) -> tuple[float, int, Any]:
    """How long cutting the whole file took, how many items there are, and the last one."""
    descriptor = await collections.describe({"jsonl": path})
    begin = time.process_time()
    cursor, total, last = None, 0, None
    while True:
        cuts = await collections.cut(descriptor, cursor, 1000, 8)
        total += sum(shard.count for shard in cuts.shards)
        last = cuts.shards[-1] if cuts.shards else last
        if cuts.end:
            break
        cursor = cuts.next_cursor
    seconds = time.process_time() - begin
    assert last is not None
    found = await collections.items(descriptor, last.first, last.count, last.cursor)
    return seconds, total, found[-1].item


def test_a_million_lines_are_cut_quickly(tmp_path: Path) -> None:
    path = lines(tmp_path / "large.jsonl", 10**6)
    seconds, total, item = using(lambda collections: walked(collections, path))
    assert (total, item["id"]) == (10**6, 10**6 - 1)
    assert seconds < 3  # 0.4 on an idle machine; the aim is 1.5


def test_cutting_takes_no_more_room_for_more_lines(tmp_path: Path) -> None:
    peaks = []
    for count in (10_000, 100_000):
        path = lines(tmp_path / f"{count}.jsonl", count)
        tracemalloc.start()
        try:
            using(partial(walked, path=path))
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.2 < 3_000_000


# -- CSV -------------------------------------------------------------------------------------


def test_rows_of_csv(tmp_path: Path) -> None:
    text = (
        'id, name ,note\r\n1,ann,"says ""hi"", twice"\r\n\r\n2,bob,"two\nlines, one row"\n3,eve\n'
    )
    path = written(tmp_path / "a.csv", text)
    expected = [
        {"id": "1", "name": "ann", "note": 'says "hi", twice'},
        {"id": "2", "name": "bob", "note": "two\nlines, one row"},
        {"id": "3", "name": "eve", "note": None},
    ]
    for count, shards in ((1, 1), (1, 9), (2, 1), (9, 9)):
        assert items_of({"csv": path}, count, shards) == expected


def test_csv_of_other_makes(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "ä;1\nö;2\n".encode("latin-1"))
    given = {"csv": path, "delimiter": ";", "encoding": "latin-1", "columns": ["c", "n"]}
    assert items_of(given) == [{"c": "ä", "n": "1"}, {"c": "ö", "n": "2"}]
    renamed = {"csv": written(tmp_path / "b.csv", "x\n1\n"), "columns": ["y"], "header": True}
    assert items_of(renamed) == [{"y": "1"}]
    assert items_of({"csv": written(tmp_path / "c.csv", b"\xef\xbb\xbfa\n1\n")}) == [{"a": "1"}]
    assert items_of({"csv": written(tmp_path / "d.csv", "a,b\n")}) == []


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        ("", {}, "is empty: it has no row with the names"),
        ("a,a\n1,2\n", {}, "are not all different"),
        ("a,\n1,2\n", {}, "are not all different"),
        ("1,2\n", {"header": False}, "needs columns"),
        ("a\n", {"delimiter": "::"}, "delimiter must be one character"),
        ("a\n", {"encoding": "utf-16"}, "encoding 'utf-16' cannot be read here"),
        ("a\n", {"encoding": "klingon"}, "encoding 'klingon' cannot be read here"),
        ("a\n", {"columns": "a"}, "columns must be a list of names"),
        ("a\n1,2\n", {}, "item 0 at byte 2 has 2 fields for 1 columns"),
        ('a\n1\n"2\n3\n', {}, "the row at byte 4 opens a quote that never ends"),
        ('a\n"x"y\n', {}, "item 0 at byte 2 is not CSV"),
        (b"a\n\xff\n", {}, "item 0 at byte 2 is not utf-8"),
    ],
)
def test_csv_that_is_none(text: str | bytes, more: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        items_of({"csv": written(tmp_path / "a.csv", text), **more}, 10)
    assert words in raised.value.message


# -- calls that make no sense ----------------------------------------------------------------


def test_bad_calls_are_refused() -> None:
    async def scenario(collections: Collections) -> None:
        descriptor: Descriptor = await collections.describe([1, 2])
        for count, shards in ((0, 1), (1, 0), (-1, 1)):
            with pytest.raises(InputError, match="at least one"):
                await collections.cut(descriptor, None, count, shards)
        with pytest.raises(InputError, match="no collection of kind 'magic'"):
            collections.size({"_collection": "magic"})
        with pytest.raises(CollectionError, match="the list has 2 items"):
            await collections.items(descriptor, -1, 1)

    using(scenario)

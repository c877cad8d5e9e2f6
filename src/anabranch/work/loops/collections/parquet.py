"""`{parquet: path}`: the rows of a Parquet file, by number. Needs the extra `parquet`.

The footer of the file says how many rows each of its row groups has; reading a shard decodes only
the groups it touches. The last groups are kept, since the next shard usually follows. How large a
group may be, and the rows of a shard, follows from `collection_shard_bytes`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from functools import partial
from itertools import accumulate
from typing import Any

from anabranch.errors import InputError
from anabranch.work.file_policy import FilePolicy
from anabranch.work.kinds.threads import Threads
from anabranch.work.libraries import load
from anabranch.work.loops.collections.files import checked, identity, open_file, path_of
from anabranch.work.loops.collections.parquet_groups import (
    GroupTooLarge,
    open_groups,
    read_group,
    weigh_rows,
)
from anabranch.work.loops.collections.port import (
    KIND,
    CollectionError,
    CollectionLimits,
    Descriptor,
    Indexed,
    ShardRange,
)
from anabranch.work.sql.rows import json_safe

MISSING = "parquet needs the package pyarrow: pip install anabranch[parquet]"

_CACHED = 2  # row groups
GROUP_SHARDS = 4  # a group may take as many bytes as the items of so many shards


class Parquet(Indexed):
    options = frozenset({"columns"})

    def __init__(self, threads: Threads, limits: CollectionLimits) -> None:
        self._threads = threads
        self._allowed = limits.files
        self._shard_bytes = limits.shard_bytes
        self._groups: OrderedDict[tuple[Any, ...], Any] = OrderedDict()

    async def describe(self, value: Any) -> Descriptor:
        path = path_of(value["parquet"], "parquet")
        columns = value.get("columns")
        if columns is not None and not isinstance(columns, list):
            raise InputError("columns must be a list of names")
        return await self._threads.run(partial(_described, path, columns, self._allowed))

    async def _read(self, descriptor: Descriptor, shard: ShardRange) -> list[tuple[str, Any]]:
        return await self._threads.run(partial(self._items, descriptor, shard))

    def _items(self, descriptor: Descriptor, shard: ShardRange) -> list[tuple[str, Any]]:
        with checked(descriptor, self._allowed) as raw:
            file = open_groups(raw, descriptor.get("columns"))
            counts = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
            ends = list(accumulate(counts))
            at, last = shard.first, shard.first + shard.count
            found: list[tuple[str, Any]] = []
            size = 0
            while at < last:
                number = bisect_right(ends, at)
                begin = ends[number] - counts[number]
                rows = self._group(file, descriptor, number).slice(at - begin, last - at)
                size += weigh_rows(rows)
                if size > self._shard_bytes:
                    raise self._too_large(descriptor, shard)
                for row in rows.to_pylist():
                    found.append((str(at), {name: json_safe(v) for name, v in row.items()}))
                    at += 1
            return found

    def _too_large(self, descriptor: Descriptor, shard: ShardRange) -> CollectionError:
        return CollectionError(
            f"{descriptor['path']}: a shard of {shard.count:,} rows from {shard.first:,} has more "
            f"than {self._shard_bytes:,} bytes (setting collection_shard_bytes)"
        )

    def _group(self, file: Any, descriptor: Descriptor, number: int) -> Any:
        columns = descriptor.get("columns")
        known = (descriptor["path"], descriptor["mtime_ns"], descriptor["head"])
        key = (*known, number, *(columns or ()))
        group = self._groups.get(key)
        if group is None:
            try:
                group = read_group(file, number, columns, GROUP_SHARDS * self._shard_bytes)
            except GroupTooLarge as error:
                raise GroupTooLarge(f"{descriptor['path']}: {error.message}") from None
            except Exception as error:  # pyarrow raises many kinds for a damaged file
                where = f"{descriptor['path']}: row group {number}"
                raise CollectionError(f"{where} cannot be read: {error}") from None
            self._groups[key] = group
            while len(self._groups) > _CACHED:
                self._groups.popitem(last=False)
        return group


def _described(path: str, columns: list[str] | None, allowed: FilePolicy) -> Descriptor:
    parquet = _parquet()
    with open_file(path, allowed) as raw:
        try:
            file = parquet.ParquetFile(raw)
        except Exception as error:
            raise CollectionError(f"{path} is not a Parquet file: {error}") from None
        names = file.schema_arrow.names
        if unknown := [name for name in columns or () if name not in names]:
            raise InputError(f"{path} has no column '{unknown[0]}'; it has {', '.join(names)}")
        plain: dict[str, Any] = {KIND: "parquet", "path": path, "size": file.metadata.num_rows}
        if columns:
            plain["columns"] = columns
        return {**plain, **identity(raw)}


def _parquet() -> Any:
    try:
        return load("pyarrow.parquet")
    except ImportError:
        raise InputError(MISSING) from None

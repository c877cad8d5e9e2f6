"""Row groups of Parquet files, read as far as there is room.

A few bytes stand for many: a text that comes again is written once, a number once with how often.
So what a group declares is weighed before anything is read, texts stay written once until they are
weighed, too, and so is what is handed out before it is made.
"""

from __future__ import annotations

from typing import Any

from anabranch.work.libraries import load
from anabranch.work.loops.collections.port import CollectionError

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_INDEX_BYTES = 4  # of a text: where it is written
_PREFIXED = "DELTA_BYTE_ARRAY"  # a text may be the one before it and no more
_BATCH = 256  # rows of texts that are written so, which are all made


class GroupTooLarge(CollectionError):
    """A row group that takes more memory than there is room for; the message names the limit."""


def open_groups(raw: Any, columns: list[str] | None) -> Any:
    """The file, with texts that come again kept once."""
    parquet = load("pyarrow.parquet")
    file = parquet.ParquetFile(raw)
    if file.num_row_groups == 0 or _are_prefixed(file.metadata, columns):
        return file
    schema = file.metadata.schema
    fields = [schema.column(at) for at in range(len(schema))]
    texts = [field.path for field in fields if field.physical_type == "BYTE_ARRAY"]
    return parquet.ParquetFile(raw, metadata=file.metadata, read_dictionary=texts)


def read_group(file: Any, number: int, columns: list[str] | None, most: int) -> Any:
    """Its table, of no more than so many bytes."""
    if _declared_bytes(file.metadata, number, columns) > most:
        raise _too_large(number, most)
    if not _are_prefixed(file.metadata, columns):
        return _write_out(file.read_row_group(number, columns=columns), most)
    size, batches = 0, []
    for batch in file.iter_batches(_BATCH, row_groups=[number], columns=columns):
        size += batch.nbytes
        if size > most:
            raise _too_large(number, most)
        batches.append(batch)
    return load("pyarrow").Table.from_batches(batches)


def _too_large(number: int, most: int) -> GroupTooLarge:
    return GroupTooLarge(
        f"row group {number} takes more than {most:,} bytes, four times the setting "
        "collection_shard_bytes: name fewer `columns`, or write the file in smaller row groups"
    )


def _chunks(metadata: Any, number: int, columns: list[str] | None) -> list[tuple[Any, Any]]:
    """The columns of a group that are read, and their fields in the schema."""
    group = metadata.row_group(number)
    pairs = [(group.column(at), metadata.schema.column(at)) for at in range(group.num_columns)]
    if not columns:
        return pairs
    return [pair for pair in pairs if pair[0].path_in_schema.partition(".")[0] in columns]


def _are_prefixed(metadata: Any, columns: list[str] | None) -> bool:
    return any(
        _PREFIXED in chunk.encodings
        for number in range(metadata.num_row_groups)
        for chunk, _ in _chunks(metadata, number, columns)
    )


def _declared_bytes(metadata: Any, number: int, columns: list[str] | None) -> int:
    size = 0
    for chunk, field in _chunks(metadata, number, columns):
        width = _WIDTHS.get(chunk.physical_type, _INDEX_BYTES + field.length)
        size += max(chunk.total_uncompressed_size, 0) + width * chunk.num_values
    return size


# -- what is handed out ------------------------------------------------------------------------


def weigh_rows(table: Any) -> int:
    """The bytes of a table once every value is made."""
    return sum(_weigh(chunk) for column in table.columns for chunk in column.chunks)


def _write_out(table: Any, most: int) -> Any:
    """The same with the texts of columns where they belong, if there is room: to find each of them
    takes longer than to read it."""
    if weigh_rows(table) > most:
        return table
    arrow = load("pyarrow")
    for at, column in enumerate(table.columns):
        if arrow.types.is_dictionary(column.type):
            plain = [chunk.dictionary_decode() for chunk in column.chunks]
            made = arrow.chunked_array(plain, column.type.value_type)
            table = table.set_column(at, table.column_names[at], made)
    return table


def _weigh(array: Any) -> int:
    arrow = load("pyarrow")
    kind, types = array.type, arrow.types
    if types.is_dictionary(kind) and _is_text(types, kind.value_type):
        return _weigh_texts(array)
    if types.is_struct(kind):
        return sum(map(_weigh, array.flatten()))
    if types.is_map(kind):
        first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
        sides = (array.keys, array.items)
        return sum(_weigh(side.slice(first, last - first)) for side in sides)
    if types.is_nested(kind):
        return int(_weigh(array.flatten()))
    return int(array.nbytes)


def _is_text(types: Any, kind: Any) -> bool:
    large = types.is_large_string(kind) or types.is_large_binary(kind)
    return bool(types.is_string(kind) or types.is_binary(kind) or large)


def _weigh_texts(array: Any) -> int:
    compute = load("pyarrow.compute")
    lengths = compute.binary_length(array.dictionary).take(array.indices)
    return int(compute.sum(lengths).as_py() or 0) + _INDEX_BYTES * len(array)

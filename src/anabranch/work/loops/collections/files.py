"""Files of records: JSONL and CSV.

Cutting reads the file once, line by line, and remembers where each shard begins as a byte offset.
What the file was when the loop began (size, time, the hash of its first part) is checked before
every read: a file that changed gives an error, never other items.

    {jsonl: path}                                            empty lines are no items
    {csv: path, delimiter: ";", columns: [a, b], header: false, encoding: latin-1}

A CSV item is a mapping of texts. A field that is missing at the end of a row is null.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, BinaryIO, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from anabranch.errors import InputError
from anabranch.work.file_policy import FilePolicy
from anabranch.work.kinds import inputs
from anabranch.work.kinds.threads import Threads
from anabranch.work.loops.collections.port import (
    KIND,
    CollectionError,
    CollectionLimits,
    Cursor,
    Cuts,
    Descriptor,
    ShardRange,
    WalkedInThreads,
    changed,
)
from anabranch.work.values.json_check import MAX_DEPTH, too_deep

T = TypeVar("T")

_HEAD = 64 * 1024
_BUFFER = 256 * 1024
_SLOW = ("idna", "punycode")  # their time grows with the square of the text
_BOM = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder().decode


class Where(NamedTuple):
    """The place of an item, for messages."""

    path: str
    number: int
    offset: int

    def __str__(self) -> str:
        return f"{self.path}: item {self.number:,} at byte {self.offset:,}"


class Records(WalkedInThreads):
    """What JSONL and CSV have in common."""

    kind = ""
    options: frozenset[str] = frozenset()

    def __init__(self, threads: Threads, limits: CollectionLimits) -> None:
        super().__init__(threads)
        self._limits = limits

    async def describe(self, value: Any) -> Descriptor:
        path = path_of(value[self.kind], self.kind)
        return await self._threads.run(partial(self._described, path, value))

    # -- in a thread -------------------------------------------------------------------------

    def _described(self, path: str, _value: Mapping[str, Any]) -> Descriptor:
        with open_file(path, self._limits.files) as file:
            start = len(_BOM) if file.read(len(_BOM)) == _BOM else 0
            return {KIND: self.kind, "path": path, "start": start, **identity(file)}

    def _cut(self, descriptor: Descriptor, cursor: Cursor | None, count: int, shards: int) -> Cuts:
        begin, index = _position(descriptor, cursor)
        made: list[ShardRange] = []
        with checked(descriptor, self._limits.files) as file:
            records = self._records(file, begin, descriptor["path"])
            while len(made) < shards:
                ends = [end for _, end, _ in islice(records, count)]
                if ends:
                    made.append(ShardRange({"offset": begin, "index": index}, index, len(ends)))
                    begin = ends[-1]
                index += len(ends)
                if len(ends) < count:
                    return Cuts(made, None, True)
        return Cuts(made, {"offset": begin, "index": index}, False)

    def _items(self, descriptor: Descriptor, shard: ShardRange) -> list[tuple[str, Any]]:
        begin, _ = _position(descriptor, shard.cursor)
        path, size = descriptor["path"], 0
        found: list[tuple[str, Any]] = []
        with checked(descriptor, self._limits.files) as file:
            for at, _, record in self._records(file, begin, path):
                size += len(record)
                if size > self._limits.shard_bytes:
                    raise CollectionError(
                        f"{path}: a shard of {shard.count:,} items from byte {begin:,} has more "
                        f"than {self._limits.shard_bytes:,} bytes (setting collection_shard_bytes)"
                    )
                where = Where(path, shard.first + len(found), at)
                found.append((str(at), self._item(record, descriptor, where)))
                if len(found) == shard.count:
                    return found
        raise changed(path, f"it ends before item {shard.first + shard.count - 1:,}")

    def _lines(self, file: BinaryIO, begin: int, path: str) -> Iterator[tuple[int, int, bytes]]:
        """Begin, end and content of the lines from an offset."""
        file.seek(begin)
        at, limit = begin, self._limits.line_bytes
        for line in iter(partial(file.readline, limit + 1), b""):
            end = at + len(line)
            if end - at > limit:
                raise too_long(path, at, limit)
            yield at, end, line
            at = end

    def _records(self, file: BinaryIO, begin: int, path: str) -> Iterator[tuple[int, int, bytes]]:
        """The same of the records, each one item."""
        return (line for line in self._lines(file, begin, path) if not line[2].isspace())

    def _item(self, record: bytes, descriptor: Descriptor, where: Where) -> Any:
        raise NotImplementedError


class JsonLines(Records):
    kind = "jsonl"

    def _item(self, record: bytes, _descriptor: Descriptor, where: Where) -> Any:
        try:
            item = _decode(record)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CollectionError(f"{where} is not JSON: {error}") from None
        if too_deep(record, item):
            raise CollectionError(f"{where} nests more than {MAX_DEPTH} levels deep")
        return item


class Csv(Records):
    kind = "csv"
    options = frozenset({"delimiter", "header", "columns", "encoding"})

    def _described(self, path: str, value: Mapping[str, Any]) -> Descriptor:
        plain = dict(super()._described(path, value))
        plain["delimiter"] = _delimiter(value.get("delimiter", ","))
        plain["encoding"] = _encoding(value.get("encoding", "utf-8"))
        columns = _columns(value.get("columns"))
        if inputs.flag(value.get("header", columns is None), "header"):
            plain["start"], header = self._header(plain)
            columns = columns or header
        if columns is None:
            raise InputError("csv without a header needs columns: a list of names")
        return {**plain, "columns": columns}

    def _header(self, descriptor: Descriptor) -> tuple[int, list[str]]:
        path = descriptor["path"]
        with open_file(path, self._limits.files) as file:
            for _, end, record in self._records(file, descriptor["start"], path):
                names = [name.strip() for name in _fields(record, descriptor, f"{path}: header")]
                if len(set(names)) < len(names) or not all(names):
                    raise InputError(f"{path}: the names in its first row are not all different")
                return end, names
        raise InputError(f"{path} is empty: it has no row with the names of the columns")

    def _records(self, file: BinaryIO, begin: int, path: str) -> Iterator[tuple[int, int, bytes]]:
        """A row goes on in the next line while a quote is open."""
        first, quotes, size = begin, 0, 0
        parts: list[bytes] = []
        for at, end, line in self._lines(file, begin, path):
            if not parts:
                if line.isspace():
                    continue
                first = at
            parts.append(line)
            quotes += line.count(b'"')
            size += len(line)
            if size > self._limits.line_bytes:
                raise too_long(path, first, self._limits.line_bytes)
            if quotes % 2 == 0:
                yield first, end, b"".join(parts)
                parts, quotes, size = [], 0, 0
        if parts:
            raise CollectionError(
                f"{path}: the row at byte {first:,} opens a quote that never ends"
            )

    def _item(self, record: bytes, descriptor: Descriptor, where: Where) -> Any:
        fields = _fields(record, descriptor, where)
        columns: list[str] = descriptor["columns"]
        if len(fields) > len(columns):
            raise CollectionError(f"{where} has {len(fields)} fields for {len(columns)} columns")
        fields += [None] * (len(columns) - len(fields))
        return dict(zip(columns, fields, strict=True))


# -- files -----------------------------------------------------------------------------------


def path_of(value: Any, what: str) -> str:
    """An absolute path, so that every worker means the same file."""
    text = inputs.text(value, what)
    if "://" in text:
        parts = urlsplit(text)
        if parts.scheme != "file":
            raise InputError(f"{what}: '{parts.scheme}' addresses cannot be read here; use a path")
        text = unquote(parts.path)
    return os.path.abspath(text)


def open_file(path: str, allowed: FilePolicy) -> BinaryIO:
    try:
        return open(allowed.open_regular(path), "rb", buffering=_BUFFER)
    except OSError as error:
        raise CollectionError(f"{path} cannot be read: {error.strerror or error}") from None


def identity(file: BinaryIO) -> dict[str, Any]:
    """By what a file is known again."""
    about = os.fstat(file.fileno())
    file.seek(0)
    head = hashlib.sha256(file.read(_HEAD)).hexdigest()[:16]
    return {"bytes": about.st_size, "mtime_ns": about.st_mtime_ns, "head": head}


def checked(descriptor: Descriptor, allowed: FilePolicy) -> BinaryIO:
    """The file, if it is still the one that was described."""
    path = descriptor["path"]
    file = open_file(path, allowed)
    try:
        now = identity(file)
        for name, how in (("bytes", "its size"), ("mtime_ns", "its time"), ("head", "its content")):
            if now[name] != descriptor[name]:
                raise changed(path, f"{how} is another than at the start")
    except BaseException:
        file.close()
        raise
    return file


def too_long(path: str, at: int, limit: int) -> CollectionError:
    return CollectionError(
        f"{path}: the line at byte {at:,} is longer than {limit:,} bytes "
        "(setting collection_line_bytes)"
    )


def _position(descriptor: Descriptor, cursor: Cursor | None) -> tuple[int, int]:
    return (descriptor["start"], 0) if cursor is None else (cursor["offset"], cursor["index"])


# -- CSV -------------------------------------------------------------------------------------


def _fields(record: bytes, descriptor: Descriptor, where: object) -> list[Any]:
    try:
        text = record.decode(descriptor["encoding"])
        rows = csv.reader(
            io.StringIO(text, newline=""), delimiter=descriptor["delimiter"], strict=True
        )
        return next(iter(rows), [])
    except UnicodeDecodeError as error:
        raise CollectionError(f"{where} is not {descriptor['encoding']}: {error.reason}") from None
    except csv.Error as error:
        raise CollectionError(f"{where} is not CSV: {error}") from None


def _delimiter(value: Any) -> str:
    if not isinstance(value, str) or len(value) != 1 or value in '"\r\n' or not value.isascii():
        raise InputError(f"delimiter must be one character, not {value!r:.20}")
    return value


def _encoding(value: Any) -> str:
    """Only those in which a line break and a quote are the bytes they are in ASCII."""
    name = inputs.text(value, "encoding").lower()
    try:
        same: Callable[[str], bytes] = partial(str.encode, encoding=name)
        if codecs.lookup(name).name not in _SLOW and same('"\n,;') == b'"\n,;':
            return name
    except (LookupError, ValueError):
        pass
    raise InputError(f"encoding '{name:.20}' cannot be read here; use utf-8 or latin-1")


def _columns(value: Any) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(n, str) for n in value):
        raise InputError("columns must be a list of names")
    if len(set(value)) < len(value):
        raise InputError("columns: the names are not all different")
    return list(value)
